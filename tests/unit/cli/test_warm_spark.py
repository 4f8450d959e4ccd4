"""Commands find the Spark of a running `pgtrickle up`, and of no other."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from pydantic import SecretStr

from pgtrickle_assets.cli.warm_spark import REMOTE_VARIABLE, attach, published
from pgtrickle_assets.control.owner import process

REMOTE = SecretStr("sc://localhost:1/;token=t")


@pytest.fixture(autouse=True)
def _no_remote(monkeypatch):
    # Set first, so that what `attach` sets is undone after the test.
    monkeypatch.setenv(REMOTE_VARIABLE, "")


def test_a_running_server_is_found_and_only_its_user_can_read_where(tmp_path):
    import os

    with published(tmp_path, REMOTE):
        (file,) = tmp_path.iterdir()
        assert file.stat().st_mode & 0o077 == 0
        assert attach(tmp_path)
        assert os.environ[REMOTE_VARIABLE] == REMOTE.get_secret_value()
    assert not list(tmp_path.iterdir())


def test_without_a_server_nothing_is_set(tmp_path):
    assert not attach(tmp_path)


def test_what_a_killed_process_left_is_passed_over(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    mark = process(child.pid)
    child.kill()
    child.wait()
    (tmp_path / "warm-spark.json").write_text(json.dumps({"process": mark, "remote": "sc://localhost:1"}))
    assert not attach(tmp_path)


def test_a_setting_of_the_user_wins(tmp_path, monkeypatch):
    monkeypatch.setenv(REMOTE_VARIABLE, "sc://cluster")
    with published(tmp_path, REMOTE):
        assert not attach(tmp_path)
