"""A day of one-minute refreshes: how many files a table has, how much is read in vain, and how long a refresh takes.

    python benchmarks/upkeep.py --refreshes 1440 --chart upkeep.svg

Each step changes some rows of the source, captures them and refreshes every stream table through the refresh engine, in
one process with one Spark session. Maintenance runs as often as its schedule says: after every 60 steps.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psycopg  # noqa: TID253 (a script is not loaded by a code location)

from pgtrickle_assets.lake.lint import lint
from pgtrickle_assets.project import Project
from pgtrickle_assets.refresh.api import RefreshEngine
from pgtrickle_assets.refresh.upkeep import maintain
from pgtrickle_assets.refresh.workspace import Workspace
from pgtrickle_assets.services.postgres import EmbeddedPostgres
from pgtrickle_assets.services.spark import spark_session
from pgtrickle_assets.settings import Settings
from pgtrickle_assets.stream_table import StreamTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pgtrickle_assets.lake.catalog import Lake

STEPS_PER_MAINTENANCE = 60
ROWS = 20_000
TABLES = (
    StreamTable(
        name="silver.orders",
        query="SELECT o.id, o.day, c.name, o.amount FROM orders o JOIN customers c ON c.id = o.customer",
        partition_by="day(day)",
    ),
    StreamTable(
        name="gold.by_customer",
        query="SELECT name, count(*) AS n, sum(amount) AS total, max(amount) AS top FROM silver.orders GROUP BY name",
    ),
)
SETUP = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text)",
    "CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(12,2), day date)",
    "INSERT INTO customers SELECT i, 'customer ' || i FROM generate_series(1, 500) i",
    f"INSERT INTO orders SELECT i, i % 500 + 1, i % 997, date '2024-01-01' + i * 30 / {ROWS}"
    f" FROM generate_series(1, {ROWS}) i",
)


@dataclass(frozen=True)
class Sample:
    """One table after one step.

    Attributes:
        files: Live data files.
        delete_files: Those of them with deleted rows.
        files_per_partition: Live data files of its largest partition.
        amplification: Rows in the live files for each live row; 1.0 when nothing is read in vain.
    """

    files: int
    delete_files: int
    files_per_partition: int
    amplification: float


@dataclass
class Day:
    """What was measured.

    Attributes:
        seconds: Duration of each step's refreshes.
        samples: By table, one for each step.
        maintenances: Report and duration of each maintenance.
        strategies: By stream table, how many refreshes took which strategy, the first fill left out.
        after_maintenance: Strategies of the refreshes that followed a maintenance without a change of the source.
    """

    seconds: list[float] = field(default_factory=list)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    maintenances: list[dict[str, Any]] = field(default_factory=list)
    strategies: dict[str, dict[str, int]] = field(default_factory=dict)
    after_maintenance: list[str] = field(default_factory=list)


def simulate(
    source: str,
    catalog: str,
    folder: Path,
    spark: SparkSession,
    refreshes: int,
    *,
    maintain_every: int = STEPS_PER_MAINTENANCE,
    seed: int = 1,
    progress: bool = False,
) -> tuple[Day, list[str]]:
    """Play a day; what was measured, and the problems that are left at its end."""
    with psycopg.connect(source) as connection:
        for statement in SETUP:
            connection.execute(statement)
    project = Project(
        TABLES,
        sources={"shop": {"dsn": source}},
        lake={"catalog": catalog, "data_path": str(folder / "lake")},
        home=folder,
        name="upkeep",
    )
    settings = Settings(home=folder, ducklake_sink_failure_mode="error")
    choice = random.Random(seed)
    day = Day()
    with Workspace.open(project, settings, lambda: spark) as workspace:
        engine, lake = RefreshEngine(workspace), workspace.lake
        engine.sync()
        _refresh(engine)
        started = time.monotonic()
        for step in range(1, refreshes + 1):
            _change(source, choice, step)
            begun = time.monotonic()
            for name, strategy in _refresh(engine).items():
                counts = day.strategies.setdefault(name, {})
                counts[strategy] = counts.get(strategy, 0) + 1
            day.seconds.append(time.monotonic() - begun)
            _sample(lake, day)
            if step % maintain_every == 0:
                # History is kept from one maintenance to the next, as long as that took here.
                hour = (time.monotonic() - started) / step * maintain_every / 3600
                _maintain(lake, settings, day, hour)
                day.after_maintenance += _refresh(engine).values()
            if progress and step % 20 == 0:
                sys.stderr.write(f"\r{step} of {refreshes} refreshes, {median(day.seconds[-20:]):.2f} s each ")
        problems = [
            f"{name}: {report.detail}"
            for name in project.order
            if not (report := engine.check_equals_full(name)).passed
        ]
        problems += [f"{problem.rule}: {problem.detail}" for problem in lint(lake)]
    return day, problems


def _change(source: str, choice: random.Random, step: int) -> None:
    """What a minute brings: new orders of today, corrections of the last days, a few cancellations."""
    today = 30 + step // 1440
    first = ROWS + step * 100
    with psycopg.connect(source) as connection:
        connection.execute(
            "INSERT INTO orders SELECT %s + i, i %% 500 + 1, i, date '2024-01-01' + %s FROM generate_series(1, 20) i",
            (first, today),
        )
        recent = connection.execute("SELECT id FROM orders ORDER BY day DESC, id LIMIT 3000").fetchall()
        picked = [row[0] for row in choice.sample(recent, 30)]
        connection.execute("UPDATE orders SET amount = amount + 1 WHERE id = ANY(%s)", (picked[:20],))
        connection.execute("DELETE FROM orders WHERE id = ANY(%s)", (picked[20:],))


def _refresh(engine: RefreshEngine) -> dict[str, str]:
    cut = engine.capture("upkeep").cut
    return {name: engine.refresh(name, cut=cut).strategy.value for name in engine.project.order}


def _maintain(lake: Lake, settings: Settings, day: Day, hour: float) -> None:
    aged = settings.model_copy(
        update={"snapshot_retention_hours": hour, "old_files_retention_hours": hour, "orphan_retention_hours": hour}
    )
    begun = time.monotonic()
    report = maintain(lake, aged)
    day.maintenances.append({**report.as_dict(), "seconds": time.monotonic() - begun})


def _sample(lake: Lake, day: Day) -> None:
    for table in lake.tables():
        scan = lake.scan(table)
        partitions: dict[object, int] = {}
        for file in scan.files:
            partitions[file.partition_values] = partitions.get(file.partition_values, 0) + 1
        stored = sum(file.record_count for file in scan.files)
        day.samples.setdefault(str(table.name), []).append(
            Sample(
                len(scan.files),
                sum(file.deletes is not None for file in scan.files),
                max(partitions.values(), default=0),
                stored / scan.row_count if scan.row_count else 1.0,
            )
        )


def summary(day: Day, problems: Sequence[str]) -> dict[str, Any]:
    """One document of what was measured."""
    tenth = max(1, len(day.seconds) // 10)
    return {
        "refreshes": len(day.seconds),
        "equal": not problems,
        "problems": list(problems),
        "strategies": day.strategies,
        "after_maintenance": sorted(set(day.after_maintenance)),
        "seconds_first_tenth": round(median(day.seconds[:tenth]), 3),
        "seconds_last_tenth": round(median(day.seconds[-tenth:]), 3),
        "maintenance_seconds": [round(row["seconds"], 2) for row in day.maintenances],
        "expired_snapshots": sum(row["expired_snapshots"] for row in day.maintenances),
        "deleted_files": sum(row["deleted_files"] for row in day.maintenances),
        "left_alone": sum(len(row["left_alone"]) for row in day.maintenances),
        "tables": {
            name: {
                "most_files": max(sample.files for sample in samples),
                "most_files_per_partition": max(sample.files_per_partition for sample in samples),
                "files_at_end": samples[-1].files,
                "worst_amplification": round(max(sample.amplification for sample in samples), 3),
                "amplification_at_end": round(samples[-1].amplification, 3),
            }
            for name, samples in sorted(day.samples.items())
        },
    }


def chart(day: Day, path: Path) -> None:
    """Files per table, rows read for each live row and seconds per refresh over the day, as an SVG picture."""
    panels = [
        ("data files", {name: [s.files for s in samples] for name, samples in day.samples.items()}),
        ("rows read per live row", {name: [s.amplification for s in samples] for name, samples in day.samples.items()}),
        ("seconds per refresh", {"all stream tables": day.seconds}),
    ]
    width, height, left, gap = 900, 180, 60, 50
    colours = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2")
    total = len(panels) * (height + gap) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + left + 240}" height="{total}"'
        ' font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (title, series) in enumerate(panels):
        top = 30 + number * (height + gap)
        highest = max((max(values) for values in series.values() if values), default=1.0) or 1.0
        parts.append(f'<text x="{left}" y="{top - 8}" font-weight="bold">{title}</text>')
        parts.append(f'<text x="4" y="{top + 10}">{highest:.4g}</text><text x="4" y="{top + height}">0</text>')
        parts.append(f'<path d="M{left} {top}V{top + height}H{left + width}" fill="none" stroke="#999"/>')
        for index, (name, values) in enumerate(sorted(series.items())):
            colour = colours[index % len(colours)]
            step = width / max(1, len(values) - 1)
            points = " ".join(
                f"{left + i * step:.1f},{top + height * (1 - value / highest):.1f}" for i, value in enumerate(values)
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1"/>')
            parts.append(f'<text x="{left + width + 10}" y="{top + 14 * (index + 1)}" fill="{colour}">{name}</text>')
    parts.append("</svg>")
    path.write_text("\n".join(parts), encoding="utf-8")


def main() -> None:
    """Play a day on a temporary server and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refreshes", type=int, default=1440, help="minutes to play (default: a day)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--chart", type=Path, help="write an SVG picture")
    parser.add_argument("--samples", type=Path, help="write every sample as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="upkeep") as name:
        folder = Path(name)
        unsafe = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        server = EmbeddedPostgres(folder / "postgres", options=unsafe)
        server.start()
        try:
            session = spark_session(
                Settings(spark_master="local[2]", spark_driver_memory="1g", spark_scratch_dir=folder / "spark"),
                name="upkeep",
            )
            source, catalog = server.create_database("source"), server.create_database("catalog")
            day, problems = simulate(source, catalog, folder, session, options.refreshes, progress=not options.json)
            session.stop()
        finally:
            server.stop()
    found = summary(day, problems)
    if options.chart:
        chart(day, options.chart)
    if options.samples:
        options.samples.write_text(json.dumps(asdict(day)), encoding="utf-8")
    print(json.dumps(found, indent=None if options.json else 2))
    sys.exit(0 if found["equal"] else 1)


if __name__ == "__main__":
    main()
