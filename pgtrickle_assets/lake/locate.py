# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Find the positions of rows that a delta deletes.

A delta says which rows go by content and count, DuckLake deletes by file and position. Equality is that of SQL's IS NOT
DISTINCT FROM with NaN equal to itself; 0.0 and -0.0 are equal too. Of equal rows the first ones by file id and position
are taken, so that a retry finds the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.arrow_read import fits_driver, read_matching_arrow
from pgtrickle_assets.lake.consolidate import consolidate, one_zero
from pgtrickle_assets.lake.file_cache import FileCache
from pgtrickle_assets.lake.model import WEIGHT_COLUMN, LakeColumn, RowDeletes, ScanPlan
from pgtrickle_assets.lake.parquet_columns import arrow_schema, inlined_table, table_columns
from pgtrickle_assets.lake.parquet_read import FILE_ID_COLUMN, POSITION_COLUMN
from pgtrickle_assets.lake.prune import prune
from pgtrickle_assets.lake.spark_collect import collect
from pgtrickle_assets.lake.spark_columns import literal, quoted_name, schema_ddl
from pgtrickle_assets.lake.spark_read import read_table
from pgtrickle_assets.lake.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ROW: Final = "__pgt_row"
_COUNT: Final = "__pgt_count"
_RANK: Final = "__pgt_rank"
_FILTER_VALUES: Final = 64
_PRUNE_VALUES: Final = 100_000
_BROADCAST_ROWS: Final = 2_000_000
_RANK_ABOVE: Final = 5_000_000


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """Where the rows are: positions in data files, and row ids of rows that live in the catalog."""

    deletes: tuple[RowDeletes, ...]
    inlined_rows: tuple[int, ...]


