"""Stream tables over lake tables that DuckDB writes, and DuckDB as a reader of everything at every snapshot."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle_assets.errors import TransientError
from pgtrickle_assets.refresh.model import Strategy
from pgtrickle_assets.stream_table import StreamTable
from tests.e2e.lakehouse import Lakehouse, lakehouse

SETUP = (
    "CREATE TABLE shops (id int PRIMARY KEY, city text)",
    "INSERT INTO shops VALUES (1, 'Oslo'), (2, 'Bergen'), (3, NULL)",
)


def _items(system: Lakehouse) -> Counter[tuple[object, ...]]:
    with system.duckdb() as duckdb:
        rows = duckdb.execute(
            "SELECT s.city, count(*), sum(i.price) FROM lake.main.items i"
            " JOIN lake.raw.shops s ON s.id = i.shop GROUP BY 1"
        ).fetchall()
    return Counter(rows)


def _expect_refreshed(system: Lakehouse, strategy: Strategy = Strategy.DIFFERENTIAL) -> None:
    results = system.refresh()
    assert results["gold.per_city"].strategy is strategy, results["gold.per_city"].reason
    assert system.lake_rows("gold.per_city") == _items(system)
    system.check()


def test_a_stream_table_follows_what_duckdb_does_to_a_lake_table(
    new_database: Callable[[], str], tmp_path: Path, spark: object
) -> None:
    query = "SELECT s.city, count(*) AS n, sum(i.price) AS total FROM items i JOIN shops s ON s.id = i.shop GROUP BY 1"
    with lakehouse(new_database, tmp_path, spark, [], SETUP) as first, first.duckdb() as duckdb:
        duckdb.execute("CREATE TABLE lake.main.items (id INTEGER, shop INTEGER, price DECIMAL(10,2), note VARCHAR)")
        duckdb.execute("INSERT INTO lake.main.items SELECT i, i % 3 + 1, i, 'note' FROM range(200) t(i)")
        system = first.with_stream_tables([StreamTable(name="gold.per_city", query=query)])
    with system as opened:
        _expect_refreshed(opened, Strategy.FULL)
        changes = (
            "INSERT INTO lake.main.items VALUES (1000, 1, 5.50, NULL), (1001, 3, NULL, 'x')",
            "UPDATE lake.main.items SET price = price + 1, shop = 2 WHERE id < 20",
            "DELETE FROM lake.main.items WHERE id BETWEEN 30 AND 60",
            "CALL ducklake_merge_adjacent_files('lake')",
            "CALL ducklake_rewrite_data_files('lake', 'items', delete_threshold => 0.0)",
        )
        for change in changes:
            with opened.duckdb() as duckdb:
                duckdb.execute(change)
            compacts = change.startswith("CALL")
            _expect_refreshed(opened, Strategy.NO_CHANGE if compacts else Strategy.DIFFERENTIAL)
        with opened.duckdb() as duckdb:
            duckdb.execute("UPDATE lake.main.items SET note = 'changed'")
        unread = opened.refresh()["gold.per_city"]
        assert (unread.strategy, unread.reason_code) == (Strategy.NO_CHANGE, "unread_columns")


def test_duckdb_reads_every_table_at_every_snapshot(
    new_database: Callable[[], str], tmp_path: Path, spark: object
) -> None:
    queries = {
        "st.cities": "SELECT city, count(*) AS n, max(id) AS top FROM shops GROUP BY city",
        "st.all": "SELECT * FROM shops",
    }
    with lakehouse(new_database, tmp_path, spark, queries, SETUP) as system:
        seen: dict[int, dict[str, Counter[tuple[object, ...]]]] = {}
        changes = (
            "SELECT 1",
            "INSERT INTO shops VALUES (4, 'Oslo')",
            "DELETE FROM shops WHERE id = 1",
            "TRUNCATE shops",
        )
        for statement in changes:
            system.execute(statement)
            system.refresh()
            seen[system.engine.head()] = {name: system.lake_rows(name) for name in (*queries, "raw.shops")}
        for snapshot, tables in seen.items():
            for name, rows in tables.items():
                assert system.lake_rows(name, at=snapshot) == rows, (snapshot, name)
        with system.duckdb() as duckdb:
            ids = [row[0] for row in duckdb.execute("SELECT snapshot_id FROM ducklake_snapshots('lake')").fetchall()]
        assert sorted(ids) == list(range(system.engine.head() + 1))


JOBS = ("source", "source", "other", "other", "compact")
ITEMS = "CREATE TABLE lake.main.items (id INTEGER, shop INTEGER, price DECIMAL(10,2))"
FOLLOWING = {
    "gold.city": "SELECT s.city, count(*) AS n, sum(i.price) AS t FROM items i JOIN shops s ON s.id = i.shop"
    " GROUP BY s.city",
    "gold.lines": "SELECT i.id, i.price, s.city FROM items i JOIN shops s ON s.id = i.shop",
}
MANY_SHOPS = (
    SETUP[0],
    "INSERT INTO shops SELECT i, 'city ' || i % 4 FROM generate_series(1, 12) i",
)


@pytest.mark.parametrize("seconds", [20, pytest.param(240, marks=pytest.mark.nightly)], ids=["seconds", "minutes"])
def test_duckdb_processes_write_alter_and_compact_while_we_refresh(
    new_database: Callable[[], str], tmp_path: Path, spark: object, seconds: int
) -> None:
    with lakehouse(new_database, tmp_path, spark, [], MANY_SHOPS) as first, first.duckdb() as duckdb:
        duckdb.execute(ITEMS)
        duckdb.execute("INSERT INTO lake.main.items SELECT i, i % 12 + 1, i FROM range(200) t(i)")
        tables = [StreamTable(name=name, query=query) for name, query in FOLLOWING.items()]
        system = first.with_stream_tables(tables)
    with system as opened:
        opened.refresh()
        writers = [_start_writer(opened, number, job) for number, job in enumerate(JOBS, start=1)]
        try:
            refreshes, conflicts = _refresh_for(opened, seconds)
        finally:
            for writer in writers:
                assert writer.stdin is not None
                writer.stdin.close()
        results = [_ended(writer) for writer in writers]
        _expect_all_landed(opened, results)
        assert refreshes > conflicts, "we get through beside them"
        done = Counter[str]()
        for result in results:
            done.update(result["done"])
        assert min(done[kind] for kind in ("insert", "update", "delete")) > 0, done
        assert done["merge"] + done["rewrite"] > 0, done


def _start_writer(system: Lakehouse, number: int, job: str) -> subprocess.Popen[str]:
    location = system.location
    orders = {
        "dsn": location.catalog_dsn, "path": location.data_path, "options": dict(location.storage_options),
        "number": number, "job": job, "pause": 1.0 if job == "compact" else 0.05,
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.e2e.foreign_writer"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2], text=True, **pipes)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(orders) + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    return process


def _refresh_for(system: Lakehouse, seconds: int) -> tuple[int, int]:
    """Change and refresh over and over; how often, and how often another writer was in the way."""
    deadline, refreshes, conflicts = time.monotonic() + seconds, 0, 0
    while time.monotonic() < deadline or not refreshes:
        system.execute("UPDATE shops SET city = 'city ' || (id + 1) % 5 WHERE id % 3 = 0")
        refreshes += 1
        try:
            system.refresh()
        except TransientError:
            conflicts += 1
    return refreshes, conflicts


def _ended(writer: subprocess.Popen[str]) -> dict[str, Any]:
    assert writer.stdout is not None
    assert writer.stderr is not None
    output, errors = writer.stdout.read(), writer.stderr.read()
    assert writer.wait(timeout=60) == 0, errors[-3000:]
    return json.loads(output)


def _expect_all_landed(system: Lakehouse, results: list[dict[str, Any]]) -> None:
    """Our stream tables are right, and so is what the others wrote; no snapshot is missing."""
    system.refresh()
    with system.duckdb() as duckdb:
        lake_shops = "lake.raw.shops"
        for name, query in FOLLOWING.items():
            theirs = query.replace("FROM items", "FROM lake.main.items").replace("JOIN shops", f"JOIN {lake_shops}")
            assert system.lake_rows(name) == Counter(duckdb.execute(theirs).fetchall()), name
        for result in results:
            if result["rows"]:
                found = duckdb.execute(f"SELECT id, n FROM lake.main.other_{result['number']}").fetchall()
                assert dict(found) == {int(key): n for key, n in result["rows"].items()}
                assert len(found) == len(result["rows"])
    system.check()
    with psycopg.connect(system.location.catalog_dsn) as connection:
        ids = [row[0] for row in connection.execute("SELECT snapshot_id FROM main.ducklake_snapshot ORDER BY 1")]
    assert ids == list(range(len(ids)))
