"""TPC-H as stream tables: what a differential refresh costs against a full one, in one run on one Spark session.

The tables come from DuckDB's generator and live in an embedded PostgreSQL. Each of the 22 queries is a stream table
twice: with `refresh_mode: auto` and with `refresh_mode: full`. A cycle changes all tables (see
`tests/workloads/tpch.py`), captures the changes, refreshes both by turns through the refresh engine that Dagster's
assets call, and compares what the lake then holds with PostgreSQL's own answer. The first cycle warms everything up: it
is compared, but not timed. Seconds are the median of the other cycles, from the request to the committed snapshot.

`--json` prints one document. `--home` keeps the data, so that the next run goes on with the next cycle.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil
import psycopg  # noqa: TID253 (a script is not loaded by a code location)

from pgtrickle_assets.demo.oracle import DefiningQuery, compare_with_lake, postgres_answers
from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.project import Project
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh.api import RefreshEngine
from pgtrickle_assets.refresh.model import RefreshResult
from pgtrickle_assets.services.duckdb import connect
from pgtrickle_assets.services.postgres import EmbeddedPostgres
from pgtrickle_assets.services.spark import spark_session
from pgtrickle_assets.settings import Settings
from pgtrickle_assets.stream_table import StreamTable
from tests.workloads import tpch
from tests.workloads.loading import load_postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PostgreSQL is the judge here; it gets memory for its answers.
POSTGRES = {"shared_buffers": "512MB", "work_mem": "256MB", "maintenance_work_mem": "512MB", "max_wal_size": "4GB"}
SPARK = {"spark.ui.retainedJobs": "10000", "spark.ui.retainedStages": "10000"}


def say(text: str) -> None:
    """Progress, beside the result."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


@dataclass
class Measurement:
    """One refresh."""

    result: RefreshResult
    seconds: float
    cpu_seconds: float
    jobs: int
    bytes_read: int


