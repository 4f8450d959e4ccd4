"""Runs maintenance plans on DuckDB and compares what they maintain with a full recompute.

Each step reads only the rows that the search for rows that matter leaves, as on Spark.

Base tables are bags kept in two versions with the Z-set between them. State relations and the visible result are stored
bags to which the deltas of a run are applied by (content, count); a count that would become negative is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from pgtrickle_assets.differential.derive import MaintenancePlan, derive
from pgtrickle_assets.differential.steps import RESULT, DeriveOptions, InputChange, Picked, Step, ValueRange
from pgtrickle_assets.query.plan import Node, QueryPlan, Scan, Version
from pgtrickle_assets.query.render import render
from pgtrickle_assets.query.render_types import type_name
from pgtrickle_assets.query.types import ColumnSchema
from pgtrickle_assets.refresh.key_filter import RangeFilter, ScanFilter
from pgtrickle_assets.refresh.relations import Relations
from pgtrickle_assets.refresh.scan_filters import Reading, ScanFilterSearch
from pgtrickle_assets.refresh.steps_runner import picked_rows

if TYPE_CHECKING:
    import duckdb

WEIGHT = "__pgt_weight"
_PLACE = "__pgt_place"
Rows = Iterable[Sequence[Any]]


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def connect() -> duckdb.DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def constant(value: Any) -> str:
    """A value as a DuckDB literal that keeps every digit."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return f"'{value}'::DOUBLE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(constant, value))}]"
    return "'" + str(value).replace("'", "''") + "'"


class MismatchError(AssertionError):
    """What is maintained differs from what the query gives."""


@dataclass
class Table:
    """A stored bag with its state before and after the batch that is being applied."""

    columns: tuple[ColumnSchema, ...]
    old: str
    new: str
    delta: str


@dataclass
class Warehouse:
    """Base tables and stream tables in one DuckDB."""

    connection: duckdb.DuckDBPyConnection
    tables: dict[str, Table] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    made: int = 0

    def fresh(self, label: str) -> str:
        self.made += 1
        return f"{label}_{self.made}"

    def create(self, name: str, columns: Sequence[ColumnSchema], rows: Rows = (), new: str = "") -> None:
        """A base table with its rows; `new` is the DuckDB table of its new state, for DML statements."""
        old, delta = self.fresh("old"), self.fresh("delta")
        new = quote(new) if new else self.fresh("new")
        listed = ", ".join(f"{quote(c.name)} {type_name(c.type, 'duckdb')}" for c in columns)
        for table in (old, new):
            self.connection.execute(f"CREATE TABLE {table} ({listed})")
        self.connection.execute(f"CREATE TABLE {delta} ({listed}, {WEIGHT} BIGINT)")
        self.tables[name] = Table(tuple(columns), old, new, delta)
        self._insert(new, rows)
        self.touched.add(name)
        self.settle()

    def _insert(self, table: str, rows: Rows) -> None:
        listed = ", ".join(f"({', '.join(map(constant, row))})" for row in rows)
        if listed:
            self.connection.execute(f"INSERT INTO {table} VALUES {listed}")

    def load(self, name: str, rows: Any) -> None:
        """Give the new state of a base table these rows (an Arrow table with its columns)."""
        table = self.tables[name]
        columns = ", ".join(f"CAST({quote(c.name)} AS {type_name(c.type, 'duckdb')})" for c in table.columns)
        self.connection.register("pgt_incoming", rows)
        self.connection.execute(f"DELETE FROM {table.new}")
        self.connection.execute(f"INSERT INTO {table.new} SELECT {columns} FROM pgt_incoming")
        self.connection.unregister("pgt_incoming")
        self.touched.add(name)

    def change(self, name: str, delta: Rows) -> None:
        """Add rows with a weight as last value to the delta of a base table."""
        self._insert(self.tables[name].delta, delta)
        self.touched.add(name)

    def execute(self, statement: str) -> None:
        """Run a DML statement against the new state of the base tables (views named as in the query)."""
        self.connection.execute(statement)

    def apply(self) -> None:
        """Bring the new state of base tables to old + delta."""
        for table in map(self.tables.__getitem__, self.touched):
            _apply(self.connection, table.old, table.delta, table.new, table.columns)

    def take_difference(self) -> None:
        """Make each base table's delta the difference between its two states."""
        self.touched.update(self.tables)
        for table in self.tables.values():
            names = ", ".join(quote(c.name) for c in table.columns)
            self.connection.execute(f"DELETE FROM {table.delta}")
            self.connection.execute(
                f"INSERT INTO {table.delta} SELECT {names}, CAST(sum(pgt_n) AS BIGINT) FROM "
                f"(SELECT {names}, 1 AS pgt_n FROM {table.new} UNION ALL SELECT {names}, -1 FROM {table.old}) "
                "GROUP BY ALL HAVING sum(pgt_n) <> 0"
            )

    def add_difference(self) -> None:
        """Add to each delta what changed since the last call, so that a row may come and go in it several times."""
        self.touched.update(self.tables)
        for table in self.tables.values():
            names = ", ".join(quote(c.name) for c in table.columns)
            self.connection.execute(f"CREATE TABLE IF NOT EXISTS {table.delta}_seen AS SELECT * FROM {table.old}")
            self.connection.execute(
                f"INSERT INTO {table.delta} SELECT {names}, -1 FROM {table.delta}_seen UNION ALL SELECT {names}, 1 "
                f"FROM {table.new}"
            )
            self.connection.execute(f"CREATE OR REPLACE TABLE {table.delta}_seen AS SELECT * FROM {table.new}")

    def rewrite(self) -> None:
        """Add a retraction and an insertion of every row to the delta of each changed table."""
        for name in self.changes():
            table = self.tables[name]
            names = ", ".join(quote(c.name) for c in table.columns)
            self.connection.execute(
                f"INSERT INTO {table.delta} SELECT {names}, 1 FROM {table.old} UNION ALL "
                f"SELECT {names}, -1 FROM {table.old}"
            )

    def settle(self) -> None:
        """The new state becomes the old one."""
        for table in map(self.tables.__getitem__, self.touched):
            self.connection.execute(f"DELETE FROM {table.old}")
            self.connection.execute(f"INSERT INTO {table.old} SELECT * FROM {table.new}")
            self.connection.execute(f"DELETE FROM {table.delta}")
        self.touched.clear()

    def changes(self) -> dict[str, InputChange]:
        found: dict[str, InputChange] = {}
        for name in sorted(self.touched):
            table = self.tables[name]
            low, high = self.connection.execute(f"SELECT min({WEIGHT}), max({WEIGHT}) FROM {table.delta}").fetchone()
            if low is not None:
                found[name] = InputChange(inserts=high > 0, deletes=low < 0)
        return found


