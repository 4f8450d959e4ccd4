"""One table's part of a commit: create it, add files, delete rows, end files and inlined rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Literal

from pgtrickle_assets.errors import LakeConflictError, LakeError, LakeHistoryExpiredError
from pgtrickle_assets.lake import conflicts
from pgtrickle_assets.lake.appending import Append
from pgtrickle_assets.lake.changes import touched
from pgtrickle_assets.lake.commit_session import Answer, CommitSession, HeadMovedError
from pgtrickle_assets.lake.conflicts import conflict
from pgtrickle_assets.lake.delete_writing import WrittenDeletes, check_positions, removes_all, write_deletes
from pgtrickle_assets.lake.model import DataFile, LakeTable, RowDeletes, TableChange
from pgtrickle_assets.lake.sqltext import quoted
from pgtrickle_assets.lake.storage import storage_for
from pgtrickle_assets.lake.table_creation import TableCreation

if TYPE_CHECKING:
    from pgtrickle_assets.lake.catalog import Lake

_log = logging.getLogger(__name__)

Scope = Literal["partition", "table", "file"]

_OPTIMISTIC_ROUNDS: Final = 3
_THREADS: Final = 16

_FILES: Final = """
SELECT f.data_file_id, f.end_snapshot, d.delete_file_id FROM {c}.ducklake_data_file f
LEFT JOIN {c}.ducklake_delete_file d
  ON d.data_file_id = f.data_file_id AND d.table_id = f.table_id AND d.end_snapshot IS NULL
WHERE f.data_file_id = ANY(%s) AND f.table_id = %s
"""
_CURRENT_NAME: Final = "SELECT table_name FROM {c}.ducklake_table WHERE table_id = %s AND end_snapshot IS NULL"
_REGISTRY: Final = "SELECT table_name FROM {c}.ducklake_inlined_data_tables WHERE table_id = %s"

_PARTITION_ARRAY: Final = """
(SELECT array_agg(v.partition_value ORDER BY v.partition_key_index) FROM {c}.ducklake_file_partition_value v
 WHERE v.data_file_id = f.data_file_id AND v.table_id = f.table_id)
"""
_NEW_FILES: Final = """
SELECT f.partition_id, {values} FROM {c}.ducklake_data_file f
WHERE f.table_id = %s AND f.begin_snapshot = ANY(%s)
""".replace("{values}", _PARTITION_ARRAY)
_CHANGED_FILES: Final = """
SELECT f.partition_id, {values} FROM {c}.ducklake_data_file f
WHERE f.table_id = %(table)s AND (f.end_snapshot = ANY(%(snapshots)s) OR f.data_file_id IN (
  SELECT d.data_file_id FROM {c}.ducklake_delete_file d WHERE d.table_id = %(table)s AND d.delete_file_id >= (
    SELECT s.next_file_id FROM {c}.ducklake_snapshot s WHERE s.snapshot_id = %(base)s)))
