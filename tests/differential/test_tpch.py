"""TPC-H, all 22 queries, maintained through refresh sets that insert, delete and move keys, dates and prices."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest

from pgtrickle_assets.query.planner import plan_query
from tests.differential.duckdb_executor import StreamTable, Warehouse, connect
from tests.integration.query.tpch import QUERIES, TABLES, generate, resolve

SCALE = 0.005
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
        rows = _rows(name)
        connection.register("pgt_rows", rows)
        connection.execute(f"INSERT INTO new_{name} SELECT * FROM pgt_rows")
    warehouse.settle()
    return warehouse


def refresh_set(warehouse: Warehouse, cycle: int) -> None:
    """Insert, delete and update rows of all tables that move in TPC-H, keys included."""
    pick = random.Random(cycle)
    orders = f"o_orderkey % 199 = {pick.randrange(199)}"
    for statement in (
        f"DELETE FROM new_lineitem WHERE l_orderkey IN (SELECT o_orderkey FROM new_orders WHERE {orders})",
        f"DELETE FROM new_orders WHERE {orders} AND o_orderkey % 2 = 0",
        f"INSERT INTO new_orders SELECT o_orderkey + 9000000 + {cycle}, * EXCLUDE (o_orderkey) FROM new_orders "
        f"WHERE o_orderkey % 211 = {cycle}",
        f"INSERT INTO new_lineitem SELECT l_orderkey + 9000000 + {cycle}, * EXCLUDE (l_orderkey) FROM new_lineitem "
        f"WHERE l_orderkey % 211 = {cycle}",
        "UPDATE new_lineitem SET l_partkey = l_partkey % 999 + 1, l_extendedprice = l_extendedprice + 0.01 "
        f"WHERE l_orderkey % 307 = {cycle}",
        f"UPDATE new_lineitem SET l_suppkey = l_suppkey % 49 + 1 WHERE l_orderkey % 311 = {cycle}",
        f"UPDATE new_lineitem SET l_shipdate = l_shipdate + 40, l_receiptdate = l_receiptdate - 20 "
        f"WHERE l_orderkey % 313 = {cycle}",
        f"UPDATE new_orders SET o_custkey = o_custkey % 749 + 1 WHERE o_orderkey % 317 = {cycle}",
        f"UPDATE new_orders SET o_orderdate = o_orderdate + 100 WHERE o_orderkey % 331 = {cycle}",
        f"UPDATE new_customer SET c_nationkey = (c_nationkey + 1) % 25 WHERE c_custkey % 97 = {cycle}",
        f"UPDATE new_customer SET c_acctbal = -c_acctbal WHERE c_custkey % 89 = {cycle}",
        f"UPDATE new_supplier SET s_nationkey = (s_nationkey + 3) % 25 WHERE s_suppkey % 31 = {cycle}",
        f"UPDATE new_partsupp SET ps_supplycost = ps_supplycost / 2, ps_availqty = ps_availqty + 1 "
        f"WHERE ps_partkey % 101 = {cycle}",
        f"UPDATE new_part SET p_size = p_size % 50 + 1 WHERE p_partkey % 103 = {cycle}",
    ):
        warehouse.execute(statement)
    warehouse.take_difference()


@pytest.fixture(scope="module")
def outcomes() -> dict[int, BaseException | int]:
    """Per query the rows that its refreshes moved, or what went wrong; all queries share the tables and cycles."""
    warehouse = _warehouse()
    found: dict[int, BaseException | int] = {}
    streams: dict[int, StreamTable] = {}
    for number in range(1, 23):
        sql = (QUERIES / f"q{number:02}.sql").read_text()
        streams[number] = StreamTable(warehouse, plan_query(sql, resolve=resolve))
        found[number] = 0
    for cycle in range(CYCLES):
        refresh_set(warehouse, cycle)
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


@pytest.mark.parametrize("number", range(1, 23))
def test_tpch_query_is_maintained_exactly(outcomes: dict[int, BaseException | int], number: int) -> None:
    outcome = outcomes[number]
    if isinstance(outcome, BaseException):
        raise outcome
    assert outcome, "the refresh sets must reach every query"
