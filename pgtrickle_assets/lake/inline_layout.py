"""Columns of the inline tables that DuckLake keeps small inserts in.

We never insert there, but an ALTER of a table that has one must make the next. Source of the PostgreSQL types: what
DuckDB 1.5.5 creates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtrickle_assets.lake.sqltext import quoted

_SYSTEM: Final = ("row_id BIGINT", "begin_snapshot BIGINT", "end_snapshot BIGINT")

_NATIVE: Final = {
    "boolean": "BOOLEAN", "int8": "SMALLINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT",
    "uint8": "INTEGER", "uint16": "INTEGER", "uint32": "BIGINT", "float32": "REAL", "float64": "DOUBLE PRECISION",
    "time": "TIME", "timetz": "TIMETZ", "uuid": "UUID", "interval": "INTERVAL",
    "varchar": "BYTEA", "blob": "BYTEA", "json": "BYTEA",
}  # fmt: skip


def inline_table_columns(columns: Sequence[tuple[str, str]]) -> str:
    """Column list of an inline table for (name, DuckLake type) of a table's top-level columns."""
    return ", ".join([*_SYSTEM, *(f"{quoted(name)} {_postgres_type(kind)}" for name, kind in columns)])


def _postgres_type(kind: str) -> str:
    if kind.startswith("decimal("):
        return kind.replace("decimal", "NUMERIC")
    return _NATIVE.get(kind, "VARCHAR")
