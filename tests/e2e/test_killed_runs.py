"""A run that is killed anywhere leaves the lake as it was or as it should be, and a plain restart finishes the work.

The runs are held at the points of interest from outside, by locks in the databases, and killed with SIGKILL.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from pgtrickle_assets.lake.orphans import remove_orphans
from pgtrickle_assets.services.spark_connect import SparkConnectServer
from pgtrickle_assets.settings import Settings
from tests.e2e.lakehouse import Lakehouse
from tests.e2e.processes import WAIT_SECONDS, Runs, wait_until, waiting

pytestmark = pytest.mark.nightly

QUERIES = {
    "st.sales": "SELECT o.id, o.day, c.name, o.amount FROM orders o JOIN customers c ON c.id = o.customer",
    "st.by_name": "SELECT name, count(*) AS n, sum(amount) AS total, max(amount) AS top FROM st.sales GROUP BY name",
}
POSTGRES = {
    "st.sales": QUERIES["st.sales"],
    "st.by_name": f"SELECT name, count(*), sum(amount), max(amount) FROM ({QUERIES['st.sales']}) s GROUP BY name",
}
SETUP = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text)",
    "CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(12,2), day date)",
    "INSERT INTO customers SELECT i, 'name ' || i FROM generate_series(1, 20) i",
    "INSERT INTO orders SELECT i, i % 20 + 1, i, date '2024-01-01' + i % 5 FROM generate_series(1, 2000) i",
)
CHANGE = (
    "UPDATE orders SET amount = amount + 1, customer = customer % 20 + 1 WHERE id <= 50",
    "DELETE FROM orders WHERE id BETWEEN 60 AND 80",
    "INSERT INTO orders SELECT i, i % 20 + 1, i, date '2024-02-01' FROM generate_series(5001, 5040) i",
)


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One warm Spark for all runs of this module."""
    settings = Settings(
        spark_master="local[2]", spark_driver_memory="1g", spark_scratch_dir=tmp_path_factory.mktemp("connect")
    )
    with SparkConnectServer(settings) as server:
        yield server.remote.get_secret_value()


@pytest.fixture
def runs(new_database: Callable[[], str], tmp_path: Path, remote: str) -> Iterator[Runs]:
    """A filled project with a change waiting in its source."""
    source = new_database()
    with psycopg.connect(source) as connection:
        for statement in SETUP:
            connection.execute(statement)
    config = {
        "source": source,
        "catalog": new_database(),
        "data_path": str(tmp_path / "lake"),
        "home": str(tmp_path),
        "stream_tables": [{"name": name, "query": query} for name, query in QUERIES.items()],
    }
    made = Runs(config, remote)
    made.run()
    with psycopg.connect(source) as connection:
        for statement in CHANGE:
            connection.execute(statement)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


def _snapshots(runs: Runs) -> int:
    with psycopg.connect(runs.config["catalog"]) as connection:
        row = connection.execute("SELECT max(snapshot_id) FROM main.ducklake_snapshot").fetchone()
    assert row is not None
    return row[0]


def _before_files(runs: Runs, held: ExitStack) -> subprocess.Popen[str]:
    blocker = held.enter_context(psycopg.connect(runs.config["catalog"]))
    blocker.execute("LOCK TABLE pgtrickle.pgt_ducklake_sink_delivery IN SHARE MODE")
    process = runs.start()
    wait_until(lambda: waiting(runs.config["catalog"], "relation"), process)
    return process


def _during_upload(runs: Runs, held: ExitStack) -> subprocess.Popen[str]:
    runs.run(only=["st.sales"])
    held.enter_context(runs.catalog_locked())
    folder = Path(runs.config["data_path"])
    known = set(folder.rglob("*.parquet"))
    process = runs.start(capture=False)
    wait_until(lambda: set(folder.rglob("*.parquet")) != known, process)
    return process


def _before_commit(runs: Runs, held: ExitStack) -> subprocess.Popen[str]:
    runs.run(only=["st.sales"])
    held.enter_context(runs.catalog_locked())
    process = runs.start(capture=False)
    wait_until(lambda: waiting(runs.config["catalog"], "advisory"), process)
    return process


def _after_commit(runs: Runs, _: ExitStack) -> subprocess.Popen[str]:
    runs.run(only=[])
    before = _snapshots(runs)
    process = runs.start(capture=False)
    wait_until(lambda: _snapshots(runs) > before, process)
    return process


def _during_mirror_commit(runs: Runs, held: ExitStack) -> subprocess.Popen[str]:
    held.enter_context(runs.catalog_locked())
    process = runs.start()
    wait_until(lambda: waiting(runs.config["catalog"], "advisory"), process)
    return process