def _apply(
    connection: duckdb.DuckDBPyConnection, old: str, delta: str, new: str, columns: Sequence[ColumnSchema]
) -> None:
    names = ", ".join(quote(c.name) for c in columns)
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE pgt_counts AS SELECT {names}, sum(pgt_n) AS pgt_n FROM "
        f"(SELECT {names}, 1 AS pgt_n FROM {old} UNION ALL SELECT {names}, {WEIGHT} FROM {delta}) "
        "GROUP BY ALL HAVING sum(pgt_n) <> 0"
    )
    negative = connection.execute("SELECT * FROM pgt_counts WHERE pgt_n < 0").fetchall()
    if negative:
        raise MismatchError(f"{delta} deletes rows that {old} does not hold: {negative[:5]}")
    connection.execute(f"DELETE FROM {new}")
    connection.execute(
        f"INSERT INTO {new} SELECT {names} FROM pgt_counts, range(CAST(pgt_n AS BIGINT)) AS copies(copy)"
    )


class StreamTable:
    """One maintained query: its result and state relations, and the log of what each refresh did."""

    def __init__(self, warehouse: Warehouse, plan: QueryPlan, options: DeriveOptions | None = None) -> None:
        self.warehouse = warehouse
        self.connection = warehouse.connection
        self.plan = plan
        self.maintenance: MaintenancePlan = derive(plan, options)
        self.stored: dict[str, Table] = {}
        self.statements: list[str] = []
        self.ran: list[Step] = []
        self._steps: dict[str, str] = {}
        self._selected: dict[Scan, str] = {}
        for step in self.maintenance.full_steps():
            self._store_full(step)

    def _store_full(self, step: Step) -> None:
        old, new, delta = (self.warehouse.fresh(part) for part in ("old", "new", "delta"))
        self._materialize(new, step)
        self.connection.execute(f"CREATE TABLE {old} AS SELECT * FROM {new}")
        self.connection.execute(f"CREATE TABLE {delta} AS SELECT *, 0::BIGINT AS {WEIGHT} FROM {new} WHERE false")
        self.stored[step.target] = Table(step.columns, old, new, delta)

    def _materialize(self, table: str, step: Step, query: Node | None = None) -> int:
        query = query or step.query
        names = [c.name for c in step.output_columns] + ([WEIGHT] if step.weighted else [])
        output = [(column.id, name) for column, name in zip(query.output, names, strict=True)]
        text = render(query, "duckdb", self._relation, output)
        self.statements.append(f"-- {step.target} ({step.role}, {step.rule})\n{text}")
        self.connection.execute(f"CREATE OR REPLACE TABLE {table} AS {text}")
        found = self.connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(found[0])

    def _relation(self, scan: Scan) -> str:
        return self._selected.get(scan) or self.table_of(scan)

    def table_of(self, scan: Scan) -> str:
        """The table that a scan reads."""
        table = self.warehouse.tables.get(scan.relation) or self.stored.get(scan.relation)
        if table is None:
            return self._steps[scan.relation]
        match scan.version:
            case Version.OLD:
                return table.old
            case Version.DELTA:
                return table.delta
            case _:
                return table.new

    def _small_states(self) -> frozenset[str]:
        """States of up to three rows, so that runs cross the line between small and large ones."""
        rows = {
            name: self.connection.execute(f"SELECT count(*) FROM {table.old}").fetchone()[0]
            for name, table in self.stored.items()
        }
        return frozenset(name for name, count in rows.items() if count <= 3)

    def refresh(self) -> dict[str, int]:
        """Run the delta steps and apply them; gives the number of rows of each step's output."""
        steps = self.maintenance.delta_steps(self.warehouse.changes(), self._small_states())
        self._steps = {}
        self.statements = []
        self.ran = list(steps)
        counts: dict[str, int] = {}
        for table in self.stored.values():
            self.connection.execute(f"DELETE FROM {table.delta}")

        def is_empty(scan: Scan) -> bool:
            if scan.relation in counts and (scan.version is Version.DELTA or scan.relation in self._steps):
                return counts[scan.relation] == 0
            table = self._relation(scan)
            return self.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0

        search = ScanFilterSearch(cast(Relations, _DuckRelations(self)))
        for step in steps:
            name = self.warehouse.fresh("step")
            counts[step.target] = self._run(step, name, *search.simplified(step.query, is_empty))
            self._keep(name, step)
        for target, table in self.stored.items():
            if target not in counts:
                continue
            self.connection.execute(f"DELETE FROM {table.old}")
            self.connection.execute(f"INSERT INTO {table.old} SELECT * FROM {table.new}")
        for name in self._steps.values():
            self.connection.execute(f"DROP TABLE {name}")
        return counts

    def _run(self, step: Step, name: str, query: Node | None, readings: Mapping[Scan, Reading]) -> int:
        if query is None:
            self._empty(name, step)
            count = 0
        else:
            self._select(readings)
            count = self._materialize(name, step, query)
            for selected in self._selected.values():
                self.connection.execute(f"DROP TABLE {selected}")
            self._selected = {}
        if step.picked is not None:
            self._check_picked(step, step.picked, name)
        return count

    def _check_picked(self, step: Step, picked: Picked, name: str) -> None:
        """Compare what the query of a step gives with what is picked of an earlier step's output."""
        target = picked.target
        stored = self.stored.get(target) or self.warehouse.tables.get(target)
        table = self._steps[target] if stored is None else stored.delta
        rows = picked_rows(step, picked, self.connection.execute(f"SELECT * FROM {table}").to_arrow_table())
        self.connection.register("pgt_picked", rows)
        by_query, by_picking = (self._weights(table) for table in (name, "pgt_picked"))
        self.connection.unregister("pgt_picked")
        if by_query != by_picking:
            raise MismatchError(f"{step.target}: query gives {by_query}, picked {by_picking}")

    def _weights(self, table: str) -> dict[tuple[Any, ...], int]:
        """The Z-set of a step; -0.0, which SQL takes for 0.0, is picked apart from it."""
        found: Counter[tuple[Any, ...]] = Counter()
        for *row, weight in self._fetch(table):
            found[tuple(map(comparable, row))] += weight
        return {row: weight for row, weight in found.items() if weight}

    def _select(self, readings: Mapping[Scan, Reading]) -> None:
        """Let scans read only the rows that matter."""
        for scan, reading in readings.items():
            rows = reading.rows
            if rows is not None:
                table, selected = self.table_of(scan), self.warehouse.fresh("selected")
                places = rows.select([_PLACE])
                self.connection.register("pgt_places", places)
                self.connection.execute(
                    f"CREATE TABLE {selected} AS SELECT * FROM {table} WHERE rowid IN (SELECT {_PLACE} FROM pgt_places)"
                )
                self.connection.unregister("pgt_places")
                self._selected[scan] = selected

    def _empty(self, name: str, step: Step) -> None:
        columns = [f"{quote(c.name)} {type_name(c.type, 'duckdb')}" for c in step.output_columns]
        if step.weighted:
            columns.append(f"{WEIGHT} BIGINT")
        self.connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")

    def _keep(self, name: str, step: Step) -> None:
        if step.role == "intermediate":
            self._steps[step.target] = name
            return
        table = self.stored[step.target]
        computed = {column.name for column in step.computed} | {WEIGHT}
        described = self.connection.execute(f"DESCRIBE {name}").fetchall()
        wanted = self.connection.execute(f"DESCRIBE {table.new}").fetchall()
        if [row[:2] for row in described if row[0] not in computed] != [row[:2] for row in wanted]:
            raise MismatchError(f"{step.target}: delta has {described}, the stored relation {wanted}")
        self.connection.execute(f"DROP TABLE {table.delta}")
        self.connection.execute(f"ALTER TABLE {name} RENAME TO {table.delta}")
        _apply(self.connection, table.old, table.delta, table.new, table.columns)

    def rows(self) -> Counter[tuple[Any, ...]]:
        """The visible result as a multiset."""
        return Counter(tuple(map(comparable, row)) for row in self.visible())

    def visible(self) -> list[tuple[Any, ...]]:
        """The rows of the visible result."""
        return self._fetch(self.stored[RESULT].new)

    def _fetch(self, table: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(f"SELECT * FROM {table}").fetchall()

    def check(self) -> None:
        """Compare result and state relations with a full recompute at the new state; MismatchError when they differ."""
        expected = self.warehouse.fresh("full")
        output = [(c.id, s.name) for c, s in zip(self.plan.root.output, self.plan.output, strict=True)]
        text = render(self.plan.root, "duckdb", self._relation, output)
        self.connection.execute(f"CREATE TABLE {expected} AS {text}")
        self._compare(RESULT, expected, self.stored[RESULT].new)
        for step in self.maintenance.full_steps():
            if step.role == "state":
                self._materialize(expected, step)
                self._compare(step.target, expected, self.stored[step.target].new)
        self.connection.execute(f"DROP TABLE {expected}")

    def _compare(self, label: str, expected: str, actual: str) -> None:
        types = [
            [row[:2] for row in self.connection.execute(f"DESCRIBE {table}").fetchall()] for table in (expected, actual)
        ]
        if types[0] != types[1]:
            raise MismatchError(f"{label}: columns should be {types[0]}, are {types[1]}")
        want, have = (Counter(tuple(map(comparable, r)) for r in self._fetch(t)) for t in (expected, actual))
        if want != have:
            raise MismatchError(f"{label}: missing {dict(want - have)}, surplus {dict(have - want)}")


def comparable(value: Any) -> Any:
    """A hashable stand-in that is equal exactly when SQL calls the values equal."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, list):
        return tuple(map(comparable, value))
    if isinstance(value, dict):
        return tuple(sorted((k, comparable(v)) for k, v in value.items()))
    return value


class _DuckRelations:
    """What the search for rows that matter asks of the relations of a refresh; each table may be read whole."""

    def __init__(self, stream: StreamTable) -> None:
        self._stream = stream
        self._tables = stream.warehouse.tables | stream.stored
        # Only tables of the stream change within a refresh.
        self._fixed = {table for own in stream.warehouse.tables.values() for table in (own.old, own.new, own.delta)}
        self._read: dict[str, pa.Table] = {}

    def is_table(self, scan: Scan) -> bool:
        return scan.relation in self._tables

    def is_stored(self, scan: Scan) -> bool:
        return self.is_table(scan) and scan.version is not Version.DELTA

    def stored_rows(self, relation: str) -> int:
        return self._rows(self._tables[relation].new).num_rows

    def range_filter(self, found: ValueRange) -> RangeFilter | None:
        columns = zip(found.scan.columns, found.scan.source_columns, strict=True)
        return RangeFilter.of(found, next(column.type for column, name in columns if name == found.column))

    def local_rows(self, scan: Scan, filters: tuple[ScanFilter, ...] = ()) -> pa.Table:
        return _only(self._rows(self._stream.table_of(scan)), filters)

    def reached(self, scan: Scan, filters: tuple[ScanFilter, ...]) -> pa.Table:
        table = self._tables[scan.relation]
        return _only(pa.concat_tables([self._rows(table.old), self._rows(table.new)]), filters)

    def _rows(self, table: str) -> pa.Table:
        if table not in self._read:
            rows = self._fetched(table)
            if table not in self._fixed:
                return rows
            self._read[table] = rows
        return self._read[table]

    def _fetched(self, table: str) -> pa.Table:
        return self._stream.connection.execute(f"SELECT *, rowid AS {_PLACE} FROM {table}").to_arrow_table()


def _only(rows: pa.Table, filters: tuple[ScanFilter, ...]) -> pa.Table:
    for own in filters:
        if isinstance(own, RangeFilter):
            rows = own.only(rows)
            continue
        for name in own.keys.column_names:
            kind, keys = rows.schema.field(name).type, pc.unique(own.keys.column(name))
            if keys.type == kind and not pa.types.is_floating(kind) and not pa.types.is_nested(kind):
                rows = rows.filter(pc.is_in(rows.column(name), value_set=keys))
    return rows
