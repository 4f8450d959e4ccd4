"""The Arrow type in which values of a column type move between the layers."""

# pyright: basic
# pyarrow ships no annotations, so strict mode would call each of its types unknown.

from __future__ import annotations

from typing import TYPE_CHECKING

from pgtrickle_assets.errors import UnsupportedTypeError

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle_assets.query.types import ColumnType


def arrow_type(kind: ColumnType) -> pa.DataType:
    """Arrow type of a stored column: uuid and json as text, times in microseconds, list items called `element`.

    Raises:
        UnsupportedTypeError: `kind` is the type of an expression only (interval, unknown).
    """
    import pyarrow as pa

    if kind.name == "decimal":
        return pa.decimal128(kind.precision or 0, kind.scale or 0)
    if kind.element is not None:
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    plain = {
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
    }
    if kind.name not in plain:
        raise UnsupportedTypeError(f"a stored column cannot have the type {kind}", hint="Cast the expression.")
    return plain[kind.name]
