"""Running a query over little data as one Spark task.

Planned by default, a query over a few thousand rows is a chain of stages, shuffles and broadcast jobs, and compiling
its code takes longer than running it. With inputs of one partition each, nothing has to be exchanged; without
adaptive execution, automatic broadcast and code generation, the whole query is one interpreted task.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_SCAN_BYTES = 4 << 20
"""Files up to this size in all are read by one task."""

_ONE_TASK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # It moves a semi-join below what makes one partition of its left side, and an exchange with it.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushDownLeftSemiAntiJoin",
    # Writing a plan down for Spark's history takes as long as running it.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "0",
    "spark.sql.debug.maxToStringFields": "1",
}


@contextmanager
def one_task(spark: SparkSession) -> Iterator[None]:
    """Plan what is run inside the block as one task; its inputs should have one partition each."""
    before = {name: spark.conf.get(name, None) for name in _ONE_TASK}
    for name, value in _ONE_TASK.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
