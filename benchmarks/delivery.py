"""Delivery under load: a backfill of many partitions at once, and commits per second of many writers.

1. One refresh per daily partition of a stream table, each in a process of its own: first one after the other into one
   lake, then all started at once into a second lake of the same source. Compared: time, contents (also with
   PostgreSQL's own answer), snapshot ids.
2. Writers that append a small file per commit to one table: through our commit path, and with the official DuckLake
   extension (DuckDB), each writer a process, each kind on a lake of its own. Rounds alternate; the median counts.

One warm Spark Connect server computes for all processes of part 1, as under `pgtrickle up`: one JVM, many clients.
Lock and commit times are what the commits themselves measured. PostgreSQL is a temporary server with its defaults
(durable). `--store s3` puts the files on `rclone serve s3` on this machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psycopg  # noqa: TID253 (a script is not loaded by a code location)

sys.path.insert(0, str(Path(__file__).parents[1]))

from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.project import Project
from pgtrickle_assets.settings import Settings
from pgtrickle_assets.stream_table import StreamTable

NAME = "st.daily"
QUERY = """
SELECT o.id, o.day, c.name, o.amount, o.note FROM orders o JOIN customers c ON c.id = o.customer
"""
ANSWER = f"SELECT id, day, name, amount, note FROM ({QUERY}) q"
WRITERS = 8
FIRST_DAY = date(2024, 1, 1)
RUN_SECONDS = 1800.0


@dataclass(frozen=True)
class Place:
    """One lake and what a run needs to find it; `location` and `remote` hold secrets."""

    name: str
    source: str
    location: LakeLocation
    home: Path
    remote: str

    @property
    def project(self) -> Project:
        """The project over this lake; its name is also the name under which it captures."""
        return Project(
            [StreamTable(name=NAME, query=QUERY, partition_by="day(day)", schedule="manual")],
            sources={"shop": {"dsn": self.source}},
            lake={
                "catalog": self.location.catalog_dsn,
                "data_path": self.location.data_path,
                "storage": dict(self.location.storage_options),
            },
            home=self.home / self.name,
            name=self.name,
        )

    @property
    def settings(self) -> Settings:
        """Settings of a run."""
        return Settings(home=self.home / self.name, ducklake_sink_failure_mode="error", spark_remote=self.remote)

    def run_partition(self, key: str) -> dict[str, Any]:
        """One run: refresh a partition, as a Dagster run of a backfill does."""
        from pgtrickle_assets.refresh.api import RefreshEngine
        from pgtrickle_assets.services.spark import spark_session

        settings = self.settings
        with RefreshEngine.open(self.project, settings, lambda: spark_session(settings)) as engine:
            engine.sync()
            result = engine.refresh(NAME, partitions=[key], cut=engine.head(), run_id=key, initiated_by="BACKFILL")
            return {"snapshot": result.snapshot, "rows": result.rows_inserted, "seconds": result.seconds}

    def prepare(self) -> None:
        """Make the lake and fill the mirrors, so that the runs only refresh."""
        from pgtrickle_assets.refresh.api import RefreshEngine
        from pgtrickle_assets.services.spark import spark_session

        settings = self.settings
        with RefreshEngine.open(self.project, settings, lambda: spark_session(settings)) as engine:
            engine.sync()
            engine.capture("benchmark")


def backfill(place: Place, keys: Sequence[str], at_once: int) -> tuple[float, list[dict[str, Any]]]:
    """Refresh partitions in processes, so many at a time; seconds, and what each run that completed says."""
    started = time.perf_counter()
    waiting, running, results = list(keys), [], []
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append(_start_run(place, waiting.pop(0)))
        still = []
        for process in running:
            if process.poll() is None:
                still.append(process)
                continue
            output = process.communicate()[0]
            if process.returncode == 0:
                results.append(json.loads(output.splitlines()[-1]))
        running = still
        if time.perf_counter() - started > RUN_SECONDS:
            for process in running:
                process.kill()
            raise TimeoutError(f"{len(running)} runs did not end within {RUN_SECONDS:.0f} s")
        time.sleep(0.02)
    return time.perf_counter() - started, results


def _start_run(place: Place, key: str) -> subprocess.Popen[str]:
    config = {
        "name": place.name, "source": place.source, "home": str(place.home), "remote": place.remote, "key": key,
        "dsn": place.location.catalog_dsn, "path": place.location.data_path,
        "options": dict(place.location.storage_options),
    }  # fmt: skip
    # By way of the environment: a command line is for all to see.
    environment = {**os.environ, "BENCHMARK_RUN": json.dumps(config)}
    return subprocess.Popen([sys.executable, __file__], env=environment, stdout=subprocess.PIPE, text=True)


def _run_as_told() -> None:
    config = json.loads(os.environ["BENCHMARK_RUN"])
    location = LakeLocation(config["dsn"], "main", config["path"], config["options"])
    place = Place(config["name"], config["source"], location, Path(config["home"]), config["remote"])
    print(json.dumps(place.run_partition(config["key"])))


def snapshot_gaps(location: LakeLocation) -> int:
    """Ids missing between the first snapshot and the newest, plus deliveries that share one."""
    with psycopg.connect(location.catalog_dsn) as connection:
        row = connection.execute(
            "SELECT max(snapshot_id) - min(snapshot_id) + 1 - count(*) FROM main.ducklake_snapshot"
        ).fetchone()
        shared = connection.execute(
            "SELECT count(*) - count(DISTINCT ducklake_snapshot_id) FROM pgtrickle.pgt_ducklake_sink_delivery"
            " WHERE ducklake_snapshot_id IS NOT NULL"
        ).fetchone()
    assert row is not None
    assert shared is not None
    return row[0] + shared[0]


def contents(location: LakeLocation) -> Counter[tuple[Any, ...]]:
    """The stream table as DuckDB reads it."""
    from pgtrickle_assets.lake.duckdb_attach import attach
    from pgtrickle_assets.services.duckdb import connect

    with connect() as connection:
        attach(connection, location, read_only=True)
        return Counter(connection.execute(f"SELECT id, day, name, amount, note FROM lake.{NAME}").fetchall())


def measure_backfill(
    server: Any, store: Store, folder: Path, remote: str, partitions: int, rows: int, at_once: int
) -> dict[str, Any]:
    """Part 1."""
    source = server.create_database("benchmark_source")
    _fill(source, partitions, rows)
    places = [
        Place(name, source, store.location(server.create_database(f"benchmark_{name}"), name), folder, remote)
        for name in ("sequential", "together")
    ]
    for place in places:
        place.prepare()
    keys = [str(FIRST_DAY + timedelta(days=n)) for n in range(partitions)]
    sequential, together = places
    sequential_seconds, _ = backfill(sequential, keys, 1)
    seconds, results = backfill(together, keys, at_once)
    with psycopg.connect(source) as connection:
        answer = Counter(connection.execute(ANSWER).fetchall())
    return {
        "partitions": partitions,
        "completed": len(results),
        "snapshot_gaps": snapshot_gaps(together.location) + snapshot_gaps(sequential.location),
        "equal": answer == contents(sequential.location) == contents(together.location),
        "seconds": round(seconds, 2),
        "sequential_seconds": round(sequential_seconds, 2),
        "lock_ms_p99": _percentile([result["seconds"]["lock"] for result in results], 99),
        "commit_ms_p50": _percentile([result["seconds"]["commit"] for result in results], 50),
        "commit_ms_p99": _percentile([result["seconds"]["commit"] for result in results], 99),
    }


def _fill(source: str, partitions: int, rows: int) -> None:
    with psycopg.connect(source) as connection:
        connection.execute("CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL)")
        connection.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, customer int NOT NULL, day date NOT NULL,"
            " amount numeric(12,2) NOT NULL, note text)"
        )
        connection.execute("INSERT INTO customers SELECT i, 'customer ' || i FROM generate_series(0, 999) i")
        connection.execute(
            "INSERT INTO orders SELECT i, i %% 1000, %s::date + (i %% %s)::int, i %% 10000 / 100.0, 'note ' || i"
            " FROM generate_series(0, %s::bigint - 1) i",
            (FIRST_DAY, partitions, partitions * rows),
        )


def _percentile(seconds: Sequence[float], percent: int) -> float:
    """Nearest-rank percentile in milliseconds."""
    if not seconds:
        return float("nan")
    ordered = sorted(seconds)
    place = max(0, -(-len(ordered) * percent // 100) - 1)
    return round(ordered[place] * 1000, 2)


# Part 2. A writer gets its number, waits for the start, commits, and says when it ended.


def append_ours(location: LakeLocation, writer: int, commits: int, rows: int, start: Connection) -> None:
    """Append a file per commit through our commit path."""
    import pyarrow as pa

    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.lake.commit import commit
    from pgtrickle_assets.lake.model import TableChange
    from pgtrickle_assets.lake.write import write_rows
    from pgtrickle_assets.query.types import TableName

    lake, name = Lake.open(location), TableName("main", "events")

    def once(number: int) -> float:
        base = lake.head()
        table = lake.table(name, base)
        assert table is not None
        values = {"writer": pa.array([writer] * rows, pa.int32()), "n": pa.array(range(rows), pa.int64())}
        options = location.storage_options
        files = write_rows(pa.table(values), table, delivery_id=f"w{writer}-{number}", storage_options=options)
        result = commit(
            lake, base=base, changes=[TableChange(name, added_files=files)], author="benchmark", message="append"
        )
        return result.lock_seconds

    once(-1)
    start.send("ready")
    start.recv()
    locks = [once(number) for number in range(commits)]
    start.send((time.time(), locks))


def append_theirs(location: LakeLocation, writer: int, commits: int, rows: int, start: Connection) -> None:
    """Append a file per commit with DuckDB's extension."""
    from pgtrickle_assets.lake.duckdb_attach import attach
    from pgtrickle_assets.services.duckdb import connect

    with connect(config={"threads": 1}) as connection:
        attach(connection, location)

        def once() -> None:
            connection.execute(f"INSERT INTO lake.main.events SELECT {writer}, i FROM range({rows}) t(i)")

        once()
        start.send("ready")
        start.recv()
        for _ in range(commits):
            once()
        start.send((time.time(), []))


