"""Computing a refresh: from the window of its inputs to the deltas of its tables. Nothing is written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from time import monotonic
from typing import TYPE_CHECKING

from pgtrickle_assets.differential.derive import MaintenancePlan
from pgtrickle_assets.differential.locality import restricted
from pgtrickle_assets.differential.operators import operator_nodes
from pgtrickle_assets.differential.steps import InputChange, Step
from pgtrickle_assets.errors import LakeDeletesUndatedError, LakeDeltaUnknownError, LakeError, LakeTableReplacedError
from pgtrickle_assets.lake.model import WEIGHT_COLUMN, DeltaPlan, LakeTable, ScanPlan
from pgtrickle_assets.lake.spark_read import read_table
from pgtrickle_assets.query.plan import Version
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh.comparison import difference
from pgtrickle_assets.refresh.model import InputWindow, Strategy, TableDelta
from pgtrickle_assets.refresh.relations import Relations, StoredRelation, as_frame, is_arrow, signs
from pgtrickle_assets.refresh.spark_failures import cleanup_failures_logged
from pgtrickle_assets.refresh.steps_runner import Measures, OperatorMeasure, StepMeasure, StepsRunner, needed_columns
from pgtrickle_assets.refresh.strategy import Choice, PastRefresh, choose

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.refresh.definition import Definition
    from pgtrickle_assets.refresh.partition_filter import Selection

_SMALL_STATE_ROWS = 5_000
"""Up to so many rows of a state are handed to Spark in less time than a job takes that finds those affected."""


@dataclass(slots=True)
class Computation:
    """What a refresh found.

    Attributes:
        choice: Strategy and reason.
        outputs: Deltas of the stored tables.
        delta_in: Rows in the deltas of the inputs.
        statements: (target, SQL) sent to Spark.
        jobs: Spark jobs started so far.
        relations: Hold the views that frames in `outputs` read; closed by whoever delivers.
        seconds: Duration by phase.
    """

    choice: Choice
    outputs: tuple[TableDelta, ...] = ()
    delta_in: int = 0
    statements: tuple[tuple[str, str], ...] = ()
    jobs: int = 0
    relations: tuple[Relations, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    def close(self) -> None:
        """Let go of the views that the outputs read."""
        for relations in self.relations:
            with cleanup_failures_logged():
                relations.close()


@dataclass(frozen=True)
class Preparation:
    """Computes one refresh of a stream table, or of some of its partitions.

    Attributes:
        lake: The lake.
        spark: Gives the session; called only when something has to be computed.
        definition: The stream table.
        windows: What each input moves over; `since` None where it was not read yet.
        selection: The partitions meant; None for the whole table.
        small_delta_rows: Deltas up to this many rows are handled on the driver.
        expired_policy: What to do when the frontier's snapshot of an input is no longer kept: `fallback` recomputes,
            `error` fails.
        measures: Where to note rows and time of each step and operator, for `explain --analyze`.
    """

    lake: Lake
    spark: Callable[[], SparkSession]
    definition: Definition
    windows: tuple[InputWindow, ...]
    selection: Selection | None
    small_delta_rows: int
    expired_policy: str = "fallback"
    measures: Measures | None = None

    def choose(self, past: Sequence[PastRefresh]) -> Choice:
        """The strategy that fits, before anything is computed.

        Args:
            past: Completed refreshes, newest first.
        """
        try:
            return self._choose(past)
        except LakeDeltaUnknownError as error:
            if self.expired_policy == "error":
                raise
            code = "history_unknown" if isinstance(error, LakeDeletesUndatedError) else "history_expired"
            return Choice(Strategy.FULL, code, error.message)

    def compute(self, choice: Choice) -> Computation:
        """What the chosen strategy finds."""
        match choice.strategy:
            case Strategy.NO_CHANGE:
                return Computation(choice)
            case Strategy.DIFFERENTIAL:
                return self._differential(choice)
            case Strategy.FULL:
                return self._full(choice)

    def _choose(self, past: Sequence[PastRefresh]) -> Choice:
        self._require_same_columns()
        deltas = self._deltas.values()
        changed = sum(delta.inserted_rows + delta.deleted_rows for delta in deltas)
        if all(delta.is_empty for delta in deltas) and not self.definition.plan.moves_with_time:
            return Choice(Strategy.NO_CHANGE, "inputs_unchanged", "no input changed since the last refresh")
        rows = sum(scan.row_count for scan in self._new_scans.values())
        mode = self.definition.stream_table.refresh_mode
        return choose(
            refresh_mode=mode, reasons=self.definition.reasons, delta_rows=changed, input_rows=rows, past=past
        )

    def _differential(self, choice: Choice) -> Computation:
        started = monotonic()
        maintenance = self.definition.maintenance
        inputs = [window.relation for window in self.windows]
        changes = {relation: self._catalog_change(relation) for relation in inputs}
        steps = maintenance.delta_steps(changes, self._small_states)
        session = self.spark()
        parts = self._operator_steps(changes)
        read_by = [*steps, *(step for own in parts.values() for step in own)]
        relations = Relations(
            session,
            self.lake,
            self._stored,
            needed_columns(read_by),
            self.small_delta_rows,
            deltas=self._deltas,
            new_scans=self._new_scans,
        )
        delta_in, is_small = 0, True
        for relation in inputs:
            if not changes[relation].any:
                continue
            rows = relations.rows(relation)
            is_small = is_small and is_arrow(rows)
            changes[relation] = signs(rows) if is_arrow(rows) else changes[relation]
            plan = relations.delta_plan(relation)
            delta_in += rows.num_rows if is_arrow(rows) else plan.inserted_rows + plan.deleted_rows
        if not any(change.any for change in changes.values()):
            unread = Choice(Strategy.NO_CHANGE, "unread_columns", "only columns that the query does not read changed")
            relations.close()
            return Computation(unread, seconds={"delta": monotonic() - started})
        read = monotonic() - started
        runner = StepsRunner(session, relations, collect=is_small, measures=self._step_measures)
        outputs = runner.run(self._selected(maintenance.delta_steps(changes, self._small_states)))
        self._measure_operators(changes, StepsRunner(session, relations, collect=is_small))
        return Computation(
            choice,
            tuple(TableDelta(self.definition.tables[target], rows) for target, rows in outputs.items()),
            delta_in,
            tuple(runner.statements),
            runner.jobs + relations.jobs,
            (relations,),
            {"delta": read, "compute": monotonic() - started - read},
        )

    @property
    def _step_measures(self) -> list[StepMeasure] | None:
        return None if self.measures is None else self.measures.steps

    def _operator_steps(self, changes: Mapping[str, InputChange]) -> Mapping[int, tuple[Step, ...]]:
        """Steps that give the delta of each operator without stored content, where these are to be measured."""
        # Those of some partitions are parts of statements that no operator has by itself.
        if self.measures is None or self.selection is not None:
            return {}
        nodes = operator_nodes(self.definition.maintenance)
        # Inputs come after their readers in the listing, and are computed first.
        numbers = sorted(nodes, reverse=True)
        steps = self.definition.maintenance.part_steps(
            changes, [nodes[number] for number in numbers], self._small_states
        )
        return {number: own or () for number, own in zip(numbers, steps, strict=True)}

    def _measure_operators(self, changes: Mapping[str, InputChange], runner: StepsRunner) -> None:
        if self.measures is None:
            return
        for number, steps in self._operator_steps(changes).items():
            started = monotonic()
            rows = runner.count(steps) if steps else 0
            self.measures.operators.append(OperatorMeasure(number, rows, monotonic() - started))

    def _full(self, choice: Choice) -> Computation:
        started = monotonic()
        session = self.spark()
        steps = self._full_steps()
        relations = Relations(session, self.lake, self._current(), needed_columns(steps), self.small_delta_rows)
        runner = StepsRunner(session, relations, collect=False, measures=self._step_measures)
        contents = runner.run(steps)
        head = self.lake.head()
        by_target = {step.target: step for step in steps}
        outputs = tuple(
            self._content_delta(session, by_target[target], rows, head) for target, rows in contents.items()
        )
        rows_in = sum(relations.scan_plan(window.relation, Version.CURRENT).row_count for window in self.windows)
        seconds = {"plan": monotonic() - started}
        jobs = runner.jobs + relations.jobs
        return Computation(choice, outputs, rows_in, tuple(runner.statements), jobs, (relations,), seconds)

    def _full_steps(self) -> tuple[Step, ...]:
        maintenance = self.definition.maintenance
        if self.selection is None or self.definition.partition_columns is not None:
            return self._selected(maintenance.full_steps())
        # The states stay as they are; a refresh of the whole table then has to recompute them.
        plan = self.selection.restrict(self.definition.plan)
        return MaintenancePlan(plan, maintenance.reasons, None).full_steps()

    def _selected(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        if self.selection is None:
            return steps
        return restricted(steps, self.definition.partition_columns or {}, self.selection.condition)

    def _content_delta(self, session: SparkSession, step: Step, rows: pa.Table | DataFrame, head: int) -> TableDelta:
        """The difference between a table's stored and its computed content."""
        from pyspark.sql import functions as f

        name = self.definition.tables[step.target]
        table = self._table(name, head)
        content = as_frame(session, rows)
        scan = self.lake.scan(table)
        if scan.row_count == 0:
            weighted = content.withColumn(WEIGHT_COLUMN, f.lit(1).cast("bigint"))
            return TableDelta(name, weighted, inserts_only=True)
        columns = [column.name for column in step.columns]
        stored = read_table(session, scan, columns, storage_options=self.lake.location.storage_options)
        if self.selection is not None:
            from pgtrickle_assets.refresh.partition_rows import only_partitions

            column = (self.definition.partition_columns or {}).get(step.target)
            stored = only_partitions(session, stored, step.columns, self.selection, column)
        return TableDelta(name, difference(stored, content, columns))

    @cached_property
    def _stored(self) -> dict[str, StoredRelation]:
        """Inputs at both ends of their windows, and states as they are."""
        names = {str(table): table for table in self.definition.inputs}
        stored: dict[str, StoredRelation] = {}
        for window in self.windows:
            name = names[window.relation]
            old = None if window.since is None else self._table(name, window.since)
            stored[window.relation] = StoredRelation(old, self._input(window.relation, name, window.until))
        head = self.lake.head()
        for target, name in self.definition.tables.items():
            table = self._table(name, head)
            stored[target] = StoredRelation(table, table)
        return stored

    @cached_property
    def _deltas(self) -> dict[str, DeltaPlan]:
        """What changed in each relation that was read before; planned once, as the catalog may tell less later."""
        return {
            relation: self.lake.delta(stored.new, stored.old.at)
            for relation, stored in self._stored.items()
            if stored.old is not None
        }

    @cached_property
    def _new_scans(self) -> dict[str, ScanPlan]:
        return {relation: self.lake.scan(stored.new) for relation, stored in self._stored.items()}

    @property
    def _small_states(self) -> frozenset[str]:
        rows = {target: self._new_scans[target].row_count for target in self.definition.tables}
        return frozenset(target for target, count in rows.items() if count <= _SMALL_STATE_ROWS)

    def _current(self) -> dict[str, StoredRelation]:
        names = {str(table): table for table in self.definition.inputs}
        return {
            window.relation: StoredRelation(None, self._input(window.relation, names[window.relation], window.until))
            for window in self.windows
        }

    def _catalog_change(self, relation: str) -> InputChange:
        if relation not in self._deltas:
            raise ValueError(f"relation {relation} was not read before")
        delta = self._deltas[relation]
        return InputChange(inserts=delta.inserted_rows > 0, deletes=delta.deleted_rows > 0)

    def _require_same_columns(self) -> None:
        for relation, columns in self._read_columns.items():
            stored = self._stored[relation]
            other = columns & stored.new.renamed_since(stored.old) if stored.old else frozenset[str]()
            if other:
                raise LakeTableReplacedError(
                    f"the column {min(other)} of {stored.new.name} is another one than at the last refresh",
                    hint="Refresh in full.",
                )

    def _input(self, relation: str, name: TableName, at: int) -> LakeTable:
        """An input with every column that the query reads."""
        table = self._table(name, at)
        missing = self._read_columns.get(relation, frozenset()).difference(column.name for column in table.columns)
        if missing:
            raise LakeError(
                f"lake table {name} has no column {min(missing)} any more, but {self.definition.name} reads it.",
                hint="It was renamed or dropped. Give it its name back, or change the query.",
            )
        return table

    @cached_property
    def _read_columns(self) -> dict[str, frozenset[str]]:
        return needed_columns(self.definition.maintenance.full_steps())

    def _table(self, name: TableName, at: int) -> LakeTable:
        table = self.lake.table(name, at)
        if table is None:
            raise LakeError(
                f"lake table {name}, which {self.definition.name} needs, does not exist at snapshot {at}.",
                hint="Run `pgtrickle apply`; if another program makes the table, run that first.",
            )
        return table


