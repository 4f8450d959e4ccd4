"""raw -> bronze -> silver -> gold in one lake: ingestion by day, a stream table, a dbt model, a stream table on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pgtrickle_assets.connections import project_settings
from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.lake.lint import lint
from pgtrickle_assets.project import Project
from pgtrickle_assets.refresh.api import RefreshEngine
from pgtrickle_assets.refresh.workspace import Workspace
from pgtrickle_assets.services.duckdb import connect

pytestmark = pytest.mark.nightly
EXAMPLE = Path(__file__).parents[2] / "examples" / "medallion"
DAYS = 60
PROCESSES = 4
EXPECTED = """
SELECT day, zone, CASE WHEN fare_cents >= 3000 THEN 'long' ELSE 'short' END AS kind, count(*), sum(fare_cents)
FROM (SELECT DISTINCT trip_id, day, zone, fare_cents FROM lake.landing.trips WHERE fare_cents IS NOT NULL) GROUP BY ALL
"""
GOLD = "SELECT day, zone, kind, trips, (revenue * 100)::BIGINT FROM lake.gold.revenue_by_day"

_BACKFILL = """
import sys
import dagster as dg
import medallion
for day in sys.argv[1:]:
    assert dg.materialize([medallion.landed_trips], partition_key=day).success
"""
_PYTHON = {
    "prepare": "import medallion; medallion.prepare()",
    "correct": "import medallion; medallion.ingest_day('2024-01-31', corrected=True)",
    "dbt": (
        "import dagster as dg, medallion\n"
        "resources = {'dbt': medallion.DbtCliResource(project_dir=medallion.dbt_project)}\n"
        "assert dg.materialize([medallion.silver_models], resources=resources).success"
    ),
    "validate": "import dagster as dg, medallion; dg.Definitions.validate_loadable(medallion.defs)",
}


@pytest.fixture
def environment(new_database: Callable[[], str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables for a lake of its own; the tests' processes import the example by its name."""
    pytest.importorskip("dagster_dbt")
    own = {
        "PGTRICKLE_PROJECT": str(EXAMPLE),
        "PGTRICKLE_HOME": str(tmp_path / "home"),
        "PGTRICKLE_CATALOG_DSN": new_database(),
        "PGTRICKLE_DATA_PATH": str(tmp_path / "lake"),
        "DBT_TARGET_PATH": str(tmp_path / "target"),
        "DBT_LOG_PATH": str(tmp_path / "logs"),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.items():
            patch.setenv(name, value)
        paths = [str(EXAMPLE), str(EXAMPLE.parents[1]), os.environ.get("PYTHONPATH", "")]
        # dagster-dbt looks for the command dbt as in an environment that is active.
        patch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        yield {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "DAGSTER_DISABLE_TELEMETRY": "1"}


def _python(environment: dict[str, str], code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _finished(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output[-4000:]


def _rows(workspace: Workspace, query: str) -> Counter[tuple[Any, ...]]:
    with connect() as connection:
        attach(connection, workspace.lake.location)
        return Counter(connection.execute(query).fetchall())


def test_dbt_models_and_stream_tables_read_each_other_over_a_concurrent_backfill(
    environment: dict[str, str], spark: Any
) -> None:
    import datetime

    days = [str(datetime.date(2024, 1, 1) + datetime.timedelta(days=n)) for n in range(DAYS)]
    _finished(_python(environment, _PYTHON["prepare"]))
    _finished(*(_python(environment, _BACKFILL, *days[n::PROCESSES]) for n in range(PROCESSES)))
    project = Project.load(EXAMPLE)
    with Workspace.open(project, project_settings(project), lambda: spark) as workspace:
        engine = RefreshEngine(workspace)

        def refreshed(name: str) -> str:
            engine.sync()
            result = engine.refresh(name)
            assert engine.check_equals_full(name).passed
            return result.strategy.value

        def check() -> None:
            assert _rows(workspace, GOLD) == _rows(workspace, EXPECTED)
            assert lint(workspace.lake) == ()

        assert len(_rows(workspace, "SELECT DISTINCT day FROM lake.landing.trips")) == DAYS
        strategies = [refreshed("bronze.trips")]
        _finished(_python(environment, _PYTHON["dbt"]))
        strategies.append(refreshed("gold.revenue_by_day"))
        check()
        _finished(_python(environment, _PYTHON["correct"]))
        strategies.append(refreshed("bronze.trips"))
        _finished(_python(environment, _PYTHON["dbt"]))
        strategies.append(refreshed("gold.revenue_by_day"))
        check()
        assert strategies == ["full", "full", "differential", "differential"]
        _finished(_python(environment, _PYTHON["validate"]))