def rate(location: LakeLocation, target: Any, commits: int, rows: int) -> float:
    """Commits per second of `WRITERS` processes, from their common start to the end of the last."""
    context = multiprocessing.get_context("spawn")
    ends, processes = [], []
    for writer in range(WRITERS):
        here, there = context.Pipe()
        process = context.Process(target=target, args=(location, writer, commits, rows, there), daemon=True)
        process.start()
        ends.append(here)
        processes.append(process)
    for end in ends:
        end.recv()
    started = time.time()
    for end in ends:
        end.send("go")
    ended = max(end.recv()[0] for end in ends)
    for process in processes:
        process.join()
    return WRITERS * commits / (ended - started)


def measure_commits(server: Any, store: Store, rounds: int, commits: int, rows: int) -> dict[str, Any]:
    """Part 2."""
    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.lake.duckdb_attach import attach
    from pgtrickle_assets.services.duckdb import connect

    targets = {"commits_per_second": append_ours, "extension_commits_per_second": append_theirs}
    locations: dict[str, LakeLocation] = {}
    for name in targets:
        locations[name] = store.location(server.create_database(f"benchmark_{name}"), name)
        Lake.bootstrap(locations[name]).close()
        with connect() as connection:
            attach(connection, locations[name])
            connection.execute("CREATE TABLE lake.main.events (writer INTEGER, n BIGINT)")
    found: dict[str, list[float]] = {name: [] for name in targets}
    for _ in range(rounds):
        for name, target in targets.items():
            found[name].append(rate(locations[name], target, commits, rows))
    for name, location in locations.items():
        expected = rounds * WRITERS * (commits + 1) * rows
        with connect() as connection:
            attach(connection, location, read_only=True)
            row = connection.execute("SELECT count(*) FROM lake.main.events").fetchone()
        assert row == (expected,), f"{name}: {row} rows, expected {expected}"
    return {name: round(statistics.median(values), 1) for name, values in found.items()}


