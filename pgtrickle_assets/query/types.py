"""Column types shared by sources, plans and the lake.

One small type system stands between PostgreSQL, Spark, DuckDB, Arrow and DuckLake. Its names are DuckLake's type names
(DuckLake specification 1.0, data types), because that is where a value finally rests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_DECIMAL_PRECISION: Final = 38

_PLAIN_NAMES: Final = frozenset(
    {
        "boolean", "int16", "int32", "int64", "float32", "float64", "varchar", "blob",
        "date", "time", "timestamp", "timestamptz", "uuid", "json", "interval", "unknown",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A scalar, decimal or list type.

    `name` is a DuckLake type name; `decimal` has `precision` and `scale`; `list` has `element`. `unknown` is the type
    of a bare NULL literal and never the type of a stored column; `interval` exists in expressions only.
    """

    name: str
    precision: int | None = None
    scale: int | None = None
    element: ColumnType | None = None

    def __post_init__(self) -> None:
        if self.name == "decimal":
            if self.precision is None or self.scale is None or not 0 <= self.scale <= self.precision:
                raise ValueError(f"decimal needs 0 <= scale <= precision, got {self.precision}, {self.scale}")
            if self.precision > MAX_DECIMAL_PRECISION:
                raise ValueError(f"decimal precision {self.precision} is above {MAX_DECIMAL_PRECISION}")
        elif self.name == "list":
            if self.element is None:
                raise ValueError("list needs an element type")
        elif self.name not in _PLAIN_NAMES:
            raise ValueError(f"unknown column type {self.name!r}")

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.name == "list":
            return f"list<{self.element}>"
        return self.name

    @property
    def is_integer(self) -> bool:
        """A whole-number type."""
        return self.name in ("int16", "int32", "int64")

    @property
    def is_float(self) -> bool:
        """A binary floating-point type."""
        return self.name in ("float32", "float64")

    @property
    def is_numeric(self) -> bool:
        """Any type that holds numbers."""
        return self.is_integer or self.is_float or self.name == "decimal"


BOOLEAN: Final = ColumnType("boolean")
INT16: Final = ColumnType("int16")
INT32: Final = ColumnType("int32")
INT64: Final = ColumnType("int64")
FLOAT32: Final = ColumnType("float32")
FLOAT64: Final = ColumnType("float64")
VARCHAR: Final = ColumnType("varchar")
BLOB: Final = ColumnType("blob")
DATE: Final = ColumnType("date")
TIME: Final = ColumnType("time")
TIMESTAMP: Final = ColumnType("timestamp")
TIMESTAMPTZ: Final = ColumnType("timestamptz")
UUID: Final = ColumnType("uuid")
JSON: Final = ColumnType("json")
INTERVAL: Final = ColumnType("interval")
UNKNOWN: Final = ColumnType("unknown")


def decimal(precision: int, scale: int) -> ColumnType:
    """The exact type with `precision` digits, `scale` of them after the point."""
    return ColumnType("decimal", precision=precision, scale=scale)


def list_of(element: ColumnType) -> ColumnType:
    """An array of `element`."""
    return ColumnType("list", element=element)


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A schema-qualified table name, exactly as stored (no folding, no quotes)."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def folded(self) -> TableName:
        """What DuckDB compares: to it, names that differ only in case are one."""
        return TableName(self.schema.lower(), self.name.lower())


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """A named, typed column of a stored table."""

    name: str
    type: ColumnType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class TableSchema:
    """What a query may know of a table it reads.

    `key` lists the columns of a unique, not-null key, or is empty: then equal rows may occur more than once.
    """

    name: TableName
    columns: tuple[ColumnSchema, ...]
    key: tuple[str, ...] = ()

    def column(self, name: str) -> ColumnSchema | None:
        """The column called `name`, or None."""
        return next((column for column in self.columns if column.name == name), None)
