"""The code location of the example: an ingestion by day, dbt's models, and the project's stream tables.

export PGTRICKLE_PROJECT=examples/medallion
dagster dev -f examples/medallion/medallion.py
"""

import os
import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_dbt import DbtCliResource, DbtProject, dbt_assets

from pgtrickle_assets import Project, build_definitions
from pgtrickle_assets.connections import Connections, project_settings
from pgtrickle_assets.lake.catalog import Lake
from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.services.duckdb import connect

FOLDER = Path(__file__).parent
os.environ.setdefault("PGTRICKLE_PROJECT", str(FOLDER))
PROJECT = Project.load(os.environ["PGTRICKLE_PROJECT"])
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")
"""60 days of history."""

_ATTEMPTS = 10
_TRIPS_A_DAY = 200


def prepare() -> None:
    """Make the lake and the tables in it that others than pgtrickle write; does nothing when they are there."""
    Lake.bootstrap(_location()).close()
    _run(*((text, []) for text in (FOLDER / "setup.sql").read_text(encoding="utf-8").split(";") if text.strip()))


def ingest_day(day: str, *, corrected: bool = False) -> None:
    """Replace one day of raw trips, in one transaction; days may be ingested side by side.

    Args:
        day: The partition, as `2024-01-31`.
        corrected: Deliver the day as it was corrected later: other fares, and trips that came late.
    """
    # A stand-in for the file of that day; a few trips come twice, and a few have no fare.
    start, kind = int(day.replace("-", "")) * 1000, int(corrected)
    _run(
        ("BEGIN", []),
        ("DELETE FROM lake.landing.trips WHERE day = $1::DATE", [day]),
        (
            """
            INSERT INTO lake.landing.trips
            SELECT $2::BIGINT + i - (i % 50 = 1)::INT, $1::DATE, 'zone ' || (i // 2 % 5),
              CASE WHEN i // 2 % 20 = 19 THEN NULL ELSE 500 + i // 2 * 37 + $3::INT * (i // 2 % 3) END
            FROM range($4::BIGINT) t(i) ORDER BY i
            """,
            [day, start, kind, _TRIPS_A_DAY + 10 * kind],
        ),
        ("COMMIT", []),
    )


def _location() -> Any:
    return Connections(PROJECT, project_settings(PROJECT)).lake_location()


def _run(*statements: tuple[str, list[object]]) -> None:
    """Run statements on the lake; again, a few times, when another writer was faster."""
    import duckdb

    for attempt in range(_ATTEMPTS):
        with closing(connect(config={"threads": 1})) as connection:
            attach(connection, _location())
            try:
                for statement, parameters in statements:
                    connection.execute(statement, parameters)
            except duckdb.TransactionException:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return
        time.sleep(random.uniform(0, 0.2 * 2**attempt))  # noqa: S311 - spreads retries


@dg.asset(key=["landing", "trips"], partitions_def=DAYS, group_name="ingestion", kinds={"ducklake"})
def landed_trips(context: dg.AssetExecutionContext) -> None:
    """The trips of one day, as they were delivered."""
    ingest_day(context.partition_key)


dbt_project = DbtProject(project_dir=FOLDER / "dbt", target_path=Path("target"))
if not dbt_project.manifest_path.exists():
    dbt_project.preparer.prepare(dbt_project)


@dbt_assets(manifest=dbt_project.manifest_path, project=dbt_project)
def silver_models(context: dg.AssetExecutionContext, dbt: DbtCliResource) -> Iterator[Any]:
    """Dbt's models, which read stream tables and are read by others."""
    yield from dbt.cli(["build"], context=context).stream()


defs = dg.Definitions.merge(
    build_definitions(PROJECT, made_elsewhere=[*landed_trips.keys, *silver_models.keys]),
    dg.Definitions(assets=[landed_trips, silver_models], resources={"dbt": DbtCliResource(project_dir=dbt_project)}),
)
