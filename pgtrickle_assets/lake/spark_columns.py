"""Spark column expressions between Parquet files and the lake's types."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pgtrickle_assets.lake.parquet_columns import FileColumn
from pgtrickle_assets.lake.types import spark_type
from pgtrickle_assets.query.types import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import Column


def quoted_name(name: str) -> str:
    """A column name in Spark's quotes, so that dots and anything else in it are plain characters."""
    return "`" + name.replace("`", "``") + "`"


def schema_ddl(columns: Sequence[tuple[str, str]]) -> str:
    """Spark schema text of (name, Spark type) pairs."""
    return ", ".join(f"{quoted_name(name)} {kind}" for name, kind in columns)


def stored_spark_type(kind: ColumnType, *, uuid_as_text: bool = False) -> str:
    """Spark type in which a column is read from Parquet: the target type, but 16 bytes for a uuid.

    Spark reads Parquet's UUID annotation as binary only; foreign files may hold uuids as text.
    """
    if kind.element is not None:
        return f"ARRAY<{stored_spark_type(kind.element, uuid_as_text=uuid_as_text)}>"
    return "BINARY" if kind.name == "uuid" and not uuid_as_text else spark_type(kind)


def from_stored(column: Column, kind: ColumnType) -> Column:
    """The stored column in its target type; uuid bytes become text."""
    from pyspark.sql import functions as f

    if not has_uuid(kind):
        return column
    if kind.element is not None:
        element = kind.element
        return f.transform(column, lambda item: from_stored(item, element))
    digits = f.lower(f.hex(column))
    parts = [f.substring(digits, start, length) for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))]
    texts = [part for text in parts for part in (f.lit("-"), text)][1:]
    return f.concat(*texts)


def has_uuid(kind: ColumnType) -> bool:
    """Whether values of the type are or hold uuids."""
    return kind.name == "uuid" or (kind.element is not None and has_uuid(kind.element))


def literal(value: object, kind: ColumnType) -> Column:
    """A constant of exactly the given type."""
    from pyspark.sql import functions as f

    target = spark_type(kind)
    if value is None:
        return f.lit(None).cast(target)
    if kind.element is not None and isinstance(value, (list, tuple)):
        element = kind.element
        return f.array(*[literal(item, element) for item in value]).cast(target)
    if isinstance(value, bytes):
        return f.unhex(f.lit(value.hex()))
    if isinstance(value, (str, bool)):
        return f.lit(value).cast(target)
    if isinstance(value, datetime):
        return f.lit(value.isoformat(sep=" ")).cast(target)
    # Python's text of numbers, dates and times is what Spark parses exactly; f.lit would choose a type by itself.
    return f.lit(str(value)).cast(target)


def missing_or_stored(column: FileColumn, *, uuid_as_text: bool) -> Column:
    """Expression for one column of a file: its stored value or the default of rows older than the column."""
    from pyspark.sql import functions as f

    if column.source is None:
        return literal(column.default, column.type)
    stored = f.col(quoted_name(column.source))
    return stored if uuid_as_text else from_stored(stored, column.type)
