"""The capture schema's own tables: what is captured, who reads it, which database this is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.capture.buffer_sql import REGISTRY
from pgtrickle_assets.capture.pgtypes import column_type
from pgtrickle_assets.capture.source_table import PgType, SourceColumn, TriggerLevel
from pgtrickle_assets.errors import SourceError, SourcePrivilegeError
from pgtrickle_assets.query.types import UNKNOWN, TableName

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Identity:
    """One database of one cluster."""

    system: str
    database: int


@dataclass(frozen=True, slots=True)
class Captured:
    """A registered source table and the columns that its triggers record."""

    relid: int
    name: TableName
    level: TriggerLevel
    columns: tuple[SourceColumn, ...]
    generation: str
    trimmed: str | None


def identity(connection: Connection) -> Identity:
    """Which database this is."""
    row = connection.execute(
        "SELECT (SELECT system_identifier::text FROM pg_control_system()), oid FROM pg_database"
        " WHERE datname = current_database()"
    ).fetchone()
    if row is None:
        raise SourceError("the server does not name the database it is connected to.")
    return Identity(row[0], row[1])


def exists(connection: Connection) -> bool:
    """Whether capture was ever installed in this database."""
    row = connection.execute("SELECT to_regclass('pgtrickle_changes.captured') IS NOT NULL").fetchone()
    return bool(row and row[0])


def create(connection: Connection) -> None:
    """Create the schema and its tables where they are missing.

    Raises:
        SourcePrivilegeError: The role may not create the schema, or not use the one that is there.
    """
    row = connection.execute(
        # Asked of the catalog: to_regnamespace() may answer from before a lock was waited for.
        "SELECT n.oid IS NOT NULL, has_database_privilege(current_database(), 'CREATE'),"
        " coalesce(has_schema_privilege(n.oid, 'CREATE'), false), current_database()::text, current_user::text"
        " FROM (VALUES (1)) AS one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = 'pgtrickle_changes'"
    ).fetchone()
    there, may_create, may_use, database, user = row or (False, False, False, "", "")
    if not there and not may_create:
        raise SourcePrivilegeError(
            f"user {user!r} may not create schema pgtrickle_changes in database {database!r}.",
            hint=f'GRANT CREATE ON DATABASE "{database}" TO "{user}",'
            f' or CREATE SCHEMA pgtrickle_changes AUTHORIZATION "{user}".',
        )
    if there and not may_use:
        raise SourcePrivilegeError(
            f"schema pgtrickle_changes of database {database!r} belongs to another user.",
            hint=f'GRANT ALL ON SCHEMA pgtrickle_changes TO "{user}", or log in as its owner.',
        )
    if not there:
        connection.execute("CREATE SCHEMA pgtrickle_changes")
    connection.execute(REGISTRY.encode())
    here = identity(connection)
    connection.execute(
        "INSERT INTO pgtrickle_changes.identity SELECT %s, %s"
        " WHERE NOT EXISTS (SELECT FROM pgtrickle_changes.identity)",
        [here.system, here.database],
    )


def belongs_here(connection: Connection) -> bool:
    """Whether the schema was installed in this very database, and not brought by a dump."""
    here = identity(connection)
    row = connection.execute("SELECT system_identifier, database_oid FROM pgtrickle_changes.identity").fetchone()
    return row is None or Identity(row[0], row[1]) == here


def captured(connection: Connection) -> dict[TableName, Captured]:
    """All registered tables, by the name they had when capture was installed."""
    rows = connection.execute(
        "SELECT relid, schema_name, table_name, level, columns, generation::text, trimmed::text"
        " FROM pgtrickle_changes.captured"
    ).fetchall()
    return {
        TableName(r[1], r[2]): Captured(r[0], TableName(r[1], r[2]), r[3], tuple(map(_column, r[4])), r[5], r[6])
        for r in rows
    }


def subscribed(connection: Connection, relid: int, *, besides: str) -> frozenset[str]:
    """Columns of a table that consumers other than `besides` read."""
    rows = connection.execute(
        "SELECT unnest(columns) FROM pgtrickle_changes.subscriptions WHERE relid = %s AND consumer <> %s",
        [relid, besides],
    ).fetchall()
    return frozenset(row[0] for row in rows)


def register(connection: Connection, table: Captured) -> None:
    """Write a table whose buffer starts empty; its readers start anew."""
    from psycopg.types.json import Jsonb

    connection.execute(
        "INSERT INTO pgtrickle_changes.captured (relid, schema_name, table_name, level, columns, generation)"
        " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (relid) DO UPDATE SET schema_name = excluded.schema_name,"
        " table_name = excluded.table_name, level = excluded.level, columns = excluded.columns,"
        " generation = excluded.generation, trimmed = NULL",
        [
            table.relid,
            table.name.schema,
            table.name.name,
            table.level,
            Jsonb(_columns(table.columns)),
            table.generation,
        ],
    )
    connection.execute("UPDATE pgtrickle_changes.subscriptions SET position = NULL WHERE relid = %s", [table.relid])


def subscribe(connection: Connection, consumer: str, relid: int, columns: Sequence[str]) -> None:
    """Note that a consumer reads these columns of a table."""
    connection.execute(
        "INSERT INTO pgtrickle_changes.subscriptions (consumer, relid, columns) VALUES (%s, %s, %s)"
        " ON CONFLICT (consumer, relid) DO UPDATE SET columns = excluded.columns"
        " WHERE subscriptions.columns IS DISTINCT FROM excluded.columns",
        [consumer, relid, list(columns)],
    )


def _columns(columns: Iterable[SourceColumn]) -> list[dict[str, Any]]:
    return [{"name": c.name, "number": c.number, "type_oid": c.type_oid, "type": _kind(c.pg_type)} for c in columns]


def _kind(kind: PgType) -> dict[str, Any]:
    element = None if kind.element is None else _kind(kind.element)
    return {"name": kind.name, "text": kind.text, "modifier": kind.modifier, "element": element}


def _column(row: dict[str, Any]) -> SourceColumn:
    kind = _pg_type(row["type"])
    return SourceColumn(row["name"], row["number"], column_type(kind) or UNKNOWN, kind, row["type_oid"], nullable=True)


def _pg_type(row: dict[str, Any]) -> PgType:
    element = None if row["element"] is None else _pg_type(row["element"])
    return PgType(row["name"], row["text"], row["modifier"], element)
