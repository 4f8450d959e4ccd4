"""Runs in processes of their own, against one warm Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from pgtrickle_assets.lake.bootstrap import lock_key
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.refresh.api import RefreshEngine
from pgtrickle_assets.settings import Settings
from tests.e2e.lakehouse import Lakehouse
from tests.e2e.run_once import project_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 240.0


@dataclass
class Runs:
    """Starts runs of one project.

    Attributes:
        config: What `run_once` reads.
        remote: Spark Connect server that the runs attach to.
    """

    config: dict[str, Any]
    remote: str
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, **options: Any) -> subprocess.Popen[str]:
        """Start a run."""
        environment = {**os.environ, "PGTRICKLE_SPARK_REMOTE": self.remote}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.run_once", json.dumps({**self.config, **options})],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, **options: Any) -> list[list[Any]]:
        """Run to the end; what was done, per stream table."""
        return finish(self.start(**options))

    @contextmanager
    def open(self, spark: SparkSession) -> Iterator[Lakehouse]:
        """The same project in this process."""
        settings = Settings(
            home=Path(self.config["home"]), ducklake_sink_failure_mode="error", orphan_retention_hours=0
        )
        with RefreshEngine.open(project_of(self.config), settings, lambda: spark) as engine:
            engine.sync()
            location = LakeLocation(self.config["catalog"], "main", self.config["data_path"])
            yield Lakehouse(engine, self.config["source"], location)

    @contextmanager
    def catalog_locked(self) -> Iterator[None]:
        """Hold the lock that every commit takes."""
        with psycopg.connect(self.config["catalog"]) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", lock_key("main"))
            yield


def finish(process: subprocess.Popen[str]) -> list[list[Any]]:
    """Wait for a run; it must succeed."""
    output, errors = process.communicate(timeout=WAIT_SECONDS)
    # Spark's Java frames would push what matters out of sight.
    python_lines = [line for line in errors.split("\n") if not line.lstrip().startswith("at ")]
    assert process.returncode == 0, "\n".join(python_lines)[-6000:]
    lines = output.split("\n")
    assert "done" in lines
    return [json.loads(line) for line in lines if line.startswith("[")]


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until something is seen of a run, which must not end before."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert process.poll() is None, f"the run ended too early: {process.communicate()}"
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


def waiting(dsn: str, event: str) -> int:
    """How many backends of the database wait for a lock of some kind."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            " AND wait_event = %s",
            (event,),
        ).fetchone()
    assert row is not None
    return row[0]
