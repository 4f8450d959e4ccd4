"""Reading the lake on Spark's executors through pyarrow: for object stores without Hadoop's file system for them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pgtrickle_assets.lake.deletes import Positions
from pgtrickle_assets.lake.model import DataFile, LakeColumn
from pgtrickle_assets.lake.parquet_columns import FileColumn, arrow_schema, file_columns
from pgtrickle_assets.lake.parquet_read import FILE_ID_COLUMN, POSITION_COLUMN, live_batches, rows_at
from pgtrickle_assets.lake.spark_columns import schema_ddl
from pgtrickle_assets.lake.storage import storage_for
from pgtrickle_assets.lake.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS_PER_BATCH: Final = 65_536
_MAX_TASKS: Final = 512

Task = tuple[DataFile, tuple[FileColumn, ...], Positions, bool]


def read_through_arrow(
    spark: SparkSession,
    columns: Sequence[LakeColumn],
    files: Sequence[tuple[DataFile, Positions, bool]],
    storage_options: Mapping[str, str],
    *,
    positions: bool,
) -> DataFrame:
    """Rows of files, read by one Spark task per few files.

    Args:
        spark: Session; Spark Connect or not.
        columns: Columns wanted.
        files: (file, positions, only): with `only` the rows at the positions, otherwise all that are not deleted.
        storage_options: See `storage.STORAGE_OPTIONS`; they travel to the executors.
        positions: Add `__pgt_file_id` and `__pgt_position`.
    """
    tasks: list[Task] = [(_bare(file), file_columns(columns, file), at, only) for file, at, only in files]
    blobs = pa.table({"task": pa.array([pickle.dumps(task) for task in tasks], pa.binary())})
    frame = spark.createDataFrame(blobs, schema="task BINARY").repartition(min(len(tasks), _MAX_TASKS))
    fields = [(column.name, spark_type(column.type)) for column in columns]
    schema = arrow_schema(columns)
    if positions:
        fields += [(FILE_ID_COLUMN, "BIGINT"), (POSITION_COLUMN, "BIGINT")]
        schema = schema.append(pa.field(FILE_ID_COLUMN, pa.int64())).append(pa.field(POSITION_COLUMN, pa.int64()))
    return frame.mapInArrow(_executor(dict(storage_options), schema, positions=positions), schema_ddl(fields))


def _bare(file: DataFile) -> DataFile:
    """What an executor needs of a file: its statistics would only make the task bigger."""
    return replace(file, bounds={}, names={})


def _executor(
    options: dict[str, str], schema: pa.Schema, *, positions: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column(0).to_pylist():
                # The driver of this very job pickled it.
                for table in _rows(pickle.loads(blob), options, positions=positions):  # noqa: S301
                    yield from table.cast(schema).to_batches(max_chunksize=_ROWS_PER_BATCH)

    return read


def _rows(task: Task, options: dict[str, str], *, positions: bool) -> Iterator[pa.Table]:
    file, columns, at, only = task
    storage = storage_for(file.path, options)
    if only:
        yield rows_at(storage, file, columns, at)
    else:
        yield from live_batches(storage, file, columns, positions=positions)
