"""DuckDB processes write, alter and compact the lake, the tables that stream tables read too, while we commit.

Conflicts end in a retry or in an error that says so, on one side; what either side committed stays.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle_assets.errors import PgTrickleError
from pgtrickle_assets.stream_table import StreamTable
from tests.e2e.lakehouse import Lakehouse, lakehouse
from tests.e2e.processes import ROOT, WAIT_SECONDS

SETUP = (
    "CREATE TABLE shops (id int PRIMARY KEY, city text)",
    "INSERT INTO shops SELECT i, 'city ' || i % 3 FROM generate_series(0, 4) i",
)
LAKE_TABLES = (
    "CREATE TABLE lake.main.items (id BIGINT, shop INTEGER, price INTEGER)",
    "CREATE TABLE lake.main.parts (id BIGINT, shop INTEGER, price INTEGER)",
    "CREATE TABLE lake.main.unread (id BIGINT, shop INTEGER, price INTEGER)",
    "CREATE TABLE lake.main.tariffs (shop INTEGER, tariff INTEGER)",
    "INSERT INTO lake.main.tariffs SELECT i, i * 10 FROM range(5) t(i)",
)
QUERIES = {
    "gold.per_city": "SELECT s.city, count(*) AS n, sum(i.price) AS total FROM items i JOIN shops s ON s.id = i.shop"
    " GROUP BY s.city",
    "gold.dear": "SELECT i.id, i.price, p.price AS part FROM items i JOIN parts p ON p.shop = i.shop AND p.id % 50 = 1"
    " WHERE i.price > 8",
    "gold.tariffs": "SELECT shop, tariff FROM tariffs WHERE tariff > 0",
    "gold.cities": "SELECT count(*) AS cities, sum(n) AS items FROM gold.per_city",
}
IN_DUCKDB = {
    "gold.per_city": "SELECT s.city, count(*), sum(i.price) FROM lake.main.items i JOIN lake.raw.shops s"
    " ON s.id = i.shop GROUP BY s.city",
    "gold.dear": "SELECT i.id, i.price, p.price FROM lake.main.items i JOIN lake.main.parts p"
    " ON p.shop = i.shop AND p.id % 50 = 1 WHERE i.price > 8",
    "gold.tariffs": "SELECT shop, tariff FROM lake.main.tariffs WHERE tariff > 0",
    "gold.cities": "SELECT count(*), sum(n) FROM (SELECT s.city, count(*) AS n FROM lake.main.items i"
    " JOIN lake.raw.shops s ON s.id = i.shop GROUP BY s.city)",
}
ANY_STATEMENT = ("insert", "update", "delete")
# Of two DuckDB sessions that delete from one file at once, 1.5.5 may lose one's deletes: one per table deletes.
WRITERS: tuple[dict[str, Any], ...] = (
    {"kind": "rows", "table": "items", "seed": 1, "statements": ANY_STATEMENT},
    {"kind": "rows", "table": "items", "seed": 2, "statements": ("insert",)},
    {"kind": "rows", "table": "parts", "seed": 3, "statements": ANY_STATEMENT},
    {"kind": "rows", "table": "unread", "seed": 4, "statements": ANY_STATEMENT},
    {"kind": "columns", "seed": 5},
    {"kind": "files", "seed": 6},
)
MAY_BE_REFUSED = re.compile(
    r"gold\.tariffs: LakeError: lake table main\.tariffs has no column tariff"
    r"|gold\.\w+: LakeDeletesUndatedError: several writers deleted rows of"
)
"""Errors of ours that are right: the column has another name at times; DuckDB may date deletes wrongly."""

HISTORY_SECONDS = 30
"""How long a transaction or a refresh may last before the snapshot that it began at is expired."""


def _start(system: Lakehouse, writer: dict[str, Any], seconds: float, report: Path) -> subprocess.Popen[str]:
    location = system.location
    config = {
        **writer,
        "location": [location.catalog_dsn, location.catalog_schema, location.data_path],
        "seconds": seconds,
        "history_seconds": HISTORY_SECONDS,
        "report": str(report),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.foreign_writer", json.dumps(config)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


def _commit_meanwhile(system: Lakehouse, running: list[subprocess.Popen[str]], longest: float) -> Counter[str]:
    """Refresh as long as others write; how often what came of it."""
    seen: Counter[str] = Counter()
    number, until = 0, time.monotonic() + longest
    while any(process.poll() is None for process in running) and time.monotonic() < until:
        number += 1
        system.execute(f"UPDATE shops SET city = 'city ' || (id + {number}) % 3 WHERE id = {number % 5}")
        cut = _tried(seen, "capture", lambda: system.engine.capture("test").cut)
        for name in system.engine.project.order if cut is not None else ():
            _tried(seen, name, lambda name=name, cut=cut: system.engine.refresh(name, cut=cut))
        if number % 10 == 0:
            _tried(seen, "maintain", lambda: system.engine.maintain())
    return seen


def _tried(seen: Counter[str], what: str, work: Callable[[], Any]) -> Any:
    try:
        result = work()
    except PgTrickleError as error:
        seen[f"{what}: {type(error).__name__}: {error}"] += 1
        return None
    seen[what] += 1
    return result


@pytest.mark.nightly
@pytest.mark.parametrize("length", ["short", "minutes"])
def test_what_duckdb_and_we_commit_at_the_same_time_is_all_there(
    length: str, new_database: Callable[[], str], tmp_path: Path, spark: object, pytestconfig: pytest.Config
) -> None:
    seconds = 15.0 if length == "short" else float(pytestconfig.getoption("--soak-seconds"))
    tables = [StreamTable(name=name, query=query) for name, query in QUERIES.items()]
    with lakehouse(new_database, tmp_path, spark, [], SETUP) as first, first.duckdb() as duckdb:
        for statement in LAKE_TABLES:
            duckdb.execute(statement)
        opened = first.with_stream_tables(tables)
    with opened as system:
        system.refresh()
        files = [tmp_path / f"writer_{writer['seed']}.json" for writer in WRITERS]
        running = [_start(system, writer, seconds, file) for writer, file in zip(WRITERS, files, strict=True)]
        try:
            ours = _commit_meanwhile(system, running, seconds + WAIT_SECONDS)
            outputs = [process.communicate(timeout=WAIT_SECONDS) for process in running]
        finally:
            for process in running:
                process.kill()
        assert [process.returncode for process in running] == [0] * len(running), outputs
        reports = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        _show(ours, reports)
        _expect_only_clear_refusals(ours, reports)
        _name_column_back(system)
        system.refresh()
        _expect_all_commits(system, reports)
        for name, query in IN_DUCKDB.items():
            with system.duckdb() as duckdb:
                assert system.lake_rows(name) == Counter(duckdb.execute(query).fetchall()), name
        system.check()


def _name_column_back(system: Lakehouse) -> None:
    """The writer of columns may have stopped between two renames."""
    with system.duckdb() as duckdb:
        if ("rate",) in duckdb.execute("SELECT column_name FROM (DESCRIBE lake.main.tariffs)").fetchall():
            duckdb.execute("ALTER TABLE lake.main.tariffs RENAME COLUMN rate TO tariff")


def _show(ours: Counter[str], reports: list[dict[str, Any]]) -> None:
    """How much was exercised."""
    print("we:", dict(ours))  # noqa: T201
    for writer, report in zip(WRITERS, reports, strict=True):
        print(writer, report["done"], Counter(_reason(text) for text in report["refused"]))  # noqa: T201


def _reason(refusal: str) -> str:
    return refusal.splitlines()[-1]


def _expect_only_clear_refusals(ours: Counter[str], reports: list[dict[str, Any]]) -> None:
    unclear = [text for report in reports for text in report["refused"] if "Transaction conflict - " not in text]
    assert unclear == []
    for report in reports:
        assert report["done"], "each writer came through"
    assert [what for what in ours if ": " in what and not MAY_BE_REFUSED.match(what)] == []
    for name in ("capture", "gold.per_city", "gold.dear", "gold.cities"):
        assert ours[name] > 0, ours


def _expect_all_commits(system: Lakehouse, reports: list[dict[str, Any]]) -> None:
    """No committed row is missing, none that was refused is there, and the catalog lists each commit once."""
    for table in ("items", "parts", "unread"):
        committed = Counter(
            tuple(row)
            for writer, report in zip(WRITERS, reports, strict=True)
            if writer.get("table") == table
            for row in report["rows"]
        )
        with system.duckdb() as duckdb:
            found = Counter(duckdb.execute(f"SELECT id, shop, price FROM lake.main.{table}").fetchall())
        assert found == committed, table
    assert system.lake_rows("raw.shops") == system.postgres_rows("SELECT * FROM shops")
    with psycopg.connect(system.location.catalog_dsn) as connection:
        ids = [row[0] for row in connection.execute("SELECT snapshot_id FROM main.ducklake_snapshot ORDER BY 1")]
        messages = [
            row[0]
            for row in connection.execute(
                "SELECT commit_message FROM main.ducklake_snapshot_changes"
                " WHERE author = 'foreign' ORDER BY snapshot_id"
            )
        ]
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    assert len(messages) == len(set(messages))
    for writer, report in zip(WRITERS, reports, strict=True):
        listed = [message for message in messages if message.startswith(f"writer {writer['seed']}: ")]
        # Those of old snapshots, and of transactions that met no row, are not listed.
        assert listed == [name for name in report["committed"] if name in set(listed)]
