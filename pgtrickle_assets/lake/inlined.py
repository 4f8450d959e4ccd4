"""Rows that live in the catalog itself.

DuckLake keeps small inserts in a table `ducklake_inlined_data_<table id>_<schema version>` and small deletes in
`ducklake_inlined_delete_<table id>`. We never write them, but others do, and a reader that skips them loses rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.model import InlinedRows, LakeColumn, LakeTable
from pgtrickle_assets.lake.sqltext import TABLE_EXISTS, quoted, statement
from pgtrickle_assets.lake.values import inlined_value, parse_text
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    from pgtrickle_assets.lake.connections import CatalogConnection

_REGISTRY: Final = """
SELECT i.table_name, coalesce((
  SELECT max(v.begin_snapshot) FROM {c}.ducklake_schema_versions v
  WHERE v.table_id = i.table_id AND v.schema_version <= i.schema_version
), 0)
FROM {c}.ducklake_inlined_data_tables i WHERE i.table_id = %s ORDER BY i.schema_version
"""

_HISTORY: Final = """
SELECT column_id, begin_snapshot, end_snapshot, column_name, column_type
FROM {c}.ducklake_column WHERE table_id = %s AND parent_column IS NULL
"""

_DELETES: Final = """
SELECT file_id, row_id, begin_snapshot FROM {c}.ducklake_inlined_delete_{table} WHERE begin_snapshot <= %s
"""

AT: Final = "begin_snapshot <= %(at)s AND (end_snapshot IS NULL OR %(at)s < end_snapshot)"
ADDED: Final = (
    "begin_snapshot > %(since)s AND begin_snapshot <= %(at)s AND (end_snapshot IS NULL OR %(at)s < end_snapshot)"
)
REMOVED: Final = "begin_snapshot <= %(since)s AND end_snapshot > %(since)s AND end_snapshot <= %(at)s"


class InlineTables:
    """The inline tables of one table, found by three small queries of one round trip."""

    def __init__(self, connection: CatalogConnection, schema: str, table: LakeTable) -> None:
        self._connection = connection
        self._schema = schema
        self._table = table
        self._registry = connection.execute(statement(_REGISTRY, schema), (table.id,))
        self._history = connection.execute(statement(_HISTORY, schema), (table.id,))
        self._fetched: tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]] | None = None
        self._deletes = connection.execute(TABLE_EXISTS, (schema, f"ducklake_inlined_delete_{table.id}"))

    def deleted_positions(self, at: int) -> dict[int, list[tuple[int, int]]]:
        """(position, snapshot) of inlined deletes by data file, up to snapshot `at`."""
        row = self._deletes.fetchone()
        if not row or not row[0]:
            return {}
        found = self._connection.execute(
            statement(_DELETES.replace("{table}", str(self._table.id)), self._schema), (at,)
        )
        positions: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for file_id, position, snapshot in found.fetchall():
            positions[file_id].append((position, snapshot))
        return dict(positions)

    def rows(self, condition: str, parameters: dict[str, int]) -> InlinedRows:
        """The rows that meet a condition on their snapshots, as the table's columns at its read snapshot."""
        registry, history = self._layout()
        if not registry:
            return InlinedRows()
        cursors = [
            (
                columns := _columns_at(history, begin),
                self._connection.execute(_select(self._schema, name, columns, self._table, condition), parameters),
            )
            for name, begin in registry
        ]
        rows: list[tuple[object, ...]] = []
        row_ids: list[int] = []
        for columns, cursor in cursors:
            readers = [_reader(self._table.name, column, columns) for column in self._table.columns]
            for row_id, *values in cursor.fetchall():
                rows.append(tuple(reader(values) for reader in readers))
                row_ids.append(row_id)
        return InlinedRows(tuple(rows), tuple(row_ids))

    def _layout(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        if self._fetched is None:
            self._fetched = (self._registry.fetchall(), self._history.fetchall())
        return self._fetched


class _Columns:
    """Column id -> (place in the selected values, name, stored type) of one inline table."""

    def __init__(self, found: dict[int, tuple[str, str]]) -> None:
        self.by_id = {column_id: (place, *value) for place, (column_id, value) in enumerate(sorted(found.items()))}


def _columns_at(history: list[tuple[Any, ...]], begin: int) -> _Columns:
    return _Columns(
        {
            column_id: (name, kind)
            for column_id, first, last, name, kind in history
            if first <= begin and (last is None or begin < last)
        }
    )


def _select(schema: str, name: str, columns: _Columns, table: LakeTable, condition: str) -> bytes:
    names = ["row_id", *(quoted(column) for _, column, _ in columns.by_id.values())]
    return f"SELECT {', '.join(names)} FROM {quoted(schema)}.{quoted(name)} WHERE {condition} ORDER BY row_id".encode()  # noqa: S608


def _reader(table: TableName, column: LakeColumn, columns: _Columns) -> Callable[[list[Any]], object]:
    place = columns.by_id.get(column.id)
    if place is None:
        default = initial_value(column)
        return lambda values: default
    index, _, stored = place

    def read(values: list[Any]) -> object:
        try:
            return inlined_value(values[index], stored, column.type)
        except ValueError as error:
            raise LakeError(
                f"column {column.name} of {table} has an inlined value that cannot be carried: {values[index]!r}"
            ) from error

    return read


def initial_value(column: LakeColumn) -> object:
    """What rows older than the column read as.

    Raises:
        LakeError: The default is not a literal that we can read.
    """
    try:
        return parse_text(column.initial_default, column.type)
    except ValueError as error:
        raise LakeError(
            f"the initial default {column.initial_default!r} of column {column.name} is no value"
        ) from error