@dataclass(frozen=True)
class Store:
    """Where the files of the lakes go."""

    root: str
    options: Mapping[str, str]

    def location(self, dsn: str, name: str) -> LakeLocation:
        """A lake with its own folder."""
        return LakeLocation(dsn, "main", f"{self.root}/{name}", self.options)


@contextmanager
def opened_store(kind: str, folder: Path) -> Iterator[Store]:
    """A folder, or a bucket on a server of our own."""
    if kind == "file":
        yield Store(str(folder / "lake"), {})
        return
    from tests.s3_server import S3Server

    with S3Server(folder / "s3") as server:
        yield Store(f"s3://{server.bucket}", server.storage_options)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=8, help="daily partitions, one process each (default 8)")
    parser.add_argument("--store", choices=("file", "s3"), default="file")
    parser.add_argument("--rows", type=int, default=5_000, help="rows per partition (default 5000)")
    parser.add_argument("--at-once", type=int, help="processes at the same time; all of them by default")
    parser.add_argument("--commits", type=int, default=25, help="commits per writer and round in part 2 (default 25)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of part 2 (default 3)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    at_once = options.at_once or options.partitions
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server, store, remote = _services(stack, folder, options.store)
        found = measure_backfill(server, store, folder, remote, options.partitions, options.rows, at_once)
        found |= measure_commits(server, store, options.rounds, options.commits, 100)
    if options.json:
        print(json.dumps(found))
        return
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:<{width}}  {value}")


def _services(stack: ExitStack, folder: Path, store: str) -> tuple[Any, Store, str]:
    from pgtrickle_assets.services.postgres import EmbeddedPostgres
    from pgtrickle_assets.services.spark_connect import SparkConnectServer

    server = EmbeddedPostgres(folder / "postgres", options={"max_connections": "300"})
    server.start()
    stack.callback(server.stop)
    opened = stack.enter_context(opened_store(store, folder))
    cores = os.cpu_count() or 2
    settings = Settings(spark_master=f"local[{cores}]", spark_driver_memory="2g", spark_scratch_dir=folder / "spark")
    spark = stack.enter_context(SparkConnectServer(settings))
    spark.warm_up()
    return server, opened, spark.remote.get_secret_value()


if __name__ == "__main__":
    if "BENCHMARK_RUN" in os.environ:
        _run_as_told()
    else:
        main()
