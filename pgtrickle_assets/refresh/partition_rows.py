"""Rows of some partitions of a stored stream table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from pgtrickle_assets.lake.spark_columns import quoted_name
from pgtrickle_assets.query.plan import Column, Filter, Scan
from pgtrickle_assets.query.render import render

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pgtrickle_assets.query.types import ColumnSchema
    from pgtrickle_assets.refresh.partition_filter import Selection


def only_partitions(
    spark: SparkSession,
    rows: DataFrame,
    columns: Sequence[ColumnSchema],
    selection: Selection,
    column: str | None = None,
) -> DataFrame:
    """The stored rows that belong to some partitions of a stream table.

    Args:
        spark: Session of `rows`.
        rows: Stored content of the stream table or of one of its state relations.
        columns: Names and types of its columns.
        selection: The partitions.
        column: The column that tells the partition; that of the stream table itself when None.
    """
    view = f"pgt_rows_{uuid4().hex}"
    rows.createOrReplaceTempView(view)
    read = tuple(Column(f"c{place}", stored.type, True, stored.name) for place, stored in enumerate(columns, 1))
    scan = Scan("stored", read, tuple(stored.name for stored in read))
    telling = next(stored for stored in read if stored.name == (column or selection.by.column))
    kept = Filter(scan, selection.condition(telling))
    output = [(stored.id, stored.name) for stored in read]
    return spark.sql(render(kept, "spark", lambda _: quoted_name(view), output))
