"""Processes of `pgtrickle up` end with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgtrickle_assets.cli.children import Children
from pgtrickle_assets.errors import ServiceError

SLEEPER = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(300)"


def wait_for(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def started_pid(file):
    wait_for(lambda: file.exists() and file.read_text())
    return int(file.read_text())


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_stop_ends_all(tmp_path):
    with Children(tmp_path / "logs") as children:
        for name in ("a", "b"):
            children.start(name, [sys.executable, "-c", SLEEPER, str(tmp_path / name)], os.environ)
        pids = [started_pid(tmp_path / name) for name in ("a", "b")]
        children.check()
    assert all(gone(pid) for pid in pids)


def test_one_that_ended_is_named_with_the_end_of_its_log(tmp_path):
    with Children(tmp_path / "logs") as children:
        children.start("web server", [sys.executable, "-c", "raise SystemExit('port taken')"], os.environ)

        def ended():
            try:
                children.check()
            except ServiceError as error:
                return "The web server has ended: port taken" in str(error)
            return False

        wait_for(ended)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_children_die_with_their_starter(tmp_path, number):
    script = (
        "import os, sys, time; from pathlib import Path; from pgtrickle_assets.cli.children import Children\n"
        "children = Children(Path(sys.argv[1]) / 'logs')\n"
        f"children.start('a', [sys.executable, '-c', {SLEEPER!r}, sys.argv[1] + '/pid'], os.environ)\n"
        "time.sleep(300)"
    )
    starter = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
    child = started_pid(tmp_path / "pid")
    starter.send_signal(number)
    starter.wait()
    wait_for(lambda: gone(child))