def locate_rows(
    spark: Callable[[], SparkSession],
    scan: ScanPlan,
    rows: pa.Table | DataFrame,
    by: Sequence[str] = (),
    *,
    storage_options: Mapping[str, str] | None = None,
    cache: FileCache | None = None,
) -> LocatedRows:
    """Positions of the rows to delete, found on the driver where the files that may hold them are small.

    Args:
        spark: Gives the session, Spark Connect or not; called only when a job is needed.
        scan: The table as the deletes are planned on.
        rows: Columns of the table and BIGINT `__pgt_weight`, positive: how many rows of that content go. Columns of the
            table that it lacks are not compared.
        by: Columns whose values narrow down the files and row groups to look at, such as a key; all of them if empty.
        storage_options: See `storage.STORAGE_OPTIONS`.
        cache: Has what was read of the files before.

    Raises:
        LakeError: Fewer rows are there than are to go, or `rows` has a negative weight or no column of the table.
    """
    wanted = _Wanted.of(scan, rows if isinstance(rows, pa.Table) else collect(rows))
    if not wanted.rows.num_rows:
        return LocatedRows((), ())
    missing = wanted.counts.copy()
    inlined = _take_inlined(scan, wanted, missing)
    deletes: tuple[RowDeletes, ...] = ()
    if missing.any():
        places = np.flatnonzero(missing)
        rest = _Wanted(wanted.columns, wanted.rows.take(pa.array(places)), missing[places])
        candidates = _candidates(scan, rest, by)
        matches = _matches(spark, candidates, rest, by, storage_options, cache)
        deletes, rest_missing = _choose(candidates, rest, matches)
        missing[places] = rest_missing
    if missing.any():
        raise _not_found(scan, wanted, missing)
    return LocatedRows(deletes, inlined)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Distinct rows to find, and how many of each."""

    columns: tuple[LakeColumn, ...]
    rows: pa.Table
    counts: np.ndarray

    @classmethod
    def of(cls, scan: ScanPlan, rows: pa.Table) -> _Wanted:
        names = [column.name for column in scan.table.columns if column.name in rows.column_names]
        if not names:
            raise LakeError(f"no column of the rows to delete belongs to table {scan.table.name}")
        columns = table_columns(scan.table, names)
        schema = arrow_schema(columns).append(pa.field(WEIGHT_COLUMN, pa.int64()))
        merged = consolidate(one_zero(rows.select([*names, WEIGHT_COLUMN]).cast(schema)))
        counts = merged.column(WEIGHT_COLUMN).to_numpy()
        if len(counts) and counts.min() < 0:
            raise LakeError(f"the rows to delete in table {scan.table.name} have a negative count")
        return cls(columns, merged.select(names).combine_chunks(), counts.copy())


def _candidates(scan: ScanPlan, wanted: _Wanted, by: Sequence[str]) -> ScanPlan:
    """The scan without files that cannot hold any wanted row."""
    for column in wanted.columns:
        if (by and column.name not in by) or column.type.element is not None:
            continue
        values = pc.unique(wanted.rows.column(column.name))
        if len(values) <= _PRUNE_VALUES:
            scan = prune(scan, column.name, values=values.to_pylist())
        elif not values.null_count and not column.type.is_float:
            ends = pc.min_max(values)
            scan = prune(scan, column.name, minimum=ends["min"].as_py(), maximum=ends["max"].as_py())
    return scan


def _take_inlined(scan: ScanPlan, wanted: _Wanted, missing: np.ndarray) -> tuple[int, ...]:
    """Row ids of catalog rows that are among the wanted; lowers `missing` by them."""
    if not scan.inlined.rows:
        return ()
    stored = inlined_table(wanted.columns, scan.table, scan.inlined)
    by_content: defaultdict[Hashable, list[int]] = defaultdict(list)
    for row_id, key in sorted(zip(scan.inlined.row_ids, _keys(stored), strict=True), key=lambda pair: pair[0]):
        by_content[key].append(row_id)
    taken: list[int] = []
    for place, key in enumerate(_keys(wanted.rows)):
        found = by_content.get(key, [])[: int(missing[place])]
        taken += found
        missing[place] -= len(found)
    return tuple(taken)


def _keys(rows: pa.Table) -> list[Hashable]:
    return [tuple(_key(value) for value in row.values()) for row in rows.to_pylist()]


def _key(value: Any) -> Hashable:
    if isinstance(value, list):
        return tuple(_key(item) for item in value)
    return "NaN" if isinstance(value, float) and value != value else value


def _matches(
    spark: Callable[[], SparkSession],
    scan: ScanPlan,
    wanted: _Wanted,
    by: Sequence[str],
    storage_options: Mapping[str, str] | None,
    cache: FileCache | None,
) -> pa.Table | None:
    """(row number in `wanted`, file id, position) of stored rows that equal a wanted one."""
    if not scan.files:
        return None
    if fits_driver(scan):
        return _matches_on_driver(scan, wanted, by, storage_options, cache)
    return _matches_on_spark(spark(), scan, wanted, by, storage_options)


def _matches_on_driver(
    scan: ScanPlan,
    wanted: _Wanted,
    by: Sequence[str],
    storage_options: Mapping[str, str] | None,
    cache: FileCache | None,
) -> pa.Table:
    values = {
        column.name: pc.unique(wanted.rows.column(column.name))
        for column in wanted.columns
        if column.type.element is None and not column.type.is_float and (not by or column.name in by)
    }
    names = [column.name for column in wanted.columns]
    stored = read_matching_arrow(scan, names, values, positions=True, storage_options=storage_options, cache=cache)
    codes = _codes(pa.concat_tables([wanted.rows, one_zero(stored.select(names))]))
    sought, found = codes[: wanted.rows.num_rows], codes[wanted.rows.num_rows :]
    order = np.argsort(sought)
    place = np.searchsorted(sought, found, sorter=order).clip(max=len(sought) - 1)
    row = order[place]
    equal = pa.array(sought[row] == found)
    matched = stored.select([FILE_ID_COLUMN, POSITION_COLUMN]).append_column(_ROW, pa.array(row)).filter(equal)
    return matched.select([_ROW, FILE_ID_COLUMN, POSITION_COLUMN])


def _codes(rows: pa.Table) -> np.ndarray:
    """One number per row; equal rows, and only those, have the same."""
    codes = np.zeros(rows.num_rows, np.int64)
    for values in rows.columns:
        own = _column_codes(values)
        _, codes = np.unique(codes * (int(own.max(initial=0)) + 1) + own, return_inverse=True)
    return codes


def _column_codes(values: pa.ChunkedArray) -> np.ndarray:
    if pa.types.is_list(values.type):
        seen: dict[Hashable, int] = {}
        return np.array([seen.setdefault(_key(value), len(seen)) for value in values.to_pylist()], np.int64)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)
    return values.combine_chunks().dictionary_encode("encode").indices.to_numpy().astype(np.int64)


def _matches_on_spark(
    spark: SparkSession,
    scan: ScanPlan,
    wanted: _Wanted,
    by: Sequence[str],
    storage_options: Mapping[str, str] | None,
) -> pa.Table:
    from pyspark.sql import functions as f

    stored = read_table(
        spark, scan, [column.name for column in wanted.columns], positions=True, storage_options=storage_options
    ).where(f.col(FILE_ID_COLUMN).isNotNull())
    for condition in _filters(wanted, by):
        stored = stored.where(condition)
    names = [f"__pgt_w{place}" for place in range(len(wanted.columns))]
    right = wanted.rows.rename_columns(names)
    right = right.append_column(_ROW, pa.array(np.arange(right.num_rows), pa.int64()))
    right = right.append_column(_COUNT, pa.array(wanted.counts, pa.int64()))
    types = [(name, spark_type(column.type)) for name, column in zip(names, wanted.columns, strict=True)]
    sought = spark.createDataFrame(right, schema=schema_ddl([*types, (_ROW, "BIGINT"), (_COUNT, "BIGINT")]))
    if right.num_rows <= _BROADCAST_ROWS:
        sought = f.broadcast(sought)
    equal = [
        f.col(quoted_name(column.name)).eqNullSafe(f.col(name))
        for name, column in zip(names, wanted.columns, strict=True)
    ]
    found = stored.join(sought, reduce(lambda left, right: left & right, equal))
    if scan.row_count > _RANK_ABOVE:
        found = _first_of_each(found)
    return found.select(_ROW, FILE_ID_COLUMN, POSITION_COLUMN).toArrow()


def _first_of_each(found: DataFrame) -> DataFrame:
    """No more stored rows per wanted one than are to go: a big table may hold millions of equal rows."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy(_ROW).orderBy(FILE_ID_COLUMN, POSITION_COLUMN)
    return found.withColumn(_RANK, f.row_number().over(order)).where(f.col(_RANK) <= f.col(_COUNT))


