"""Remove consumed rows from buffers, count what waits, and say who holds capture back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.capture import read_sql, registry
from pgtrickle_assets.capture.buffer_sql import buffer
from pgtrickle_assets.capture.position import Position, Snapshot
from pgtrickle_assets.capture.registry import Captured
from pgtrickle_assets.capture.state import arrivals, gap, observe
from pgtrickle_assets.errors import SourceReplacedError
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

CHUNK_ROWS = 50_000
CHECK_MILLISECONDS = 5_000
"""A look for changes takes no longer than this; when it would, there is enough to look at."""


def trim(connection: Connection, consumer: str, position: Position) -> int:
    """Note that a consumer has stored everything up to `position`, and delete what all consumers have stored.

    Rows are deleted in chunks, each in its own transaction, and only rows of transactions that every consumer's
    snapshot sees: rows of open transactions, and of those that committed since, stay.

    Args:
        connection: In autocommit mode.
        consumer: Who stored it.
        position: Of the stored batch.

    Returns:
        Number of buffer rows deleted.

    Raises:
        SourceReplacedError: The position belongs to another database.
    """
    here = registry.identity(connection)
    if (position.system, position.database) != (here.system, here.database):
        raise SourceReplacedError(
            "the position to trim to belongs to another database.", hint="Copy all tables of the source again."
        )
    if not registry.exists(connection):
        return 0
    deleted = 0
    for name, table in registry.captured(connection).items():
        state = position.tables.get((name.schema, name.name))
        if state is not None and state.generation == table.generation:
            floor = _advance(connection, consumer, table, position.snapshot)
            deleted += _delete(connection, table.relid, floor) if floor else 0
    connection.execute(
        "DELETE FROM pgtrickle_changes.receipts WHERE consumer = %s AND id <"
        " (SELECT id FROM pgtrickle_changes.receipts WHERE token = %s AND consumer = %s)",
        [consumer, position.receipt, consumer],
    )
    return deleted


def _advance(connection: Connection, consumer: str, table: Captured, stored: Snapshot) -> Snapshot | None:
    """Move a consumer's mark forward, never back; return what all consumers have stored, None if one has nothing."""
    with connection.transaction():
        rows = connection.execute(
            "SELECT consumer, position::text FROM pgtrickle_changes.subscriptions WHERE relid = %s ORDER BY consumer"
            " FOR UPDATE",
            [table.relid],
        ).fetchall()
        marks = {name: Snapshot.parse(text) if text else None for name, text in rows}
        if consumer not in marks:
            return None
        own = marks[consumer]
        if own is None or stored.covers(own):
            marks[consumer] = stored
            connection.execute(
                "UPDATE pgtrickle_changes.subscriptions SET position = %s WHERE relid = %s AND consumer = %s",
                [str(stored), table.relid, consumer],
            )
        floor: Snapshot | None = None
        for mark in marks.values():
            if mark is None:
                return None
            floor = mark if floor is None else floor.common(mark)
        # Before the first row goes: a reader with an older position must learn that rows may be missing.
        connection.execute(
            "UPDATE pgtrickle_changes.captured SET trimmed = %s WHERE relid = %s", [str(floor), table.relid]
        )
        return floor


def _delete(connection: Connection, relid: int, floor: Snapshot) -> int:
    from psycopg import sql

    statement = sql.SQL(
        "DELETE FROM {buffer} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {buffer} WHERE {seen} LIMIT {limit}))"
    ).format(buffer=buffer(relid), seen=read_sql.seen(floor), limit=sql.Literal(CHUNK_ROWS))
    deleted = 0
    while True:
        count = connection.execute(statement).rowcount
        deleted += count
        if count < CHUNK_ROWS:
            return deleted


def has_changes(connection: Connection, tables: Sequence[TableName], position: Position | None) -> bool:
    """Whether a batch from `position` would hold something, or find that something is wrong.

    Looks up the buffers' indexes and the catalogs; true as well when the look itself takes too long.
    """
    import psycopg

    if position is None or not registry.exists(connection):
        return True
    known = registry.captured(connection)
    if any(name not in known for name in tables):
        return True
    chosen = [known[name] for name in tables]
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = {CHECK_MILLISECONDS}".encode())
            return _any_row(connection, chosen, position.snapshot) or _any_event(connection, chosen, position)
    except psycopg.errors.QueryCanceled:
        return True


def _any_row(connection: Connection, tables: Sequence[Captured], since: Snapshot) -> bool:
    from psycopg import sql

    if not tables:
        return False
    looks = [
        sql.SQL("EXISTS (SELECT FROM {} WHERE {})").format(buffer(table.relid), read_sql.unseen(since))
        for table in tables
    ]
    row = connection.execute(sql.SQL("SELECT {}").format(sql.SQL(" OR ").join(looks))).fetchone()
    return bool(row and row[0])


def _any_event(connection: Connection, tables: Sequence[Captured], position: Position) -> bool:
    """Something that leaves no buffer row: a lost trigger, a new or lost partition, a dropped table."""
    for name, table in observe(connection, tables).items():
        before = position.tables.get((name.schema, name.name))
        if before is None or gap(before, table) or arrivals(before, table):
            return True
    return False


def pending(connection: Connection, tables: Sequence[TableName], position: Position | None) -> dict[TableName, int]:
    """Buffer rows per table that a batch from `position` has yet to take (before they are added up)."""
    from psycopg import sql

    if not registry.exists(connection):
        return {}
    counts: dict[TableName, int] = {}
    for name, table in registry.captured(connection).items():
        if name in tables:
            where = read_sql.unseen(position.snapshot) if position else sql.SQL("true")
            row = connection.execute(
                sql.SQL("SELECT count(*) FROM {} WHERE {}").format(buffer(table.relid), where)
            ).fetchone()
            counts[name] = row[0] if row else 0
    return counts


@dataclass(frozen=True, slots=True)
class Holdback:
    """The oldest open transaction that has written something: a batch cannot take its changes, nor trim past it.

    Attributes:
        pid: Its backend, or None for a prepared transaction.
        description: User, application and state, or the name of the prepared transaction.
        seconds: Since it began.
    """

    pid: int | None
    description: str
    seconds: float


_HOLDBACK = """
SELECT * FROM (
    SELECT a.pid, format('user %s, %s, %s', a.usename, coalesce(nullif(a.application_name, ''), 'no application name'),
                         a.state), extract(epoch FROM clock_timestamp() - a.xact_start)::float8
    FROM pg_stat_activity a
    WHERE a.backend_xid IS NOT NULL AND a.datname = current_database() AND a.pid <> pg_backend_pid()
    UNION ALL
    SELECT NULL, format('prepared transaction %s of user %s', p.gid, p.owner),
           extract(epoch FROM clock_timestamp() - p.prepared)::float8
    FROM pg_prepared_xacts p WHERE p.database = current_database()
) AS x ORDER BY 3 DESC NULLS LAST LIMIT 1
"""


def holdback(connection: Connection) -> Holdback | None:
    """The oldest writer that is still open, or None."""
    row = connection.execute(_HOLDBACK).fetchone()
    return Holdback(row[0], row[1], row[2] or 0.0) if row else None
