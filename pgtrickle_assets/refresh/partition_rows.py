"""Rows of some partitions of a stored stream table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from pgtrickle_assets.lake.spark_columns import quoted_name
from pgtrickle_assets.query.plan import Column, Scan
from pgtrickle_assets.query.render import render
from pgtrickle_assets.refresh.partition_filter import restricted_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pgtrickle_assets.partitions import PartitionBy
    from pgtrickle_assets.query.plan import QueryPlan


def only_partitions(
    spark: SparkSession, rows: DataFrame, plan: QueryPlan, by: PartitionBy, keys: Sequence[str]
) -> DataFrame:
    """The rows of a stream table that belong to some of its partitions.

    Args:
        spark: Session of `rows`.
        rows: Stored content, with the output columns of `plan`.
        plan: The defining query; its output names and types the columns.
        by: The partitioning.
        keys: Partition keys.
    """
    view = f"pgt_rows_{uuid4().hex}"
    rows.createOrReplaceTempView(view)
    columns = tuple(Column(f"c{place}", column.type, True, column.name) for place, column in enumerate(plan.output, 1))
    scan = Scan("stored", columns, tuple(column.name for column in plan.output))
    restricted = restricted_to(replace(plan, root=scan), by, keys)
    output = [(column.id, column.name) for column in columns]
    return spark.sql(render(restricted.root, "spark", lambda _: quoted_name(view), output))
