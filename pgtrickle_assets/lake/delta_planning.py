"""What changed in a table between two snapshots, from the catalog.

The rule (design, section 5) compares the files live at both ends. Two facts of DuckLake make that more than a listing:

- Merging small files and flushing inlined rows rewrite history: the new file replaces its sources in *every* snapshot,
  and its rows carry their own snapshot ids. A file live at both ends can therefore hold rows that appeared in between,
  and so can a delete file. Rows' ids decide.
- Rewriting files with many deletes does not rewrite history: old files end and a new one begins, with the same rows.
  The window is cut at such a snapshot; the state before and after it is the same, so the parts add up to the whole.

File ids grow with every commit, so what was written after the start snapshot is known by id alone, and the query
returns the files that may have changed, not all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.errors import LakeHistoryExpiredError, LakeTableReplacedError
from pgtrickle_assets.lake.changes import parse_changes
from pgtrickle_assets.lake.delete_dating import DeleteDating
from pgtrickle_assets.lake.file_columns import FileColumns
from pgtrickle_assets.lake.file_listing import (
    DELETE_COLUMNS,
    FILE_COLUMNS,
    DeleteRow,
    FileRow,
    Shape,
    ShapeQuery,
    delete_from_row,
    file_from_row,
    group_partition_values,
)
from pgtrickle_assets.lake.inlined import ADDED, REMOVED, InlineTables
from pgtrickle_assets.lake.model import DataFile, DeltaPlan, InlinedRows, LakeTable
from pgtrickle_assets.lake.scan_planning import file_as_of, resolve_names
from pgtrickle_assets.lake.sqltext import statement

if TYPE_CHECKING:
    from pgtrickle_assets.lake.connections import CatalogConnection

_START: Final = """
SELECT s.next_file_id, (
  SELECT max(t.table_id) FROM {c}.ducklake_table t JOIN {c}.ducklake_schema h ON h.schema_id = t.schema_id
  WHERE {visible:t} AND {visible:h} AND h.schema_name = %(schema)s AND t.table_name = %(name)s
) FROM {c}.ducklake_snapshot s WHERE s.snapshot_id = %(at)s
"""

_NEXT_FILE: Final = "SELECT next_file_id FROM {c}.ducklake_snapshot WHERE snapshot_id = %(at)s"

_CANDIDATES: Final = """
FROM {c}.ducklake_data_file f
WHERE f.table_id = %(table)s AND f.begin_snapshot <= %(at)s
  AND (f.end_snapshot IS NULL OR f.end_snapshot > %(since)s)
  AND (f.data_file_id >= %(next_file)s OR f.end_snapshot IS NOT NULL OR f.data_file_id = ANY(%(inline)s)
    OR f.data_file_id IN (
      SELECT d.data_file_id FROM {c}.ducklake_delete_file d
      WHERE d.table_id = %(table)s AND (d.delete_file_id >= %(next_file)s OR d.end_snapshot > %(since)s)))
"""

_FILES: Final = "SELECT {columns} {candidates}".replace("{columns}", FILE_COLUMNS).replace("{candidates}", _CANDIDATES)

_DELETES: Final = """
SELECT {columns} FROM {c}.ducklake_delete_file d
WHERE d.table_id = %(table)s AND d.begin_snapshot <= %(at)s AND (d.end_snapshot IS NULL OR d.end_snapshot > %(since)s)
  AND d.data_file_id IN (SELECT f.data_file_id {candidates})
