"""The queries of a generated workload, maintained side by side through its refresh sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgtrickle_assets.query.planner import plan_query
from pgtrickle_assets.query.types import TableSchema
from tests.differential.duckdb_executor import StreamTable, Warehouse, connect
from tests.integration.query.tables import SampleTable

Outcome = BaseException | int
"""The rows that the refreshes of a query moved, or what went wrong."""


@dataclass(frozen=True)
class Workload:
    """Tables with rows, queries on them, and changes.

    Attributes:
        tables: The tables.
        source: A DuckDB that has them filled.
        resolve: Finds the schema of a table.
        queries: Their texts by number.
        cycles: The statements of each cycle, given how a table is called.
    """

    tables: Mapping[str, SampleTable]
    source: Any
    resolve: Callable[[tuple[str, ...]], TableSchema | None]
    queries: Mapping[int, str]
    cycles: Sequence[Callable[[Callable[[str], str]], list[str]]]

    def outcomes(self) -> dict[int, Outcome]:
        """Play all cycles; after each, every query is refreshed and compared with a recompute."""
        warehouse = self._warehouse()
        found: dict[int, Outcome] = dict.fromkeys(self.queries, 0)
        streams = {
            number: StreamTable(warehouse, plan_query(text, resolve=self.resolve))
            for number, text in self.queries.items()
        }
        for cycle in self.cycles:
            for statement in cycle(lambda name: f"new_{name}"):
                warehouse.execute(statement)
            warehouse.take_difference()
            for number, stream in streams.items():
                found[number] = _refreshed(stream, found[number])
            warehouse.settle()
        return found

    def _warehouse(self) -> Warehouse:
        warehouse = Warehouse(connect())
        for name, table in self.tables.items():
            schema = table.schema()
            # Only the new state is a table of its own; statements change it.
            warehouse.create(str(schema.name), schema.columns, new=f"new_{name}")
            columns = ", ".join(column.name for column in schema.columns)
            rows = self.source.execute(f"SELECT {columns} FROM {name}").to_arrow_table()
            warehouse.load(str(schema.name), rows)
        warehouse.settle()
        return warehouse


def _refreshed(stream: StreamTable, outcome: Outcome) -> Outcome:
    if not isinstance(outcome, int):
        return outcome
    try:
        assert stream.maintenance.differential, stream.maintenance.reasons
        moved = sum(stream.refresh().values())
        stream.check()
    except (AssertionError, ValueError) as error:
        return error
    return outcome + moved


def expect_right(outcome: Outcome) -> None:
    """A query was maintained exactly, and the refresh sets reached it."""
    if isinstance(outcome, BaseException):
        raise outcome
    assert outcome, "the refresh sets must reach every query"
