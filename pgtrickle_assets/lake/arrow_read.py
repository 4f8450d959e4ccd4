# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Reading tables and deltas on the driver with pyarrow: for what is small, so that no Spark job is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from pgtrickle_assets.lake.consolidate import consolidate, union_weighted
from pgtrickle_assets.lake.deletes import Positions, deleted_positions
from pgtrickle_assets.lake.file_cache import LARGE_ROWS, FileCache
from pgtrickle_assets.lake.model import DataFile, DeltaPlan, LakeColumn, ScanPlan
from pgtrickle_assets.lake.parquet_columns import arrow_schema, file_columns, inlined_table, table_columns
from pgtrickle_assets.lake.parquet_read import (
    FILE_ID_COLUMN,
    POSITION_COLUMN,
    Wanted,
    live_rows,
    matching_rows,
    rows_at,
)
from pgtrickle_assets.lake.storage import Storage, storage_for

DRIVER_SCAN_BYTES = 32 << 20
DRIVER_SCAN_ROWS = 3_000_000
"""Files up to this size and number of rows in all are looked through on the driver when few of their rows matter."""

LOOKUP_BYTES = 256 << 20
LOOKUP_ROWS = 10_000_000
"""The same where the columns looked at are tested value by value, which keeps the memory that it takes to a row group:
beyond, Spark is quicker."""

_REMOTE_READERS = 8

Read = TypeVar("Read")


def is_small(delta: DeltaPlan, limit: int) -> bool:
    """Whether the driver should read `delta`: decided by the catalog's row counts, no file is opened."""
    return delta.inserted_rows + delta.deleted_rows <= limit


def fits_driver(scan: ScanPlan) -> bool:
    """Whether the files of `scan` may be looked through by the driver: decided by the catalog, no file is opened."""
    return scan.bytes <= DRIVER_SCAN_BYTES and scan.row_count <= DRIVER_SCAN_ROWS


def fits_lookup(scan: ScanPlan) -> bool:
    """Whether the driver may look for a few rows in the files of `scan`: decided by the catalog, no file is opened."""
    return scan.bytes <= LOOKUP_BYTES and scan.row_count <= LOOKUP_ROWS


def read_table_arrow(
    scan: ScanPlan, columns: Sequence[str], *, storage_options: Mapping[str, str] | None = None
) -> pa.Table:
    """A table's rows on the driver.

    Args:
        scan: The planned scan.
        columns: Names of the columns wanted, in order.
        storage_options: See `storage.STORAGE_OPTIONS`.

    Raises:
        LakeError: Unknown column, or a file that can't be read as the catalog describes it.
    """
    return read_matching_arrow(scan, columns, {}, storage_options=storage_options)


def read_matching_arrow(
    scan: ScanPlan,
    columns: Sequence[str],
    values: Mapping[str, pa.Array],
    *,
    positions: bool = False,
    storage_options: Mapping[str, str] | None = None,
    cache: FileCache | None = None,
) -> pa.Table:
    """Rows of a table's data files that have one of some values in each of some columns, on the driver.

    The columns looked at are read whole, the others only where a row group holds a match.

    Args:
        scan: The planned (and perhaps pruned) scan.
        columns: Names of the columns wanted, in order.
        values: See `Wanted.values`.
        positions: Add `__pgt_file_id` and `__pgt_position`, and leave out the rows that live in the catalog.
        storage_options: See `storage.STORAGE_OPTIONS`.
        cache: Keeps what is read for the next search.

    Raises:
        LakeError: Unknown column, or a file that can't be read as the catalog describes it.
    """
    wanted, looked_for = table_columns(scan.table, columns), Wanted(values)
    keys = table_columns(scan.table, list(values))
    storage = storage_for(scan.table.path, storage_options)
    reads = [
        lambda file=file: list(_matching(storage, file, wanted, keys, looked_for, positions=positions, cache=cache))
        for file in scan.files
    ]
    parts = [part for found in _read_all(storage, reads) for part in found]
    if positions:
        empty = arrow_schema(wanted).append(pa.field(FILE_ID_COLUMN, pa.int64()))
        return pa.concat_tables([*parts, empty.append(pa.field(POSITION_COLUMN, pa.int64())).empty_table()])
    return pa.concat_tables([*parts, _inlined(scan, wanted, keys, looked_for)])


def find_rows_arrow(
    scan: ScanPlan,
    columns: Sequence[str],
    wanted: Wanted,
    limit: int,
    *,
    storage_options: Mapping[str, str] | None = None,
    cache: FileCache | None = None,
) -> pa.Table | None:
    """The wanted rows of a table, on the driver; None, without reading on, as soon as there are more than `limit`.

    Args:
        scan: The planned (and perhaps pruned) scan.
        columns: Names of the columns to return, in order.
        wanted: What to look for.
        limit: Most rows to return.
        storage_options: See `storage.STORAGE_OPTIONS`.
        cache: Keeps what is read for the next search.

    Raises:
        LakeError: Unknown column, or a file that can't be read as the catalog describes it.
    """
    chosen, keys = table_columns(scan.table, columns), table_columns(scan.table, list(wanted.values))
    storage = storage_for(scan.table.path, storage_options)
    parts = [_inlined(scan, chosen, keys, wanted)]
    large = scan.files
    if cache is not None:
        large = tuple(file for file in scan.files if file.record_count >= LARGE_ROWS)
        parts += _in_small_files(storage, scan.files, chosen, keys, wanted, cache)
    found = sum(part.num_rows for part in parts)
    reads = [
        lambda file=file: _matching(storage, file, chosen, keys, wanted, positions=False, cache=cache) for file in large
    ]
    for part in _one_after_another(storage, reads):
        if found > limit:
            break
        parts.append(part)
        found += part.num_rows
    return None if found > limit else pa.concat_tables(parts)


