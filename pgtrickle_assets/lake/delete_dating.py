"""What of a delete file counts at a snapshot: when its rows were deleted.

The third column of a cumulative delete file names the snapshot that deleted each row. DuckDB (1.5.5) writes the id that
it expects its commit to get, before the commit. When another writer commits first, the commit gets a larger id and the
column stays as it is; later delete files carry the wrong id on. Read literally, such a row was deleted before it was: a
reader at a snapshot in between saw it, and finds no trace of its deletion afterwards.

So an id in the column is a lower bound. What the catalog says bounds the real snapshot from above:

- The ids grow with the file: a delete is planned on what the one before it left, so that one was committed before the
  snapshot that the next id follows.
- File ids grow with every commit: a delete file that the catalog knew at a snapshot counts there with all its rows, and
  the last deletes in a newer one came with the commit that made the file.
- The snapshot lists a delete from the table among its changes.
- The file that the deletes first came in may still wait for its removal; its id tells the commit.

The first id is the one of the catalog's own row, and right. So are those of deletes that were inlined in the catalog
and flushed into a file; a flush lists them as deletes of its own, and is told from those by what else it flushed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.errors import LakeDeletesUndatedError, LakeHistoryExpiredError
from pgtrickle_assets.lake.changes import parse_changes
from pgtrickle_assets.lake.delete_facts import RowFacts
from pgtrickle_assets.lake.file_listing import DeleteRow
from pgtrickle_assets.lake.model import FileDeletes, LakeTable
from pgtrickle_assets.lake.sqltext import statement
from pgtrickle_assets.lake.table_reading import OLDEST_SNAPSHOT, join_path

if TYPE_CHECKING:
    from pgtrickle_assets.lake.connections import CatalogConnection

_DELETING: Final = """
SELECT s.snapshot_id, s.next_file_id, h.changes_made, h.commit_extra_info
FROM {c}.ducklake_snapshot s JOIN {c}.ducklake_snapshot_changes h ON h.snapshot_id = s.snapshot_id
WHERE h.changes_made LIKE '%%deleted_from_table:' || %(table)s || '%%'
   OR h.changes_made LIKE '%%inlined_delete:' || %(table)s || '%%'
ORDER BY 1
"""

_REPLACED: Final = """
SELECT data_file_id, path, path_is_relative FROM {c}.ducklake_files_scheduled_for_deletion WHERE path LIKE '%%delete%%'
"""

_INLINED: Final = "inlined_delete"
_COMMIT_ID: Final = '"commit_id": '
"""Stands in the extra information of every commit of this project."""

_MOST_LOOKED_INTO: Final = 256
"""How many replaced delete files are read at most to date the deletes of one file."""

_IN_FILES: Final = "deleted_from_table"
_FLUSHES: Final = frozenset({"inline_flush", "flushed_inlined"})


@dataclass(frozen=True, slots=True)
class DeletingSnapshot:
    """A kept snapshot that lists deletes from a table.

    Attributes:
        id: Its id.
        next_file_id: The first file id that was free after it.
        is_flush: It moved rows and deletes from the catalog into files.
        in_files: It deleted in files; so does a flush of nothing but deletes, as it seems.
        is_inlined: It kept deletes in the catalog.
        is_ours: It is a commit of this project, which notes the right snapshot for what it deletes.
    """

    id: int
    next_file_id: int
    is_flush: bool
    in_files: bool
    is_inlined: bool
    is_ours: bool


@dataclass(frozen=True, slots=True)
class DeleteHistory:
    """Which of the kept snapshots deleted from a table.

    Attributes:
        oldest: The oldest snapshot that is kept.
        snapshots: Those that deleted, in order.
        replaced: Id and path of the table's delete files that newer ones replaced and that wait for their removal.
    """

    oldest: int
    snapshots: Sequence[DeletingSnapshot]
    replaced: Sequence[tuple[int, str]]

    def made(self, delete_file_id: int) -> DeletingSnapshot | None:
        """The snapshot that made a delete file."""
        return next((found for found in self.snapshots if found.next_file_id > delete_file_id), None)

    def is_before(self, at: int, noted: int, between: tuple[int, int]) -> bool | None:
        """Whether deletes were committed by `at`; None where the history allows both.

        Args:
            at: A kept snapshot, not before `noted`.
            noted: The snapshot that is noted for them; right where they were inlined, or are our own.
            between: The first and the last snapshot that can have committed them to a file.
        """
        first, last = between
        inside = [found for found in self.snapshots if first <= found.id <= last]
        others = [found.id for found in inside if found.in_files and not found.is_ours]
        is_right = any(found.id == noted and (found.is_inlined or found.is_ours) for found in self.snapshots)
        before = noted < self.oldest or is_right or any(snapshot <= at for snapshot in others)
        after = any(snapshot > at for snapshot in others)
        return None if before and after else not after

    def made_between(self, earliest: int, latest: int) -> list[tuple[int, str]]:
        """Replaced delete files that came with one of the deleting snapshots in a range, newest first."""
        before = [found.next_file_id for found in self.snapshots if found.id < earliest]
        by_then = [found.next_file_id for found in self.snapshots if found.id <= latest]
        first, end = before[-1] if before else 0, by_then[-1] if by_then else 0
        return sorted((file for file in self.replaced if first <= file[0] < end), reverse=True)


def read_history(connection: CatalogConnection, schema: str, table: LakeTable, data_path: str) -> DeleteHistory:
    """The history of a table's deletes that the catalog keeps."""
    rows = connection.execute(statement(_DELETING, schema), {"table": str(table.id)})
    scheduled = connection.execute(statement(_REPLACED, schema), ())
    oldest = connection.execute(statement(OLDEST_SNAPSHOT, schema), ()).fetchone()
    files = ((file_id, join_path(data_path, path, relative)) for file_id, path, relative in scheduled.fetchall())
    replaced = tuple(file for file in files if file[1].startswith(table.path))
    return DeleteHistory(oldest[0] if oldest else 0, tuple(_deleting(rows.fetchall(), table.id)), replaced)


