"""TPC-H over the whole path: PostgreSQL, capture, Spark, DuckLake; after every cycle PostgreSQL gives the right answer.

CI takes queries that between them use each way of maintenance; the nightly run takes all 22.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from pgtrickle_assets.demo.oracle import DefiningQuery, compare_with_lake, postgres_answers
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh.model import RefreshResult, Strategy
from tests.e2e.lakehouse import Lakehouse, lakehouse
from tests.workloads import tpch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALE = 0.01
CHURN = 0.02
CYCLES = 3
CHOSEN = (1, 2, 4, 13, 16, 18, 21)
UNREACHED = {"tpch.q08", "tpch.q18", "tpch.q19", "tpch.q20"}
"""At this scale they have so few rows that no refresh set reaches one."""


@pytest.fixture
def loaded(new_database: Callable[[], str], tmp_path: Path) -> str:
    """A database with the tables."""
    source = new_database()
    with tpch.generate(SCALE) as generator, psycopg.connect(source, autocommit=True) as target:
        tpch.load_postgres(generator, target, tmp_path)
        for index in tpch.INDEXES:
            target.execute(index)
    return source


@pytest.mark.parametrize(
    "numbers", [pytest.param(CHOSEN, id="chosen"), pytest.param(tpch.NUMBERS, id="all", marks=pytest.mark.nightly)]
)
def test_tpch_equals_what_postgres_answers_after_every_cycle(
    numbers: Sequence[int], loaded: str, new_database: Callable[[], str], tmp_path: Path, spark: SparkSession
) -> None:
    queries = {f"tpch.q{number:02}": tpch.query(number) for number in numbers}
    databases = iter((loaded, new_database()))
    with lakehouse(lambda: next(databases), tmp_path, spark, queries) as system:
        system.refresh()
        _expect_answers(system, queries)
        moved = dict.fromkeys(queries, 0)
        for cycle in range(1, CYCLES + 1):
            system.execute(*tpch.refresh_set(cycle, CHURN, SCALE))
            for name, result in system.refresh().items():
                _expect_differential(name, result)
                moved[name] += result.delta_out
            _expect_answers(system, queries)
        still = {name for name, rows in moved.items() if not rows}
        assert still <= UNREACHED, f"the refresh sets must reach every other query: {moved}"


def _expect_differential(name: str, result: RefreshResult) -> None:
    # Every cycle changes every column that any of the queries reads, so `no_change` would be wrong as well.
    assert result.strategy is Strategy.DIFFERENTIAL, f"{name}: {result.strategy} because {result.reason}"


def _expect_answers(system: Lakehouse, queries: dict[str, str]) -> None:
    asked = [DefiningQuery(TableName(*name.split(".")), query) for name, query in queries.items()]
    head = system.engine.head()
    with system.duckdb() as duck:
        for table, answer in postgres_answers(system.source, asked):
            found = compare_with_lake(duck, "lake", table, head, answer)
            assert found.equal, f"{table} differs in {found.differing} rows: {found.examples}"
