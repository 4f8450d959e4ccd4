"""From PostgreSQL types to column types, and the SQL in which their values travel.

A value takes two steps: `stored` turns a column of the source into what the change buffer holds (domains and enums
become their base, so that the buffer depends on no type of the user), `read` turns that into what the bulk reader takes
exactly.
Text is kept under collation "C": a case-insensitive collation must not make two different texts one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pgtrickle_assets.capture.source_table import PgType, SourceColumn
from pgtrickle_assets.errors import UnsupportedTypeError
from pgtrickle_assets.query import types as t
from pgtrickle_assets.query.types import ColumnType, TableName

BARE_NUMERIC: Final = t.decimal(38, 18)
"""What a numeric without precision becomes; a value that does not fit is an error, never rounded."""

_PLAIN: Final = {
    "bool": t.BOOLEAN, "int2": t.INT16, "int4": t.INT32, "int8": t.INT64, "float4": t.FLOAT32, "float8": t.FLOAT64,
    "bytea": t.BLOB, "date": t.DATE, "time": t.TIME, "timestamp": t.TIMESTAMP, "timestamptz": t.TIMESTAMPTZ,
    "uuid": t.UUID, "json": t.JSON, "jsonb": t.JSON,
}  # fmt: skip

_TEXTS: Final = frozenset({"text", "varchar", "bpchar", "char", "name", "citext", "enum"})
_MODIFIER_HEADER: Final = 4


def column_type(kind: PgType) -> ColumnType | None:
    """The lake type of a PostgreSQL type, or None when none holds all of its values exactly."""
    if kind.element is not None:
        element = column_type(kind.element) if kind.element.element is None else None
        return None if element is None else t.list_of(element)
    if kind.name == "numeric":
        return _decimal(kind.modifier)
    return t.VARCHAR if kind.name in _TEXTS else _PLAIN.get(kind.name)


def _decimal(modifier: int) -> ColumnType | None:
    """Precision and scale from a type modifier; the scale is an 11-bit signed number (PostgreSQL 15)."""
    if modifier < _MODIFIER_HEADER:
        return BARE_NUMERIC
    packed = modifier - _MODIFIER_HEADER
    precision, scale = packed >> 16, ((packed & 0x7FF) ^ 1024) - 1024
    digits = max(precision - min(scale, 0), scale)
    return t.decimal(digits, max(scale, 0)) if digits <= t.MAX_DECIMAL_PRECISION else None


def overridden(table: TableName, name: str, kind: PgType, override: ColumnType) -> ColumnType:
    """The type a project asks for, if values of the column may be tried in it.

    Raises:
        UnsupportedTypeError: The column is not numeric, or the type asked for is not a decimal.
    """
    if kind.name != "numeric" or override.name != "decimal":
        raise UnsupportedTypeError(
            f"column {name!r} of source table {table} has type {kind.text} and cannot be read as {override}.",
            hint="Only a numeric column can be given another type, and it must be a decimal(precision, scale).",
        )
    return override


def unsupported_reason(kind: PgType) -> str:
    """What to do about a column whose type has no counterpart."""
    leave_out = "leave the column out with exclude_columns"
    if kind.name == "numeric":
        digits = t.MAX_DECIMAL_PRECISION
        return f"it has more than {digits} digits; give it a decimal type in pgtrickle.yaml, or {leave_out}"
    return f"no type of the lake holds its values exactly; {leave_out}"


@dataclass(frozen=True, slots=True)
class Travel:
    """SQL for one column; `{}` stands for the expression that yields the value.

    Attributes:
        buffer_type: Declared type in the change buffer.
        stored: From source to buffer.
        read: From buffer to reader.
        keys: Expressions whose equality is identity of the value, over the buffer's column.
        checks_shape: An array, whose number of dimensions and lower bound must be looked at.
    """

    buffer_type: str
    stored: str
    read: str
    keys: tuple[str, ...]
    checks_shape: bool = False


def travel(column: SourceColumn) -> Travel:
    """How values of a column get from the source through the buffer to the reader."""
    kind = column.pg_type
    if kind.element is None:
        return _scalar(kind)
    return _array(kind.element)


def _scalar(kind: PgType) -> Travel:
    if kind.name in _TEXTS:
        return Travel('pg_catalog.text COLLATE pg_catalog."C"', "({})::pg_catalog.text", "{}", ("{}",))
    base = f"pg_catalog.{kind.name}"
    stored = "({})::" + base
    if kind.name in ("json", "jsonb"):
        # Neither has an equality that tells 1.0 from 1.00.
        return Travel(base, stored, "({})::pg_catalog.text", ("({})::pg_catalog.text",))
    if kind.name == "uuid":
        return Travel(base, stored, "({})::pg_catalog.text", ("{}",))
    if kind.name == "numeric":
        return Travel(base, stored, "pg_catalog.trim_scale({})" if kind.modifier < _MODIFIER_HEADER else "{}", ("{}",))
    if kind.name in ("float4", "float8"):
        # 0.0 and -0.0 are equal, but not the same.
        return Travel(base, stored, "{}", ("{}", f"pg_catalog.{kind.name}send({{}})"))
    return Travel(base, stored, "{}", ("{}",))


def _array(element: PgType) -> Travel:
    if element.name in _TEXTS:
        return Travel('pg_catalog.text[] COLLATE pg_catalog."C"', "({})::pg_catalog.text[]", "{}", ("{}",), True)
    base = f"pg_catalog.{element.name}[]"
    stored = "({})::" + base
    as_text = "({})::pg_catalog.text[]"
    if element.name in ("json", "jsonb"):
        return Travel(base, stored, as_text, (as_text,), True)
    if element.name == "uuid":
        return Travel(base, stored, as_text, ("{}",), True)
    if element.name in ("float4", "float8"):
        return Travel(base, stored, "{}", ("{}", as_text), True)
    return Travel(base, stored, "{}", ("{}",), True)
