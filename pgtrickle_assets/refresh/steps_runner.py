"""Running the steps of a maintenance plan on Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

import pyarrow as pa

from pgtrickle_assets.lake.consolidate import consolidate
from pgtrickle_assets.lake.model import WEIGHT_COLUMN
from pgtrickle_assets.lake.spark_collect import collect
from pgtrickle_assets.query.arrow_types import arrow_type
from pgtrickle_assets.query.render import render
from pgtrickle_assets.query.rewrite import scans
from pgtrickle_assets.refresh.relations import Relations, is_arrow
from pgtrickle_assets.refresh.scan_filters import Reading, ScanFilterSearch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pgtrickle_assets.differential.steps import Picked, Step
    from pgtrickle_assets.query.plan import Node, Scan
    from pgtrickle_assets.query.types import ColumnSchema


def needed_columns(steps: Iterable[Step]) -> dict[str, frozenset[str]]:
    """Columns that the steps read, by relation."""
    found: dict[str, set[str]] = defaultdict(set)
    for step in steps:
        for scan in scans(step.query):
            found[scan.relation].update(scan.source_columns)
    return {relation: frozenset(columns) for relation, columns in found.items()}


@dataclass(frozen=True, slots=True)
class StepMeasure:
    """What one step of a measured run did; `sql` is empty where Spark was not needed."""

    target: str
    rule: str
    role: str
    rows: int
    seconds: float
    sql: str


@dataclass(frozen=True, slots=True)
class OperatorMeasure:
    """Rows in the delta of one operator, and the time to compute it from what its inputs put out.

    `number` is its place in `operators`.
    """

    number: int
    rows: int
    seconds: float


@dataclass(slots=True)
class Measures:
    """What a measured run notes."""

    steps: list[StepMeasure] = field(default_factory=list[StepMeasure])
    operators: list[OperatorMeasure] = field(default_factory=list[OperatorMeasure])


@dataclass(slots=True)
class StepsRunner:
    """Runs steps in order and remembers what it sent to Spark.

    Attributes:
        spark: The session.
        relations: What steps read, and where their outputs go.
        collect: Whether outputs are brought to the driver (they are known to be small).
        statements: (target, SQL) of every step that was run.
        jobs: Spark jobs started.
        measures: Where to note rows and time of each step; each then runs on its own.
    """

    spark: SparkSession
    relations: Relations
    collect: bool
    statements: list[tuple[str, str]] = field(default_factory=list)
    jobs: int = 0
    measures: list[StepMeasure] | None = None
    _search: ScanFilterSearch = field(init=False)

    def __post_init__(self) -> None:
        self._search = ScanFilterSearch(self.relations)

    def run(self, steps: Sequence[Step]) -> Mapping[str, pa.Table | DataFrame]:
        """Run all steps.

        Returns:
            The stored columns of each state and result step's rows, by target: Arrow when collected or known to be
            empty, else a frame.
        """
        used = {scan.relation for step in steps for scan in scans(step.query)}
        outputs: dict[str, pa.Table | DataFrame] = {}
        with self.relations.planning:
            for step in steps:
                is_read = step.target in used
                rows = (
                    self._rows(step, is_read_later=is_read)
                    if self.measures is None
                    else self._measured(step, self.measures)
                )
                self.relations.add(step.target, rows)
                if step.role != "intermediate":
                    outputs[step.target] = _stored(step, rows)
        return outputs

    def count(self, steps: Sequence[Step]) -> int:
        """Run steps and count the rows of the last one."""
        return _row_count(self.run(steps)[steps[-1].target])

    def _measured(self, step: Step, measures: list[StepMeasure]) -> pa.Table | DataFrame:
        started, sent = monotonic(), len(self.statements)
        rows = self._rows(step, is_read_later=True)
        if not is_arrow(rows):
            self.jobs += 1
        count = _row_count(rows)
        sql = self.statements[sent][1] if len(self.statements) > sent else ""
        measures.append(StepMeasure(step.target, step.rule, step.role, count, monotonic() - started, sql))
        return rows

    def _rows(self, step: Step, *, is_read_later: bool) -> pa.Table | DataFrame:
        if step.picked is not None:
            found = self.relations.rows(step.picked.target)
            if is_arrow(found):
                return picked_rows(step, step.picked, found)
        query, readings = self._search.simplified(step.query, self.relations.is_empty)
        if query is None:
            return empty_rows(step.output_columns, weighted=step.weighted)
        sql, is_small = self._statement(step, query, readings)
        if not self.collect:
            frame = self.spark.sql(sql)
            return self.relations.keep(frame) if is_read_later else frame
        self.jobs += 1
        self.relations.planning.plan(one_task=is_small)
        return collect(self.spark.sql(sql))

    def _statement(self, step: Step, query: Node, readings: Mapping[Scan, Reading]) -> tuple[str, bool]:
        """The SQL of a step, and whether all it reads is little."""
        names = [column.name for column in step.output_columns]
        if step.weighted:
            names.append(WEIGHT_COLUMN)
        output = [(column.id, name) for column, name in zip(query.output, names, strict=True)]
        views = self.relations.views({scan: readings[scan] for scan in scans(query)})
        is_small = self.collect and not any(self.relations.is_large(name) for name in views.values())
        sql = render(query, "spark", views.__getitem__, output, one_task=is_small)
        self.statements.append((step.target, sql))
        return sql, is_small


def _stored(step: Step, rows: pa.Table | DataFrame) -> pa.Table | DataFrame:
    """The rows without what is not stored."""
    names = [column.name for column in step.computed]
    if not names:
        return rows
    return rows.drop_columns(names) if is_arrow(rows) else rows.drop(*names)


def picked_rows(step: Step, picked: Picked, rows: pa.Table) -> pa.Table:
    """The rows of a step out of those of an earlier one."""
    for flag in picked.flags:
        rows = rows.filter(rows.column(flag))
    names = [*(column.name for column in step.columns), WEIGHT_COLUMN]
    return consolidate(rows.select([*picked.columns, WEIGHT_COLUMN]).rename_columns(names))


def _row_count(rows: pa.Table | DataFrame) -> int:
    return rows.num_rows if is_arrow(rows) else rows.count()


def empty_rows(columns: Sequence[ColumnSchema], *, weighted: bool) -> pa.Table:
    """No rows, with the types of a step's output."""
    fields = [pa.field(column.name, arrow_type(column.type)) for column in columns]
    if weighted:
        fields.append(pa.field(WEIGHT_COLUMN, pa.int64()))
    return pa.schema(fields).empty_table()
