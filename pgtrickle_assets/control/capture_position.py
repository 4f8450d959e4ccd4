"""How far each source's mirrors are built, and which lake tables mirror which source tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.control.database import as_json, fetch, run
from pgtrickle_assets.errors import StaleFrontierError
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    from datetime import datetime

    from pgtrickle_assets.control.database import Handle


@dataclass(frozen=True, slots=True)
class CapturePosition:
    """Commit point of a source database up to which its mirrors are built.

    Attributes:
        source_name: Source, as named in the project.
        position: The commit point as the capture layer writes it.
        ducklake_snapshot_id: Lake snapshot that holds the mirrors of that point; None before the first batch.
        updated_at: When it moved last.
    """

    source_name: str
    position: str
    ducklake_snapshot_id: int | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class MirrorRow:
    """One mirrored table.

    Attributes:
        source_name: Source, as named in the project.
        source_schema: Schema of the table in the source.
        source_table: Its name there.
        lake_schema: Schema of the mirror in the lake.
        lake_table: Its name there.
        columns: Mirrored columns in order, as plain data (`[{"name": ..., "type": ...}]`).
        ducklake_snapshot_id: Lake snapshot of the first full copy; None until there is one.
    """

    source_name: str
    source_schema: str
    source_table: str
    lake_schema: str
    lake_table: str
    columns: Sequence[dict[str, Any]]
    ducklake_snapshot_id: int | None = None

    @property
    def source(self) -> TableName:
        """The table in the source."""
        return TableName(self.source_schema, self.source_table)

    @property
    def mirror(self) -> TableName:
        """The table in the lake."""
        return TableName(self.lake_schema, self.lake_table)


def positions(handle: Handle) -> dict[str, CapturePosition]:
    """Position of every source that was captured, by source name."""
    found = fetch(
        handle,
        CapturePosition,
        "SELECT source_name, position, ducklake_snapshot_id, updated_at FROM pgtrickle.pgt_change_tracking",
    )
    return {row.source_name: row for row in found}


def position(handle: Handle, source_name: str) -> CapturePosition | None:
    """Position of one source, or None before its first batch."""
    return positions(handle).get(source_name)


def advance(handle: Handle, source_name: str, *, expect: str | None, position: str, snapshot_id: int | None) -> None:
    """Move a source's position, in the transaction that commits the mirrors.

    Args:
        handle: Connection or cursor in that transaction.
        source_name: Source.
        expect: Position that the batch was read from; None when there was none.
        position: Position that the batch was read to.
        snapshot_id: Lake snapshot with the batch; None when it changed nothing, then the old one stays.

    Raises:
        StaleFrontierError: Another run moved it meanwhile.
    """
    if expect is None:
        touched = run(
            handle,
            """
            INSERT INTO pgtrickle.pgt_change_tracking (source_name, position, ducklake_snapshot_id)
            VALUES (%s, %s, %s) ON CONFLICT DO NOTHING
            """,
            (source_name, position, snapshot_id),
        )
    else:
        touched = run(
            handle,
            """
            UPDATE pgtrickle.pgt_change_tracking
            SET position = %s, ducklake_snapshot_id = coalesce(%s, ducklake_snapshot_id),
                updated_at = clock_timestamp()
            WHERE source_name = %s AND position = %s
            """,
            (position, snapshot_id, source_name, expect),
        )
    if touched != 1:
        raise _moved(source_name)


def require_unmoved(handle: Handle, source_name: str, expect: str | None) -> None:
    """Check that a source's position is still the one that a batch was read from.

    Raises:
        StaleFrontierError: Another run moved it.
    """
    known = position(handle, source_name)
    if (known.position if known else None) != expect:
        raise _moved(source_name)


def _moved(source_name: str) -> StaleFrontierError:
    return StaleFrontierError(
        f"Another run moved the capture position of source {source_name!r} meanwhile.",
        hint="Nothing was written; the next run starts from the new position.",
    )


def mirrors(handle: Handle, source_name: str | None = None) -> list[MirrorRow]:
    """Mirrors of one source, or of all, by source and name."""
    return fetch(
        handle,
        MirrorRow,
        """
        SELECT source_name, source_schema, source_table, lake_schema, lake_table, columns, ducklake_snapshot_id
        FROM pgtrickle.pgt_source_mirrors
        WHERE %s::text IS NULL OR source_name = %s
        ORDER BY source_name, source_schema, source_table
        """,
        (source_name, source_name),
    )


def put_mirror(handle: Handle, mirror: MirrorRow) -> None:
    """Register a mirror, or store its new columns, lake table or snapshot."""
    run(
        handle,
        """
        INSERT INTO pgtrickle.pgt_source_mirrors
            (source_name, source_schema, source_table, lake_schema, lake_table, columns, ducklake_snapshot_id)
        VALUES (%s, %s, %s, %s, %s, %s, %s)
        ON CONFLICT (source_name, source_schema, source_table) DO UPDATE
        SET lake_schema = EXCLUDED.lake_schema, lake_table = EXCLUDED.lake_table, columns = EXCLUDED.columns,
            ducklake_snapshot_id = EXCLUDED.ducklake_snapshot_id, updated_at = clock_timestamp()
        """,
        (
            mirror.source_name,
            mirror.source_schema,
            mirror.source_table,
            mirror.lake_schema,
            mirror.lake_table,
            as_json(list(mirror.columns)),
            mirror.ducklake_snapshot_id,
        ),
    )


def remove_mirror(handle: Handle, source_name: str, table: TableName) -> bool:
    """Forget a mirror; returns whether it was registered."""
    return (
        run(
            handle,
            """
            DELETE FROM pgtrickle.pgt_source_mirrors
            WHERE source_name = %s AND source_schema = %s AND source_table = %s
            """,
            (source_name, table.schema, table.name),
        )
        == 1
    )
