"""Named snapshots of stream tables.

A named snapshot is a lake snapshot with a label: nothing is copied. It holds what a stream table contained and the
frontier of that content, so that a restored table moves on from there. Expiry never passes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle_assets.control.database import as_json, fetch, run
from pgtrickle_assets.errors import ControlError
from pgtrickle_assets.suggestions import did_you_mean

if TYPE_CHECKING:
    from datetime import datetime

    from pgtrickle_assets.control.database import Handle
    from pgtrickle_assets.control.frontier import Frontier
    from pgtrickle_assets.control.registry import StreamTableRow


@dataclass(frozen=True, slots=True)
class NamedSnapshot:
    """One row of `pgt_snapshots`; fields are its columns.

    Attributes:
        pgt_id: The stream table.
        label: Its name, unique for a stream table.
        snapshot_schema: Schema of the lake table.
        snapshot_table: Name of the lake table.
        snapshot_version: Lake snapshot that holds the content.
        frontier: Lake snapshot by input, up to which the content is built.
        cut: Lake snapshot at which base tables were read.
        defining_query_hash: Identity of the query whose result it is.
        data_timestamp: Point in time that the content equals.
        created_at: When it was taken.
    """

    pgt_id: int
    label: str
    snapshot_schema: str
    snapshot_table: str
    snapshot_version: int
    frontier: Mapping[str, int]
    cut: int
    defining_query_hash: str
    data_timestamp: datetime | None
    created_at: datetime

    @property
    def stream_table(self) -> str:
        """Name of the stream table."""
        return f"{self.snapshot_schema}.{self.snapshot_table}"


def take(handle: Handle, row: StreamTableRow, label: str, *, built: Frontier, snapshot_id: int) -> None:
    """Name the content of a stream table.

    Args:
        handle: Connection or cursor that holds the stream table's frontiers (`frontier.lock`).
        row: The stream table.
        label: The name.
        built: Frontier of the content.
        snapshot_id: Lake snapshot that holds it.

    Raises:
        ControlError: The label is taken.
    """
    touched = run(
        handle,
        """
        INSERT INTO pgtrickle.pgt_snapshots
            (pgt_id, label, snapshot_schema, snapshot_table, snapshot_version, frontier, cut, defining_query_hash,
             data_timestamp)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
        """,
        (
            row.pgt_id,
            label,
            row.pgt_schema,
            row.pgt_name,
            snapshot_id,
            as_json(dict(built.inputs)),
            built.cut,
            row.defining_query_hash,
            row.data_timestamp,
        ),
    )
    if touched != 1:
        raise ControlError(
            f"Stream table {row.name} has a snapshot {label!r} already.",
            hint=f"Choose another label, or drop it with `pgtrickle snapshot {row.name} --drop {label}`.",
        )


def taken(handle: Handle, pgt_id: int | None = None) -> list[NamedSnapshot]:
    """Named snapshots of one stream table or of all, the newest first."""
    return fetch(
        handle,
        NamedSnapshot,
        """
        SELECT n.* FROM pgtrickle.pgt_snapshots AS n
        WHERE %s::bigint IS NULL OR pgt_id = %s ORDER BY created_at DESC, label
        """,
        (pgt_id, pgt_id),
    )


def find(handle: Handle, row: StreamTableRow, label: str | None) -> NamedSnapshot:
    """A named snapshot of a stream table; the newest without a label.

    Raises:
        ControlError: There is none, naming the nearest.
    """
    known = taken(handle, row.pgt_id)
    if not known:
        raise ControlError(
            f"Stream table {row.name} has no snapshot.", hint=f"`pgtrickle snapshot {row.name}` takes one."
        )
    found = next((snapshot for snapshot in known if label in (None, snapshot.label)), None)
    if found is None:
        hint = did_you_mean(str(label), [snapshot.label for snapshot in known])
        raise ControlError(f"Stream table {row.name} has no snapshot {label!r}.", hint=hint)
    return found


def drop(handle: Handle, row: StreamTableRow, label: str) -> None:
    """Forget a named snapshot; expiry may then pass it.

    Raises:
        ControlError: There is none of that label, naming the nearest.
    """
    find(handle, row, label)
    run(handle, "DELETE FROM pgtrickle.pgt_snapshots WHERE pgt_id = %s AND label = %s", (row.pgt_id, label))
