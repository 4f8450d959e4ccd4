"""The first content of mirrors, read in parallel at the batch's snapshot."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from pgtrickle_assets.capture.batch import OpenBatch, copy_part
from pgtrickle_assets.lake.model import WEIGHT_COLUMN, LakeTable
from pgtrickle_assets.lake.spark_columns import quoted_name
from pgtrickle_assets.lake.types import spark_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from pgtrickle_assets.capture.bulk import BulkQuery
    from pgtrickle_assets.query.types import TableName


def copied_rows(
    spark: Callable[[], SparkSession], mirror: LakeTable, batch: OpenBatch, table: TableName
) -> pa.Table | DataFrame:
    """All rows of a source table with weight 1: read here when there is one part, else by Spark's executors.

    Args:
        spark: Gives the session; not called for a table of one part.
        mirror: The lake table, for column names and types.
        batch: Holds the snapshot; must stay open until a returned frame has been evaluated.
        table: The source table.
    """
    parts = batch.copies[table]
    if len(parts) == 1:
        rows = batch.content_table(table)
        return rows.append_column(WEIGHT_COLUMN, pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
    return _on_executors(spark(), mirror, parts)


def _on_executors(spark: SparkSession, table: LakeTable, parts: Sequence[BulkQuery]) -> DataFrame:
    from pyspark.sql import functions as f

    names = [column.name for column in table.columns]
    schema = ", ".join(f"{quoted_name(column.name)} {spark_type(column.type)}" for column in table.columns)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column("part").to_pylist():
                for rows in copy_part(pickle.loads(part)):  # noqa: S301 - made by the driver a moment ago
                    yield rows.select(names)

    tasks = pa.table({"part": pa.array([pickle.dumps(part) for part in parts], pa.binary())})
    frame = spark.createDataFrame(tasks).repartition(len(parts)).mapInArrow(read, schema)
    return frame.withColumn(WEIGHT_COLUMN, f.lit(1).cast("bigint"))
