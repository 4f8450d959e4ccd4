"""TPC-H and Nexmark over the whole path: after every cycle PostgreSQL gives the right answer.

CI takes queries that between them use each way of maintenance; the nightly run takes all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgtrickle_assets.demo.oracle import DefiningQuery, compare_with_lake, postgres_answers
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh.model import RefreshResult, Strategy
from tests.e2e.lakehouse import Lakehouse, lakehouse
from tests.integration.query.tables import SampleTable
from tests.workloads import nexmark, tpch
from tests.workloads.loading import load_postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CYCLES = 3

TPCH_SCALE = 0.01
TPCH_CHURN = 0.02
CHOSEN_OF_TPCH = (1, 2, 4, 13, 16, 18, 21)
UNREACHED = {"tpch.q08", "tpch.q18", "tpch.q19", "tpch.q20"}
"""At this scale they have so few rows that no refresh set reaches one."""

EVENTS = 10_000
NEXMARK_CHURN = 0.02
CHOSEN_OF_NEXMARK = (4, 5, 6, 9)


def _load(source: str, tables: Mapping[str, SampleTable], generator: Any, folder: Path) -> None:
    with generator, psycopg.connect(source, autocommit=True) as target:
        load_postgres(tables, generator, target, folder)


@pytest.mark.parametrize(
    "numbers",
    [pytest.param(CHOSEN_OF_TPCH, id="chosen"), pytest.param(tpch.NUMBERS, id="all", marks=pytest.mark.nightly)],
)
def test_tpch_equals_what_postgres_answers_after_every_cycle(
    numbers: Sequence[int], new_database: Callable[[], str], tmp_path: Path, spark: SparkSession
) -> None:
    source = new_database()
    _load(source, tpch.TABLES, tpch.generate(TPCH_SCALE), tmp_path)
    with psycopg.connect(source, autocommit=True) as connection:
        for index in tpch.INDEXES:
            connection.execute(index)
    queries = {f"tpch.q{number:02}": tpch.query(number) for number in numbers}
    databases = iter((source, new_database()))
    with lakehouse(lambda: next(databases), tmp_path, spark, queries) as system:
        cycles = [tpch.refresh_set(cycle, TPCH_CHURN, TPCH_SCALE) for cycle in range(1, CYCLES + 1)]
        _expect_maintained(system, queries, cycles, UNREACHED)


@pytest.mark.parametrize(
    "numbers",
    [pytest.param(CHOSEN_OF_NEXMARK, id="chosen"), pytest.param(nexmark.NUMBERS, id="all", marks=pytest.mark.nightly)],
)
def test_nexmark_equals_what_postgres_answers_after_every_cycle(
    numbers: Sequence[int], new_database: Callable[[], str], tmp_path: Path, spark: SparkSession
) -> None:
    source = new_database()
    _load(source, nexmark.TABLES, nexmark.generate(EVENTS), tmp_path)
    queries = {f"nexmark.q{number}": nexmark.query(number) for number in numbers}
    databases = iter((source, new_database()))
    with lakehouse(lambda: next(databases), tmp_path, spark, queries) as system:
        cycles = [nexmark.refresh_set(cycle, NEXMARK_CHURN, EVENTS) for cycle in range(CYCLES)]
        _expect_maintained(system, queries, cycles)


def _expect_maintained(
    system: Lakehouse,
    queries: dict[str, str],
    cycles: Sequence[Sequence[str]],
    unreached: AbstractSet[str] = frozenset(),
) -> None:
    system.refresh()
    _expect_answers(system, queries)
    moved = dict.fromkeys(queries, 0)
    for statements in cycles:
        system.execute(*statements)
        for name, result in system.refresh().items():
            _expect_differential(name, result)
            moved[name] += result.delta_out
        _expect_answers(system, queries)
    still = {name for name, rows in moved.items() if not rows}
    assert still <= unreached, f"the refresh sets must reach every other query: {moved}"


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
