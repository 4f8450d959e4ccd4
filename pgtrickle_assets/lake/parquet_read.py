# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Rows of one data file as Arrow: deletes and snapshot bounds applied, only the needed row groups and columns read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgtrickle_assets.lake.deletes import Positions, deleted_positions
from pgtrickle_assets.lake.model import DataFile
from pgtrickle_assets.lake.parquet_columns import SNAPSHOT_COLUMN, FileColumn, from_file
from pgtrickle_assets.lake.storage import Storage, storage_error
from pgtrickle_assets.lake.types import arrow_type

FILE_ID_COLUMN: Final = "__pgt_file_id"
POSITION_COLUMN: Final = "__pgt_position"
_ROW: Final = "__pgt_row"


def live_rows(storage: Storage, file: DataFile, columns: Sequence[FileColumn], *, positions: bool = False) -> pa.Table:
    """Rows of `file` that a reader sees.

    Args:
        storage: Storage of the lake's files.
        file: The file as planned: deletes and snapshot bounds of the read snapshot.
        columns: Columns wanted.
        positions: Add `__pgt_file_id` and `__pgt_position` (0-based row position in the file).

    Raises:
        LakeHistoryExpiredError: A file that the plan names is gone.
        StorageUnavailableError: The storage failed for now.
    """
    tables = list(live_batches(storage, file, columns, positions=positions, whole=True))
    return tables[0]


def live_batches(
    storage: Storage, file: DataFile, columns: Sequence[FileColumn], *, positions: bool = False, whole: bool = False
) -> Iterator[pa.Table]:
    """Like `live_rows`, one table per row group, so that memory stays bounded; a single table when `whole`."""
    try:
        deleted = deleted_positions(storage, file)
        with storage.open_input(file.path) as source:
            reader = pq.ParquetFile(source)
            counts = [reader.metadata.row_group(n).num_rows for n in range(reader.metadata.num_row_groups)]
            groups = [range(len(counts))] if whole or not counts else [range(n, n + 1) for n in range(len(counts))]
            start = 0
            for chosen in groups:
                rows = sum(counts[n] for n in chosen)
                wanted = _without(np.arange(start, start + rows, dtype=np.int64), deleted)
                yield _read(reader, file, columns, list(chosen), start, wanted, positions=positions)
                start += rows
    except OSError as error:
        raise storage_error(error, file.path, dict(storage.options)) from error


def rows_at(storage: Storage, file: DataFile, columns: Sequence[FileColumn], wanted: Positions) -> pa.Table:
    """Rows of `file` at `wanted` positions, deleted or not, within the file's snapshot bounds.

    Only row groups that hold one of the positions are read.
    """
    try:
        with storage.open_input(file.path) as source:
            reader = pq.ParquetFile(source)
            ends = np.cumsum([reader.metadata.row_group(n).num_rows for n in range(reader.metadata.num_row_groups)])
            chosen = np.unique(np.searchsorted(ends, wanted, side="right")).tolist()
            parts: list[pa.Table] = []
            for group in chosen:
                start = int(ends[group - 1]) if group else 0
                inside = wanted[(wanted >= start) & (wanted < ends[group])]
                parts.append(_read(reader, file, columns, [group], start, inside))
    except OSError as error:
        raise storage_error(error, file.path, dict(storage.options)) from error
    return pa.concat_tables(parts) if parts else empty_rows(columns)


@dataclass(slots=True)
class ColumnCache:
    """Columns of row groups, kept while several searches look through the same files.

    Attributes:
        limit: Bytes kept at most; what comes later is read anew each time.
    """

    limit: int
    _columns: dict[tuple[str, int, str], pa.ChunkedArray] = field(
        default_factory=dict[tuple[str, int, str], pa.ChunkedArray]
    )
    _bytes: int = 0

    def read(self, reader: pq.ParquetFile, path: str, group: int, names: Sequence[str]) -> pa.Table:
        """Columns of one row group of the file at `path`."""
        found = {name: self._columns.get((path, group, name)) for name in names}
        missing = [name for name, column in found.items() if column is None]
        if missing:
            stored = reader.read_row_group(group, columns=missing)
            found |= {name: stored.column(name) for name in missing}
            if self._bytes + stored.nbytes <= self.limit:
                self._bytes += stored.nbytes
                self._columns |= {(path, group, name): stored.column(name) for name in missing}
        return pa.table(found)


@dataclass(frozen=True)
class Wanted:
    """Which rows are looked for.

    Attributes:
        values: Values by column name, of the column's type; a NULL among them means rows with NULL. No column with
            floating point numbers or lists: those are not found by their bits.
        combinations: Tables over some of these columns: a row must equal one of their rows. None with a NULL.
    """

    values: Mapping[str, pa.Array]
    combinations: tuple[pa.Table, ...] = ()

    def mask(self, rows: pa.Table) -> pa.Array:
        """Which rows have wanted values in each column."""
        masks = [pc.is_in(rows.column(name), value_set=values) for name, values in self.values.items()]
        return reduce(pc.and_, masks, pa.repeat(pa.scalar(True), rows.num_rows))

    def only(self, rows: pa.Table) -> pa.Table:
        """The wanted ones of some rows that have all the columns looked at."""
        found = rows.filter(self.mask(rows))
        for combination in self.combinations:
            if found.num_rows:
                names = combination.column_names
                numbered = found.select(names).append_column(_ROW, pa.array(np.arange(found.num_rows)))
                kept = numbered.join(combination, names, join_type="left semi", use_threads=False)
                found = found.take(pa.array(np.sort(kept.column(_ROW).to_numpy())))
        return found

    @cached_property
    def sorted(self) -> Mapping[str, list[Any]]:
        """The values of those columns whose least and greatest value every writer states exactly, in order."""
        return {
            name: sorted(values.to_pylist())
            for name, values in self.values.items()
            if (pa.types.is_integer(values.type) or pa.types.is_date(values.type)) and not values.null_count
        }


