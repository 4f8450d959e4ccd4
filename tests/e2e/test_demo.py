"""The main job, run as a user runs it: `pgtrickle demo --json` in a process of its own, twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgtrickle_assets.services.duckdb import connect
from pgtrickle_assets.services.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]

ARRIVALS = "arrivals and master data"
TABLES = {
    "silver.flight_details", "gold.aircraft_utilisation", "gold.carrier_ranking", "gold.daily_punctuality",
    "gold.delays_by_carrier", "gold.disruptions", "gold.route_performance", "gold.served_routes", "gold.weather_impact",
}  # fmt: skip


def _demo(home: Path, *arguments: str) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PGTRICKLE_", "DAGSTER_"))}
    command = [sys.executable, "-m", "pgtrickle_assets.cli.main", "demo", "--json", *arguments]
    done = subprocess.run(
        command,
        env={**environment, "PGTRICKLE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("demo")
    yield folder
    EmbeddedPostgres(folder / "postgres").stop()


@pytest.fixture(scope="module")
def first(home: Path) -> dict[str, Any]:
    return _demo(home)


@pytest.fixture(scope="module")
def second(home: Path, first: dict[str, Any]) -> dict[str, Any]:
    return _demo(home, "--batches", "1")


def test_the_document_has_the_promised_shape(first: dict[str, Any]) -> None:
    assert set(first) == {"refreshes", "checks", "source", "lake"}
    assert all(
        set(row)
        == {
            "stream_table",
            "batch",
            "strategy",
            "reason",
            "delta_in",
            "delta_out",
            "seconds",
            "full_seconds",
            "snapshot",
        }
        for row in first["refreshes"]
    )
    assert all(set(row) == {"stream_table", "check", "passed"} for row in first["checks"])


def test_every_stream_table_is_refreshed_after_every_batch(first: dict[str, Any]) -> None:
    batches = list(dict.fromkeys(row["batch"] for row in first["refreshes"]))
    assert batches == ["initial", ARRIVALS, "corrections and cancellations", "undone"]
    for batch in batches:
        assert {row["stream_table"] for row in first["refreshes"] if row["batch"] == batch} == TABLES


def test_spark_and_postgres_agree_with_what_is_stored(first: dict[str, Any]) -> None:
    assert {(row["stream_table"], row["check"]) for row in first["checks"]} == {
        (table, check) for table in TABLES for check in ("differential_equals_full", "agrees_with_postgres")
    }
    assert [row for row in first["checks"] if not row["passed"]] == []


def test_only_the_first_refresh_is_full(first: dict[str, Any]) -> None:
    later = {row["strategy"] for row in first["refreshes"] if row["batch"] != "initial"}
    assert later <= {"differential", "no_change"}
    arrivals = {row["stream_table"]: row["strategy"] for row in first["refreshes"] if row["batch"] == ARRIVALS}
    assert arrivals["silver.flight_details"] == "differential"


def test_work_that_comes_to_nothing_changes_no_stream_table(first: dict[str, Any]) -> None:
    assert {row["delta_out"] for row in first["refreshes"] if row["batch"] == "undone"} == {0}


def test_somebody_else_can_use_source_and_lake(first: dict[str, Any]) -> None:
    import psycopg

    with psycopg.connect(first["source"]) as connection:
        row = connection.execute("SELECT count(*) FROM flights").fetchone()
    with connect() as duck:
        duck.execute(
            f"ATTACH 'ducklake:postgres:{first['lake']['catalog']}' AS lake (METADATA_SCHEMA 'main', READ_ONLY)"
        )
        stored = duck.execute("SELECT count(*) FROM lake.silver.flight_details").fetchone()
    assert row is not None
    assert stored is not None
    assert row[0] == stored[0]


def test_a_second_run_reuses_what_is_there_and_plays_the_next_day(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert second["source"] == first["source"]
    assert {row["batch"] for row in second["refreshes"]} == {"initial", ARRIVALS}
    assert {row["strategy"] for row in second["refreshes"] if row["batch"] == "initial"} == {"no_change"}
    assert all(row["passed"] for row in second["checks"])
    assert min(row["snapshot"] for row in second["refreshes"] if row["batch"] == ARRIVALS) > max(
        row["snapshot"] for row in first["refreshes"]
    )