def _deleting(rows: Iterable[tuple[Any, ...]], table_id: int) -> Iterable[DeletingSnapshot]:
    for snapshot, next_file_id, text, info in rows:
        changes = parse_changes(text)
        kinds = {change.kind for change in changes if change.object_id == table_id}
        if kinds & {_IN_FILES, _INLINED}:
            is_flush = any(change.kind in _FLUSHES for change in changes)
            in_files = _IN_FILES in kinds and not is_flush
            is_ours = _COMMIT_ID in (info or "")
            yield DeletingSnapshot(snapshot, next_file_id, is_flush, in_files, _INLINED in kinds, is_ours)


@dataclass
class DeleteDating:
    """Tells what counts of a table's delete files at snapshots.

    Attributes:
        table: The table.
        facts: Reads delete files.
        next_file_ids: The first file id that was free after each snapshot that is asked about.
        load_history: Reads the history of the table's deletes; called when files alone don't tell.
    """

    table: LakeTable
    facts: RowFacts
    next_file_ids: Mapping[int, int]
    load_history: Callable[[], DeleteHistory]

    @cached_property
    def _history(self) -> DeleteHistory:
        return self.load_history()

    def read_ahead(self, rows: Iterable[DeleteRow]) -> None:
        """Read the files that will be looked into, several at a time."""
        oldest = min(self.next_file_ids.values())
        self.facts.read_ahead([(row.id, row.path) for row in rows if row.id >= oldest and row.format == "parquet"])

    def as_of(self, row: DeleteRow, at: int) -> FileDeletes | None:
        """What counts of a delete file at a snapshot; None where nothing does.

        Raises:
            LakeDeletesUndatedError: Several writers deleted from the table at about that snapshot, and the lake does
                not tell whose deletes these are.
        """
        whole = FileDeletes(row.id, row.path, row.format, row.count, row.begin, row.partial_max)
        if row.id < self.next_file_ids[at] or row.format != "parquet":
            return whole
        _, snapshots = self.facts.deletes(row.id, row.path)
        if snapshots is None:
            return whole
        ids = sorted({int(snapshot) for snapshot in snapshots})
        upto = self._last_at(row, ids, at)
        count = 0 if upto is None else int((snapshots <= upto).sum())
        is_misdated = count != int((snapshots <= at).sum())
        return replace(whole, delete_count=count, upto=upto, is_misdated=is_misdated) if count else None

    def _last_at(self, row: DeleteRow, ids: Sequence[int], at: int) -> int | None:
        """The last id of the file whose deletes were committed by a snapshot or before it."""
        place = sum(1 for snapshot in ids if snapshot <= at) - 1
        if place < 0:
            return None
        is_first, is_last = place == 0, place == len(ids) - 1
        if is_first or self._is_at(row, ids[place], None if is_last else ids[place + 1] - 1, at):
            return ids[place]
        return ids[place - 1]

    def _is_at(self, row: DeleteRow, noted: int, latest: int | None, at: int) -> bool:
        """Whether the deletes with an id were committed by `at`; `latest` is None for the last ones of the file."""
        if latest is not None and latest <= at:
            return True
        found = None
        if latest is not None:
            found = self._history.is_before(at, noted, (noted, latest))
            if found is None:
                found = self._came_by(row, noted, latest, at)
        elif (made := self._history.made(row.id)) is not None and made.is_flush:
            # A flush wrote down what was deleted before it; nothing was in a file of which it is the first delete.
            is_new = self._history.made(row.data_file_id) == made
            found = is_new or self._history.is_before(at, noted, (noted, made.id - 1))
        elif made is not None:
            # They came with the file, which is newer than the snapshot.
            found = self._history.is_before(at, noted, (made.id, made.id))
        if found is None:
            raise LakeDeletesUndatedError(
                f"several writers deleted rows of {self.table.name} at about snapshot {at}, and the lake does not tell "
                "which of the rows were deleted by then",
                hint="Refresh again: newer snapshots are not affected.",
            )
        return found

    def _came_by(self, row: DeleteRow, earliest: int, latest: int, at: int) -> bool | None:
        """The same for deletes whose own file still waits for its removal; None where it is gone."""
        _, snapshots = self.facts.deletes(row.id, row.path)
        count = 0 if snapshots is None else int((snapshots <= earliest).sum())
        data_file = self.facts.deleted_from(row.id, row.path)
        for file_id, path in self._history.made_between(earliest, latest)[:_MOST_LOOKED_INTO]:
            try:
                positions, _ = self.facts.deletes(file_id, path)
                if len(positions) == count and self.facts.deleted_from(file_id, path) == data_file:
                    return file_id < self.next_file_ids[at]
            except LakeHistoryExpiredError:
                continue
        return None