@dataclass
class Meter:
    """Counts what a refresh makes Spark and this process read. Spark in this process only, not over Spark Connect."""

    spark: SparkSession

    def _jobs(self) -> int:
        context = self.spark.sparkContext._jsc.sc()  # noqa: SLF001 (PySpark shows no jobs by itself)
        context.listenerBus().waitUntilEmpty()
        return context.statusStore().jobsList(None).size()

    @staticmethod
    def _used() -> dict[int, tuple[float, int]]:
        """Processor seconds and bytes read with system calls so far, of this process and of each that it started.

        Processor time is what a busy machine does not distort; the bytes are nearly all of files of the lake.
        """
        used: dict[int, tuple[float, int]] = {}
        me = psutil.Process()
        for process in (me, *me.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                used[process.pid] = times.user + times.system, process.io_counters().read_chars
        return used

    def measure(self, engine: RefreshEngine, name: str, cut: int) -> Measurement:
        """Refresh a stream table to a cut."""
        jobs, before = self._jobs(), self._used()
        started = time.perf_counter()
        result = engine.refresh(name, cut=cut, run_id="benchmark")
        seconds = time.perf_counter() - started
        # A process that ended meanwhile, such as one of PostgreSQL, is left out.
        spent = [
            (cpu - before.get(pid, (0.0, 0))[0], read - before.get(pid, (0.0, 0))[1])
            for pid, (cpu, read) in self._used().items()
        ]
        cpu, read = sum(cpu for cpu, _ in spent), sum(read for _, read in spent)
        return Measurement(result, seconds, cpu, self._jobs() - jobs, read)


@dataclass
class Outcome:
    """What the cycles found for one query."""

    number: int
    differential: list[Measurement] = field(default_factory=list)
    full: list[Measurement] = field(default_factory=list)
    equal: list[bool] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the query."""
        return f"q{self.number}"

    def document(self) -> dict[str, Any]:
        """The query's part of the result."""
        order = ("full", "differential", "no_change")
        weakest = min(self.differential, key=lambda m: order.index(m.result.strategy.value))
        differential = median(m.seconds for m in self.differential)
        full = median(m.seconds for m in self.full)
        return {
            "query": self.name,
            "strategy": weakest.result.strategy.value,
            "reason": weakest.result.reason,
            "equal": all(self.equal),
            "differential_seconds": round(differential, 3),
            "full_seconds": round(full, 3),
            "ratio": round(full / differential, 2),
            "jobs": max(m.jobs for m in self.differential),
            "bytes_read": int(median(m.bytes_read for m in self.differential)),
        }


@dataclass
class Benchmark:
    """The open system."""

    engine: RefreshEngine
    spark: SparkSession
    source: str
    lake: LakeLocation
    scale: float
    churn: float
    numbers: Sequence[int]
    trace: bool

    def run(self, cycles: int) -> list[Outcome]:
        """Play the cycles, one more than asked for: the first is not timed."""
        meter = Meter(self.spark)
        outcomes = [Outcome(number) for number in self.numbers]
        self._fill()
        for cycle in range(cycles + 1):
            cut = self._change()
            for outcome in outcomes:
                differential = meter.measure(self.engine, auto(outcome.number), cut)
                full = meter.measure(self.engine, always_full(outcome.number), cut)
                self._show(outcome, differential, full)
                if cycle:
                    outcome.differential.append(differential)
                    outcome.full.append(full)
            self._compare(outcomes)
        return outcomes

    def _fill(self) -> None:
        cut = self.engine.capture("benchmark").cut
        for number in self.numbers:
            for name in (auto(number), always_full(number)):
                result = self.engine.refresh(name, cut=cut, run_id="benchmark")
                say(f"filled {name}: {result.row_count} rows, {result.seconds['total']:.1f} s")

    def _change(self) -> int:
        with psycopg.connect(self.source) as connection:
            row = connection.execute("UPDATE benchmark_cycle SET n = n + 1 RETURNING n").fetchone()
            cycle = int(row[0]) if row else 0
            touched = 0
            for statement in tpch.refresh_set(cycle, self.churn, self.scale):
                touched += connection.execute(statement.encode()).rowcount
        report = self.engine.capture("benchmark")
        say(f"cycle {cycle}: {touched} rows touched, captured in {report.seconds:.1f} s")
        return report.cut

    def _show(self, outcome: Outcome, differential: Measurement, full: Measurement) -> None:
        result = differential.result
        say(
            f"{outcome.name:>4} {result.strategy.value:12} {differential.seconds:6.2f} s against {full.seconds:6.2f} s "
            f"= {full.seconds / differential.seconds:5.1f}x, delta {result.delta_in} -> {result.delta_out}, "
            f"{differential.jobs} jobs, {differential.bytes_read / 1e6:.1f} MB ({full.bytes_read / 1e6:.1f})"
        )
        if self.trace:
            phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in result.seconds.items())
            say(f"     cpu {differential.cpu_seconds:.2f} against {full.cpu_seconds:.2f} s")
            say(f"     {phases}; full: " + ", ".join(f"{n} {s:.2f}" for n, s in full.result.seconds.items()))

    def _compare(self, outcomes: Sequence[Outcome]) -> None:
        by_name = {auto(outcome.number): outcome for outcome in outcomes}
        queries = [DefiningQuery(TableName(*name.split(".")), tpch.query(o.number)) for name, o in by_name.items()]
        head = self.engine.head()
        with connect() as duck:
            attach(duck, self.lake, "lake", read_only=True)
            for table, answer in postgres_answers(self.source, queries):
                found = compare_with_lake(duck, "lake", table, head, answer)
                by_name[str(table)].equal.append(found.equal)
                if not found.equal:
                    say(f"{table} differs from PostgreSQL in {found.differing} rows: {found.examples}")
        say("compared with PostgreSQL")


def auto(number: int) -> str:
    """The stream table of a query that the engine maintains as it thinks best."""
    return f"tpch.q{number:02}"


def always_full(number: int) -> str:
    """The stream table of a query that is always recomputed."""
    return f"recomputed.q{number:02}"


@contextmanager
def opened(home: Path, options: argparse.Namespace) -> Iterator[Benchmark]:
    """Services, source and project."""
    server = EmbeddedPostgres(home / "postgres", options=POSTGRES)
    server.start()
    try:
        source, catalog = server.create_database("tpch"), server.create_database("lake")
        load(source, options.sf, home)
        yield from _on(source, catalog, home, options)
    finally:
        server.stop()


def _on(source: str, catalog: str, home: Path, options: argparse.Namespace) -> Iterator[Benchmark]:
    tables = [StreamTable(name=auto(n), query=tpch.query(n)) for n in options.queries]
    tables += [StreamTable(name=always_full(n), query=tpch.query(n), refresh_mode="full") for n in options.queries]
    location = LakeLocation(catalog, "main", str(home / "lake"))
    lake = {"catalog": catalog, "data_path": location.data_path}
    project = Project(tables, sources={"tpch": {"dsn": source}}, lake=lake, home=home, name="tpch")
    settings = Settings(home=home, ducklake_sink_failure_mode="error")
    settings = settings.model_copy(update={"spark_conf": {**SPARK, **settings.spark_conf}})
    say("starting Spark")
    spark = spark_session(settings, name="pgtrickle-tpch")
    try:
        with RefreshEngine.open(project, settings, lambda: spark) as engine:
            engine.sync()
            yield Benchmark(engine, spark, source, location, options.sf, options.churn, options.queries, options.trace)
    finally:
        spark.stop()