def together(parts: Sequence[Computation], session: Callable[[], SparkSession]) -> Computation:
    """One computation out of those of a stream table's parts, whose rows have nothing in common."""
    changed = [part for part in parts if part.choice.strategy is not Strategy.NO_CHANGE]
    if len(changed) < 2:
        return changed[0] if changed else parts[-1]
    outputs: dict[TableName, list[TableDelta]] = {}
    for part in changed:
        for output in part.outputs:
            outputs.setdefault(output.table, []).append(output)
    seconds: dict[str, float] = {}
    for part in changed:
        for phase, duration in part.seconds.items():
            seconds[phase] = seconds.get(phase, 0.0) + duration
    return Computation(
        changed[-1].choice,
        tuple(
            TableDelta(table, _added(session, [one.rows for one in found]), all(one.inserts_only for one in found))
            for table, found in outputs.items()
        ),
        sum(part.delta_in for part in changed),
        tuple(statement for part in changed for statement in part.statements),
        sum(part.jobs for part in changed),
        tuple(relations for part in changed for relations in part.relations),
        seconds,
    )


def _added(session: Callable[[], SparkSession], parts: Sequence[pa.Table | DataFrame]) -> pa.Table | DataFrame:
    import pyarrow as pa

    tables = [part for part in parts if is_arrow(part)]
    if len(tables) == len(parts):
        return pa.concat_tables([table.cast(tables[0].schema) for table in tables])
    frames = [as_frame(session(), part) for part in parts]
    return reduce(lambda left, right: left.unionByName(right), frames)
