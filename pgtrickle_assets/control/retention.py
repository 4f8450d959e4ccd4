"""Which snapshots and tables of the lake this schema still needs, for maintenance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle_assets.control.database import fetch, run, scalar
from pgtrickle_assets.control.frontier import oldest_needed_snapshot

if TYPE_CHECKING:
    from pgtrickle_assets.control.database import Handle


def keep_from(handle: Handle) -> int | None:
    """Oldest lake snapshot that must stay: for frontiers, named snapshots, and refreshes that run. None without any."""
    running = scalar(
        handle,
        """
        SELECT min(needed.snapshot_id) FROM (
            SELECT cut FROM pgtrickle.pgt_partition_cuts
            UNION ALL SELECT cut FROM pgtrickle.pgt_refresh_history WHERE status = 'RUNNING'
        ) AS needed (snapshot_id)
        """,
    )
    needed = [snapshot for snapshot in (oldest_needed_snapshot(handle), running) if snapshot is not None]
    return min(needed, default=None)


def held_back_by(handle: Handle, snapshot_id: int) -> list[str]:
    """Stream tables whose frontier is at a snapshot, by name: those that keep it from being expired."""
    rows = fetch(
        handle,
        _Name,
        """
        SELECT DISTINCT s.pgt_schema || '.' || s.pgt_name AS name
        FROM pgtrickle.pgt_stream_tables AS s
        JOIN pgtrickle.pgt_partition_cuts AS c USING (pgt_id)
        LEFT JOIN pgtrickle.pgt_frontiers AS f USING (pgt_id, partition_key)
        WHERE c.cut = %s OR f.snapshot_id = %s ORDER BY 1
        """,
        (snapshot_id, snapshot_id),
    )
    return [row.name for row in rows]


def own_tables(handle: Handle) -> list[tuple[str, str]]:
    """Schema and name of every lake table that this product alone writes: mirrors, stream tables and their state."""
    rows = fetch(
        handle,
        _Table,
        """
        SELECT pgt_schema AS schema, pgt_name AS name FROM pgtrickle.pgt_stream_tables
        UNION
        SELECT split_part(t.text, '.', 1), substr(t.text, strpos(t.text, '.') + 1)
        FROM pgtrickle.pgt_stream_tables, jsonb_array_elements_text(state_tables) AS t (text)
        UNION
        SELECT lake_schema, lake_table FROM pgtrickle.pgt_source_mirrors
        ORDER BY 1, 2
        """,
    )
    return [(row.schema, row.name) for row in rows]


def prune_provenance(handle: Handle, *, retention_days: int, kept_from: int) -> int:
    """Remove what is recorded of snapshots that are gone and were made before the retention time; how many.

    Args:
        handle: Connection or cursor; commit afterwards.
        retention_days: As for the history.
        kept_from: Oldest snapshot that the lake still has.
    """
    return run(
        handle,
        """
        DELETE FROM pgtrickle.pgt_ducklake_provenance
        WHERE ducklake_snapshot_id < %s AND written_at < clock_timestamp() - make_interval(days => %s)
        """,
        (kept_from, retention_days),
    )


@dataclass(frozen=True, slots=True)
class _Name:
    name: str


@dataclass(frozen=True, slots=True)
class _Table:
    schema: str
    name: str
