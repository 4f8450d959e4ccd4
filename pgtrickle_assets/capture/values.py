"""From what the bulk reader delivers to the exact Arrow type of each column, or an error that names the place."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.capture.source_table import SourceColumn
from pgtrickle_assets.errors import SourceValueError
from pgtrickle_assets.query.arrow_types import arrow_type
from pgtrickle_assets.query.types import ColumnType, TableName

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH
_LAST_DAY: Final = date.max.toordinal() - _EPOCH
_DAY: Final = 86_400_000_000

_RANGES: Final[dict[str, tuple[int, int, str]]] = {
    "date": (_FIRST_DAY, _LAST_DAY, "infinity or outside the years 0001 to 9999"),
    "timestamp": (_FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1, "infinity or outside the years 0001 to 9999"),
    "timestamptz": (_FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1, "infinity or outside the years 0001 to 9999"),
    "time": (0, _DAY - 1, "24:00:00, which no other system has"),
}
"""Smallest and largest stored integer of the types that PostgreSQL gives a wider range, and what lies outside."""


def arrow_schema(columns: Sequence[SourceColumn], *, weight: str | None = None) -> pa.Schema:
    """The schema in which rows of these columns travel, with a trailing int64 weight if named."""
    import pyarrow as pa

    fields = [pa.field(column.name, arrow_type(column.type)) for column in columns]
    return pa.schema(fields + ([pa.field(weight, pa.int64(), nullable=False)] if weight else []))


def exact(
    batch: pa.RecordBatch, table: TableName, columns: Sequence[SourceColumn], schema: pa.Schema
) -> pa.RecordBatch:
    """Convert one batch of the bulk reader.

    Args:
        batch: The columns in order, then the weight if `schema` has one, then one boolean per array column that is true
            where the array is not a plain list.
        table: For messages.
        columns: What the first columns of `batch` are.
        schema: From `arrow_schema`.

    Raises:
        SourceValueError: A value has no exact counterpart.
    """
    import pyarrow as pa

    arrays = [_exact_column(batch.column(i), table, column) for i, column in enumerate(columns)]
    arrays += [batch.column(i) for i in range(len(columns), len(schema))]
    listed = [column for column in columns if column.type.element is not None]
    for offset, column in enumerate(listed):
        _refuse_shapes(batch.column(len(schema) + offset), table, column)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _refuse_shapes(odd: Any, table: TableName, column: SourceColumn) -> None:
    if odd.true_count:
        raise _error(table, column, "an array of several dimensions, or one that does not start at index 1")


def _exact_column(array: Any, table: TableName, column: SourceColumn) -> Any:
    import pyarrow as pa

    if column.type.element is None:
        return _exact_values(array, table, column, column.type)
    items = _exact_values(array.values, table, column, column.type.element)
    kind = arrow_type(column.type)
    return pa.ListArray.from_arrays(array.offsets, items, type=kind, mask=array.is_null())


def _exact_values(array: Any, table: TableName, column: SourceColumn, kind: ColumnType) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if kind.name in _RANGES:
        lowest, highest, outside = _RANGES[kind.name]
        numbers = array.cast(pa.int32() if kind.name == "date" else pa.int64())
        found = pc.call_function("min_max", [numbers]).as_py()
        if found["min"] is not None and not lowest <= found["min"] <= found["max"] <= highest:
            raise _error(table, column, f"a {kind} that is {outside}")
    target = arrow_type(kind)
    try:
        converted = array.cast(target)
        if pa.types.is_string(target):
            # A database with encoding SQL_ASCII holds whatever bytes it was given.
            converted.validate(full=True)
    except pa.ArrowInvalid:
        raise _error(table, column, _what_is_wrong(array, kind)) from None
    return converted


def _what_is_wrong(array: Any, kind: ColumnType) -> str:
    """Describe the first value that does not convert."""
    import pyarrow as pa

    if kind.name != "decimal":
        return "text that is not valid UTF-8"
    for value in array:
        try:
            value.cast(arrow_type(kind))
        except pa.ArrowInvalid:
            text = value.as_py()
            return f"the numeric {text[:80]}, which {kind} cannot hold exactly"
    return f"a numeric that {kind} cannot hold exactly"


def _error(table: TableName, column: SourceColumn, what: str) -> SourceValueError:
    hint = "Correct the value, or leave the column out with exclude_columns."
    if column.pg_type.name == "numeric" or (column.pg_type.element and column.pg_type.element.name == "numeric"):
        hint = "Correct the value, give the column another decimal type in pgtrickle.yaml, or leave it out."
    return SourceValueError(f"column {column.name!r} of source table {table} holds {what}.", hint=hint)
