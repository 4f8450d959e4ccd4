"""Rows of a Spark data frame, brought to the driver with the types that the lake has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def collect(frame: DataFrame) -> pa.Table:
    """All rows as an Arrow table. Spark hands times over in nanoseconds, although they have microseconds."""
    import pyarrow as pa

    rows = frame.toArrow()
    fields = [field.with_type(_in_microseconds(field.type)) for field in rows.schema]
    schema = pa.schema(fields)
    return rows if schema.equals(rows.schema) else rows.cast(schema)


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    return kind
