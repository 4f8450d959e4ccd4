"""Which stream table and which refresh made a lake snapshot."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.control.database import fetch, run

if TYPE_CHECKING:
    from datetime import datetime

    from psycopg import Connection

    from pgtrickle_assets.control.database import Handle

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Provenance:
    """One snapshot's origin. `stream_table_oid` holds the stream table's pgt_id (the reference system's name)."""

    provenance_id: int
    stream_table_oid: int
    stream_table_name: str
    ducklake_snapshot_id: int
    refresh_id: int | None
    delta_row_count: int
    written_at: datetime


def record(
    connection: Connection[Any],
    *,
    pgt_id: int,
    name: str,
    snapshot_id: int,
    refresh_id: int | None,
    delta_row_count: int,
) -> bool:
    """Note that a refresh made a snapshot, in the transaction that makes it.

    The note never fails the refresh: what the database refuses is undone alone, and logged. The author and the message
    of the snapshot itself say the same.

    Args:
        connection: Connection in that transaction.
        pgt_id: Stream table.
        name: Its name as `schema.name`, kept for when it is renamed.
        snapshot_id: The new lake snapshot.
        refresh_id: Row in the history.
        delta_row_count: Rows inserted plus rows deleted.

    Returns:
        Whether it was noted.

    Raises:
        psycopg.OperationalError: The connection is lost, and with it the whole transaction.
    """
    import psycopg

    try:
        with connection.transaction():
            run(
                connection,
                """
                INSERT INTO pgtrickle.pgt_ducklake_provenance
                    (stream_table_oid, stream_table_name, ducklake_snapshot_id, refresh_id, delta_row_count)
                VALUES (%s, %s, %s, %s, %s)
                """,
                (pgt_id, name, snapshot_id, refresh_id, delta_row_count),
            )
    except psycopg.OperationalError:
        raise
    except psycopg.Error as error:
        logger.warning("The origin of snapshot %d was not noted: SQLSTATE %s.", snapshot_id, error.sqlstate)
        return False
    return True


def recent(handle: Handle, pgt_id: int, *, limit: int = 20) -> list[Provenance]:
    """The latest snapshots of a stream table, newest first."""
    return fetch(
        handle,
        Provenance,
        """
        SELECT provenance_id, stream_table_oid, stream_table_name, ducklake_snapshot_id, refresh_id, delta_row_count,
               written_at
        FROM pgtrickle.pgt_ducklake_provenance
        WHERE stream_table_oid = %s
        ORDER BY provenance_id DESC LIMIT %s
        """,
        (pgt_id, limit),
    )
