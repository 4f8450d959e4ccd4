"""Maintains the stream tables of a worked example on DuckDB, its statements cut into batches in one of five ways."""

from __future__ import annotations

from collections.abc import Iterable

from pgtrickle_assets.query.planner import plan_query
from pgtrickle_assets.query.types import TableSchema
from tests.differential.cases import Case, normal
from tests.differential.duckdb_executor import StreamTable, Warehouse, connect

MODES = ("batch", "statement_deltas", "statement", "all_at_once", "compaction")
"""(a) one refresh per batch with its net delta; (b) the same with one delta per statement, not netted; (c) one refresh
per statement; (d) one refresh at the end; (e) as (a), with all rows of every touched table rewritten, as a compaction
beside real changes leaves it."""


class Project:
    """The stream tables of a case over its tables."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.warehouse = Warehouse(connect())
        for name, schema in case.tables.items():
            self.warehouse.create(str(schema.name), schema.columns, case.rows[name], new=name)
        self.streams = {name: self._stream(sql) for name, sql in case.stream_tables.items()}

    def _stream(self, sql: str) -> StreamTable:
        return StreamTable(self.warehouse, plan_query(sql, resolve=self._resolve))

    def _resolve(self, parts: tuple[str, ...]) -> TableSchema | None:
        return self.case.tables.get(parts[-1])

    def refresh(self) -> None:
        for name, stream in self.streams.items():
            if self.case.mode == "differential":
                assert stream.maintenance.differential, f"{name}: {stream.maintenance.reasons}"
            stream.refresh()
            stream.check()
        self.warehouse.settle()
        for stream in self.streams.values():
            assert stream.refresh() == {}, "a refresh without changes must do nothing"

    def expect(self, expected: dict[str, list[list[object]]]) -> None:
        for name, rows in expected.items():
            assert normal(self.streams[name].rows().elements()) == normal(rows), name


def _batches(case: Case, mode: str) -> Iterable[list[str]]:
    if mode == "statement":
        return [[statement] for batch in case.batches for statement in batch]
    if mode == "all_at_once":
        return [[statement for batch in case.batches for statement in batch]]
    return case.batches


def maintain(case: Case, mode: str) -> None:
    """Refresh and check after every batch; AssertionError where a stream table is wrong."""
    project = Project(case)
    for number, statements in enumerate(_batches(case, mode)):
        for statement in statements:
            project.warehouse.execute(statement)
            if mode == "statement_deltas":
                project.warehouse.add_difference()
        if mode != "statement_deltas":
            project.warehouse.take_difference()
        if mode == "compaction":
            project.warehouse.rewrite()
        project.refresh()
        if mode not in ("statement", "all_at_once"):
            project.expect(case.expected[number])
    project.expect(case.expected[-1])
