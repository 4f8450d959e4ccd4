"""What a PostgreSQL table is to change capture, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pgtrickle_assets.query.types import ColumnSchema, ColumnType, TableName, TableSchema

TriggerLevel = Literal["statement", "row"]
"""How changes of a table are recorded: once per statement, or once per row where statement triggers are not reached."""


@dataclass(frozen=True, slots=True)
class PgType:
    """A type with its domains resolved.

    `name` is the base type's internal name, or `enum`. `element` is set for arrays; `text` is how PostgreSQL prints the
    declared type. `modifier` is pg_attribute.atttypmod (-1 without one).
    """

    name: str
    text: str
    modifier: int = -1
    element: PgType | None = None
    labels: tuple[str, ...] = ()


_NUMERIC_OIDS = (1700, 1231)


def significant_modifier(type_oid: int, modifier: int) -> int:
    """The modifier of numeric and numeric[], which decides their lake type; -1 for every other type."""
    return modifier if type_oid in _NUMERIC_OIDS else -1


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column as capture reads it.

    Attributes:
        name: As stored, not folded.
        number: pg_attribute.attnum; a column that is dropped and added again gets a new one.
        type: In the lake.
        pg_type: In PostgreSQL.
        type_oid: Of the declared type, domains unresolved.
        nullable: False only when PostgreSQL has proved that no row holds NULL.
        generated: A stored generated column.
    """

    name: str
    number: int
    type: ColumnType
    pg_type: PgType
    type_oid: int
    nullable: bool
    generated: bool = False

    @property
    def shape(self) -> tuple[str, int, int, int]:
        """What must stay the same for captured values to stay right.

        A length limit may change in place (varchar(10) to varchar(20)); digits of a numeric are its lake type. What
        rewrites values shows in the table's file.
        """
        return (self.name, self.number, self.type_oid, significant_modifier(self.type_oid, self.pg_type.modifier))

    @property
    def schema(self) -> ColumnSchema:
        """The column as queries see it."""
        return ColumnSchema(self.name, self.type, self.nullable)


@dataclass(frozen=True, slots=True)
class UnsupportedColumn:
    """A column that is not captured, and why."""

    name: str
    pg_type: str
    reason: str


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """`columns` of a table refer to `target_columns` of `target`."""

    name: str
    columns: tuple[str, ...]
    target: TableName
    target_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A source table with the columns that are captured.

    Attributes:
        schema: Name, captured columns in table order, and a unique not-null key.
        oid: pg_class.oid.
        columns: The captured columns, aligned with `schema.columns`.
        level: How its triggers work.
        partitioned: The rows live in partitions.
        leaves: Oids of the leaf partitions; empty for a plain table.
        foreign_keys: Between captured columns.
        excluded: Columns left out by the project.
        unsupported: Columns left out because they have no exact type in the lake; only when all tables were asked for.
        estimated_rows: The planner's estimate, or None before the first ANALYZE.
        bytes: Size of the heap on disk, partitions included.
    """

    schema: TableSchema
    oid: int
    columns: tuple[SourceColumn, ...]
    level: TriggerLevel
    partitioned: bool = False
    leaves: tuple[int, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    excluded: tuple[str, ...] = ()
    unsupported: tuple[UnsupportedColumn, ...] = ()
    estimated_rows: int | None = None
    bytes: int = 0

    @property
    def name(self) -> TableName:
        """Schema and name, as stored."""
        return self.schema.name
