"""DuckLake's text forms of values: defaults, inlined rows, statistics.

DuckDB writes dates, timestamps and wide integers of inlined rows as text, and all defaults and bounds. A value that
Python's types cannot hold (infinity, years before 1) is an error where it is data, and "unknown" where it is a bound.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from pgtrickle_assets.lake.types import duckdb_type
from pgtrickle_assets.query.types import ColumnType


def parse_text(text: str | None, kind: ColumnType) -> object:
    """The Python value that DuckLake wrote as `text`.

    Args:
        text: As stored in the catalog; None is NULL.
        kind: Type of the value. uuid and json give text, timestamptz an aware datetime in UTC.

    Raises:
        ValueError: The text is not a value of the type that Python can hold.
    """
    if text is None:
        return None
    if kind.name in ("varchar", "json", "uuid"):
        return text
    parser = _PARSERS.get(kind.name)
    return _cast_in_duckdb(text, kind) if parser is None else parser(text)


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("1", "true", "t"):
        return True
    if lowered in ("0", "false", "f"):
        return False
    raise ValueError(f"not a boolean: {text!r}")


_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "boolean": _parse_boolean,
    "int16": int,
    "int32": int,
    "int64": int,
    "float32": float,
    "float64": float,
    "decimal": Decimal,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamptz": lambda text: datetime.fromisoformat(text).astimezone(UTC),
}


def _cast_in_duckdb(text: str, kind: ColumnType) -> object:
    import duckdb

    with duckdb.connect() as connection:
        row = connection.execute(f"SELECT CAST(? AS {duckdb_type(kind)})", [text]).fetchone()
    return normalize(row[0] if row else None)


def normalize(value: Any) -> object:
    """A driver's value in the form in which our rows carry it."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, list):
        return [normalize(item) for item in value]
    return value


def inlined_value(value: Any, stored: str, kind: ColumnType) -> object:
    """Convert a value read from an inline table.

    Args:
        value: What the PostgreSQL driver returned.
        stored: DuckLake type that the column had when the inline table was made.
        kind: Type of the column at the read snapshot.

    Raises:
        ValueError: The value does not fit Python's types.
    """
    if value is None:
        return None
    if isinstance(value, (bytes, memoryview)) and kind.name in ("varchar", "json"):
        return bytes(value).decode()
    if isinstance(value, str):
        return parse_text(value, kind)
    if kind.name == "decimal":
        return Decimal(str(value))
    if stored == "float32" and kind.name == "float64":
        return struct.unpack("f", struct.pack("f", value))[0]
    if kind.is_float:
        return float(value)
    return normalize(value)
