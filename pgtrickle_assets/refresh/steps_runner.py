# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Running the steps of a maintenance plan on Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pgtrickle_assets.differential.restrictions import restrictions, value_ranges
from pgtrickle_assets.differential.simplify import simplify
from pgtrickle_assets.lake.model import WEIGHT_COLUMN
from pgtrickle_assets.lake.spark_collect import collect
from pgtrickle_assets.query.arrow_types import arrow_type
from pgtrickle_assets.query.render import render
from pgtrickle_assets.query.rewrite import scans
from pgtrickle_assets.refresh.key_filter import KeyFilter, ScanFilter
from pgtrickle_assets.refresh.one_task import one_task
from pgtrickle_assets.refresh.relations import Relations, is_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pgtrickle_assets.differential.steps import Restriction, Step
    from pgtrickle_assets.query.plan import Node, Scan
    from pgtrickle_assets.query.types import ColumnSchema

_PRUNING_VALUES = 100_000
"""More key values than this are not worth testing against statistics and rows."""


def needed_columns(steps: Iterable[Step]) -> dict[str, frozenset[str]]:
    """Columns that the steps read, by relation."""
    found: dict[str, set[str]] = defaultdict(set)
    for step in steps:
        for scan in scans(step.query):
            found[scan.relation].update(scan.source_columns)
    return {relation: frozenset(columns) for relation, columns in found.items()}


@dataclass(frozen=True, slots=True)
class StepMeasure:
    """What one step of a measured run did; `sql` is empty where its inputs were known to yield nothing."""

    target: str
    rule: str
    role: str
    rows: int
    seconds: float
    sql: str


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
    _filters: dict[object, tuple[pa.Table, KeyFilter | None]] = field(
        default_factory=dict[object, tuple[pa.Table, "KeyFilter | None"]]
    )

    def run(self, steps: Sequence[Step]) -> Mapping[str, pa.Table | DataFrame]:
        """Run all steps.

        Returns:
            The rows of each state and result step, by target: Arrow when collected or known to be empty, else a frame.
        """
        used = {scan.relation for step in steps for scan in scans(step.query)}
        outputs: dict[str, pa.Table | DataFrame] = {}
        for step in steps:
            is_read = step.target in used
            rows = (
                self._rows(step, is_read_later=is_read)
                if self.measures is None
                else self._measured(step, self.measures)
            )
            self.relations.add(step.target, rows)
            if step.role != "intermediate":
                outputs[step.target] = rows
        return outputs

    def _measured(self, step: Step, measures: list[StepMeasure]) -> pa.Table | DataFrame:
        started, sent = monotonic(), len(self.statements)
        rows = self._rows(step, is_read_later=True)
        if not is_arrow(rows):
            self.jobs += 1
        count = rows.num_rows if is_arrow(rows) else rows.count()
        sql = self.statements[sent][1] if len(self.statements) > sent else ""
        measures.append(StepMeasure(step.target, step.rule, step.role, count, monotonic() - started, sql))
        return rows

    def _rows(self, step: Step, *, is_read_later: bool) -> pa.Table | DataFrame:
        query = simplify(step.query, self.relations.is_empty)
        if query is None:
            return empty_rows(step.columns, weighted=step.weighted)
        sql, is_small = self._statement(step, query)
        if not self.collect:
            frame = self.spark.sql(sql)
            return self.relations.keep(frame) if is_read_later else frame
        self.jobs += 1
        with one_task(self.spark) if is_small else nullcontext():
            return collect(self.spark.sql(sql))

    def _statement(self, step: Step, query: Node) -> tuple[str, bool]:
        """The SQL of a step, and whether all it reads is little."""
        filters = self._scan_filters(query)
        names = [column.name for column in step.columns]
        if step.weighted:
            names.append(WEIGHT_COLUMN)
        output = [(column.id, name) for column, name in zip(query.output, names, strict=True)]
        views: set[str] = set()

        def view(scan: Scan) -> str:
            name = self.relations.view(scan, filters.get(scan, ()))
            views.add(name)
            return name

        sql = render(query, "spark", view, output)
        self.statements.append((step.target, sql))
        return sql, not any(self.relations.is_large(name) for name in views)

    def _scan_filters(self, query: Node) -> dict[Scan, tuple[ScanFilter, ...]]:
        """Values outside of which the rows of stored scans do not matter.

        Rows found for one scan restrict the next: keys of a delta lead to rows of a table, and these to another table.
        """
        open_ = [found for found in restrictions(query) if self.relations.is_stored(found.scan)]
        filters: defaultdict[Scan, list[ScanFilter]] = defaultdict(list)
        for found in value_ranges(query):
            if self.relations.is_stored(found.scan) and (own := self.relations.range_filter(found)) is not None:
                filters[found.scan].append(own)
        known: dict[Scan, pa.Table] = {}
        while True:
            rest: list[Restriction] = []
            for restriction in open_:
                rows = self._rows_of(restriction.by, known)
                if rows is None:
                    rest.append(restriction)
                elif restriction.scan not in known:
                    key_filter = self._key_filter(restriction, rows)
                    if key_filter is not None and key_filter not in filters[restriction.scan]:
                        filters[restriction.scan].append(key_filter)
            reached = {
                scan: rows
                for scan, own in filters.items()
                if own and scan not in known and (rows := self.relations.reached(scan, tuple(own))) is not None
            }
            if not reached:
                return {scan: tuple(own) for scan, own in filters.items()}
            known |= reached
            open_ = rest

    def _rows_of(self, scan: Scan, known: Mapping[Scan, pa.Table]) -> pa.Table | None:
        if self.relations.is_stored(scan):
            return known.get(scan)
        rows = self.relations.rows(scan.relation)
        return rows if is_arrow(rows) else None

    def _key_filter(self, restriction: Restriction, rows: pa.Table) -> KeyFilter | None:
        """The filter that the rows of one relation make; the same rows make the same filter."""
        parts = tuple(
            part
            for part in restriction.key
            if part.by_column in rows.column_names and not pa.types.is_list(rows.schema.field(part.by_column).type)
        )
        if not parts:
            return None
        key = (id(rows), parts)
        if key not in self._filters:
            keys = pa.table({part.column: rows.column(part.by_column) for part in parts})
            for part in parts:
                if not part.null_safe:
                    keys = keys.filter(pc.is_valid(keys.column(part.column)))
            distinct = keys.group_by(keys.column_names).aggregate([])
            small = distinct.num_rows <= _PRUNING_VALUES
            # The rows are kept too, so that nothing else gets their identity.
            self._filters[key] = (rows, KeyFilter(distinct) if small else None)
        return self._filters[key][1]


def empty_rows(columns: Sequence[ColumnSchema], *, weighted: bool) -> pa.Table:
    """No rows, with the types of a step's output."""
    fields = [pa.field(column.name, arrow_type(column.type)) for column in columns]
    if weighted:
        fields.append(pa.field(WEIGHT_COLUMN, pa.int64()))
    return pa.schema(fields).empty_table()