""".replace("{columns}", DELETE_COLUMNS).replace("{candidates}", _CANDIDATES)

_VALUES: Final = """
SELECT v.data_file_id, v.partition_key_index, v.partition_value FROM {c}.ducklake_file_partition_value v
WHERE v.table_id = %(table)s AND v.data_file_id IN (SELECT f.data_file_id {candidates}) ORDER BY 1, 2
""".replace("{candidates}", _CANDIDATES)

_REWRITES: Final = """
SELECT h.snapshot_id, h.changes_made, s.next_file_id, r.next_file_id FROM {c}.ducklake_snapshot_changes h
JOIN {c}.ducklake_snapshot s ON s.snapshot_id = h.snapshot_id - 1
JOIN {c}.ducklake_snapshot r ON r.snapshot_id = h.snapshot_id
WHERE h.snapshot_id > %(since)s AND h.snapshot_id <= %(at)s AND h.changes_made LIKE '%%rewrite_delete:%%'
ORDER BY 1
"""


@dataclass(slots=True)
class RawDelta:
    """What the catalog said about a window, before files are looked into."""

    files: list[FileRow]
    shape: Shape
    inlined_added: InlinedRows
    inlined_removed: InlinedRows
    rewrites: list[int]
    next_file_ids: dict[int, int]


def read_delta(connection: CatalogConnection, schema: str, table: LakeTable, since: int) -> RawDelta:
    """Files and rows that may have changed between `since` and the table's snapshot; a fixed number of queries.

    Raises:
        LakeHistoryExpiredError: The start snapshot is gone.
        LakeTableReplacedError: Another table had the name then.
    """
    next_file_id = _read_start(connection, schema, table, since)
    window = {"since": since, "at": table.at}
    shape = ShapeQuery(connection, schema, table)
    rewrites = connection.execute(statement(_REWRITES, schema), window)
    head = connection.execute(statement(_NEXT_FILE, schema), window)
    inline = InlineTables(connection, schema, table)
    inline_deletes = inline.deleted_positions(table.at)
    touched = [file for file, marks in inline_deletes.items() if any(snapshot > since for _, snapshot in marks)]
    parameters = {**window, "table": table.id, "next_file": next_file_id, "inline": touched}
    files = connection.execute(statement(_FILES, schema), parameters)
    deletes = connection.execute(statement(_DELETES, schema), parameters)
    values = connection.execute(statement(_VALUES, schema), parameters)
    added, removed = inline.rows(ADDED, window), inline.rows(REMOVED, window)
    deletes_of: defaultdict[int, list[DeleteRow]] = defaultdict(list)
    for found in (delete_from_row(row, table) for row in deletes.fetchall()):
        deletes_of[found.data_file_id].append(found)
    partition_values = group_partition_values(values.fetchall())
    rows = [
        FileRow(
            replace(file, partition_values=partition_values.get(file.id, ())),
            tuple(deletes_of[file.id]),
            tuple(inline_deletes.get(file.id, ())),
        )
        for file in (file_from_row(row, table) for row in files.fetchall())
    ]
    next_file_ids = {since: next_file_id, table.at: _required(head.fetchone(), table.at, table)[0]}
    found = _pure_rewrites(rewrites.fetchall(), table.id)
    for snapshot, before, after in found:
        next_file_ids |= {snapshot - 1: before, snapshot: after}
    return RawDelta(rows, shape.fetch(), added, removed, [snapshot for snapshot, _, _ in found], next_file_ids)


def _read_start(connection: CatalogConnection, schema: str, table: LakeTable, since: int) -> int:
    parameters = {"at": since, "schema": table.name.schema, "name": table.name.name}
    row = connection.execute(statement(_START, schema), parameters).fetchone()
    next_file_id, table_then = _required(row, since, table)
    if table_then is not None and table_then != table.id:
        raise LakeTableReplacedError(
            f"{table.name} was dropped and created again after snapshot {since}", hint="Refresh in full."
        )
    return next_file_id


def _required(row: tuple[Any, ...] | None, snapshot: int, table: LakeTable) -> tuple[Any, ...]:
    if row is None:
        raise LakeHistoryExpiredError(
            f"snapshot {snapshot} of the lake is no longer kept, so the changes of {table.name} are unknown",
            hint="Refresh in full, or keep snapshots longer.",
        )
    return row


def _pure_rewrites(rows: Iterable[tuple[Any, ...]], table_id: int) -> list[tuple[int, int, int]]:
    """Snapshots that only rewrote files of the table, with the next free file id before and after each."""
    found: list[tuple[int, int, int]] = []
    for snapshot, text, before, after in rows:
        kinds = {change.kind for change in parse_changes(text) if change.object_id == table_id}
        if kinds == {"rewrite_delete"}:
            found.append((snapshot, before, after))
    return found


def build_delta(table: LakeTable, since: int, raw: RawDelta, dating: DeleteDating, columns: FileColumns) -> DeltaPlan:
    """The plan from what the catalog said; looks into files only where rows' own snapshot ids decide.

    Raises:
        LakeDeletesUndatedError: The table's deletes at one end cannot be told.
    """
    dating.read_ahead(deletes for row in raw.files for deletes in row.deletes)
    builder = _Builder(raw, dating)
    edges = [since, *(edge for rewrite in _relevant(raw, since) for edge in (rewrite - 1, rewrite)), table.at]
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        builder.add_window(start, end)

    def named(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
        return resolve_names(files, table, raw.shape, columns)

    old, new = named([pair[0] for pair in builder.deleted]), named([pair[1] for pair in builder.deleted])
    return DeltaPlan(
        table,
        since,
        table.at,
        added=named(builder.added),
        removed=named(builder.removed),
        deleted=tuple(zip(old, new, strict=True)),
        inlined_added=raw.inlined_added,
        inlined_removed=raw.inlined_removed,
    )


def _relevant(raw: RawDelta, since: int) -> list[int]:
    """Rewrites that ended a file of the window's start: only those would make the delta larger than the change."""
    if not any(row.visible(since) and row.file.end_snapshot in raw.rewrites for row in raw.files):
        return []
    return raw.rewrites


