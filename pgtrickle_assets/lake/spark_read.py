"""Reading tables and deltas of the lake as Spark DataFrames.

Spark's own Parquet reader does the reading wherever it can, with an explicit schema, so that no job infers one and
filters and column pruning reach the row groups. Only API that Spark Connect has is used. Files that look alike
are read by one scan; files with deletes are a scan of their own, so that the others don't pay for the row index.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pgtrickle_assets.lake.arrow_read import newly_deleted_positions
from pgtrickle_assets.lake.deletes import Positions, deleted_positions
from pgtrickle_assets.lake.model import WEIGHT_COLUMN, DataFile, DeltaPlan, LakeColumn, LakeTable, ScanPlan
from pgtrickle_assets.lake.parquet_columns import (
    SNAPSHOT_COLUMN,
    FileColumn,
    file_columns,
    inlined_table,
    table_columns,
    text_uuid_files,
)
from pgtrickle_assets.lake.parquet_read import FILE_ID_COLUMN, POSITION_COLUMN
from pgtrickle_assets.lake.spark_arrow_read import read_through_arrow
from pgtrickle_assets.lake.spark_columns import missing_or_stored, quoted_name, schema_ddl, stored_spark_type
from pgtrickle_assets.lake.storage import Storage, reads_natively, spark_options, spark_path, storage_for
from pgtrickle_assets.lake.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LISTING_THRESHOLD: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_POSITION_BITS: Final = 31
_INLINE_LITERALS: Final = 200
_BROADCAST_POSITIONS: Final = 20_000_000
_KEY: Final = "__pgt_key"


@dataclass(frozen=True, slots=True)
class _Piece:
    """A file to read, and at which positions: all but `positions`, or only those when `only` is set."""

    file: DataFile
    positions: Positions
    only: bool = False


def read_table(
    spark: SparkSession,
    scan: ScanPlan,
    columns: Sequence[str],
    *,
    positions: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows of a table at a snapshot.

    Args:
        spark: Session; Spark Connect or not.
        scan: The planned (and perhaps pruned) scan.
        columns: Names of the columns wanted, in order.
        positions: Add BIGINT `__pgt_file_id` and `__pgt_position` (0-based row position in that file). For rows that
            live in the catalog the file id is NULL and the position is the row id.
        storage_options: See `storage.STORAGE_OPTIONS`.

    Returns:
        A lazy DataFrame; nothing but delete files has been read.

    Raises:
        LakeError: Unknown column, or a delete file that can't be read.
    """
    storage = storage_for(scan.table.path, storage_options)
    pieces = [_Piece(file, deleted_positions(storage, file)) for file in scan.files]
    reader = _Reader(spark, scan.table, columns, storage, storage_options, positions=positions)
    return _union([*reader.files(pieces), *reader.inlined(scan)], reader)


