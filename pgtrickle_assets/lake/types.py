"""Type names of DuckLake, Arrow, Spark and DuckDB, and what we carry of them.

Source: DuckLake specification 1.0, data types. Types that a foreign writer may use and that fit exactly into a wider
one of ours read as that wider one; all others are not carried, and `column_type` says so with None.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pgtrickle_assets.errors import UnsupportedTypeError
from pgtrickle_assets.query import types as t
from pgtrickle_assets.query.types import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa

_SAME: Final = {
    name: ColumnType(name)
    for name in (
        "boolean", "int16", "int32", "int64", "float32", "float64", "varchar", "blob",
        "date", "time", "timestamp", "timestamptz", "uuid", "json",
    )
}  # fmt: skip

_WIDENED: Final = {
    "int8": t.INT16,
    "uint8": t.INT16,
    "uint16": t.INT32,
    "uint32": t.INT64,
    "uint64": t.decimal(20, 0),
    "timestamp_us": t.TIMESTAMP,
    "timestamp_ms": t.TIMESTAMP,
    "timestamp_s": t.TIMESTAMP,
}

_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")

_SPARK: Final = {
    "boolean": "BOOLEAN", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "float32": "FLOAT",
    "float64": "DOUBLE", "varchar": "STRING", "json": "STRING", "uuid": "STRING", "blob": "BINARY", "date": "DATE",
    "time": "TIME(6)", "timestamp": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP",
}  # fmt: skip

_DUCKDB: Final = {
    "boolean": "BOOLEAN", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "float32": "FLOAT",
    "float64": "DOUBLE", "varchar": "VARCHAR", "json": "JSON", "uuid": "UUID", "blob": "BLOB", "date": "DATE",
    "time": "TIME", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMPTZ",
}  # fmt: skip


def column_type(lake_type: str, children: Sequence[ColumnType | None] = ()) -> ColumnType | None:
    """Our type for a DuckLake type name, or None when values of it are not carried.

    Args:
        lake_type: As stored in `ducklake_column.column_type`, e.g. `decimal(10,2)` or `list`.
        children: Types of the child nodes of a nested type.
    """
    found = _SAME.get(lake_type) or _WIDENED.get(lake_type)
    if found is not None:
        return found
    if match := _DECIMAL.fullmatch(lake_type):
        return t.decimal(int(match[1]), int(match[2]))
    if lake_type == "list" and len(children) == 1 and children[0] is not None:
        return t.list_of(children[0])
    return None


def stored_type(kind: ColumnType) -> str:
    """The DuckLake type name of one node: `list` for a list, whose element is a node of its own."""
    if kind.name in ("unknown", "interval"):
        raise UnsupportedTypeError(f"a lake column cannot have the type {kind}", hint="Cast the expression.")
    return "list" if kind.name == "list" else str(kind)


def nodes(kind: ColumnType) -> tuple[str, ...]:
    """DuckLake type names of a column's nodes, depth first: `list<list<int32>>` has list, list, int32."""
    name = stored_type(kind)
    return (name,) if kind.element is None else (name, *nodes(kind.element))


def spark_type(kind: ColumnType) -> str:
    """Spark DDL text of a type."""
    if kind.name == "decimal":
        return f"DECIMAL({kind.precision},{kind.scale})"
    if kind.element is not None:
        return f"ARRAY<{spark_type(kind.element)}>"
    return _known(_SPARK, kind)


def duckdb_type(kind: ColumnType) -> str:
    """DuckDB's name of a type."""
    if kind.name == "decimal":
        return f"DECIMAL({kind.precision},{kind.scale})"
    if kind.element is not None:
        return f"{duckdb_type(kind.element)}[]"
    return _known(_DUCKDB, kind)


def _known(names: dict[str, str], kind: ColumnType) -> str:
    name = names.get(kind.name)
    if name is None:
        raise UnsupportedTypeError(f"a stored column cannot have the type {kind}", hint="Cast the expression.")
    return name


def arrow_type(kind: ColumnType) -> pa.DataType:
    """The Arrow type in which values move: uuid and json as text, timestamps in microseconds."""
    import pyarrow as pa

    if kind.name == "decimal":
        return pa.decimal128(kind.precision or 0, kind.scale or 0)
    if kind.element is not None:
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    found = {
        "boolean": pa.bool_(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float32": pa.float32(),
        "float64": pa.float64(),
        "varchar": pa.string(),
        "json": pa.string(),
        "uuid": pa.string(),
        "blob": pa.binary(),
        "date": pa.date32(),
        "time": pa.time64("us"),
        "timestamp": pa.timestamp("us"),
        "timestamptz": pa.timestamp("us", tz="UTC"),
    }.get(kind.name)
    if found is None:
        raise UnsupportedTypeError(f"a stored column cannot have the type {kind}", hint="Cast the expression.")
    return found


def from_arrow(kind: pa.DataType) -> ColumnType:
    """Our type for an Arrow type; text is always varchar.

    Raises:
        UnsupportedTypeError: The Arrow type has no exact counterpart.
    """
    import pyarrow as pa
    import pyarrow.types as at

    if at.is_decimal(kind):
        return t.decimal(kind.precision, kind.scale)
    if at.is_list(kind) or at.is_large_list(kind):
        return t.list_of(from_arrow(kind.value_type))
    if at.is_timestamp(kind) and kind.unit != "ns":
        return t.TIMESTAMPTZ if kind.tz else t.TIMESTAMP
    if at.is_time(kind) and kind.unit != "ns":
        return t.TIME
    if at.is_string(kind) or at.is_large_string(kind):
        return t.VARCHAR
    if at.is_binary(kind) or at.is_large_binary(kind) or at.is_fixed_size_binary(kind):
        return t.BLOB
    found = {
        pa.bool_(): t.BOOLEAN,
        pa.int8(): t.INT16,
        pa.int16(): t.INT16,
        pa.int32(): t.INT32,
        pa.int64(): t.INT64,
        pa.float32(): t.FLOAT32,
        pa.float64(): t.FLOAT64,
        pa.date32(): t.DATE,
    }.get(kind)
    if found is None:
        raise UnsupportedTypeError(f"Arrow type {kind} has no exact counterpart in the lake", hint="Cast the column.")
    return found
