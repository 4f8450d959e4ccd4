"""Running a query over little data as one Spark task.

Planned by default, a query over a few thousand rows is a chain of stages, shuffles and broadcast jobs, and compiling
its code takes longer than running it. With inputs of one partition each, nothing has to be exchanged; without
adaptive execution, automatic broadcast and code generation, the whole query is one interpreted task.
"""

from __future__ import annotations

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


class TaskPlanning:
    """How Spark plans what is run inside a `with` block: as one task or as usual, changed only where it has to be.

    Every setting is a call to Spark, so they stay as they are from one query to the next of the same kind.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> TaskPlanning:
        return self

    def __exit__(self, *_: object) -> None:
        self.plan(one_task=False)

    def plan(self, *, one_task: bool) -> None:
        """Plan what follows as one task, whose inputs should have one partition each, or as usual."""
        if one_task and not self._before:
            self._before = {name: self._spark.conf.get(name, None) for name in _ONE_TASK}
            for name, value in _ONE_TASK.items():
                self._spark.conf.set(name, value)
        elif not one_task and self._before:
            for name, value in self._before.items():
                if value is None:
                    self._spark.conf.unset(name)
                else:
                    self._spark.conf.set(name, value)
            self._before = {}
