"""The worked examples over the whole path: PostgreSQL, capture, Spark, DuckLake, read back by DuckDB.

Each case runs in five ways: (a) one refresh per batch; (b) the same with a lake snapshot per statement; (c) one refresh
per statement; (d) one refresh at the end; (e) as (a), with a compaction between batches. The normal run takes one case
of each way of maintenance in way (a); the rest is nightly. On DuckDB all of them always run (tests/differential).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pgtrickle_assets.lake.maintenance import CompactionPolicy, compact
from pgtrickle_assets.refresh.model import Strategy
from tests.differential.cases import Case, load, normal
from tests.e2e.lakehouse import Lakehouse, lakehouse

CASES = load()
MODES = ("batch", "statement_snapshots", "statement", "all_at_once", "compaction")
ALWAYS = ("A1", "C1", "C2", "G2")


def _runs() -> Iterator[Any]:
    for case in CASES:
        for mode in MODES:
            nightly = () if case.id in ALWAYS and mode == "batch" else pytest.mark.nightly
            yield pytest.param(case, mode, id=f"{case.id}-{mode}", marks=nightly)


def _setup(case: Case) -> list[str]:
    statements: list[str] = []
    for name, schema in case.tables.items():
        columns = ", ".join(f"{column.name} {_postgres_type(str(column.type))}" for column in schema.columns)
        key = f", PRIMARY KEY ({', '.join(schema.key)})" if schema.key else ""
        # A batch may swap keys in one statement, which an immediate constraint forbids.
        statements.append(f"CREATE TABLE {name} ({columns}{key and key + ' DEFERRABLE INITIALLY DEFERRED'})")
        for row in case.rows[name]:
            values = ", ".join(_literal(value) for value in row)
            statements.append(f"INSERT INTO {name} VALUES ({values})")
    return statements


def _postgres_type(kind: str) -> str:
    return {"int32": "int", "varchar": "text"}.get(kind, kind)


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, (bool, int, float)) else "'" + str(value).replace("'", "''") + "'"


def _expect(system: Lakehouse, case: Case, expected: dict[str, list[list[object]]]) -> None:
    for name, rows in expected.items():
        assert normal(system.lake_rows(f"st.{name}").elements()) == normal(rows), name


def _refresh(system: Lakehouse, case: Case) -> None:
    for name, result in system.refresh().items():
        allowed = {Strategy.NO_CHANGE, Strategy.DIFFERENTIAL}
        if case.mode != "differential":
            allowed.add(Strategy.FULL)
        assert result.strategy in allowed, f"{name}: {result.strategy} because {result.reason}"
        assert result.reason_code


@pytest.mark.parametrize(("case", "mode"), list(_runs()))
def test_case_gives_the_expected_rows_after_every_batch(
    case: Case, mode: str, new_database: Callable[[], str], tmp_path: Path, spark: object
) -> None:
    queries = {f"st.{name}": query for name, query in case.stream_tables.items()}
    with lakehouse(new_database, tmp_path, spark, queries, _setup(case)) as system:
        for result in system.refresh().values():
            assert result.strategy is Strategy.FULL
        if mode == "all_at_once":
            system.execute(*[statement for batch in case.batches for statement in batch])
            _refresh(system, case)
        for batch, expected in zip(case.batches, case.expected, strict=True):
            if mode == "all_at_once":
                break
            if mode in ("batch", "compaction"):
                system.execute(*batch)
            for statement in batch if mode in ("statement", "statement_snapshots") else ():
                system.execute(statement)
                if mode == "statement":
                    _refresh(system, case)
                else:
                    system.engine.capture("test")
            _refresh(system, case)
            _expect(system, case, expected)
            if mode == "compaction":
                compact(system.engine._workspace.lake, policy=CompactionPolicy())
        _expect(system, case, case.expected[-1])
        system.check()
        head = system.engine.head()
        for result in system.refresh().values():
            assert result.strategy is Strategy.NO_CHANGE
        assert system.engine.head() == head, "a refresh without changes makes no snapshot"