def matching_rows(
    storage: Storage,
    file: DataFile,
    columns: Sequence[FileColumn],
    keys: Sequence[FileColumn],
    wanted: Wanted,
    *,
    positions: bool = False,
    cache: ColumnCache | None = None,
) -> Iterator[pa.Table]:
    """Rows of `file` that a reader sees and that are wanted, in one table per row group that holds some.

    The columns looked at are read where the statistics of a row group allow a match, the others where there is one.

    Args:
        storage: Storage of the lake's files.
        file: The file as planned.
        columns: Columns to return.
        keys: The columns looked at.
        wanted: What to look for.
        positions: Add `__pgt_file_id` and `__pgt_position`.
        cache: Keeps what is read for the next search.
    """
    try:
        deleted = deleted_positions(storage, file)
        with storage.open_input(file.path) as source:
            reader = pq.ParquetFile(source)
            start = 0
            for group in range(reader.metadata.num_row_groups):
                rows = reader.metadata.row_group(group).num_rows
                if _may_hold(reader.metadata.row_group(group), keys, wanted):
                    live = _without(np.arange(start, start + rows, dtype=np.int64), deleted)
                    looked_at = _read(reader, file, keys, [group], start, live, positions=True, cache=cache)
                    places = wanted.only(looked_at).column(POSITION_COLUMN).to_numpy()
                    if len(places):
                        yield _read(reader, file, columns, [group], start, places, positions=positions, cache=cache)
                start += rows
    except OSError as error:
        raise storage_error(error, file.path, dict(storage.options)) from error


def _may_hold(group: pq.RowGroupMetaData, keys: Sequence[FileColumn], wanted: Wanted) -> bool:
    """Whether the statistics of a row group allow that it holds a wanted row."""
    sources = {key.source: wanted.sorted[key.name] for key in keys if key.source and key.name in wanted.sorted}
    for place in range(group.num_columns if sources else 0):
        column = group.column(place)
        values = sources.get(column.path_in_schema)
        if values is None or not column.is_stats_set or not column.statistics.has_min_max:
            continue
        low, high = column.statistics.min, column.statistics.max
        at = bisect_left(values, low)
        if at == len(values) or values[at] > high:
            return False
    return True


def empty_rows(columns: Sequence[FileColumn]) -> pa.Table:
    """No rows, with the right types."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns]).empty_table()


def _read(
    reader: pq.ParquetFile,
    file: DataFile,
    columns: Sequence[FileColumn],
    groups: list[int],
    start: int,
    wanted: Positions,
    *,
    positions: bool = False,
    cache: ColumnCache | None = None,
) -> pa.Table:
    """Rows at `wanted` positions out of consecutive row groups, the first of which begins at position `start`."""
    bounded = file.rows_after is not None or file.rows_upto is not None
    sources = {column.source for column in columns if column.source is not None}
    if bounded:
        sources.add(SNAPSHOT_COLUMN)
    stored: pa.Table | None = None
    if sources and groups:
        names = sorted(sources)
        if cache is not None and len(groups) == 1:
            stored = cache.read(reader, file.path, groups[0], names)
        else:
            stored = reader.read_row_groups(groups, columns=names)
    total = sum(reader.metadata.row_group(n).num_rows for n in groups)
    if bounded and stored is not None:
        wanted = wanted[_within(stored.column(SNAPSHOT_COLUMN), file)[wanted - start]]
    keep = None if len(wanted) == total else pa.array(wanted - start)
    arrays = [_column(stored, column, keep, len(wanted)) for column in columns]
    names = [column.name for column in columns]
    if positions:
        arrays += [pa.repeat(pa.scalar(file.id, pa.int64()), len(wanted)), pa.array(wanted, pa.int64())]
        names += [FILE_ID_COLUMN, POSITION_COLUMN]
    if not arrays:
        # A table without columns still has a number of rows; Arrow keeps it only through a column that is dropped.
        return pa.table({"n": pa.nulls(len(wanted))}).select([])
    return pa.Table.from_arrays(arrays, names=names)


def _column(stored: pa.Table | None, column: FileColumn, keep: pa.Array | None, rows: int) -> pa.Array:
    kind = arrow_type(column.type)
    if column.source is None or stored is None:
        return pa.nulls(rows, kind) if column.default is None else pa.repeat(pa.scalar(column.default, kind), rows)
    values = stored.column(column.source)
    if keep is not None:
        values = values.take(keep)
    chunks = [from_file(chunk, column.type) for chunk in values.chunks]
    return chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks, kind)


def _within(snapshots: pa.ChunkedArray, file: DataFile) -> np.ndarray:
    ids = pc.fill_null(snapshots, file.begin_snapshot).to_numpy()
    inside = np.ones(len(ids), dtype=bool)
    if file.rows_after is not None:
        inside &= ids > file.rows_after
    if file.rows_upto is not None:
        inside &= ids <= file.rows_upto
    return inside


def _without(positions: Positions, deleted: Positions) -> Positions:
    first, last = (positions[0], positions[-1]) if len(positions) else (0, -1)
    inside = deleted[(deleted >= first) & (deleted <= last)]
    return np.delete(positions, inside - first) if len(inside) else positions
