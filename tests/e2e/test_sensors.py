"""Sensors on a real catalog: what other writers and other sessions do is seen, without Spark, and nothing else is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import dagster as dg
import psycopg
import pytest

from pgtrickle_assets import build_definitions
from pgtrickle_assets.assets.keys import ENGINE
from pgtrickle_assets.errors import LakeHistoryExpiredError
from pgtrickle_assets.refresh.api import RefreshEngine
from pgtrickle_assets.refresh.model import Strategy
from pgtrickle_assets.settings import Settings
from pgtrickle_assets.stream_table import StreamTable
from resources.engine import engine_resource
from tests.e2e.lakehouse import Lakehouse, lakehouse, no_spark

SETUP = ("CREATE TABLE shops (id int PRIMARY KEY, city text)", "INSERT INTO shops VALUES (1, 'Oslo'), (2, 'Bergen')")
TABLES = {
    "st.per_city": "SELECT s.city, count(*) AS n, sum(i.price) AS total"
    " FROM items i JOIN shops s ON s.id = i.shop GROUP BY 1",
    "st.places": "SELECT id, city FROM shops",
}
TICK_SECONDS = 60.0
"""A tick asks a few questions of two databases; on a busy machine even that takes a moment."""


@contextmanager
def watched(new_database: Callable[[], str], folder: Path, spark: Any, **settings: Any) -> Iterator[Lakehouse]:
    """Filled stream tables over a source and over a lake table that DuckDB keeps."""
    tables = [StreamTable(name=name, query=query) for name, query in TABLES.items()]
    with lakehouse(new_database, folder, spark, [], SETUP) as first, first.duckdb() as duckdb:
        duckdb.execute("CREATE TABLE lake.main.items (id INTEGER, shop INTEGER, price DECIMAL(10,2), note VARCHAR)")
        duckdb.execute("INSERT INTO lake.main.items SELECT i, i % 2 + 1, i, 'note' FROM range(100) t(i)")
        system = first.with_stream_tables(tables, **settings)
    with system as opened:
        opened.refresh()
        yield opened


def tick(system: Lakehouse, name: str, cursor: str | None = None) -> Any:
    """One evaluation of a sensor with an engine of its own, as a daemon has, and with no memory of earlier ones."""
    project = system.engine.project
    used = Settings(home=project.home)
    definitions = build_definitions(
        project, resources={ENGINE: engine_resource(project, lambda *_: RefreshEngine.open(project, used, no_spark))}
    )
    started = monotonic()
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(
            instance=instance, cursor=cursor, definitions=definitions, resources=definitions.resources
        ) as context,
    ):
        result = definitions.resolve_sensor_def(name).evaluate_tick(context)
    assert monotonic() - started < TICK_SECONDS
    return result


def requested(result: Any) -> list[str]:
    """The stream tables that a tick asks a refresh of."""
    configs = [run.run_config["ops"]["capture"]["config"] for run in result.run_requests]
    return [name for config in configs for name in config.get("stream_tables", sorted(TABLES))]


def test_lake_changes_sees_what_duckdb_does_to_rows_and_nothing_else(
    new_database: Callable[[], str], tmp_path: Path, spark: Any
) -> None:
    with watched(new_database, tmp_path, spark) as system:
        assert requested(tick(system, "lake_changes")) == []
        changes = (
            ("INSERT INTO lake.main.items SELECT i, 1, i, NULL FROM range(500, 700) t(i)", True),
            ("CALL lake.set_option('data_inlining_row_limit', 10)", False),
            ("INSERT INTO lake.main.items VALUES (1000, 1, 5.50, NULL)", True),
            ("UPDATE lake.main.items SET price = price + 1 WHERE id < 20", True),
            ("DELETE FROM lake.main.items WHERE id BETWEEN 30 AND 60", True),
            ("CALL ducklake_flush_inlined_data('lake')", False),
            ("CALL ducklake_merge_adjacent_files('lake')", False),
            ("CALL ducklake_rewrite_data_files('lake', 'items', delete_threshold => 0.0)", False),
            ("ALTER TABLE lake.main.items ADD COLUMN more INTEGER", False),
            ("CREATE TABLE lake.main.other AS SELECT 1 AS x", False),
        )
        for statement, moves in changes:
            with system.duckdb() as duckdb:
                duckdb.execute(statement)
            found = tick(system, "lake_changes")
            assert requested(found) == (["st.per_city"] if moves else []), statement
            assert tick(system, "source_changes").run_requests == [], statement
            if moves:
                assert found.run_requests[0].tags["pgtrickle/reason"] == "main.items has changed"
                assert system.refresh()["st.per_city"].strategy is Strategy.DIFFERENTIAL, statement
                assert requested(tick(system, "lake_changes")) == []
        system.execute("INSERT INTO shops VALUES (3, 'Bodø')")
        assert requested(tick(system, "lake_changes")) == []
        assert len(tick(system, "source_changes").run_requests) == 1
        system.check()


@pytest.mark.parametrize("policy", ["fallback", "error"])
def test_an_expired_frontier_is_recomputed_with_its_reason_or_refused_by_policy(
    new_database: Callable[[], str], tmp_path: Path, spark: Any, policy: str
) -> None:
    with watched(new_database, tmp_path, spark, ducklake_compaction_policy=policy) as system:
        with system.duckdb() as duckdb:
            duckdb.execute("DELETE FROM lake.main.items WHERE id < 10")
            duckdb.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
        assert requested(tick(system, "lake_changes")) == ["st.per_city"]
        cut = system.engine.capture("test").cut
        if policy == "error":
            with pytest.raises(LakeHistoryExpiredError):
                system.engine.refresh("st.per_city", cut=cut)
            return
        result = system.engine.refresh("st.per_city", cut=cut)
        assert (result.strategy, result.reason_code) == (Strategy.FULL, "history_expired")
        assert requested(tick(system, "lake_changes")) == []
        assert system.engine.check_equals_full("st.per_city").passed


def test_another_table_under_the_name_is_a_change(new_database: Callable[[], str], tmp_path: Path, spark: Any) -> None:
    with watched(new_database, tmp_path, spark) as system:
        with system.duckdb() as duckdb:
            duckdb.execute(
                "CREATE OR REPLACE TABLE lake.main.items AS SELECT 7 AS id, 1 AS shop, 2.50::DECIMAL(10,2) AS price"
            )
        assert requested(tick(system, "lake_changes")) == ["st.per_city"]
        result = system.refresh()["st.per_city"]
        assert (result.strategy, result.row_count) == (Strategy.FULL, 1)
        system.check()


def test_changed_columns_are_seen_with_what_follows_from_them(
    new_database: Callable[[], str], tmp_path: Path, spark: Any
) -> None:
    with watched(new_database, tmp_path, spark) as system:
        assert tick(system, "schema_changes").skip_message == "All columns are as they were."

        system.execute("ALTER TABLE shops ADD COLUMN opened date")
        first = tick(system, "schema_changes")
        assert requested(first) == ["st.per_city", "st.places"]
        (event,) = first.asset_events
        assert event.asset_key == dg.AssetKey(["shop", "public", "shops"])
        assert event.metadata["added"].value == "opened"
        assert list(tick(system, "schema_changes", cursor=first.cursor).asset_events) == []
        system.engine.sync()
        system.refresh()
        assert tick(system, "schema_changes").skip_message == "All columns are as they were."
        system.check()

        with system.duckdb() as duckdb:
            duckdb.execute("ALTER TABLE lake.main.items ADD COLUMN more INTEGER")
        (event,) = tick(system, "schema_changes").asset_events
        assert event.asset_key == dg.AssetKey(["main", "items"])
        assert event.metadata["what_follows"].value.startswith("The next refresh goes on")

        with system.duckdb() as duckdb:
            duckdb.execute("ALTER TABLE lake.main.items DROP COLUMN price")
        broken = tick(system, "schema_changes")
        assert broken.run_requests == []
        assert "nothing is refreshed until this is mended: stream table st.per_city" in broken.skip_message
        assert "price" in broken.skip_message

        system.execute("DROP TABLE shops")
        gone = {event.asset_key.path[-1]: event for event in tick(system, "schema_changes").asset_events}
        assert "st.places is not refreshed" in gone["shops"].metadata["what_follows"].value


_HANGING_RUN = """
import sys, time, psycopg
from pgtrickle_assets.control import delivery, history
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    refresh = history.start(connection, int(sys.argv[2]), initiated_by="MANUAL")
    made = delivery.create(connection, int(sys.argv[2]), refresh_id=refresh, partitions=None)
    delivery.begin_attempt(connection, made.delivery_id)
    print("open", flush=True)
    time.sleep(300)
