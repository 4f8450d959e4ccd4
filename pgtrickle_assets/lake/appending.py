"""Register new data files: their rows in the catalog, row ids, and the statistics of file and table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.changes import touched
from pgtrickle_assets.lake.commit_session import Answer, CommitSession
from pgtrickle_assets.lake.model import LakeTable, NewDataFile
from pgtrickle_assets.lake.statistics import ColumnStatistics, Leaf, leaves, merge, summarize

_TABLE_STATS: Final = "SELECT next_row_id FROM {c}.ducklake_table_stats WHERE table_id = %s"

COLUMN_STATS: Final = """
SELECT column_id, contains_null, contains_nan, min_value, max_value
FROM {c}.ducklake_table_column_stats WHERE table_id = %s
"""

_FROM_FILES: Final = """
SELECT coalesce(sum(record_count), 0), coalesce(max(row_id_start + record_count), 0), coalesce(sum(file_size_bytes), 0),
  count(*) FROM {c}.ducklake_data_file WHERE table_id = %s
"""

_ALL_NULL: Final = """
SELECT NOT EXISTS (SELECT 1 FROM {c}.ducklake_data_file f WHERE f.table_id = %s AND NOT EXISTS (
  SELECT 1 FROM {c}.ducklake_file_column_stats s
  WHERE s.data_file_id = f.data_file_id AND s.column_id = %s AND s.value_count = 0))
"""

_INSERT_STATS: Final = "INSERT INTO {c}.ducklake_table_stats VALUES (%s, %s, %s, %s)"
_UPDATE_STATS: Final = """
UPDATE {c}.ducklake_table_stats SET record_count = record_count + %s, next_row_id = next_row_id + %s,
  file_size_bytes = file_size_bytes + %s WHERE table_id = %s
"""
UPDATE_COLUMNS: Final = """
UPDATE {c}.ducklake_table_column_stats s
SET contains_null = n.contains_null, contains_nan = n.contains_nan, min_value = n.minimum, max_value = n.maximum
FROM unnest(%s::bigint[], %s::boolean[], %s::boolean[], %s::varchar[], %s::varchar[])
  AS n (column_id, contains_null, contains_nan, minimum, maximum)
