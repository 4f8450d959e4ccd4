"""Everything at once, for minutes: writers, refreshes, DuckDB, maintenance, and kill -9 at random moments.

`--soak-seconds` sets for how long; `make soak` runs it for 5 minutes, as CI does beside the other tests, and
`make soak SOAK_SECONDS=1800` for half an hour.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle_assets import errors
from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.lake.orphans import remove_orphans
from pgtrickle_assets.refresh.windows import UpstreamNotReadyError
from pgtrickle_assets.services.duckdb import connect
from pgtrickle_assets.services.spark_connect import SparkConnectServer
from pgtrickle_assets.settings import Settings
from tests.e2e.processes import WAIT_SECONDS, Runs

pytestmark = pytest.mark.nightly

QUERIES = {
    "st.sales": "SELECT o.id, c.name, o.amount FROM orders o JOIN customers c ON c.id = o.customer",
    "st.by_name": "SELECT name, count(*) AS n, sum(amount) AS total, max(amount) AS top FROM st.sales GROUP BY name",
}
SPENT = (
    "SELECT c.name, count(*) AS n, sum(i.price) AS total FROM items i JOIN customers c ON c.id = i.customer GROUP BY 1"
)
POSTGRES = {
    "st.sales": QUERIES["st.sales"],
    "st.by_name": f"SELECT name, count(*), sum(amount), max(amount) FROM ({QUERIES['st.sales']}) s GROUP BY name",
    "st.spent": SPENT.replace("items i", "items_of_the_lake i"),
}
SETUP = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text)",
    "CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(12,2))",
    "INSERT INTO customers SELECT i, 'name ' || i FROM generate_series(1, 40) i",
    "INSERT INTO orders SELECT i, i % 40 + 1, 100 FROM generate_series(1, 3000) i",
)
TOTAL = 300_000
"""Sum of all amounts. Each source transaction keeps it, so every snapshot must show it, in each stream table."""

SECOND = 1 / 3600
AGES = {
    "snapshot_retention_hours": 90 * SECOND,
    "old_files_retention_hours": 90 * SECOND,
    "orphan_retention_hours": 300 * SECOND,
    "compaction_min_files": 3,
}


@dataclass
class Soak:
    """What runs side by side, and what it found.

    Attributes:
        runs: Starts refreshes and maintenance as processes.
        stop: Set when the time is over.
        counts: What happened how often.
        wrong: What must not happen.
    """

    runs: Runs
    stop: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def location(self) -> LakeLocation:
        return LakeLocation(self.runs.config["catalog"], "main", self.runs.config["data_path"])

    def guarded(self, work: Callable[[random.Random], None], seed: int) -> threading.Thread:
        """Repeat some work until the end; an error of it is a finding."""

        def loop() -> None:
            choice = random.Random(seed)
            while not self.stop.is_set():
                try:
                    work(choice)
                except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
                    self.wrong.append(f"{work.__name__}: {type(error).__name__}: {str(error)[:500]}")
                    return

        return threading.Thread(target=loop, name=work.__name__, daemon=True)

    def write_source(self, choice: random.Random) -> None:
        try:
            self._source_transaction(choice)
        except psycopg.errors.DeadlockDetected:
            # The two writers meet; PostgreSQL undid one of their transactions.
            self.counts["source deadlocks"] += 1
            return
        self.counts["source transactions"] += 1
        self.stop.wait(choice.uniform(0, 0.2))

    def _source_transaction(self, choice: random.Random) -> None:
        a, b = choice.sample(range(1, 3001), 2)
        new, shift = choice.randrange(10_000, 1_000_000), choice.randrange(1, 50)
        with psycopg.connect(self.runs.config["source"]) as connection:
            connection.execute("UPDATE orders SET amount = amount + %s WHERE id = %s", (shift, a))
            connection.execute("UPDATE orders SET amount = amount - %s WHERE id = %s", (shift, b))
            connection.execute("UPDATE orders SET customer = customer %% 40 + 1 WHERE id %% 211 = %s", (a % 211,))
            if choice.random() < 0.5:
                connection.execute(
                    "INSERT INTO orders VALUES (%s, %s, 0) ON CONFLICT DO NOTHING", (new, choice.randrange(1, 41))
                )
            if choice.random() < 0.2:
                connection.execute("DELETE FROM orders WHERE id >= 10000 AND amount = 0 AND id %% 3 = %s", (a % 3,))
            if choice.random() < 0.1:
                connection.execute("UPDATE customers SET name = name || '.' WHERE id = %s", (a % 40 + 1,))

    def write_lake(self, choice: random.Random) -> None:
        start = choice.randrange(1_000_000)
        statement = choice.choice(
            (
                f"INSERT INTO lake.main.items SELECT i, i % 40 + 1, i % 7 FROM range({start}, {start + 20}) t(i)",
                f"UPDATE lake.main.items SET price = price + 1 WHERE id % 17 = {start % 17}",
                f"DELETE FROM lake.main.items WHERE id % 29 = {start % 29}",
            )
        )
        with _attached(self.location) as connection:
            connection.execute(statement)
        self.counts["lake writes"] += 1
        self.stop.wait(choice.uniform(0.5, 2))

    def read_lake(self, choice: random.Random) -> None:
        table, column = choice.choice((("raw.orders", "amount"), ("st.sales", "amount"), ("st.by_name", "total")))
        with _attached(self.location) as connection:
            for _ in range(5):
                found = connection.execute(f"SELECT sum({column}) FROM lake.{table}").fetchall()[0][0]
                if found != TOTAL:
                    self.wrong.append(f"a reader of {table} saw {found}, which no transaction ever left")
                self.counts["reads"] += 1
                self.stop.wait(0.2)

    def refresh(self, choice: random.Random) -> None:
        self._process(choice, "refreshes")

    def maintain(self, choice: random.Random) -> None:
        self._process(choice, "maintenances", maintain=True)
        self.stop.wait(choice.uniform(2, 8))

    def _process(self, choice: random.Random, what: str, **options: Any) -> None:
        process = self.runs.start(**options)
        if choice.random() < 0.4:
            self.stop.wait(choice.uniform(1, 15))
            process.kill()
        _, problem = process.communicate(timeout=WAIT_SECONDS)
        if process.returncode == 0:
            self.counts[what] += 1
        elif process.returncode < 0:
            self.counts[f"{what} killed"] += 1
        elif _may_pass(problem):
            self.counts[f"{what} overtaken"] += 1
        else:
            self.wrong.append(f"{what}: {problem[-1500:]}")


def _may_pass(problem: str) -> bool:
    """Whether a run ended with an error for which Dagster tries it again."""
    last = next((line for line in reversed(problem.splitlines()) if line and not line[0].isspace()), "")
    name = last.split(":")[0].rsplit(".", 1)[-1]
    known = {**vars(errors), UpstreamNotReadyError.__name__: UpstreamNotReadyError}.get(name)
    return isinstance(known, type) and issubclass(known, errors.TransientError)


@contextmanager
def _attached(location: LakeLocation) -> Iterator[Any]:
    with connect(config={"threads": 1, "memory_limit": "256MB"}) as connection:
        attach(connection, location)
        yield connection


@pytest.fixture
def soak(new_database: Callable[[], str], tmp_path: Path) -> Iterator[Soak]:
    """A filled project with a lake table that DuckDB writes, and a warm Spark for its runs."""
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
        "settings": AGES,
    }
    settings = Settings(spark_master="local[2]", spark_driver_memory="1g", spark_scratch_dir=tmp_path / "spark")
    with SparkConnectServer(settings) as server:
        made = Soak(Runs(config, server.remote.get_secret_value()))
        made.runs.run()
        with _attached(made.location) as connection:
            connection.execute("CREATE TABLE lake.main.items (id BIGINT, customer INTEGER, price DECIMAL(12,2))")
            connection.execute("INSERT INTO lake.main.items SELECT i, i % 40 + 1, i % 7 FROM range(500) t(i)")
        config["stream_tables"].append({"name": "st.spent", "query": SPENT})
        made.runs.run()
        yield made
        made.stop.set()
        for process in made.runs.started:
            process.kill()
            process.communicate()


def test_stream_tables_are_right_after_minutes_of_writers_readers_maintenance_and_kills(
    soak: Soak, spark: object, pytestconfig: pytest.Config
) -> None:
    seconds = float(pytestconfig.getoption("--soak-seconds"))
    works = (soak.write_source, soak.write_source, soak.write_lake, soak.read_lake, soak.refresh, soak.maintain)
    threads = [soak.guarded(work, seed) for seed, work in enumerate(works)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    while time.monotonic() - started < seconds and not soak.wrong:
        time.sleep(0.5)
    soak.stop.set()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    print(dict(soak.counts))  # noqa: T201 - says how much was exercised
    assert soak.wrong == []
    assert soak.counts["refreshes"] > 0, soak.counts
    assert soak.counts["source transactions"] > seconds / 2
    soak.runs.run()
    with soak.runs.open(spark) as system:
        system.engine.maintain()
        with system.duckdb() as duckdb, psycopg.connect(system.source) as connection:
            items = duckdb.execute("SELECT id, customer, price FROM lake.main.items").fetchall()
            connection.execute("CREATE TABLE items_of_the_lake (id bigint, customer int, price numeric(12,2))")
            with connection.cursor() as cursor:
                cursor.executemany("INSERT INTO items_of_the_lake VALUES (%s, %s, %s)", items)
        for name, query in POSTGRES.items():
            assert system.lake_rows(name) == system.postgres_rows(query), name
        system.check()
        assert {row["last_delivery_status"] for row in system.engine.sink_status()} == {"DELIVERED"}
        left = remove_orphans(
            system.engine._workspace.lake, is_running=lambda _: False, minimum_age=timedelta(0), dry_run=True
        )
        assert left.paths == ()
