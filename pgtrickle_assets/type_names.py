"""Column types as text: what `pgtrickle.yaml` and the schema cache hold."""

from __future__ import annotations

import re
from typing import Final

from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.query.types import ColumnSchema, ColumnType, decimal, list_of
from pgtrickle_assets.suggestions import did_you_mean

_DECIMAL: Final = re.compile(r"^(?:decimal|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)$")
_LENGTH: Final = re.compile(r"^(varchar|character varying|char|character|bpchar)\s*\(\s*\d+\s*\)$")
_LIST: Final = re.compile(r"^list<(.+)>$")
_NOT_NULL: Final = re.compile(r"\s+not\s+null$")
_POSTGRES_NAMES: Final = {
    "bool": "boolean", "smallint": "int16", "int2": "int16", "integer": "int32", "int": "int32", "int4": "int32",
    "bigint": "int64", "int8": "int64", "real": "float32", "float4": "float32", "double precision": "float64",
    "float8": "float64", "double": "float64", "text": "varchar", "character varying": "varchar", "char": "varchar",
    "character": "varchar", "bpchar": "varchar", "citext": "varchar", "bytea": "blob",
    "time without time zone": "time", "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz", "jsonb": "json",
}  # fmt: skip
_NAMES: Final = (
    "boolean", "int16", "int32", "int64", "float32", "float64", "varchar", "blob", "date", "time", "timestamp",
    "timestamptz", "uuid", "json",
)  # fmt: skip


def parse_type(text: str) -> ColumnType:
    """Reads a type in DuckLake's or PostgreSQL's spelling; the inverse of `str(ColumnType)`.

    Raises:
        ConfigurationError: For a type that the lake cannot hold.
    """
    name = " ".join(text.strip().lower().split())
    if name.endswith("[]"):
        return list_of(parse_type(name[:-2]))
    if (match := _LIST.match(name)) is not None:
        return list_of(parse_type(match.group(1)))
    if (match := _DECIMAL.match(name)) is not None:
        return _decimal(text, int(match.group(1)), int(match.group(2) or 0))
    if name in ("numeric", "decimal"):
        return decimal(38, 18)
    if _LENGTH.match(name):
        return ColumnType("varchar")
    name = _POSTGRES_NAMES.get(name, name)
    if name not in _NAMES:
        raise ConfigurationError(
            f"{text!r} is not a column type.", hint=did_you_mean(name, (*_NAMES, *_POSTGRES_NAMES))
        )
    return ColumnType(name)


def _decimal(text: str, precision: int, scale: int) -> ColumnType:
    try:
        return decimal(precision, scale)
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is not a column type: {error}.") from error


def parse_column(name: str, text: str) -> ColumnSchema:
    """Reads `type` or `type not null`.

    Raises:
        ConfigurationError: Naming the column.
    """
    lowered = text.strip().lower()
    bare = _NOT_NULL.sub("", lowered)
    try:
        return ColumnSchema(name, parse_type(bare), nullable=bare == lowered)
    except ConfigurationError as error:
        raise ConfigurationError(f"column {name!r}: {error.message}", hint=error.hint) from error


def parse_numeric(column: str, text: str) -> ColumnType:
    """Reads the override of a numeric column: a `decimal(p,s)`.

    Raises:
        ConfigurationError: Naming the column.
    """
    try:
        parsed = parse_type(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"numeric of {column!r}: {error.message}", hint=error.hint) from error
    if parsed.name != "decimal" or column.count(".") not in (1, 2):
        raise ConfigurationError(
            f"numeric of {column!r} cannot be {text!r}.", hint="Write `table.column: decimal(20,6)`."
        )
    return parsed
