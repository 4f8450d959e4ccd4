"""A lake seen from our side and from DuckDB's, and the proof that both see the same at every snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pgtrickle_assets.lake.arrow_read import read_delta_arrow, read_table_arrow
from pgtrickle_assets.lake.catalog import Lake
from pgtrickle_assets.lake.commit import CommitResult, commit
from pgtrickle_assets.lake.ddl import alter
from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.lake.lint import lint
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.lake.model import WEIGHT_COLUMN, LakeTable, NewDataFile, RowDeletes, TableChange, TableDefinition
from pgtrickle_assets.lake.parquet_columns import arrow_schema
from pgtrickle_assets.lake.types import duckdb_type
from pgtrickle_assets.lake.write import write_rows
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.services.duckdb import connect

if TYPE_CHECKING:
    import duckdb

    from pgtrickle_assets.lake.commit_session import Operation

Rows = Counter[tuple[Any, ...]]


def freeze(value: object) -> object:
    """A hashable form of a value from any of the engines."""
    if isinstance(value, list):
        return tuple(freeze(item) for item in value)
    if isinstance(value, float) and value != value:
        return "NaN"
    return str(value) if type(value).__name__ == "UUID" else value


def bag(rows: Iterable[Sequence[object]]) -> Rows:
    """Rows as a multiset."""
    return Counter(tuple(freeze(value) for value in row) for row in rows)


def attached(location: LakeLocation, **options: Any) -> duckdb.DuckDBPyConnection:
    """A fresh DuckDB session with the lake attached as `lake` and in use."""
    connection = connect(config={"threads": 2})
    attach(connection, location, **options)
    connection.execute("USE lake")
    return connection


class Pair:
    """One lake, our `lake` and a DuckDB session that was opened before anything happened."""

    def __init__(self, location: LakeLocation) -> None:
        self.lake = Lake.open(location)
        self.location = location
        self.long_lived = attached(location)
        self.history: dict[TableName, dict[int, Rows]] = {}

    def duckdb(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in the long-lived DuckDB session; rows of the last."""
        result: list[tuple[Any, ...]] = []
        for statement in statements:
            result = self.long_lived.execute(statement).fetchall()
        return result

    def table(self, name: TableName, at: int | None = None) -> LakeTable:
        found = self.lake.table(name, at)
        assert found is not None, name
        return found

    def files(self, table: LakeTable, rows: Sequence[Mapping[str, object]]) -> tuple[NewDataFile, ...]:
        """Write rows as the product does."""
        return write_rows(pa.Table.from_pylist(list(rows), schema=arrow_schema(table.columns)), table, delivery_id="t")

    def create(self, definition: TableDefinition, rows: Sequence[Mapping[str, object]] = ()) -> CommitResult:
        planned = self.lake.plan_table(definition)
        files = self.files(planned, rows) if rows else ()
        return self.commit(TableChange(definition.name, create=definition, added_files=files))

    def append(self, name: TableName, rows: Sequence[Mapping[str, object]]) -> CommitResult:
        return self.commit(TableChange(name, added_files=self.files(self.table(name), rows)))

    def delete(self, name: TableName, **values: object) -> CommitResult:
        """Delete by position every row in files with the given values."""
        table = self.table(name)
        return self.commit(TableChange(name, deletes=self.positions(table, **values)))

    def positions(self, table: LakeTable, **values: object) -> tuple[RowDeletes, ...]:
        """Where the rows with the given values are, found by reading each file alone."""
        import dataclasses

        found: list[RowDeletes] = []
        scan = self.lake.scan(table)
        for file in scan.files:
            whole = dataclasses.replace(file, deletes=None, inline_deletes=frozenset(), rows_upto=None)
            single = dataclasses.replace(scan, files=(whole,), inlined=type(scan.inlined)())
            rows = read_table_arrow(single, list(values)).to_pylist()
            gone = _gone(self.lake, file)
            places = tuple(place for place, row in enumerate(rows) if row == values and place not in gone)
            if places:
                found.append(RowDeletes(file, places))
        return tuple(found)

    def commit(self, *changes: TableChange, **options: Any) -> CommitResult:
        base = options.pop("base", None)
        return commit(
            self.lake,
            base=self.lake.head() if base is None else base,
            changes=changes,
            author="tests",
            message="test",
            **options,
        )

    def alter(self, *operations: Operation) -> CommitResult:
        return alter(self.lake, *operations, author="tests", message="test")

    def ours(self, name: TableName, at: int | None = None) -> Rows:
        """The table as we read it."""
        table = self.table(name, at)
        rows = read_table_arrow(self.lake.scan(table), [column.name for column in table.columns])
        return bag(row.values() for row in rows.to_pylist())

    def theirs(self, connection: duckdb.DuckDBPyConnection, name: TableName, at: int | None = None) -> Rows:
        """The table as DuckDB reads it."""
        version = "" if at is None else f" AT (VERSION => {at})"
        return bag(connection.execute(f"SELECT * FROM {quoted(name)}{version}").fetchall())

    def check(self, *names: TableName, expected: Rows | None = None) -> None:
        """Both sides see the same, now and at every snapshot; every delta is the difference of its ends."""
        assert lint(self.lake) == ()
        head = self.lake.head()
        fresh = attached(self.location)
        try:
            for name in names:
                rows = self.ours(name)
                if expected is not None:
                    assert rows == expected
                assert self.theirs(fresh, name) == rows
                assert self.theirs(self.long_lived, name) == rows
                self._check_filters(self.long_lived, name)
                self.history.setdefault(name, {})[head] = rows
                known = list(self.history[name].items())
                for at, then in [*known[:2], *known[2:][-3:]]:
                    columns = [column.name for column in self.table(name, at).columns]
                    assert self.ours(name, at) == then, f"our time travel to {at}"
                    assert self.theirs(fresh, name, at) == then, f"DuckDB's time travel to {at}"
                    self.check_delta(self.table(name), at, columns, then, rows)
        finally:
            fresh.close()

    def check_delta(self, table: LakeTable, since: int, columns: list[str], old: Rows, new: Rows) -> None:
        """The delta up to a table version is the difference of the states."""
        if columns != [column.name for column in table.columns]:
            return
        delta = self.lake.delta(table, since)
        changed: Counter[tuple[Any, ...]] = Counter()
        for row in read_delta_arrow(delta, columns).to_pylist():
            weight = row.pop(WEIGHT_COLUMN)
            changed[tuple(freeze(value) for value in row.values())] += weight
        wanted = new.copy()
        wanted.subtract(old)
        assert {k: v for k, v in changed.items() if v} == {k: v for k, v in wanted.items() if v}, f"delta since {since}"

    def _check_filters(self, connection: duckdb.DuckDBPyConnection, name: TableName) -> None:
        """Filters, MIN/MAX and counts answered from statistics are those of a scan."""
        parts: list[str] = []
        columns = [column for column in self.table(name).columns if column.type.name not in ("list", "json", "blob")]
        names = ['"' + column.name.replace('"', '""') + '"' for column in columns]
        # A literal cannot hold a zero byte.
        some = ", ".join(
            f"any_value(CAST({c} AS VARCHAR)) FILTER (NOT contains(CAST({c} AS VARCHAR), chr(0)))" for c in names
        )
        values = connection.execute(f"SELECT {some} FROM {quoted(name)}").fetchall()[0]
        for column, c, value in zip(columns, names, values, strict=True):
            parts.append(f"SELECT count(*), CAST(min({c}) AS VARCHAR), CAST(max({c}) AS VARCHAR) FROM {quoted(name)}")
            parts.append(f"SELECT count(*), count({c})::VARCHAR, NULL FROM {quoted(name)} WHERE {c} IS NULL")
            if value is not None:
                literal = "'" + value.replace("'", "''") + "'"
                kind = f"CAST({literal} AS {duckdb_type(column.type)})"
                parts += [
                    f"SELECT count(*), NULL, NULL FROM {quoted(name)} WHERE {c} {operator} {kind}"
                    for operator in ("=", ">", "<=")
                ]
        query = " UNION ALL ".join(parts)
        with_statistics = connection.execute(query).fetchall()
        connection.execute("SET disabled_optimizers = 'filter_pushdown,statistics_propagation'")
        without = connection.execute(query).fetchall()
        connection.execute("RESET disabled_optimizers")
        assert with_statistics == without, query


def _gone(lake: Lake, file: Any) -> set[int]:
    gone = set(file.inline_deletes)
    if file.deletes is not None:
        gone.update(lake.row_facts.deletes(file.deletes.id, file.deletes.path)[0].tolist())
    return gone


def quoted(name: TableName) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in (name.schema, name.name))


def location_in(dsn: str, path: Path, schema: str = "main") -> LakeLocation:
    return LakeLocation(dsn, schema, f"{path}/lake")
