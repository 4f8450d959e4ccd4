"""Source tables as capture and queries see them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.capture import catalog
from pgtrickle_assets.capture.catalog import Attribute, Relation
from pgtrickle_assets.capture.pgtypes import column_type, overridden, unsupported_reason
from pgtrickle_assets.capture.source_table import PgType, SourceColumn, SourceTable, UnsupportedColumn
from pgtrickle_assets.errors import SourcePrivilegeError, SourceTableError, UnsupportedTypeError
from pgtrickle_assets.query.types import ColumnType, TableName, TableSchema

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

RESERVED_PREFIX = "__pgt_"

_REFUSED_KINDS = {
    "v": ("a view", "Name the tables it reads; a view has no changes of its own."),
    "m": ("a materialized view", "Name the tables it reads; it changes only when it is refreshed."),
    "f": ("a foreign table", "Add the server it comes from as a source of its own."),
}


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """What a project leaves out or reads as another type, by table."""

    excluded: Mapping[TableName, Collection[str]] = field(default_factory=dict)
    types: Mapping[TableName, Mapping[str, ColumnType]] = field(default_factory=dict)


def find(connection: Connection, names: Sequence[TableName]) -> dict[TableName, int]:
    """Oids of tables by exact name.

    Raises:
        SourceTableError: One is missing; the nearest names are given.
    """
    rows = connection.execute(
        "SELECT n.nspname, c.relname, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN unnest(%s::text[], %s::text[]) AS w(schema, name) ON w.schema = n.nspname AND w.name = c.relname"
        " WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')",
        [[name.schema for name in names], [name.name for name in names]],
    ).fetchall()
    found = {TableName(schema, name): oid for schema, name, oid in rows}
    for name in names:
        if name not in found:
            raise SourceTableError(f"source table {name} does not exist.", hint=_nearest(connection, name))
    return found


def _nearest(connection: Connection, wanted: TableName) -> str:
    known = {str(relation.name): relation.name for relation in catalog.relations(connection).values()}
    same_name = [text for text, name in known.items() if name.name == wanted.name]
    close = same_name or difflib.get_close_matches(str(wanted), known, n=3, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return "Its database has no table with a name like it." if known else "Its database has no tables."


def describe(
    connection: Connection, names: Sequence[TableName] | None, choice: ColumnChoice
) -> dict[TableName, SourceTable]:
    """Tables with their captured columns, keys and foreign keys.

    Args:
        connection: To the source, inside or outside of a transaction.
        names: Exact names, or None for every table of the user's schemas that can be captured; then columns without an
            exact type are left out and listed instead of raised.
        choice: What the project leaves out or retypes.

    Raises:
        SourceTableError: A named table is missing or of a kind that has no changes to capture.
        SourcePrivilegeError: Rows or all of a named table are hidden from the role.
        UnsupportedTypeError: A captured column of a named table has no exact type in the lake, or a name that differs
            from another one's only in case.
    """
    oids = None if names is None else list(find(connection, names).values())
    known = catalog.relations(connection, oids)
    if names is None:
        known = {oid: r for oid, r in known.items() if _capturable(r) and not r.is_partition}
    for relation in known.values():
        refuse(relation)
    return _assemble(connection, known, choice, strict=names is not None)


def _capturable(relation: Relation) -> bool:
    try:
        refuse(relation)
    except (SourceTableError, SourcePrivilegeError):
        return False
    return True


def refuse(relation: Relation) -> None:
    """Raise when the changes of a relation cannot be captured.

    Raises:
        SourceTableError: A view, a foreign, temporary or unlogged table, or one with inheritance children.
        SourcePrivilegeError: The role cannot read all of its rows.
    """
    name = relation.name
    if relation.kind in _REFUSED_KINDS:
        what, hint = _REFUSED_KINDS[relation.kind]
        raise SourceTableError(f"source {name} is {what}.", hint=hint)
    if relation.persistence == "t":
        raise SourceTableError(f"source table {name} is temporary.", hint="Only its own session can read it.")
    if relation.persistence == "u":
        raise SourceTableError(
            f"source table {name} is unlogged: a crash empties it and no trigger sees that.",
            hint=f"ALTER TABLE {name} SET LOGGED.",
        )
    if relation.has_children:
        raise SourceTableError(
            f"source table {name} has tables that inherit from it.",
            hint="Name the inheriting tables as sources instead, or turn it into a partitioned table.",
        )
    if not relation.selectable:
        raise SourcePrivilegeError(
            f"the user of the source may not read table {name}.", hint=f"GRANT SELECT ON {name} to that user."
        )
    if relation.row_security:
        raise SourcePrivilegeError(
            f"row level security hides rows of table {name} from the user of the source.",
            hint="Use the owner of the table, or give the user BYPASSRLS; a filtered copy would be wrong.",
        )


def _assemble(
    connection: Connection, known: Mapping[int, Relation], choice: ColumnChoice, *, strict: bool
) -> dict[TableName, SourceTable]:
    oids = list(known)
    attributes = catalog.attributes(connection, oids)
    kinds = catalog.types(connection, [a for rows in attributes.values() for a in rows])
    keys = catalog.unique_keys(connection, oids)
    foreign_keys = catalog.foreign_keys(connection, oids)
    leaves = catalog.leaves(connection, oids)
    block = connection.execute("SELECT current_setting('block_size')::int").fetchone()
    tables: dict[TableName, SourceTable] = {}
    for oid, relation in known.items():
        name = relation.name
        excluded = tuple(choice.excluded.get(name, ()))
        columns, unsupported = _columns(
            name, attributes[oid], kinds, excluded, choice.types.get(name, {}), strict=strict
        )
        captured = {column.name for column in columns}
        parts = leaves.get(oid, [])
        foreign = next((leaf for leaf in parts if leaf.kind != "r"), None)
        if foreign is not None and strict:
            raise SourceTableError(
                f"source table {name} has a partition that is a foreign table.", hint="Its changes cannot be captured."
            )
        pages = sum(leaf.pages for leaf in parts) if relation.partitioned else relation.pages
        tables[name] = SourceTable(
            schema=TableSchema(name, tuple(column.schema for column in columns), _key(columns, keys.get(oid, []))),
            oid=oid,
            columns=columns,
            level=relation.level,
            partitioned=relation.partitioned,
            leaves=tuple(leaf.oid for leaf in parts),
            foreign_keys=tuple(k for k in foreign_keys.get(oid, []) if captured.issuperset(k.columns)),
            excluded=excluded,
            unsupported=unsupported,
            estimated_rows=relation.estimated_rows,
            bytes=pages * (block[0] if block else 8192),
        )
    return tables


def _columns(
    table: TableName,
    attributes: Sequence[Attribute],
    kinds: Mapping[tuple[int, int], PgType],
    excluded: Collection[str],
    overrides: Mapping[str, ColumnType],
    *,
    strict: bool,
) -> tuple[tuple[SourceColumn, ...], tuple[UnsupportedColumn, ...]]:
    names = [a.name for a in attributes]
    for name in (*excluded, *overrides):
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Its columns are {', '.join(names)}."
            raise SourceTableError(f"source table {table} has no column {name!r}.", hint=hint)
    columns: list[SourceColumn] = []
    unsupported: list[UnsupportedColumn] = []
    spelled: dict[str, str] = {}
    for a in attributes:
        if a.name in excluded:
            continue
        kind = kinds[a.type_oid, a.modifier]
        override = overrides.get(a.name)
        found = overridden(table, a.name, kind, override) if override else column_type(kind)
        reason = "" if found else unsupported_reason(kind)
        reason = _against(a, spelled.setdefault(a.name.lower(), a.name)) or reason
        if found is not None and not reason:
            generated = a.generated == "s"
            columns.append(SourceColumn(a.name, a.number, found, kind, a.type_oid, not a.not_null, generated))
        elif strict:
            raise UnsupportedTypeError(
                f"column {a.name!r} of source table {table} (type {kind.text}) cannot be captured: {reason}."
            )
        else:
            unsupported.append(UnsupportedColumn(a.name, kind.text, reason))
    if not columns:
        raise SourceTableError(f"source table {table} has no column to capture.", hint="Exclude fewer columns.")
    return tuple(columns), tuple(unsupported)


def _against(attribute: Attribute, first: str) -> str:
    """Why a column of any type cannot be captured; `first` is the first captured column of its name in any case."""
    if first != attribute.name:
        # DuckDB compares names without case, and cannot read a lake that has both.
        return (
            f"its name differs only in case from column {first!r}, and the lake cannot hold both; "
            "leave one of them out with exclude_columns"
        )
    if attribute.generated == "v":
        return "a virtual generated column has no stored value to capture; make it STORED, or exclude it"
    if attribute.name.startswith(RESERVED_PREFIX):
        return f"names that begin with {RESERVED_PREFIX} are this program's own; exclude the column"
    return ""


def _key(columns: Sequence[SourceColumn], keys: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
    """The first unique key whose columns are all captured and never NULL."""
    by_number = {column.number: column for column in columns}
    for numbers in keys:
        members = [by_number.get(number) for number in numbers]
        if members and all(member is not None and not member.nullable for member in members):
            return tuple(member.name for member in members if member is not None)
    return ()