"""


def test_recovery_closes_what_a_killed_process_left_once_and_nothing_of_a_living_one(
    new_database: Callable[[], str], tmp_path: Path, spark: Any
) -> None:
    with watched(new_database, tmp_path, spark) as system, psycopg.connect(system.location.catalog_dsn) as connection:
        connection.autocommit = True

        def states() -> tuple[Any, ...]:
            found = connection.execute(
                "SELECT h.status, d.status FROM pgtrickle.pgt_refresh_history h"
                " JOIN pgtrickle.pgt_ducklake_sink_delivery d USING (refresh_id) ORDER BY refresh_id DESC LIMIT 1"
            ).fetchone()
            assert found is not None
            return found

        pgt_id = connection.execute("SELECT pgt_id FROM pgtrickle.pgt_stream_tables LIMIT 1").fetchall()[0][0]
        command = [sys.executable, "-c", _HANGING_RUN, system.location.catalog_dsn, str(pgt_id)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            try:
                assert child.stdout.readline() == "open\n"
                assert tick(system, "recovery").skip_message == "No process has left anything open."
                assert states() == ("RUNNING", "WRITING")
            finally:
                child.kill()
                child.wait()
        with ThreadPoolExecutor(2) as daemons:
            ticks = [daemons.submit(tick, system, "recovery") for _ in range(2)]
            messages = [found.result().skip_message for found in ticks]
        # One daemon may close the one and the other the other.
        assert re.findall(r"\d+ refreshes", str(messages)) == ["1 refreshes"], messages
        assert re.findall(r"\d+ deliveries", str(messages)) == ["1 deliveries"], messages
        assert states() == ("FAILED", "FAILED_RETRYABLE")
        assert tick(system, "recovery").skip_message == "No process has left anything open."


def test_fresh_fails_when_something_newer_is_older_than_allowed(
    new_database: Callable[[], str], tmp_path: Path, spark: Any
) -> None:
    with watched(new_database, tmp_path, spark) as system:
        fresh = system.engine.freshness("st.per_city")
        assert (fresh.fresh, fresh.age_seconds, fresh.detail) == (True, 0.0, "holds everything there is")
        with system.duckdb() as duckdb:
            duckdb.execute("DELETE FROM lake.main.items WHERE id = 1")
        assert system.engine.freshness("st.per_city").fresh
        assert system.engine.freshness("st.places").age_seconds == 0.0
        with psycopg.connect(system.location.catalog_dsn) as connection:
            connection.execute("UPDATE main.ducklake_snapshot SET snapshot_time = snapshot_time - interval '6 minutes'")
        late = system.engine.freshness("st.per_city")
        assert not late.fresh
        assert late.age_seconds > late.allowed_seconds == 300.0
        system.engine.refresh("st.per_city")
        assert system.engine.freshness("st.per_city").fresh

        system.execute("INSERT INTO shops VALUES (3, 'Bodø')")
        assert system.engine.freshness("st.places").fresh
        with psycopg.connect(system.location.catalog_dsn) as connection:
            connection.execute(
                "UPDATE pgtrickle.pgt_stream_tables"
                " SET status = 'SUSPENDED', data_timestamp = data_timestamp - interval '1 hour'"
            )
        assert not system.engine.freshness("st.places").fresh