""".replace("{values}", _PARTITION_ARRAY)

_END_FILES: Final = "UPDATE {c}.ducklake_data_file SET end_snapshot = %s WHERE data_file_id = ANY(%s) AND table_id = %s"
_END_DELETES: Final = """
UPDATE {c}.ducklake_delete_file SET end_snapshot = %s
WHERE data_file_id = ANY(%s) AND table_id = %s AND end_snapshot IS NULL
"""
_DROP_DELETES: Final = "DELETE FROM {c}.ducklake_delete_file WHERE delete_file_id = ANY(%s)"
_DELETE_TYPES: Final = (
    "bigint", "bigint", "bigint", "bigint", "bigint", "varchar", "boolean", "varchar", "bigint", "bigint", "bigint",
    "varchar", "bigint",
)  # fmt: skip
_SCHEDULE: Final = """
INSERT INTO {c}.ducklake_files_scheduled_for_deletion
SELECT id, path, relative, clock_timestamp()
FROM unnest(%s::bigint[], %s::varchar[], %s::boolean[]) AS gone (id, path, relative)
"""


def resolve_writes(
    lake: Lake, base: int, changes: Sequence[TableChange], scope: Scope, delivery_id: str
) -> tuple[TableWrite, ...]:
    """Find the tables of the changes as they were at the planned snapshot.

    Raises:
        ValueError: Two changes for one table.
        LakeError: A table does not exist.
        LakeConflictError: The planned snapshot is gone.
    """
    names = [change.table for change in changes]
    if len(set(names)) != len(names):
        raise ValueError("a commit takes at most one change for each table")
    existing = [change.table for change in changes if change.create is None]
    try:
        tables = dict(zip(existing, lake.tables_planned_on(existing, base), strict=True))
    except LakeHistoryExpiredError as error:
        raise LakeConflictError(error.message, hint="Plan again from the newest snapshot.") from error
    writes: list[TableWrite] = []
    for change in changes:
        table = None
        if change.create is None:
            table = tables[change.table]
            if table is None:
                raise LakeError(f"table {change.table} does not exist in the lake at snapshot {base}")
        writes.append(TableWrite(lake, change, table, scope, delivery_id))
    return tuple(writes)


class TableWrite:
    """The operation for one `TableChange`."""

    def __init__(
        self, lake: Lake, change: TableChange, table: LakeTable | None, scope: Scope, delivery_id: str
    ) -> None:
        self._lake = lake
        self._change = change
        self._table = table
        self._scope = scope
        self._prefix = f"pgt-{delivery_id}-" if delivery_id else "pgt-"
        self._append = Append(change.added_files) if change.added_files else None
        self._creation = TableCreation(change.create, self._planned_path()) if change.create else None
        self._deletes = [deletes for deletes in change.deletes if deletes.positions]
        for deletes in self._deletes:
            check_positions(deletes)
        ids = [file.id for file in self._touched()]
        if len(set(ids)) != len(ids):
            raise ValueError(f"the change of {change.table} names a data file twice")
        self._partial = [deletes for deletes in self._deletes if not removes_all(deletes)]
        self._written: dict[int, WrittenDeletes] = {}
        self._garbage: list[str] = []
        self._rounds = 0
        self._files: Answer | None = None
        self._registry: Answer | None = None
        if self._table is None and (self._deletes or change.removed_files or change.removed_inlined_rows):
            raise ValueError(f"nothing can be deleted from {change.table}, which the commit creates")

    def prepare(self) -> None:
        """Write delete files before the lock, for the snapshot that the commit gets if nobody comes in between."""
        self._rounds += 1
        if self._partial and self._rounds <= _OPTIMISTIC_ROUNDS:
            cumulative = any(deletes.file.deletes for deletes in self._partial)
            self._write_deletes(self._lake.head() + 1 if cumulative else 0)

    def read(self, session: CommitSession) -> None:
        """Send the queries."""
        if self._creation is not None:
            self._creation.read(session)
        if self._table is None:
            return
        if self._append is not None:
            self._append.read(session, self._table.id)
        touched_files = [file.id for file in self._touched()]
        if touched_files:
            self._files = session.ask(_FILES, (touched_files, self._table.id))
        if self._change.removed_inlined_rows:
            self._registry = session.ask(_REGISTRY, (self._table.id,))

    def stage(self, session: CommitSession) -> None:
        """Check for conflicts and stage the writes."""
        if self._creation is not None:
            conflicts.require_not_created(session.window, self._change.table)
            table = self._creation.stage(session)
        else:
            table = self._existing()
            self._check(session, table)
        if self._append is not None:
            self._append.stage(session, table)
        if self._table is not None:
            self._stage_deletes(session, self._table)
            self._stage_inlined(session, self._table)

    def finish(self, *, committed: bool) -> None:
        """Remove delete files that were written and that no snapshot names."""
        paths = list(self._garbage)
        if not committed:
            paths += [written.path for written in self._written.values()]
        for path in paths:
            try:
                storage_for(path, self._lake.location.storage_options).delete(path)
            except OSError as error:
                _log.warning("cannot remove %s, which no snapshot names: %s", path, error)

    def _existing(self) -> LakeTable:
        if self._table is None:
            raise AssertionError("a change without a table creates one")
        return self._table

    def _touched(self) -> list[DataFile]:
        return [*(deletes.file for deletes in self._deletes), *self._change.removed_files]

    def _planned_path(self) -> str:
        definition = self._change.create
        if definition is None:
            raise AssertionError("only a new table has a planned path")
        return self._lake.plan_table(definition).path

    def _check(self, session: CommitSession, table: LakeTable) -> None:
        window, name = session.window, table.name
        conflicts.require_same_shape(window, table.id, name)
        if any(change.kind == "created_table" for past in window for change in past.changes):
            # A rename is logged as a creation under the new name, without the table's id.
            row = session.ask(_CURRENT_NAME, (table.id,)).row()
            if row is None or row[0] != name.name:
                raise conflict(f"{name} was renamed")
        removes = bool(self._deletes or self._change.removed_files or self._change.removed_inlined_rows)
        if removes:
            conflicts.require_no_inline_changes(window, table.id, name)
            self._check_files(table)
        if self._scope == "file":
            return
        if removes and self._scope == "table":
            kinds = conflicts.INSERTS | conflicts.COMPACTIONS
            conflicts.require_table_quiet(window, table.id, name, kinds, "another writer changed")
        if self._append is not None and self._scope == "table":
            conflicts.require_table_quiet(window, table.id, name, conflicts.DELETES, "another writer deleted from")
        if self._scope == "partition":
            self._check_partitions(session, table, removes=removes)

    def _check_files(self, table: LakeTable) -> None:
        found = {} if self._files is None else {row[0]: row[1:] for row in self._files.rows()}
        for file in self._touched():
            ended, delete_id = found.get(file.id, (-1, None))
            if ended is not None:
                raise conflict(f"data file {file.path} of {table.name} is no longer live")
            if delete_id != (file.deletes.id if file.deletes else None):
                raise conflict(f"another writer deleted rows from {file.path} of {table.name}")
            if file.rows_upto is not None:
                raise conflict(f"data file {file.path} of {table.name} has rows that are newer than the plan")

    def _check_partitions(self, session: CommitSession, table: LakeTable, *, removes: bool) -> None:
        window = session.window
        if removes and conflicts.touches(window, table.id, conflicts.INSERTS):
            conflicts.require_table_quiet(
                window, table.id, table.name, ("inlined_insert",), "another writer added rows to"
            )
            snapshots = [s for s, kind in conflicts.of_table(window, table.id) if kind == "inserted_into_table"]
            others = session.ask(_NEW_FILES, (table.id, snapshots)).rows()
            self._require_apart(table, others, "added rows to")
        if self._append is not None and conflicts.touches(window, table.id, conflicts.DELETES):
            snapshots = [s for s, kind in conflicts.of_table(window, table.id) if kind in conflicts.DELETES]
            parameters = {"table": table.id, "snapshots": snapshots, "base": session.base}
            others = session.ask(_CHANGED_FILES, parameters).rows()
            self._require_apart(table, others, "deleted rows from")

    def _require_apart(self, table: LakeTable, others: Sequence[tuple[Any, ...]], what: str) -> None:
        ours = {file.partition_values for file in (*self._touched(), *self._change.added_files)}
        for partition_id, values in others:
            same_spec = partition_id == table.partition_id
            if not same_spec or not table.partition_fields or tuple(values or ()) in ours:
                where = f"partition {', '.join(str(v) for v in values)} of " if values else ""
                raise conflict(f"another writer {what} {where}{table.name}")

    def _write_deletes(self, snapshot_id: int) -> None:
        stale = [
            deletes
            for deletes in self._partial
            if deletes.file.id not in self._written
            or self._written[deletes.file.id].snapshot_id not in (None, snapshot_id)
        ]
        if not stale:
            return
        table = self._existing()

        def write(deletes: RowDeletes) -> WrittenDeletes:
            return write_deletes(
                table,
                deletes,
                snapshot_id=snapshot_id,
                prefix=self._prefix,
                facts=self._lake.row_facts,
                options=self._lake.location.storage_options,
            )

        with ThreadPoolExecutor(min(_THREADS, len(stale))) as pool:
            for deletes, written in zip(stale, pool.map(write, stale), strict=True):
                if deletes.file.id in self._written:
                    self._garbage.append(self._written[deletes.file.id].path)
                self._written[deletes.file.id] = written

    def _stage_deletes(self, session: CommitSession, table: LakeTable) -> None:
        ended = [file.id for file in self._change.removed_files]
        ended += [deletes.file.id for deletes in self._deletes if removes_all(deletes)]
        if not ended and not self._partial:
            return
        at = session.snapshot_id
        self._fit_snapshot(at)
        if ended:
            session.write(_END_FILES, (at, ended, table.id))
            session.write(_END_DELETES, (at, ended, table.id))
        self._stage_delete_files(session, table, at)
        session.bump_file_ids()
        session.note(touched("deleted_from_table", table.id))

    def _fit_snapshot(self, at: int) -> None:
        wrong = [w for w in self._written.values() if w.snapshot_id not in (None, at)]
        if not wrong:
            return
        if self._rounds <= _OPTIMISTIC_ROUNDS:
            raise HeadMovedError(f"delete files were written for snapshot {wrong[0].snapshot_id}, not {at}")
        self._write_deletes(at)

    def _stage_delete_files(self, session: CommitSession, table: LakeTable, at: int) -> None:
        rows: list[tuple[object, ...]] = []
        replaced: list[tuple[int, str, bool]] = []
        for deletes in self._partial:
            written = self._written[deletes.file.id]
            old = deletes.file.deletes
            rows.append(
                (
                    session.new_file_id(), table.id, at if old is None else written.begin_snapshot, None,
                    deletes.file.id, written.relative_path, True, "parquet", written.delete_count,
                    written.file_size_bytes, written.footer_size, None, None if old is None else at,
                )
            )  # fmt: skip
            if old is not None:
                replaced.append((old.id, *_relative(old.path, session.data_path)))
        if replaced:
            session.write(_DROP_DELETES, ([row[0] for row in replaced],))
            session.write(_SCHEDULE, [list(column) for column in zip(*replaced, strict=True)])
        session.write_rows("delete_file", _DELETE_TYPES, rows)

    def _stage_inlined(self, session: CommitSession, table: LakeTable) -> None:
        wanted = list(self._change.removed_inlined_rows)
        if not wanted or self._registry is None:
            return
        tables = [row[0] for row in self._registry.rows()]
        if not tables:
            raise conflict(f"{table.name} has no inlined rows any more")
        # One statement over all inline tables, so that the number of ended rows is one number.
        parts = [
            f"u{place} AS (UPDATE {{c}}.{quoted(name)} SET end_snapshot = %(at)s "  # noqa: S608
            "WHERE row_id = ANY(%(ids)s) AND end_snapshot IS NULL RETURNING 1)"
            for place, name in enumerate(tables)
        ]
        union = " UNION ALL ".join(f"SELECT 1 FROM u{place}" for place in range(len(tables)))  # noqa: S608
        session.write(
            f"WITH {', '.join(parts)} {union}",
            {"at": session.snapshot_id, "ids": wanted},
            check=lambda count: (
                None if count == len(wanted) else f"{len(wanted) - count} inlined rows of {table.name} are gone"
            ),
        )
        session.note(touched("inlined_delete", table.id))


def _relative(path: str, data_path: str) -> tuple[str, bool]:
    return (path.removeprefix(data_path), True) if path.startswith(data_path) else (path, False)
