"""When a table was changed: from the catalog's own log of its snapshots."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from pgtrickle_assets.lake.changes import parse_changes

if TYPE_CHECKING:
    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.lake.model import LakeTable

_SNAPSHOTS_LOOKED_AT: Final = 1000

_LATER: Final = """
SELECT s.snapshot_time, c.changes_made
FROM {c}.ducklake_snapshot s JOIN {c}.ducklake_snapshot_changes c USING (snapshot_id)
WHERE s.snapshot_id > %s AND strpos(c.changes_made, ':' || %s) > 0
ORDER BY s.snapshot_id LIMIT %s
"""

CONTENT_CHANGES: Final = frozenset(
    {"inserted_into_table", "deleted_from_table", "inlined_insert", "inlined_delete", "altered_table", "dropped_table"}
)
"""Entries that change what a reader sees; compaction does not."""


def first_change(lake: Lake, table: LakeTable, since: int) -> datetime | None:
    """Time of the first kept snapshot after `since` that changed rows or columns of the table; None when unknown."""
    rows = lake.connections.fetch(lake.sql(_LATER), (since, str(table.id), _SNAPSHOTS_LOOKED_AT))
    for moment, text in rows:
        if any(change.object_id == table.id and change.kind in CONTENT_CHANGES for change in parse_changes(text)):
            return moment
    return None