def _in_small_files(
    storage: Storage,
    files: Sequence[DataFile],
    columns: Sequence[LakeColumn],
    keys: Sequence[LakeColumn],
    wanted: Wanted,
    cache: FileCache,
) -> list[pa.Table]:
    """The wanted rows of the small ones of some files, which are read once and looked through as one."""
    both = tuple(dict.fromkeys([*columns, *keys]))
    small = [file for file in files if file.record_count < LARGE_ROWS]
    reads = [lambda file=file: cache.rows(file, both, lambda: _live(storage, file, both)) for file in small]
    tables = _read_all(storage, reads)
    return [wanted.only(pa.concat_tables(tables)).select([column.name for column in columns])] if tables else []


def _inlined(scan: ScanPlan, columns: Sequence[LakeColumn], keys: Sequence[LakeColumn], wanted: Wanted) -> pa.Table:
    rows = inlined_table(tuple(dict.fromkeys([*columns, *keys])), scan.table, scan.inlined)
    return wanted.only(rows).select([column.name for column in columns])


def _matching(
    storage: Storage,
    file: DataFile,
    columns: Sequence[LakeColumn],
    keys: Sequence[LakeColumn],
    wanted: Wanted,
    *,
    positions: bool,
    cache: FileCache | None = None,
) -> Iterator[pa.Table]:
    if not keys:
        yield live_rows(storage, file, file_columns(columns, file), positions=positions)
        return
    own, looked_at = file_columns(columns, file), file_columns(keys, file)
    yield from matching_rows(storage, file, own, looked_at, wanted, positions=positions, cache=cache)


def read_delta_arrow(
    delta: DeltaPlan,
    columns: Sequence[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    cache: FileCache | None = None,
) -> pa.Table:
    """A table's delta on the driver, as a consolidated Z-set.

    Args:
        delta: The planned delta.
        columns: Names of the columns wanted; rows that are equal in them are added up.
        storage_options: See `storage.STORAGE_OPTIONS`.
        cache: Keeps what is read for the next search.

    Returns:
        The columns and BIGINT `__pgt_weight`, never zero.

    Raises:
        LakeError: Unknown column, or a file that can't be read as the catalog describes it.
    """
    wanted = table_columns(delta.table, columns)
    storage = storage_for(delta.table.path, storage_options)
    tasks: list[tuple[Callable[[], pa.Table], int]] = [
        *((lambda file=file: _live(storage, file, wanted), 1) for file in delta.added),
        *((lambda file=file: _live(storage, file, wanted), -1) for file in delta.removed),
        *(
            (lambda old=old, new=new: _newly_deleted(storage, old, new, wanted, cache), -1)
            for old, new in delta.deleted
        ),
    ]
    tables = _read_all(storage, [task for task, _ in tasks])
    parts = [(table, weight) for table, (_, weight) in zip(tables, tasks, strict=True)]
    parts.append((inlined_table(wanted, delta.table, delta.inlined_added), 1))
    parts.append((inlined_table(wanted, delta.table, delta.inlined_removed), -1))
    return consolidate(union_weighted(parts, arrow_schema(wanted)).combine_chunks())


def newly_deleted_positions(storage: Storage, old: DataFile, new: DataFile) -> Positions:
    """Positions of a file that are deleted in its `new` version and were not in its `old` one."""
    return np.setdiff1d(deleted_positions(storage, new), deleted_positions(storage, old), assume_unique=True)


def _live(storage: Storage, file: DataFile, columns: Sequence[LakeColumn]) -> pa.Table:
    return live_rows(storage, file, file_columns(columns, file))


def _newly_deleted(
    storage: Storage, old: DataFile, new: DataFile, columns: Sequence[LakeColumn], cache: FileCache | None
) -> pa.Table:
    positions = newly_deleted_positions(storage, old, new)
    # The old version's snapshot bounds: a row that came after `since` and went again was never there.
    return rows_at(storage, replace(old, deletes=None), file_columns(columns, old), positions, cache=cache)


def _read_all(storage: Storage, tasks: Sequence[Callable[[], Read]]) -> list[Read]:
    """Run the reads: in turn on a local disk, some at once where each one waits for the network."""
    if storage.is_local or len(tasks) < 2:
        return [task() for task in tasks]
    with ThreadPoolExecutor(min(_REMOTE_READERS, len(tasks))) as pool:
        return list(pool.map(lambda task: task(), tasks))


def _one_after_another(storage: Storage, tasks: Sequence[Callable[[], Iterator[pa.Table]]]) -> Iterator[pa.Table]:
    """What the reads yield, in order; on a local disk nothing is read before it is asked for."""
    if storage.is_local or len(tasks) < 2:
        for task in tasks:
            yield from task()
        return
    pool = ThreadPoolExecutor(min(_REMOTE_READERS, len(tasks)))
    try:
        for found in pool.map(lambda task: list(task()), tasks):
            yield from found
    finally:
        pool.shutdown(cancel_futures=True)
