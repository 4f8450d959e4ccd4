"""`workspace.yaml` and `dagster.yaml` work as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config

ROOT = Path(__file__).parents[3]
BANNED = ("pyspark", "duckdb", "psycopg", "adbc_driver_postgresql")


def instance_config(folder, monkeypatch):
    monkeypatch.setenv("PGTRICKLE_DAGSTER_DSN", "postgresql://u:p@h/d")
    monkeypatch.setenv("PGTRICKLE_LOGS_BUCKET", "logs")
    config, _ = dagster_instance_config(str(folder))
    return config


def test_the_instance_keeps_its_state_in_postgres_and_frees_slots(monkeypatch):
    config = instance_config(ROOT, monkeypatch)
    assert config["storage"]["custom"]["config"] == {"variable": "PGTRICKLE_DAGSTER_DSN"}
    assert config["run_monitoring"]["free_slots_after_run_end_seconds"] > 0
    assert config["run_retries"]["retry_on_asset_or_op_failure"] is False
    assert config["telemetry"]["enabled"] is False


def test_the_s3_variant_differs_by_its_logs_alone(tmp_path, monkeypatch):
    (tmp_path / "dagster.yaml").write_text((ROOT / "deploy" / "dagster-s3.yaml").read_text())
    config = instance_config(tmp_path, monkeypatch)
    assert config["compute_logs"]["class"] == "S3ComputeLogManager"
    base = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    variant = yaml.safe_load((ROOT / "deploy" / "dagster-s3.yaml").read_text())
    variant.pop("compute_logs")
    assert variant == base


@pytest.mark.parametrize("directory", [ROOT, Path("/")])
def test_the_workspace_is_valid_from_any_directory(directory, tmp_path):
    unset = ("DAGSTER_HOME", "PGTRICKLE_DAGSTER_DSN", "PGTRICKLE_PROJECT")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    if directory != ROOT:
        environment["DAGSTER_HOME"] = str(tmp_path)
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-w", str(ROOT / "workspace.yaml")]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_loading_the_code_location_imports_no_engine_and_opens_no_connection():
    script = f"""
import socket, sys
class NoNetwork(socket.socket):
    def connect(self, address):
        raise AssertionError(f"connects to {{address}}")
socket.socket = NoNetwork
import pgtrickle_assets.definitions as location
location.defs.resolve_all_job_defs()
loaded = [name for name in {BANNED!r} if name in sys.modules]
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
