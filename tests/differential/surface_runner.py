"""Queries over tables that PostgreSQL changes: maintained on DuckDB, compared with PostgreSQL after every refresh.

A family (surface/*.yaml) is a set of PostgreSQL tables, batches of statements and queries over them. PostgreSQL runs
the statements once; its rows and answers after each statement are kept, and each way of batching replays them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pgtrickle_assets.capture.describe import ColumnChoice, describe
from pgtrickle_assets.query.arrow_types import arrow_type
from pgtrickle_assets.query.plan import QueryPlan
from pgtrickle_assets.query.planner import plan_query
from pgtrickle_assets.query.types import TableSchema
from tests.differential.case_runner import MODES
from tests.differential.duckdb_executor import StreamTable, Warehouse, connect, quote
from tests.integration.query.engines import multiset, postgres_answer, stored_value

FOLDER = Path(__file__).parent / "surface"
Answers = dict[str, Counter[tuple[Any, ...]]]


@dataclass(frozen=True)
class Family:
    """Tables, batches and queries; `full` gives the reason code of each query that is not differential."""

    name: str
    tables: list[str]
    batches: list[list[str]]
    queries: dict[str, str]
    full: dict[str, str]
    refused: dict[str, str]


def load() -> list[Family]:
    """All families, by name."""
    return [read(path) for path in sorted(FOLDER.glob("*.yaml"))]


def read(path: Path) -> Family:
    """One family."""
    data = yaml.safe_load(path.read_text())
    return Family(
        path.stem,
        data["tables"],
        data["batches"],
        data["queries"],
        data.get("full") or {},
        data.get("refused") or {},
    )


@dataclass
class Recording:
    """What PostgreSQL held and answered before the first statement and after each."""

    schemas: dict[str, TableSchema]
    plans: dict[str, QueryPlan]
    contents: list[dict[str, Any]]
    answers: list[Answers]


def schemas_of(connection: Any) -> dict[str, TableSchema]:
    """The tables of the database as capture sees them."""
    found = describe(connection, None, ColumnChoice())
    return {name.name: table.schema for name, table in found.items() if name.schema == "public"}


def plan_over(sql: str, schemas: dict[str, TableSchema]) -> QueryPlan:
    """The plan of a query over tables of the schema public."""
    return plan_query(sql, resolve=lambda parts: schemas.get(parts[-1]) if parts[:-1] in ((), ("public",)) else None)


def record(family: Family, connection: Any) -> Recording:
    """Run the family's statements on an empty database."""
    connection.execute("SET timezone = 'UTC'")
    for statement in family.tables:
        connection.execute(statement)
    schemas = schemas_of(connection)
    plans = {name: plan_over(sql, schemas) for name, sql in family.queries.items()}
    recording = Recording(schemas, plans, [], [])
    _remember(recording, family, connection)
    for batch in family.batches:
        for statement in batch:
            connection.execute(statement)
            _remember(recording, family, connection)
    return recording


def _remember(recording: Recording, family: Family, connection: Any) -> None:
    recording.contents.append({name: contents(connection, schema) for name, schema in recording.schemas.items()})
    recording.answers.append(
        {name: postgres_answer(connection, sql, recording.plans[name]) for name, sql in family.queries.items()}
    )


def contents(connection: Any, schema: TableSchema) -> Any:
    """The rows of a table as an Arrow table with the types of the lake."""
    import pyarrow as pa

    names = ", ".join(quote(column.name) for column in schema.columns)
    rows = connection.execute(f"SELECT {names} FROM {quote(schema.name.name)}").fetchall()
    arrays = [
        pa.array([stored_value(row[i], column.type) for row in rows], arrow_type(column.type))
        for i, column in enumerate(schema.columns)
    ]
    return pa.table(arrays, names=[column.name for column in schema.columns])


class Replay:
    """Stream tables over a warehouse that follows a recording."""

    def __init__(self, recording: Recording, names: Iterable[str], full: dict[str, str]) -> None:
        self.recording = recording
        self.warehouse = Warehouse(connect())
        for schema in recording.schemas.values():
            self.warehouse.create(str(schema.name), schema.columns)
        self.move_to(0)
        self.warehouse.settle()
        self.streams: dict[str, StreamTable] = {}
        for name in names:
            stream = StreamTable(self.warehouse, recording.plans[name])
            assert [reason.code for reason in stream.maintenance.reasons] == ([full[name]] if name in full else [])
            if name not in full:
                self.streams[name] = stream
        self.expect(0)

    def move_to(self, position: int) -> None:
        """Give the base tables the rows that PostgreSQL had after so many statements."""
        for name, rows in self.recording.contents[position].items():
            self.warehouse.load(str(self.recording.schemas[name].name), rows)

    def refresh(self, position: int) -> None:
        """Refresh and compare with a recompute and with PostgreSQL."""
        for stream in self.streams.values():
            stream.refresh()
            stream.check()
        self.warehouse.settle()
        self.expect(position)
        for stream in self.streams.values():
            assert stream.refresh() == {}, "a refresh without changes must do nothing"

    def expect(self, position: int) -> None:
        for name, stream in self.streams.items():
            expected = self.recording.answers[position][name]
            actual = multiset(stream.visible(), self.recording.plans[name])
            assert actual == expected, f"{name}: missing {expected - actual}, surplus {actual - expected}"


def _stops(family: Family, mode: str) -> Iterator[list[int]]:
    """The statement counts of each refresh; a list of several where each statement has a delta of its own."""
    position = 0
    for batch in family.batches:
        steps = list(range(position + 1, position + len(batch) + 1))
        position += len(batch)
        if mode == "statement":
            yield from ([step] for step in steps)
        elif mode == "statement_deltas":
            yield steps
        elif mode != "all_at_once":
            yield steps[-1:]
    if mode == "all_at_once":
        yield [position]


def replay(family: Family, recording: Recording, names: Iterable[str], mode: str) -> None:
    """Maintain some queries of a family in one way of batching; AssertionError where a row differs."""
    assert mode in MODES
    run = Replay(recording, names, family.full)
    for steps in _stops(family, mode):
        for step in steps:
            run.move_to(step)
            if mode == "statement_deltas":
                run.warehouse.add_difference()
        if mode != "statement_deltas":
            run.warehouse.take_difference()
        if mode == "compaction":
            run.warehouse.rewrite()
        run.refresh(steps[-1])