def read_delta(
    spark: SparkSession,
    delta: DeltaPlan,
    columns: Sequence[str],
    *,
    consolidated: bool = True,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The delta of a table as a Z-set: the columns and BIGINT `__pgt_weight`.

    Args:
        spark: Session; Spark Connect or not.
        delta: The planned delta.
        columns: Names of the columns wanted, in order.
        consolidated: Add up equal rows and drop zeros (a shuffle); without it, equal rows may come more than once.
        storage_options: See `storage.STORAGE_OPTIONS`.

    Raises:
        LakeError: Unknown column, or a delete file that can't be read.
    """
    from pyspark.sql import functions as f

    storage = storage_for(delta.table.path, storage_options)
    reader = _Reader(spark, delta.table, columns, storage, storage_options)
    added = [_Piece(file, deleted_positions(storage, file)) for file in delta.added]
    removed = [_Piece(file, deleted_positions(storage, file)) for file in delta.removed]
    for old, new in delta.deleted:
        removed.append(_Piece(replace(old, deletes=None), newly_deleted_positions(storage, old, new), only=True))
    gained = [*reader.files(added), *reader.inlined(ScanPlan(delta.table, (), delta.inlined_added))]
    lost = [*reader.files(removed), *reader.inlined(ScanPlan(delta.table, (), delta.inlined_removed))]
    weighted = [frame.withColumn(WEIGHT_COLUMN, f.lit(1).cast("bigint")) for frame in gained]
    weighted += [frame.withColumn(WEIGHT_COLUMN, f.lit(-1).cast("bigint")) for frame in lost]
    rows = _union(weighted, reader, weighted=True)
    if not consolidated or not weighted:
        return rows
    keys = [f.col(quoted_name(name)) for name in columns]
    weight = f.col(WEIGHT_COLUMN)
    return rows.groupBy(*keys).agg(f.sum(weight).alias(WEIGHT_COLUMN)).where(weight != 0)


@dataclass(frozen=True, slots=True)
class _Group:
    """Files that one scan can read: same columns under the same names, same snapshot bounds, same kind of positions."""

    columns: tuple[FileColumn, ...]
    rows_after: int | None
    rows_upto: int | None
    uuid_as_text: bool
    only: bool
    has_positions: bool


class _Reader:
    """Reads pieces of one table into DataFrames with the same columns."""

    def __init__(
        self,
        spark: SparkSession,
        table: LakeTable,
        names: Sequence[str],
        storage: Storage,
        options: Mapping[str, str] | None,
        *,
        positions: bool = False,
    ) -> None:
        self.spark = spark
        self.table = table
        self.columns: tuple[LakeColumn, ...] = table_columns(table, names)
        self.positions = positions
        self._storage = storage
        self._options = options
        self._native = reads_natively(table.path, options)

    def files(self, pieces: Iterable[_Piece]) -> list[DataFrame]:
        """DataFrames that together hold the rows of the pieces."""
        wanted = [piece for piece in pieces if not piece.only or len(piece.positions)]
        if not wanted:
            return []
        if not self._native:
            tasks = [(piece.file, piece.positions, piece.only) for piece in wanted]
            return [read_through_arrow(self.spark, self.columns, tasks, self._options or {}, positions=self.positions)]
        if int(self.spark.conf.get(_LISTING_THRESHOLD, "32") or 32) < len(wanted):
            self.spark.conf.set(_LISTING_THRESHOLD, "1000000")
        as_text = text_uuid_files(self._storage, [piece.file for piece in wanted], self.columns)
        groups: dict[tuple[_Group, int], list[_Piece]] = {}
        keys: dict[tuple[_Group, int], set[int]] = {}
        for piece in wanted:
            group = self._group(piece, uuid_as_text=piece.file.id in as_text)
            part = 0
            # Files of a scan are told apart by a checksum of their names; the rare two that share one are kept apart.
            while (key := _file_key(piece.file.path)) in keys.setdefault((group, part), set()):
                part += 1
            keys[group, part].add(key)
            groups.setdefault((group, part), []).append(piece)
        return [self._scan(group, members) for (group, _), members in groups.items()]

    def inlined(self, scan: ScanPlan) -> list[DataFrame]:
        """The rows that live in the catalog, if there are any."""
        if not scan.inlined.rows:
            return []
        rows = inlined_table(self.columns, self.table, scan.inlined)
        if self.positions:
            rows = rows.append_column(FILE_ID_COLUMN, pa.nulls(rows.num_rows, pa.int64()))
            rows = rows.append_column(POSITION_COLUMN, pa.array(scan.inlined.row_ids, pa.int64()))
        return [self.spark.createDataFrame(rows, schema=self.schema())]

    def schema(self, *, weighted: bool = False) -> str:
        """Spark schema text of the DataFrames."""
        fields = [(column.name, spark_type(column.type)) for column in self.columns]
        if self.positions:
            fields += [(FILE_ID_COLUMN, "BIGINT"), (POSITION_COLUMN, "BIGINT")]
        if weighted:
            fields.append((WEIGHT_COLUMN, "BIGINT"))
        return schema_ddl(fields)

    def _group(self, piece: _Piece, *, uuid_as_text: bool) -> _Group:
        return _Group(
            file_columns(self.columns, piece.file),
            piece.file.rows_after,
            piece.file.rows_upto,
            uuid_as_text,
            piece.only,
            bool(len(piece.positions)),
        )

    def _scan(self, group: _Group, pieces: Sequence[_Piece]) -> DataFrame:
        from pyspark.sql import functions as f

        stored = {
            column.source: stored_spark_type(column.type, uuid_as_text=group.uuid_as_text)
            for column in group.columns
            if column.source is not None
        }
        bounded = group.rows_after is not None or group.rows_upto is not None
        if bounded:
            stored[SNAPSHOT_COLUMN] = "BIGINT"
        paths = [spark_path(piece.file.path, self._options) for piece in pieces]
        reader = self.spark.read.schema(schema_ddl(list(stored.items()))).option("__globPaths__", "false")
        for name, value in spark_options(self.table.path, self._options).items():
            reader = reader.option(name, value)
        frame = reader.parquet(*paths)
        if group.rows_after is not None:
            frame = frame.where(f.col(SNAPSHOT_COLUMN) > group.rows_after)
        if group.rows_upto is not None:
            frame = frame.where(f.col(SNAPSHOT_COLUMN) <= group.rows_upto)
        if group.has_positions:
            frame = self._at_positions(frame, pieces, only=group.only)
        selected = [
            missing_or_stored(column, uuid_as_text=group.uuid_as_text).alias(column.name) for column in group.columns
        ]
        if self.positions:
            selected += [_file_id(pieces).alias(FILE_ID_COLUMN), f.col("_metadata.row_index").alias(POSITION_COLUMN)]
        return frame.select(*selected)

    def _at_positions(self, frame: DataFrame, pieces: Sequence[_Piece], *, only: bool) -> DataFrame:
        """Drop the rows at the pieces' positions, or all others."""
        from pyspark.sql import functions as f

        if len(pieces) == 1:
            keys, key = pieces[0].positions, f.col("_metadata.row_index")
        else:
            packed = [(_file_key(piece.file.path) << _POSITION_BITS) + piece.positions for piece in pieces]
            keys, key = np.concatenate(packed), _row_key()
        if len(keys) <= _INLINE_LITERALS:
            chosen = key.isin(*[int(value) for value in keys])
            return frame.where(chosen if only else ~chosen)
        right = self.spark.createDataFrame(pa.table({_KEY: pa.array(keys, pa.int64())}), schema=f"{_KEY} BIGINT")
        if len(keys) <= _BROADCAST_POSITIONS:
            right = f.broadcast(right)
        return frame.join(right, key == f.col(_KEY), "left_semi" if only else "left_anti")


def _union(frames: Sequence[DataFrame], reader: _Reader, *, weighted: bool = False) -> DataFrame:
    if not frames:
        return reader.spark.createDataFrame([], schema=reader.schema(weighted=weighted))
    return reduce(lambda left, right: left.unionAll(right), frames)


def _file_key(path: str) -> int:
    return zlib.crc32(path.rpartition("/")[2].encode())


def _name_key() -> Column:
    from pyspark.sql import functions as f

    return f.crc32(f.col("_metadata.file_name").cast("binary"))


def _row_key() -> Column:
    """File checksum and row position in one integer: joins on it are several times faster than on text."""
    from pyspark.sql import functions as f

    return f.shiftleft(_name_key(), _POSITION_BITS) + f.col("_metadata.row_index")


def _file_id(pieces: Sequence[_Piece]) -> Column:
    from pyspark.sql import functions as f

    if len(pieces) == 1:
        return f.lit(pieces[0].file.id).cast("bigint")
    pairs = [f.lit(value) for piece in pieces for value in (_file_key(piece.file.path), piece.file.id)]
    return f.element_at(f.create_map(*pairs).cast("map<bigint,bigint>"), _name_key())