class _Builder:
    def __init__(self, raw: RawDelta, dating: DeleteDating) -> None:
        self._raw = raw
        self._dating = dating
        self._facts = dating.facts
        self.added: list[DataFile] = []
        self.removed: list[DataFile] = []
        self.deleted: list[tuple[DataFile, DataFile]] = []

    def add_window(self, start: int, end: int) -> None:
        if start == end:
            return
        for row in self._raw.files:
            before, after = row.visible(start), row.visible(end)
            if after and not before:
                self._add(row, None, end)
            elif before and not after:
                self._remove(row, start)
            elif before and after:
                self._compare(row, start, end)

    def _add(self, row: FileRow, after: int | None, end: int) -> None:
        entry = replace(self._settle(row, end), rows_after=after)
        entry = self._counted(entry)
        if entry.live_rows:
            self.added.append(entry)

    def _remove(self, row: FileRow, start: int) -> None:
        entry = self._counted(self._settle(row, start))
        if entry.live_rows:
            self.removed.append(entry)

    def _compare(self, row: FileRow, start: int, end: int) -> None:
        if row.file.max_snapshot is not None and row.file.max_snapshot > start:
            self._add(row, start, end)
        old, new = self._settle(row, start), self._settle(row, end)
        if _deletes_of(old) != _deletes_of(new) and self._lost_rows(old, new):
            self.deleted.append((old, new))

    def _settle(self, row: FileRow, at: int) -> DataFile:
        return file_as_of(row, at, self._dating)

    def _lost_rows(self, old: DataFile, new: DataFile) -> bool:
        """Whether a row that the old state sees is deleted in the new one."""
        if old.rows_upto is None:
            return True
        visible = self._facts.row_snapshots(old.id, old.path) <= old.rows_upto
        return any(visible[position] for position in self._deleted_positions(new) - self._deleted_positions(old))

    def _counted(self, entry: DataFile) -> DataFile:
        if entry.rows_after is None and entry.rows_upto is None:
            return entry
        snapshots = self._facts.row_snapshots(entry.id, entry.path)
        counts = snapshots > (-1 if entry.rows_after is None else entry.rows_after)
        if entry.rows_upto is not None:
            counts &= snapshots <= entry.rows_upto
        gone = sum(1 for position in self._deleted_positions(entry) if counts[position])
        return replace(entry, counted_rows=int(counts.sum()) - gone)

    def _deleted_positions(self, entry: DataFile) -> set[int]:
        positions = set(entry.inline_deletes)
        if entry.deletes is not None:
            found, snapshots = self._facts.deletes(entry.deletes.id, entry.deletes.path, entry.deletes.format)
            if snapshots is not None and entry.deletes.upto is not None:
                found = found[snapshots <= entry.deletes.upto]
            positions.update(found.tolist())
        return positions


def _deletes_of(file: DataFile) -> tuple[object, ...]:
    deletes = file.deletes
    return (deletes.id, deletes.delete_count, file.inline_deletes) if deletes else (None, 0, file.inline_deletes)
