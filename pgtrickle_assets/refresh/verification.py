"""The proof: what is stored equals the defining query, run in full on its inputs at the frontier.

Inputs and stored table are read at pinned snapshots, so sources may move on while the comparison runs. A difference is
reported, never repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from time import monotonic
from typing import TYPE_CHECKING

from pgtrickle_assets.control.frontier import EVERY_PARTITION, Frontier
from pgtrickle_assets.differential.derive import MaintenancePlan
from pgtrickle_assets.differential.steps import RESULT
from pgtrickle_assets.errors import PgTrickleError
from pgtrickle_assets.lake.model import WEIGHT_COLUMN, LakeTable
from pgtrickle_assets.lake.spark_columns import quoted_name
from pgtrickle_assets.lake.spark_read import read_table
from pgtrickle_assets.lake.types import from_arrow
from pgtrickle_assets.query.plan import QueryPlan
from pgtrickle_assets.refresh.comparison import SAMPLE_ROWS, difference
from pgtrickle_assets.refresh.model import CheckReport
from pgtrickle_assets.refresh.partition_filter import restricted_to, without
from pgtrickle_assets.refresh.relations import Relations, StoredRelation, as_frame
from pgtrickle_assets.refresh.steps_runner import StepsRunner, needed_columns
from pgtrickle_assets.refresh.table_write import existing_table

if TYPE_CHECKING:
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
        from pyspark.sql import functions as f

        started = monotonic()
        if not self.frontiers:
            raise PgTrickleError(
                f"stream table {self.definition.name} has not been filled yet.", hint="Run `pgtrickle refresh`."
            )
        table = existing_table(self.lake, self.definition.name)
        columns = [column.name for column in table.columns]
        opened: list[Relations] = []
        try:
            expected = self._expected(opened)
            wrong_columns = self._wrong_columns(table, expected)
            if wrong_columns:
                return self._report(table, started, False, detail=wrong_columns)
            scan = self.lake.scan(table)
            stored = read_table(self.spark, scan, columns, storage_options=self.lake.location.storage_options)
            stored = self._known_partitions(stored)
            differing = difference(stored, expected, columns).persist()
            weight = f.col(WEIGHT_COLUMN)
            sums = differing.agg(f.sum(f.greatest(weight, f.lit(0))), f.sum(f.least(weight, f.lit(0)))).toArrow()
            missing, surplus = (value.as_py() or 0 for value in (sums.column(0)[0], sums.column(1)[0]))
            sample = self._sample(differing, columns) if missing or surplus else ()
            differing.unpersist()
        finally:
            for relations in opened:
                relations.close()
        rows = scan.row_count
        return self._report(table, started, not (missing or surplus), rows, missing, -surplus, columns, sample)

    def _report(
        self,
        table: LakeTable,
        started: float,
        passed: bool,
        stored_rows: int = 0,
        missing: int = 0,
        surplus: int = 0,
        columns: Sequence[str] = (),
        sample: tuple[tuple[tuple[str | None, ...], int], ...] = (),
        detail: str = "",
    ) -> CheckReport:
        return CheckReport(
            self.definition.name,
            EQUALS_FULL,
            passed,
            stored_rows,
            stored_rows + missing - surplus,
            surplus,
            missing,
            tuple(columns),
            sample,
            table.at,
            monotonic() - started,
            detail,
        )

    def _expected(self, opened: list[Relations]) -> DataFrame:
        """The recomputed content: each group of partitions at its own frontier."""
        partitioning = self.definition.stream_table.partitioning
        plan = self.definition.plan
        own = [key for key in self.frontiers if key != EVERY_PARTITION]
        parts: list[DataFrame] = []
        if EVERY_PARTITION in self.frontiers:
            rest = without(plan, partitioning, own) if partitioning and own else plan
            parts.append(self._recompute(rest, self.frontiers[EVERY_PARTITION], opened))
        for key in own:
            if partitioning is None:
                raise ValueError(f"{self.definition.name} has a frontier for partition {key} but no partitions")
            parts.append(self._recompute(restricted_to(plan, partitioning, [key]), self.frontiers[key], opened))
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

        return only_partitions(self.spark, stored, self.definition.plan, partitioning, list(self.frontiers))

    def _wrong_columns(self, table: LakeTable, expected: DataFrame) -> str:
        """What differs between the stored and the recomputed columns, in words; empty when nothing does."""
        stored_names = [column.name for column in table.columns]
        if stored_names != expected.columns:
            return f"stored columns {', '.join(stored_names)}; the query gives {', '.join(expected.columns)}"
        kinds = expected.limit(0).toArrow().schema
        for column, field in zip(table.columns, kinds, strict=True):
            kind = from_arrow(field.type)
            # JSON and UUID travel through Spark as text.
            if kind != column.type and not (kind.name == "varchar" and column.type.name in ("json", "uuid")):
                return f"column {column.name} is stored as {column.type}; the query gives {kind}"
        return ""

    @staticmethod
    def _sample(differing: DataFrame, columns: Sequence[str]) -> tuple[tuple[tuple[str | None, ...], int], ...]:
        from pyspark.sql import functions as f

        texts = [f.col(quoted_name(name)).cast("string").alias(f"c{place}") for place, name in enumerate(columns)]
        rows = differing.select(*texts, f.col(WEIGHT_COLUMN)).limit(SAMPLE_ROWS).toArrow().to_pylist()
        # In the report a surplus counts up; in the delta that would mend the table it counts down.
        return tuple((tuple(list(row.values())[:-1]), -row[WEIGHT_COLUMN]) for row in rows)


def verify(
    lake: Lake, spark: Callable[[], SparkSession], definition: Definition, frontiers: Mapping[str, Frontier]
) -> CheckReport:
    """Run the check `differential_equals_full`; see `Verification.run`."""
    return Verification(lake, spark(), definition, frontiers).run()