def _during_buffer_trim(runs: Runs, held: ExitStack) -> subprocess.Popen[str]:
    blocker = held.enter_context(psycopg.connect(runs.config["source"]))
    tables = blocker.execute(
        "SELECT quote_ident(relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE nspname = 'pgtrickle_changes' AND relkind = 'r' AND relname LIKE 'changes%'"
    ).fetchall()
    assert tables
    for (name,) in tables:
        blocker.execute(f"SELECT 1 FROM pgtrickle_changes.{name} FOR UPDATE")
    process = runs.start()
    wait_until(lambda: waiting(runs.config["source"], "transactionid"), process)
    return process


POINTS = {
    "before files": _before_files,
    "during upload": _during_upload,
    "before commit": _before_commit,
    "after commit": _after_commit,
    "during mirror commit": _during_mirror_commit,
    "during buffer trim": _during_buffer_trim,
}


def _expect_right(system: Lakehouse) -> None:
    for name, query in POSTGRES.items():
        assert system.lake_rows(name) == system.postgres_rows(query), name
    system.check()


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_run_is_finished_by_a_plain_restart(point: str, runs: Runs, spark: object) -> None:
    with ExitStack() as held:
        process = POINTS[point](runs, held)
        process.kill()
        process.communicate()
    runs.run()
    with runs.open(spark) as system:
        _expect_right(system)
        system.engine.maintain()
        lake = system.engine._workspace.lake
        left = remove_orphans(lake, is_running=lambda _: False, minimum_age=timedelta(0), dry_run=True)
        assert left.paths == ()
        assert {row["last_delivery_status"] for row in system.engine.sink_status()} == {"DELIVERED"}
        before = system.engine.head()
        assert {result.strategy.value for result in system.refresh().values()} == {"no_change"}
        assert system.engine.head() == before


def test_two_stream_tables_and_two_partitions_land_when_refreshed_at_once(runs: Runs, spark: object) -> None:
    tables = [
        {"name": "st.daily", "query": "SELECT id, day, amount FROM orders", "partition_by": "day(day)"},
        {"name": "st.totals", "query": "SELECT day, sum(amount) AS total FROM orders GROUP BY day"},
    ]
    runs.config["stream_tables"] += tables
    runs.run(only=[])
    together = [
        runs.start(only=["st.daily"], partitions=["2024-01-01"], capture=False),
        runs.start(only=["st.daily"], partitions=["2024-01-02"], capture=False),
        runs.start(only=["st.totals"], capture=False),
        runs.start(only=["st.sales"], capture=False),
    ]
    for process in together:
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors[-3000:]
        assert "done" in output
    with runs.open(spark) as system:
        daily = system.lake_rows("st.daily")
        wanted = "SELECT id, day, amount FROM orders WHERE day IN ('2024-01-01', '2024-01-02')"
        assert daily == system.postgres_rows(wanted)
        assert system.lake_rows("st.totals") == system.postgres_rows("SELECT day, sum(amount) FROM orders GROUP BY day")
        ids = [
            row[0]
            for row in psycopg.connect(runs.config["catalog"]).execute(
                "SELECT snapshot_id FROM main.ducklake_snapshot ORDER BY 1"
            )
        ]
        assert ids == list(range(len(ids))), "snapshot ids have no gap"
        system.engine.refresh("st.daily")
        _expect_right_daily(system)


@pytest.mark.parametrize("partitions", [None, ["2024-01-01"]], ids=["whole", "one partition"])
def test_two_refreshes_of_the_same_rows_at_once_write_them_once(
    partitions: list[str] | None, runs: Runs, spark: object
) -> None:
    runs.config["stream_tables"] = [
        {"name": "st.daily", "query": "SELECT id, day, amount FROM orders", "partition_by": "day(day)"}
    ]
    runs.run(only=[])
    with runs.catalog_locked():
        together = [runs.start(only=["st.daily"], partitions=partitions, capture=False) for _ in range(2)]
        wait_until(lambda: waiting(runs.config["catalog"], "advisory") == len(together), together[0])
    outputs = [process.communicate(timeout=WAIT_SECONDS) for process in together]
    assert [process.returncode for process in together] == [0, 0], outputs
    assert sum("overtaken" in output for output, _ in outputs) == 1
    with runs.open(spark) as system:
        where = "" if partitions is None else "WHERE day = '2024-01-01'"
        assert system.lake_rows("st.daily") == system.postgres_rows(f"SELECT id, day, amount FROM orders {where}")
        assert [(row.status, row.last_error) for row in system.engine.status()] == [("ACTIVE", None)]
        assert {row["last_delivery_status"] for row in system.engine.sink_status()} == {"DELIVERED"}


def _expect_right_daily(system: Lakehouse) -> None:
    assert system.lake_rows("st.daily") == system.postgres_rows("SELECT id, day, amount FROM orders")
    assert system.engine.check_equals_full("st.daily").passed
