# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Rows of one data file as Arrow: deletes and snapshot bounds applied, only the needed row groups and columns read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pgtrickle_assets.lake.deletes import Positions, deleted_positions
from pgtrickle_assets.lake.file_cache import FileCache
from pgtrickle_assets.lake.model import DataFile
from pgtrickle_assets.lake.parquet_columns import SNAPSHOT_COLUMN, FileColumn, from_file
from pgtrickle_assets.lake.storage import Storage, storage_error
from pgtrickle_assets.lake.types import arrow_type
from pgtrickle_assets.query.types import INT64

FILE_ID_COLUMN: Final = "__pgt_file_id"
POSITION_COLUMN: Final = "__pgt_position"
_ROW: Final = "__pgt_row"
_FLAGS: Final = 32 << 20


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
    with _opened(storage, file) as opened:
        deleted = opened.deleted
        counts = opened.row_counts
        groups = [range(len(counts))] if whole or not counts else [range(n, n + 1) for n in range(len(counts))]
        start = 0
        for chosen in groups:
            rows = sum(counts[n] for n in chosen)
            wanted = _live(start, rows, deleted)
            yield _read(opened, columns, list(chosen), start, wanted, positions=positions)
            start += rows


def rows_at(
    storage: Storage,
    file: DataFile,
    columns: Sequence[FileColumn],
    wanted: Positions,
    *,
    cache: FileCache | None = None,
) -> pa.Table:
    """Rows of `file` at `wanted` positions, deleted or not, within the file's snapshot bounds.

    Only row groups that hold one of the positions are read, those that `cache` has not.
    """
    parts: list[pa.Table] = []
    with _opened(storage, file, cache) as opened:
        ends = np.cumsum(opened.row_counts)
        for group in np.unique(np.searchsorted(ends, wanted, side="right")).tolist():
            start = int(ends[group - 1]) if group else 0
            inside = wanted[(wanted >= start) & (wanted < ends[group])]
            parts.append(_read(opened, columns, [group], start, inside))
    return pa.concat_tables(parts) if parts else empty_rows(columns)


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

    def only(self, rows: pa.Table) -> pa.Table:
        """The wanted ones of some rows that have all the columns looked at."""
        places = self.places(rows)
        return rows if len(places) == rows.num_rows else rows.take(pa.array(places))

    def places(self, rows: pa.Table) -> Positions:
        """Numbers of the wanted ones, from 0 and ascending, among some rows that have all the columns looked at."""
        places: Positions = np.arange(rows.num_rows)
        # The column with the fewest values leaves the fewest rows to look at for the others.
        for name in sorted(self.values, key=lambda name: len(self.values[name])):
            column = rows.column(name)
            places = places[self._holds(name, column if len(places) == len(column) else column.take(pa.array(places)))]
        for combination in self.combinations:
            if len(places):
                names = combination.column_names
                numbered = rows.select(names).take(pa.array(places)).append_column(_ROW, pa.array(places))
                kept = numbered.join(combination, names, join_type="left semi", use_threads=False)
                places = np.sort(kept.column(_ROW).to_numpy())
        return places

    def _holds(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        """Which values of a column are wanted."""
        table = self._tables.get(name)
        if table is None or column.null_count or column.type != self.values[name].type:
            return pc.is_in(column, value_set=self.values[name]).to_numpy(zero_copy_only=False)
        low, flags = table
        # As unsigned numbers those below the least are beyond the greatest.
        offsets = (_integers(column) - low).view(np.uint64)
        return flags[np.minimum(offsets, np.uint64(len(flags) - 1))]

    @cached_property
    def _tables(self) -> Mapping[str, tuple[int, np.ndarray]]:
        """For columns of whole numbers and dates that lie close together: the least, and a flag for it and each after.

        A look into a table takes a tenth of the time of a look into a hash table. The last flag stands for all beyond.
        """
        found: dict[str, tuple[int, np.ndarray]] = {}
        for name, values in self.values.items():
            if not (pa.types.is_integer(values.type) or pa.types.is_date32(values.type)):
                continue
            numbers = _integers(values) if len(values) and not values.null_count else np.empty(0, np.int64)
            if len(numbers) and int(numbers.max()) - int(numbers.min()) < _FLAGS:
                low = int(numbers.min())
                flags = np.zeros(int(numbers.max()) - low + 2, dtype=bool)
                flags[numbers - low] = True
                found[name] = low, flags
        return found

    @cached_property
    def sorted(self) -> Mapping[str, list[Any]]:
        """The values of those columns whose least and greatest value every writer states exactly, in order."""
        return {
            name: sorted(values.to_pylist())
            for name, values in self.values.items()
            if (pa.types.is_integer(values.type) or pa.types.is_date32(values.type)) and not values.null_count
        }


def _integers(values: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Whole numbers, or dates as days, none of them NULL."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    return values.to_numpy().astype(np.int64, copy=False)


def matching_rows(
    storage: Storage,
    file: DataFile,
    columns: Sequence[FileColumn],
    keys: Sequence[FileColumn],
    wanted: Wanted,
    *,
    positions: bool = False,
    cache: FileCache | None = None,
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
    with _opened(storage, file, cache) as opened:
        start = 0
        for group, rows in enumerate(opened.row_counts):
            if _may_hold(opened.metadata.row_group(group), keys, wanted):
                places = wanted.places(opened.table([group], keys, rows))
                live = _without(places + start, opened.deleted)
                if len(live):
                    found = _read(opened, columns, [group], start, live, positions=positions)
                    if found.num_rows:
                        yield found
            start += rows


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


@dataclass
class _OpenFile:
    """A data file of which is read what is not in the cache; it is opened when the first such read comes."""

    storage: Storage
    file: DataFile
    cache: FileCache | None
    resources: ExitStack

    @cached_property
    def reader(self) -> pq.ParquetFile:
        return pq.ParquetFile(self.resources.enter_context(self.storage.open_input(self.file.path)))

    @cached_property
    def metadata(self) -> pq.FileMetaData:
        if self.cache is None:
            return self.reader.metadata
        return self.cache.metadata(self.file, lambda: self.reader.metadata)

    @cached_property
    def row_counts(self) -> list[int]:
        return [self.metadata.row_group(n).num_rows for n in range(self.metadata.num_row_groups)]

    @cached_property
    def deleted(self) -> Positions:
        if self.cache is None:
            return deleted_positions(self.storage, self.file)
        return self.cache.deleted(self.storage, self.file)

    @property
    def is_bounded(self) -> bool:
        """Whether only rows of some snapshots count."""
        return self.file.rows_after is not None or self.file.rows_upto is not None

    def table(
        self, groups: list[int], columns: Sequence[FileColumn], rows: int, keep: pa.Array | None = None
    ) -> pa.Table:
        """Columns of row groups with so many rows in all, of all rows or of those at the places in `keep`."""
        count = rows if keep is None else len(keep)
        stored = self._stored(groups, {column.source: column for column in columns if column.source is not None})
        arrays = [_column(stored, column, keep, count) for column in columns]
        return pa.Table.from_arrays(arrays, names=[column.name for column in columns])

    def snapshots(self, groups: list[int]) -> pa.ChunkedArray:
        """The snapshot that each row of a partial file is from."""
        return self._stored(groups, {SNAPSHOT_COLUMN: _SNAPSHOTS})[SNAPSHOT_COLUMN]

    def _stored(self, groups: list[int], columns: Mapping[str, FileColumn]) -> Mapping[str, pa.ChunkedArray]:
        if not columns or not groups:
            return {}
        if self.cache is None or len(groups) != 1:
            table = self.reader.read_row_groups(groups, columns=sorted(columns))
            return {name: table.column(name) for name in columns}
        (group,), cache = groups, self.cache
        rows = self.row_counts[group]
        return {
            name: cache.column(
                self.file, group, rows, (name, str(arrow_type(column.type))), lambda c=column: self._converted(group, c)
            )
            for name, column in columns.items()
        }

    def _converted(self, group: int, column: FileColumn) -> pa.ChunkedArray:
        stored = self.reader.read_row_group(group, columns=[column.source]).column(column.source)
        return pa.chunked_array([from_file(chunk, column.type) for chunk in stored.chunks], arrow_type(column.type))


_SNAPSHOTS: Final = FileColumn(SNAPSHOT_COLUMN, INT64, SNAPSHOT_COLUMN)


@contextmanager
def _opened(storage: Storage, file: DataFile, cache: FileCache | None = None) -> Iterator[_OpenFile]:
    with ExitStack() as resources:
        try:
            yield _OpenFile(storage, file, cache, resources)
        except OSError as error:
            raise storage_error(error, file.path, dict(storage.options)) from error


def _read(
    opened: _OpenFile,
    columns: Sequence[FileColumn],
    groups: list[int],
    start: int,
    wanted: Positions,
    *,
    positions: bool = False,
) -> pa.Table:
    """Rows at `wanted` positions out of consecutive row groups, the first of which begins at position `start`."""
    file = opened.file
    if opened.is_bounded and groups:
        wanted = wanted[_within(opened.snapshots(groups), file)[wanted - start]]
    total = sum(opened.row_counts[n] for n in groups)
    keep = None if len(wanted) == total else pa.array(wanted - start)
    rows = opened.table(groups, columns, total, keep)
    if positions:
        ids = pa.repeat(pa.scalar(file.id, pa.int64()), len(wanted))
        arrays = [*rows.columns, ids, pa.array(wanted, pa.int64())]
        return pa.Table.from_arrays(arrays, names=[*rows.column_names, FILE_ID_COLUMN, POSITION_COLUMN])
    if not columns:
        # A table without columns still has a number of rows; Arrow keeps it only through a column that is dropped.
        return pa.table({"n": pa.nulls(len(wanted))}).select([])
    return rows


def _column(
    stored: Mapping[str, pa.ChunkedArray], column: FileColumn, keep: pa.Array | None, rows: int
) -> pa.Array | pa.ChunkedArray:
    kind = arrow_type(column.type)
    if column.source is None or column.source not in stored:
        return pa.nulls(rows, kind) if column.default is None else pa.repeat(pa.scalar(column.default, kind), rows)
    values = stored[column.source]
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


def _live(start: int, rows: int, deleted: Positions) -> Positions:
    """So many consecutive positions from `start` on, but for the deleted ones."""
    inside = deleted[(deleted >= start) & (deleted < start + rows)]
    return np.delete(np.arange(start, start + rows, dtype=np.int64), inside - start)


def _without(positions: Positions, deleted: Positions) -> Positions:
    """Ascending positions but for the deleted ones."""
    if not len(deleted) or not len(positions):
        return positions
    place = np.searchsorted(deleted, positions).clip(max=len(deleted) - 1)
    return positions[deleted[place] != positions]