def _filters(wanted: _Wanted, by: Sequence[str]) -> list[Column]:
    """Conditions on single columns that let the Parquet reader skip row groups."""
    from pyspark.sql import functions as f

    conditions: list[Column] = []
    for column in wanted.columns:
        values = wanted.rows.column(column.name)
        unfit = column.type.element is not None or column.type.is_float or column.type.name in ("uuid", "boolean")
        if unfit or (by and column.name not in by) or values.null_count:
            continue
        stored = f.col(quoted_name(column.name))
        distinct = pc.unique(values)
        if len(distinct) <= _FILTER_VALUES:
            conditions.append(stored.isin(*[literal(value, column.type) for value in distinct.to_pylist()]))
        else:
            ends = pc.min_max(distinct)
            low, high = literal(ends["min"].as_py(), column.type), literal(ends["max"].as_py(), column.type)
            conditions.append(stored.between(low, high))
    return conditions


def _choose(scan: ScanPlan, wanted: _Wanted, matches: pa.Table | None) -> tuple[tuple[RowDeletes, ...], np.ndarray]:
    """The first matches of each wanted row, and how many of each are still missing."""
    if matches is None or not matches.num_rows:
        return (), wanted.counts
    row, file_id, position = (matches.column(n).to_numpy() for n in (_ROW, FILE_ID_COLUMN, POSITION_COLUMN))
    order = np.lexsort((position, file_id, row))
    row, file_id, position = row[order], file_id[order], position[order]
    starts = np.searchsorted(row, np.arange(len(wanted.counts)))
    taken = np.arange(len(row)) - starts[row] < wanted.counts[row]
    found = np.bincount(row[taken], minlength=len(wanted.counts))
    files = {file.id: file for file in scan.files}
    deletes = tuple(
        RowDeletes(files[int(chosen)], tuple(np.sort(position[taken & (file_id == chosen)]).tolist()))
        for chosen in np.unique(file_id[taken])
    )
    return deletes, wanted.counts - found


def _not_found(scan: ScanPlan, wanted: _Wanted, missing: np.ndarray) -> LakeError:
    lost = int(missing.sum())
    names = ", ".join(column.name for column in wanted.columns)
    return LakeError(
        f"{lost} row(s) that should be deleted from {scan.table.name} are not in it at snapshot {scan.table.at} "
        f"(compared by {names})",
        hint="The stored table no longer is what the last refresh wrote: rebuild it with a full refresh.",
    )
