"""Reading typed rows through whatever the caller has open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

    Handle = Connection[Any] | Cursor[Any]
    """An open connection or a cursor of one. Statements join its transaction; nothing here commits."""

Row = TypeVar("Row")


def fetch(handle: Handle, row_type: type[Row], query: LiteralString, parameters: Sequence[object] = ()) -> list[Row]:
    """Rows of a query as `row_type`, whose field names are the query's column names."""
    from psycopg.rows import class_row

    with _connection(handle).cursor(row_factory=class_row(row_type)) as cursor:
        return cursor.execute(query, parameters).fetchall()


def fetch_one(
    handle: Handle, row_type: type[Row], query: LiteralString, parameters: Sequence[object] = ()
) -> Row | None:
    """First row of a query as `row_type`, or None."""
    rows = fetch(handle, row_type, query, parameters)
    return rows[0] if rows else None


def scalar(handle: Handle, query: LiteralString, parameters: Sequence[object] = ()) -> Any:
    """First column of the first row, or None."""
    from psycopg.rows import tuple_row

    with _connection(handle).cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(query, parameters).fetchone()
    return None if row is None else row[0]


def run(handle: Handle, query: LiteralString, parameters: Sequence[object] = ()) -> int:
    """Run a statement; returns how many rows it touched."""
    with _connection(handle).cursor() as cursor:
        return cursor.execute(query, parameters).rowcount


def as_json(value: object) -> object:
    """A value bound as jsonb."""
    from psycopg.types.json import Jsonb

    return Jsonb(value)


def _connection(handle: Handle) -> Connection[Any]:
    from psycopg import Cursor

    return handle.connection if isinstance(handle, Cursor) else handle
