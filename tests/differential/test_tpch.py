"""TPC-H, all 22 queries, maintained through refresh sets that insert, delete and move keys, dates and prices."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from pgtrickle_assets.query.planner import plan_query
from tests.differential.duckdb_executor import StreamTable, Warehouse, connect
from tests.workloads.tpch import NUMBERS, TABLES, generate, query, refresh_set, resolve

SCALE = 0.005
CHURN = 0.03
CYCLES = 3


@cache
def _source() -> Any:
    return generate(SCALE)


@cache
def _rows(name: str) -> Any:
    columns = ", ".join(column.name for column in TABLES[name].schema().columns)
    return _source().execute(f"SELECT {columns} FROM {name}").to_arrow_table()


def _warehouse() -> Warehouse:
    connection = connect()
    warehouse = Warehouse(connection)
    for name, table in TABLES.items():
        schema = table.schema()
        # Only the new state is a table of its own; statements below change it.
        warehouse.create(str(schema.name), schema.columns, new=f"new_{name}")
        warehouse.load(str(schema.name), _rows(name))
    warehouse.settle()
    return warehouse


def _change(warehouse: Warehouse, cycle: int) -> None:
    for statement in refresh_set(cycle, CHURN, SCALE, lambda name: f"new_{name}"):
        warehouse.execute(statement)
    warehouse.take_difference()


@pytest.fixture(scope="module")
def outcomes() -> dict[int, BaseException | int]:
    """Per query the rows that its refreshes moved, or what went wrong; all queries share the tables and cycles."""
    warehouse = _warehouse()
    found: dict[int, BaseException | int] = {}
    streams: dict[int, StreamTable] = {}
    for number in NUMBERS:
        streams[number] = StreamTable(warehouse, plan_query(query(number), resolve=resolve))
        found[number] = 0
    for cycle in range(CYCLES):
        _change(warehouse, cycle)
        for number, stream in streams.items():
            _refresh(stream, number, found)
        warehouse.settle()
    return found


def _refresh(stream: StreamTable, number: int, found: dict[int, BaseException | int]) -> None:
    moved = found[number]
    if not isinstance(moved, int):
        return
    try:
        assert stream.maintenance.differential, stream.maintenance.reasons
        found[number] = moved + sum(stream.refresh().values())
        stream.check()
    except (AssertionError, ValueError) as error:
        found[number] = error


@pytest.mark.parametrize("number", NUMBERS)
def test_tpch_query_is_maintained_exactly(outcomes: dict[int, BaseException | int], number: int) -> None:
    outcome = outcomes[number]
    if isinstance(outcome, BaseException):
        raise outcome
    assert outcome, "the refresh sets must reach every query"
