"""The proof: what is stored equals the defining query, run in full on its inputs at the frontier.

Inputs and stored table are read at pinned snapshots, so sources may move on while the comparison runs. A difference is
reported, never repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from time import monotonic
from typing import TYPE_CHECKING

from pgtrickle_assets.control.frontier import EVERY_PARTITION, Frontier
from pgtrickle_assets.differential.derive import MaintenancePlan
from pgtrickle_assets.differential.steps import RESULT
from pgtrickle_assets.errors import PgTrickleError
from pgtrickle_assets.lake.arrow_read import fits_driver, read_table_arrow
from pgtrickle_assets.lake.model import WEIGHT_COLUMN, LakeTable, ScanPlan
from pgtrickle_assets.lake.spark_collect import collect
from pgtrickle_assets.lake.spark_columns import quoted_name
from pgtrickle_assets.lake.spark_read import read_table
from pgtrickle_assets.lake.types import from_arrow
from pgtrickle_assets.query.plan import QueryPlan
from pgtrickle_assets.refresh.comparison import SAMPLE_ROWS, difference, difference_on_driver
from pgtrickle_assets.refresh.model import CheckReport
from pgtrickle_assets.refresh.partition_filter import Selection
from pgtrickle_assets.refresh.parts import plans_at_frontiers
from pgtrickle_assets.refresh.relations import Relations, StoredRelation, as_frame
from pgtrickle_assets.refresh.spark_failures import spark_failures
from pgtrickle_assets.refresh.steps_runner import StepsRunner, needed_columns
from pgtrickle_assets.refresh.table_write import changed_rows, existing_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.refresh.definition import Definition

EQUALS_FULL = "differential_equals_full"


@dataclass(slots=True)
class Verification:
    """Compares one stream table with its recompute.

    Attributes:
        lake: The lake.
        spark: The session.
        definition: The stream table.
        frontiers: How far each of its partitions is built.
    """

    lake: Lake
    spark: SparkSession
    definition: Definition
    frontiers: Mapping[str, Frontier]

    def run(self) -> CheckReport:
        """Compare content, column names and types.

        Raises:
            PgTrickleError: The stream table was never filled.
            LakeHistoryExpiredError: An input's snapshot at the frontier is no longer kept.
        """
        started = monotonic()
        if not self.frontiers:
            raise PgTrickleError(
                f"stream table {self.definition.name} has not been filled yet.", hint="Run `pgtrickle refresh`."
            )
        table = existing_table(self.lake, self.definition.name)
        scan = self.lake.scan(table)
        opened: list[Relations] = []
        try:
            expected = self._expected(opened)
            if self._fits_driver(scan):
                return self._compare_on_driver(scan, expected, started)
            return self._compare_on_spark(scan, expected, started)
        finally:
            for relations in opened:
                relations.close()

    def _fits_driver(self, scan: ScanPlan) -> bool:
        kinds = [column.type.element for column in scan.table.columns]
        return (
            EVERY_PARTITION in self.frontiers
            and fits_driver(scan)
            and not any(kind is not None and kind.is_float for kind in kinds)
        )

    def _compare_on_driver(self, scan: ScanPlan, expected: DataFrame, started: float) -> CheckReport:
        asked = monotonic()
        rows = collect(expected)
        recompute = monotonic() - asked
        wrong_columns = _wrong_columns(scan.table, rows.schema)
        if wrong_columns:
            return self._report(scan, started, (0, 0), (), wrong_columns)
        stored = read_table_arrow(scan, rows.column_names, storage_options=self.lake.location.storage_options)
        differing = difference_on_driver(stored, rows)
        counts = changed_rows(differing)
        sample = self._sample(as_frame(self.spark, differing)) if any(counts) else ()
        return self._report(scan, started, counts, sample, recompute=recompute)

    def _compare_on_spark(self, scan: ScanPlan, expected: DataFrame, started: float) -> CheckReport:
        wrong_columns = _wrong_columns(scan.table, collect(expected.limit(0)).schema)
        if wrong_columns:
            return self._report(scan, started, (0, 0), (), wrong_columns)
        columns = [column.name for column in scan.table.columns]
        stored = read_table(self.spark, scan, columns, storage_options=self.lake.location.storage_options)
        differing = difference(self._known_partitions(stored), expected, columns).persist()
        try:
            counts = changed_rows(differing)
            sample = self._sample(differing) if any(counts) else ()
        finally:
            differing.unpersist()
        return self._report(scan, started, counts, sample)

    def _report(
        self,
        scan: ScanPlan,
        started: float,
        counts: tuple[int, int],
        sample: tuple[tuple[tuple[str | None, ...], int], ...],
        wrong_columns: str = "",
        *,
        recompute: float | None = None,
    ) -> CheckReport:
        missing, surplus = counts
        return CheckReport(
            stream_table=self.definition.name,
            check=EQUALS_FULL,
            passed=not (missing or surplus or wrong_columns),
            stored_rows=scan.row_count,
            expected_rows=scan.row_count + missing - surplus,
            surplus_rows=surplus,
            missing_rows=missing,
            columns=tuple(column.name for column in scan.table.columns),
            differences=sample,
            snapshot=scan.table.at,
            seconds=monotonic() - started,
            detail=wrong_columns,
            recompute_seconds=recompute,
        )

    def _expected(self, opened: list[Relations]) -> DataFrame:
        """The recomputed content: each group of partitions at its own frontier."""
        plans = plans_at_frontiers(self.definition, self.frontiers)
        parts = [self._recompute(plan, frontier, opened) for plan, frontier in plans]
        return reduce(lambda left, right: left.unionAll(right), parts)

    def _recompute(self, plan: QueryPlan, frontier: Frontier, opened: list[Relations]) -> DataFrame:
        stored = {
            relation: StoredRelation(None, existing_table(self.lake, table.name, frontier.inputs[str(table.name)]))
            for relation, table in plan.inputs.items()
        }
        steps = MaintenancePlan(plan, (), None).full_steps()
        relations = Relations(self.spark, self.lake, stored, needed_columns(steps), 0)
        opened.append(relations)
        rows = StepsRunner(self.spark, relations, collect=False).run(steps)[RESULT]
        return as_frame(self.spark, rows)

    def _known_partitions(self, stored: DataFrame) -> DataFrame:
        """Stored rows of partitions that were ever built; before the first whole refresh only some are."""
        partitioning = self.definition.stream_table.partitioning
        if EVERY_PARTITION in self.frontiers or partitioning is None:
            return stored
        from pgtrickle_assets.refresh.partition_rows import only_partitions

        selection = Selection(partitioning, tuple(self.frontiers))
        return only_partitions(self.spark, stored, self.definition.plan.output, selection)

    @staticmethod
    def _sample(differing: DataFrame) -> tuple[tuple[tuple[str | None, ...], int], ...]:
        from pyspark.sql import functions as f

        columns = [name for name in differing.columns if name != WEIGHT_COLUMN]
        texts = [f.col(quoted_name(name)).cast("string").alias(f"c{place}") for place, name in enumerate(columns)]
        rows = differing.select(*texts, f.col(WEIGHT_COLUMN)).limit(SAMPLE_ROWS).toArrow().to_pylist()
        # In the report a surplus counts up; in the delta that would mend the table it counts down.
        return tuple((tuple(list(row.values())[:-1]), -row[WEIGHT_COLUMN]) for row in rows)


def _wrong_columns(table: LakeTable, expected: pa.Schema) -> str:
    """What differs between the stored and the recomputed columns, in words; empty when nothing does."""
    stored_names = [column.name for column in table.columns]
    if stored_names != expected.names:
        return f"stored columns {', '.join(stored_names)}; the query gives {', '.join(expected.names)}"
    for column, field in zip(table.columns, expected, strict=True):
        kind = from_arrow(field.type)
        # JSON and UUID travel through Spark as text.
        if kind != column.type and not (kind.name == "varchar" and column.type.name in ("json", "uuid")):
            return f"column {column.name} is stored as {column.type}; the query gives {kind}"
    return ""


def verify(
    lake: Lake, spark: Callable[[], SparkSession], definition: Definition, frontiers: Mapping[str, Frontier]
) -> CheckReport:
    """Run the check `differential_equals_full`; see `Verification.run`."""
    with spark_failures(definition.name):
        return Verification(lake, spark(), definition, frontiers).run()