WHERE s.table_id = %s AND s.column_id = n.column_id
"""
DELETE_COLUMNS: Final = "DELETE FROM {c}.ducklake_table_column_stats WHERE table_id = %s AND column_id = ANY(%s)"

_FILE_TYPES: Final = (
    "bigint", "bigint", "bigint", "bigint", "bigint", "varchar", "boolean", "varchar", "bigint", "bigint", "bigint",
    "bigint", "bigint", "varchar", "bigint", "bigint",
)  # fmt: skip
_FILE_STATS_TYPES: Final = (
    "bigint", "bigint", "bigint", "bigint", "bigint", "bigint", "varchar", "varchar", "boolean", "varchar",
)  # fmt: skip
_COLUMN_STATS_TYPES: Final = ("bigint", "bigint", "boolean", "boolean", "varchar", "varchar", "varchar")


class Append:
    """New data files of one table."""

    def __init__(self, files: Sequence[NewDataFile]) -> None:
        self._files = files
        self._totals: Answer | None = None
        self._columns: Answer | None = None

    def read(self, session: CommitSession, table_id: int) -> None:
        """Ask for the table's statistics; not called for a table that is being created."""
        self._totals = session.ask(_TABLE_STATS, (table_id,))
        self._columns = session.ask(COLUMN_STATS, (table_id,))

    def stage(self, session: CommitSession, table: LakeTable) -> None:
        """Stage the files.

        Raises:
            LakeError: A file breaks a NOT NULL column, or does not fit the table's partitioning.
        """
        _check(table, self._files)
        rows = sum(file.record_count for file in self._files)
        size = sum(file.file_size_bytes for file in self._files)
        totals = self._totals.row() if self._totals else None
        is_first = totals is None
        if totals is None:
            before = session.ask(_FROM_FILES, (table.id,)).row() if self._totals else None
            records, next_row, stored, count = before or (0, 0, 0, 0)
            is_first = count == 0
            session.write(_INSERT_STATS, (table.id, int(records) + rows, next_row + rows, int(stored) + size))
        else:
            next_row = totals[0]
            session.write(_UPDATE_STATS, (rows, rows, size, table.id))
        self._stage_files(session, table, next_row)
        self._stage_column_stats(session, table, is_first=is_first)
        session.note(touched("inserted_into_table", table.id))

    def _stage_files(self, session: CommitSession, table: LakeTable, next_row: int) -> None:
        at = session.snapshot_id
        rows: list[tuple[object, ...]] = []
        statistics: list[tuple[object, ...]] = []
        values: list[tuple[object, ...]] = []
        for file in self._files:
            file_id = session.new_file_id()
            rows.append(
                (
                    file_id, table.id, at, None, None, file.path, True, "parquet", file.record_count,
                    file.file_size_bytes, file.footer_size, next_row, table.partition_id, None, None, None,
                )
            )  # fmt: skip
            next_row += file.record_count
            statistics += [
                (
                    file_id, table.id, column_id, file.column_sizes.get(column_id), bounds.value_count,
                    bounds.null_count, bounds.minimum, bounds.maximum, bounds.contains_nan, None,
                )
                for column_id, bounds in file.bounds.items()
            ]  # fmt: skip
            values += [(file_id, table.id, index, value) for index, value in enumerate(file.partition_values)]
        session.write_rows("data_file", _FILE_TYPES, rows)
        session.write_rows("file_column_stats", _FILE_STATS_TYPES, statistics)
        session.write_rows("file_partition_value", ("bigint", "bigint", "bigint", "varchar"), values)

    def _stage_column_stats(self, session: CommitSession, table: LakeTable, *, is_first: bool) -> None:
        stored = {} if self._columns is None else {row[0]: ColumnStatistics(*row[1:]) for row in self._columns.rows()}
        inserted: list[tuple[object, ...]] = []
        updated: list[tuple[object, ...]] = []
        unknown: list[int] = []
        for leaf in leaves(table.columns):
            new = summarize([file.bounds.get(leaf.id) for file in self._files], leaf.type)
            old = stored.get(leaf.id)
            if old is None:
                if is_first and new is not None:
                    inserted.append(
                        (table.id, leaf.id, new.contains_null, new.contains_nan, new.minimum, new.maximum, None)
                    )
                continue
            merged = None if new is None else self._merge(session, table.id, leaf, old, new)
            if merged is None:
                unknown.append(leaf.id)
            elif merged != old:
                updated.append((leaf.id, merged.contains_null, merged.contains_nan, merged.minimum, merged.maximum))
        session.write_rows("table_column_stats", _COLUMN_STATS_TYPES, inserted)
        if updated:
            session.write(UPDATE_COLUMNS, [*([*column] for column in zip(*updated, strict=True)), table.id])
        if unknown:
            session.write(DELETE_COLUMNS, (table.id, unknown))

    def _merge(
        self, session: CommitSession, table_id: int, leaf: Leaf, old: ColumnStatistics, new: ColumnStatistics
    ) -> ColumnStatistics | None:
        if old.minimum is None and old.maximum is None and new.minimum is not None:
            # Both NULL means "no value so far" or, from some writers, "unknown"; the files tell.
            row = session.ask(_ALL_NULL, (table_id, leaf.id)).row()
            if not row or not row[0]:
                return None
        return merge(old, new, leaf.type)


def _check(table: LakeTable, files: Sequence[NewDataFile]) -> None:
    if table.unsupported:
        names = ", ".join(f"{name} ({kind})" for name, kind in table.unsupported)
        raise LakeError(f"rows can't be added to {table.name}: it has columns that are not supported: {names}")
    required = [leaf for leaf in leaves(table.columns) if not leaf.nullable]
    for file in files:
        if len(file.partition_values) != len(table.partition_fields):
            raise LakeError(
                f"data file {file.path} has {len(file.partition_values)} partition values, and {table.name} is "
                f"partitioned by {len(table.partition_fields)} keys"
            )
        for leaf in required:
            bounds = file.bounds.get(leaf.id)
            if bounds is not None and bounds.null_count:
                raise LakeError(f"column {leaf.name} of {table.name} must not be NULL, and new rows are")