def load(source: str, scale: float, home: Path) -> None:
    """Make the tables, unless an earlier run left them."""
    with psycopg.connect(source, autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_tables WHERE tablename = 'benchmark_cycle'").fetchone():
            say("going on with the tables of an earlier run")
            return
        say(f"generating TPC-H at scale {scale}")
        with tpch.generate(scale) as generator:
            load_postgres(tpch.TABLES, generator, connection, home, lambda table: say(f"loading {table}"))
        for statement in tpch.INDEXES:
            connection.execute(statement.encode())
        connection.execute("CREATE TABLE benchmark_cycle AS SELECT 0 AS n")
        connection.execute("VACUUM ANALYZE")


def print_table(documents: Sequence[dict[str, Any]], outcomes: Sequence[Outcome], mean: float) -> None:
    """The result for people."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*("query", "strategy", "equal", "differential", "full", "ratio", "delta in", "jobs", "MB read"))
    for document, outcome in zip(documents, outcomes, strict=True):
        table.add_row(
            document["query"],
            document["strategy"],
            "yes" if document["equal"] else "NO",
            f"{document['differential_seconds']:.2f} s",
            f"{document['full_seconds']:.2f} s",
            f"{document['ratio']:.1f}x",
            str(int(median(m.result.delta_in for m in outcome.differential))),
            str(document["jobs"]),
            f"{document['bytes_read'] / 1e6:.1f}",
        )
    console = Console()
    console.print(table)
    console.print(f"geometric mean {mean:.2f}x")


def chart(documents: Sequence[dict[str, Any]], title: str) -> str:
    """Ratios as bars on a logarithmic scale, as SVG."""
    import math

    width, height, base = 36, 260, 200.0
    top = max(4.0, *(document["ratio"] for document in documents))
    per_octave = 170 / math.log2(top)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width * len(documents) + 40}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<text x="20" y="16">{title}</text>',
    ]
    for place, document in enumerate(documents):
        size = math.log2(max(document["ratio"], 0.01)) * per_octave
        x, y = 20 + place * width, base - max(size, 0)
        colour = "#2a7" if size >= 0 else "#c33"
        parts += [
            f'<rect x="{x}" y="{y:.1f}" width="{width - 8}" height="{abs(size):.1f}" fill="{colour}"/>',
            f'<text x="{x}" y="{y - 4:.1f}">{document["ratio"]:.1f}</text>',
            f'<text x="{x}" y="{height - 8}">{document["query"]}</text>',
        ]
    parts += [f'<line x1="20" x2="{20 + width * len(documents)}" y1="{base}" y2="{base}" stroke="#000"/>', "</svg>"]
    return "\n".join(parts) + "\n"


def query_numbers(text: str) -> list[int]:
    """Numbers out of `q1,q6` or `all`."""
    if text == "all":
        return list(tpch.NUMBERS)
    try:
        numbers = [int(part.strip().lower().removeprefix("q")) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list like q1,q6") from None
    if unknown := sorted(set(numbers) - set(tpch.NUMBERS)):
        raise argparse.ArgumentTypeError(f"there is no q{unknown[0]}; TPC-H has q1 to q22")
    return numbers


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sf", type=float, default=0.1, help="scale factor; 1 is 8.7 million rows")
    parser.add_argument("--churn", type=float, default=0.001, help="share of the rows that each cycle changes")
    parser.add_argument("--queries", type=query_numbers, default="all", help="such as q1,q6")
    parser.add_argument("--cycles", type=int, default=3, help="timed cycles")
    parser.add_argument("--home", type=Path, help="folder that is kept")
    parser.add_argument("--chart", type=Path, help="SVG file for a chart of the ratios")
    parser.add_argument("--trace", action="store_true", help="show the phases of each refresh")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pgtrickle-tpch-") as temporary:
        home = options.home or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        with opened(home.resolve(), options) as benchmark:
            outcomes = benchmark.run(options.cycles)
    documents = [outcome.document() for outcome in outcomes]
    mean = geometric_mean(document["ratio"] for document in documents)
    if options.chart:
        title = (
            f"TPC-H, scale {options.sf:g}, churn {options.churn:.2%}: full / differential, geometric mean {mean:.1f}x"
        )
        options.chart.write_text(chart(documents, title), "utf-8")
    if options.json:
        sys.stdout.write(json.dumps({"queries": documents, "geomean_ratio": round(mean, 2)}, indent=1) + "\n")
    else:
        print_table(documents, outcomes, mean)


if __name__ == "__main__":
    main()
