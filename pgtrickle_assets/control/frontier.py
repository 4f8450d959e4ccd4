"""Frontiers: up to which lake snapshot of each input a partition's content is built.

A frontier moves in the transaction that commits the content, and only from where the plan saw it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle_assets.control.database import as_json, fetch, run, scalar
from pgtrickle_assets.errors import StaleFrontierError

if TYPE_CHECKING:
    from datetime import datetime

    from pgtrickle_assets.control.database import Handle

EVERY_PARTITION = "*"
"""Key of the frontier that holds for every partition without one of its own."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far one partition of a stream table is built.

    Attributes:
        pgt_id: The stream table.
        partition_key: Partition, or `EVERY_PARTITION`.
        inputs: Lake snapshot by input (`schema.table`).
        cut: Lake snapshot at which the refresh that built it read base tables.
        ducklake_snapshot_id: Lake snapshot in which the content has been since.
        refresh_id: Row in the history; None when it was pruned.
        updated_at: When it moved last.
    """

    pgt_id: int
    partition_key: str
    inputs: Mapping[str, int]
    cut: int
    ducklake_snapshot_id: int
    refresh_id: int | None
    updated_at: datetime


def frontiers(handle: Handle, pgt_id: int) -> dict[str, Frontier]:
    """All frontiers of a stream table by partition key; empty before its first fill."""
    found = fetch(
        handle,
        Frontier,
        """
        SELECT c.pgt_id, c.partition_key, c.cut, c.ducklake_snapshot_id, c.refresh_id, c.updated_at,
               coalesce(jsonb_object_agg(f.input, f.snapshot_id) FILTER (WHERE f.input IS NOT NULL), '{}') AS inputs
        FROM pgtrickle.pgt_partition_cuts AS c
        LEFT JOIN pgtrickle.pgt_frontiers AS f USING (pgt_id, partition_key)
        WHERE c.pgt_id = %s
        GROUP BY c.pgt_id, c.partition_key
        ORDER BY c.partition_key
        """,
        (pgt_id,),
    )
    return {row.partition_key: row for row in found}


def frontier(handle: Handle, pgt_id: int, partition_key: str = EVERY_PARTITION) -> Frontier | None:
    """Frontier that holds for a partition: its own, else the one for every partition, else None."""
    found = frontiers(handle, pgt_id)
    return found.get(partition_key) or found.get(EVERY_PARTITION)


def advance(
    handle: Handle,
    pgt_id: int,
    partition_key: str,
    *,
    expect: Mapping[str, int] | None,
    inputs: Mapping[str, int],
    cut: int,
    snapshot_id: int,
    refresh_id: int | None,
) -> None:
    """Move a partition's frontier from where the plan saw it.

    Call it in the transaction that commits the content; it locks the frontier's row until then.

    Args:
        handle: Connection or cursor in that transaction.
        pgt_id: Stream table.
        partition_key: Partition, or `EVERY_PARTITION`.
        expect: Inputs of the frontier row that the plan assumed; None when it assumed that there is no such row.
        inputs: Inputs of the new frontier.
        cut: Lake snapshot at which base tables were read.
        snapshot_id: Lake snapshot that holds the content.
        refresh_id: Row in the history.

    Raises:
        StaleFrontierError: The frontier is not where the plan assumed it.
    """
    lock(handle, pgt_id)
    stored = frontiers(handle, pgt_id).get(partition_key)
    if (None if stored is None else dict(stored.inputs)) != (None if expect is None else dict(expect)):
        raise StaleFrontierError(
            f"Another refresh moved the frontier of stream table {_name(handle, pgt_id)}, "
            f"{'all partitions' if partition_key == EVERY_PARTITION else f'partition {partition_key!r}'}, meanwhile.",
            hint="Nothing was written; the next refresh starts from the new frontier.",
        )
    run(
        handle,
        """
        INSERT INTO pgtrickle.pgt_partition_cuts (pgt_id, partition_key, cut, ducklake_snapshot_id, refresh_id)
        VALUES (%s, %s, %s, %s, %s)
        ON CONFLICT (pgt_id, partition_key) DO UPDATE
        SET cut = EXCLUDED.cut, ducklake_snapshot_id = EXCLUDED.ducklake_snapshot_id,
            refresh_id = EXCLUDED.refresh_id, updated_at = clock_timestamp()
        """,
        (pgt_id, partition_key, cut, snapshot_id, refresh_id),
    )
    run(
        handle,
        """
        WITH new AS (SELECT key AS input, value::bigint AS snapshot_id FROM jsonb_each_text(%s)),
             gone AS (
                 DELETE FROM pgtrickle.pgt_frontiers AS f
                 WHERE f.pgt_id = %s AND f.partition_key = %s AND f.input NOT IN (SELECT input FROM new)
             )
        INSERT INTO pgtrickle.pgt_frontiers (pgt_id, partition_key, input, snapshot_id)
        SELECT %s, %s, input, snapshot_id FROM new
        ON CONFLICT (pgt_id, partition_key, input) DO UPDATE SET snapshot_id = EXCLUDED.snapshot_id
        """,
        (as_json(dict(inputs)), pgt_id, partition_key, pgt_id, partition_key),
    )


def lock(handle: Handle, pgt_id: int) -> None:
    """Hold all frontiers of a stream table until the transaction ends, also of partitions that have none yet."""
    run(handle, "SELECT 1 FROM pgtrickle.pgt_stream_tables WHERE pgt_id = %s FOR NO KEY UPDATE", (pgt_id,))


def require_unmoved(
    handle: Handle, pgt_id: int, planned: Mapping[str, Frontier], partitions: Sequence[str] | None
) -> None:
    """Check that content which a plan built on is still the stored content.

    A plan for the whole table builds on all of its partitions; one for some partitions on those and on what every
    partition without a frontier of its own is built from.

    Args:
        handle: Connection or cursor.
        pgt_id: Stream table.
        planned: Its frontiers as the plan saw them.
        partitions: Partitions that the plan changes; None for all.

    Raises:
        StaleFrontierError: Another refresh changed the content meanwhile.
    """
    now = frontiers(handle, pgt_id)
    keys = {*planned, *now} if partitions is None else {*partitions, EVERY_PARTITION}
    if any(_content(planned.get(key)) != _content(now.get(key)) for key in keys):
        raise StaleFrontierError(
            f"Another refresh of stream table {_name(handle, pgt_id)} was faster.",
            hint="Nothing was written here; the next refresh starts from what it left.",
        )


def _content(stored: Frontier | None) -> tuple[object, ...] | None:
    return None if stored is None else (dict(stored.inputs), stored.ducklake_snapshot_id)


def forget(handle: Handle, pgt_id: int, *, keep: str | None = None) -> int:
    """Remove the frontiers of a stream table, all or all but one; returns how many.

    After every partition was built to the same point, `keep=EVERY_PARTITION` leaves the one row that says so.
    """
    return run(
        handle,
        "DELETE FROM pgtrickle.pgt_partition_cuts WHERE pgt_id = %s AND partition_key IS DISTINCT FROM %s",
        (pgt_id, keep),
    )


def oldest_needed_snapshot(handle: Handle) -> int | None:
    """Oldest lake snapshot that a next refresh or a named snapshot reads; snapshots before it may be expired.

    None without frontiers and named snapshots.
    """
    found = scalar(
        handle,
        """
        SELECT min(needed.snapshot_id) FROM (
            SELECT snapshot_id FROM pgtrickle.pgt_frontiers
            UNION ALL SELECT snapshot_version FROM pgtrickle.pgt_snapshots
            UNION ALL SELECT i.value::bigint FROM pgtrickle.pgt_snapshots AS n, jsonb_each_text(n.frontier) AS i
        ) AS needed (snapshot_id)
        """,
    )
    return None if found is None else int(found)


def _name(handle: Handle, pgt_id: int) -> str:
    found = scalar(
        handle, "SELECT pgt_schema || '.' || pgt_name FROM pgtrickle.pgt_stream_tables WHERE pgt_id = %s", (pgt_id,)
    )
    return str(found or f"with id {pgt_id}")
