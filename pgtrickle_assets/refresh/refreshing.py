"""One refresh of one stream table, from its frontier to its delivery, with every step on record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.control import delivery as deliveries
from pgtrickle_assets.control import frontier as frontiers
from pgtrickle_assets.control import history, provenance
from pgtrickle_assets.control.frontier import EVERY_PARTITION, Frontier
from pgtrickle_assets.control.statuses import DeliveryStatus, InitiatedBy, StrategyName
from pgtrickle_assets.errors import PgTrickleError, StaleFrontierError, TransientError
from pgtrickle_assets.partitions import ALL_KEY, count_by_key
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh.delivery import Attempts, Identity, deliver
from pgtrickle_assets.refresh.heartbeat import beating
from pgtrickle_assets.refresh.model import InputWindow, PreparedRefresh, RefreshResult, Strategy
from pgtrickle_assets.refresh.preparation import Computation, Preparation
from pgtrickle_assets.refresh.relations import is_arrow
from pgtrickle_assets.refresh.steps_runner import StepMeasure
from pgtrickle_assets.refresh.strategy import Choice, PastRefresh
from pgtrickle_assets.refresh.table_write import TableWrite, changed_rows
from pgtrickle_assets.refresh.windows import UpstreamNotReadyError, UpstreamState, choose_cut, windows_at
from pgtrickle_assets.version import VERSION

if TYPE_CHECKING:
    from psycopg import Cursor
    from pyspark.sql import SparkSession

    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.refresh.definition import Definition
    from pgtrickle_assets.settings import Settings


@dataclass(frozen=True, slots=True)
class RefreshRequest:
    """What is asked for; see `RefreshEngine.prepare`."""

    partitions: tuple[str, ...] | None
    cut: int | None
    full: bool
    run_id: str
    initiated_by: InitiatedBy


@dataclass(slots=True)
class OpenRefresh:
    """A prepared refresh with what its delivery needs; lives in the process that prepared it."""

    prepared: PreparedRefresh
    computation: Computation
    pgt_id: int
    frontier: Frontier | None
    planned: Mapping[str, Frontier]


@dataclass(frozen=True, slots=True)
class _Start:
    """Stored frontiers, the one to start from, the cut, what each input moves over, and what past refreshes cost."""

    stored: Mapping[str, Frontier]
    frontier: Frontier | None
    cut: int
    windows: tuple[InputWindow, ...]
    past: Sequence[PastRefresh]


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a refresh would do: its computation, rows and time of each step, and rows (in, out) by lake table."""

    computation: Computation
    cut: int
    windows: tuple[InputWindow, ...]
    measures: tuple[StepMeasure, ...]
    changes: Mapping[TableName, tuple[int, int]]
    seconds: float


@dataclass(frozen=True)
class Refreshing:
    """Prepares and delivers refreshes of one stream table.

    Attributes:
        lake: The lake.
        spark: Gives the session when it is needed.
        settings: Limits.
        definition: The stream table.
        pgt_id: Its row in the registry.
        upstream_ids: Registry rows of the stream tables that it reads.
        needs_rebuild: Its definition changed since it was filled.
    """

    lake: Lake
    spark: Callable[[], SparkSession]
    settings: Settings
    definition: Definition
    pgt_id: int
    upstream_ids: Mapping[TableName, int]
    needs_rebuild: bool = field(default=False)

    def prepare(self, request: RefreshRequest) -> OpenRefresh:
        """Compute what has to change; nothing is written to the lake.

        Raises:
            UpstreamNotReadyError: What it reads is not there for the cut; recorded as skipped.
            PgTrickleError: Recorded as failed.
        """
        started = monotonic()
        with self.lake.connection() as connection:
            refresh_id = history.start(
                connection,
                self.pgt_id,
                initiated_by=request.initiated_by,
                partitions=request.partitions,
                run_id=request.run_id,
            )
        try:
            return self._prepare(request, refresh_id, started)
        except UpstreamNotReadyError as error:
            with self.lake.connection() as connection:
                history.skip(connection, refresh_id, "upstream_not_ready", str(error))
            raise
        except Exception as error:
            self._fail(refresh_id, error)
            raise

    def rehearse(self) -> Rehearsal:
        """Compute what a refresh would change, step by step; nothing is written or recorded anywhere.

        Raises:
            UpstreamNotReadyError: What it reads is not there for the cut.
        """
        request = RefreshRequest(None, None, full=False, run_id="", initiated_by=InitiatedBy.MANUAL)
        started = monotonic()
        start = self._start(request)
        measures: list[StepMeasure] = []
        computation = self._compute(request, start, measures)
        try:
            changes = {output.table: changed_rows(output.rows) for output in computation.outputs}
        finally:
            if computation.relations is not None:
                computation.relations.close()
        return Rehearsal(computation, start.cut, start.windows, tuple(measures), changes, monotonic() - started)

    def _start(self, request: RefreshRequest) -> _Start:
        """Where the refresh starts from, and what it moves over."""
        with self.lake.connection() as connection:
            stored = frontiers.frontiers(connection, self.pgt_id)
            upstream = {name: _state(connection, pgt_id) for name, pgt_id in self.upstream_ids.items()}
            past = [
                PastRefresh(Strategy(cost.strategy), cost.delta_rows, cost.seconds)
                for cost in history.past_costs(connection, self.pgt_id)
            ]
        cut = choose_cut(self.definition.name, self.lake.head(), upstream) if request.cut is None else request.cut
        frontier = _frontier_of(stored, request.partitions)
        known = None if frontier is None or self.needs_rebuild else frontier.inputs
        windows = windows_at(self.definition.name, cut, self.definition.inputs, upstream, known)
        return _Start(stored, frontier, cut, windows, past)

    def _prepare(self, request: RefreshRequest, refresh_id: int, started: float) -> OpenRefresh:
        start = self._start(request)
        computation = self._compute(request, start)
        choice = computation.choice
        with self.lake.connection() as connection:
            estimates = {"differential_seconds": choice.differential_estimate, "full_seconds": choice.full_estimate}
            history.note_choice(
                connection, refresh_id, StrategyName(choice.strategy.value), choice.code, choice.detail, estimates
            )
        prepared = PreparedRefresh(
            stream_table=self.definition.name,
            refresh_id=refresh_id,
            run_id=request.run_id,
            strategy=choice.strategy,
            reason_code=choice.code,
            reason=choice.detail,
            cut=start.cut,
            windows=start.windows,
            partitions=request.partitions,
            outputs=computation.outputs,
            delta_in=computation.delta_in,
            statements=computation.statements,
            seconds={**computation.seconds, "prepare": monotonic() - started},
            jobs=computation.jobs,
            started_at=started,
        )
        return OpenRefresh(prepared, computation, self.pgt_id, start.frontier, start.stored)

    def _compute(
        self, request: RefreshRequest, start: _Start, measures: list[StepMeasure] | None = None
    ) -> Computation:
        preparation = Preparation(
            self.lake,
            self.spark,
            self.definition,
            start.windows,
            self.settings.small_delta_rows,
            self.settings.ducklake_compaction_policy,
            measures,
        )
        if request.partitions is not None:
            unchanged = start.frontier is not None and not request.full and not self.needs_rebuild
            if unchanged and not preparation.has_changes():
                return Computation(Choice(Strategy.NO_CHANGE, "inputs_unchanged", "no input changed since"))
            return preparation.partitions(request.partitions, ("partitions_asked", "some partitions were asked for"))
        return preparation.whole(full_because=self._full_because(request, start), past=start.past)

    def _full_because(self, request: RefreshRequest, start: _Start) -> tuple[str, str] | None:
        if request.full:
            return ("rebuild_asked", "a full refresh was asked for")
        if start.frontier is None:
            return ("first_fill", "the stream table was not filled before")
        if self.needs_rebuild:
            return ("definition_changed", "the definition changed since the last refresh")
        if any(key != EVERY_PARTITION for key in start.stored):
            return ("partitions_realigned", "some partitions were refreshed on their own since")
        if any(window.since is None for window in start.windows):
            return ("new_input", "an input was not read before")
        backwards = next((w for w in start.windows if w.since is not None and w.since > w.until), None)
        if backwards is not None:
            detail = f"{backwards.relation} was read at snapshot {backwards.since}, after the cut"
            raise UpstreamNotReadyError(f"{self.definition.name} is newer than the cut: {detail}.")
        return None

    def deliver(self, opened: OpenRefresh) -> RefreshResult:
        """Write a prepared refresh, or only move the frontier when nothing changes.

        Raises:
            TransientError: Still failing after all attempts, or another run was faster.
            PgTrickleError: Failed for good. With `ducklake_sink_failure_mode` warn, a permanent failure is returned as
                a result with an error instead.
        """
        prepared = opened.prepared
        writes = [
            TableWrite(
                self.lake,
                self.spark,
                output.table,
                output.rows,
                sort_by=self._sort_columns(output.table),
                small_rows=self.settings.small_delta_rows,
                inserts_only=output.inserts_only,
            )
            for output in prepared.outputs
        ]
        with self.lake.connection() as connection:
            record = deliveries.create(
                connection, self.pgt_id, refresh_id=prepared.refresh_id, partitions=prepared.partitions
            )
        clock = _Clock(prepared.started_at, dict(prepared.seconds))
        try:
            return self._deliver(opened, writes, record.delivery_id, clock)
        except Exception as error:
            if isinstance(error, StaleFrontierError):
                with self.lake.connection() as connection:
                    deliveries.supersede(connection, record.delivery_id, str(error))
            self._fail(prepared.refresh_id, error)
            permanent = isinstance(error, PgTrickleError) and not isinstance(error, TransientError)
            if permanent and self.settings.ducklake_sink_failure_mode == "warn":
                return self._result(opened, writes, clock, None, DeliveryStatus.FAILED_PERMANENT, str(error))
            raise
        finally:
            for write in writes:
                write.release()
            if opened.computation.relations is not None:
                opened.computation.relations.close()

    def _deliver(
        self, opened: OpenRefresh, writes: Sequence[TableWrite], delivery_id: str, clock: _Clock
    ) -> RefreshResult:
        prepared, name = opened.prepared, self.definition.name

        def within(cursor: Cursor[tuple[Any, ...]], snapshot: int) -> None:
            self._record(cursor, opened, writes, delivery_id, snapshot, clock)

        def started(_: int) -> None:
            with self.lake.connection() as connection:
                deliveries.begin_attempt(connection, delivery_id)

        def failed(error: Exception, pause: float) -> bool:
            if isinstance(error, StaleFrontierError):
                return False
            with self.lake.connection() as connection:
                status = deliveries.fail(
                    connection,
                    delivery_id,
                    str(error),
                    retryable=isinstance(error, TransientError),
                    max_retries=self.settings.ducklake_sink_max_retries,
                    retry_after_seconds=pause,
                )
            return status is DeliveryStatus.FAILED_RETRYABLE

        def require_current() -> None:
            with self.lake.connection() as connection:
                frontiers.require_unmoved(connection, self.pgt_id, opened.planned, prepared.partitions)

        identity = Identity(
            delivery_id,
            f"pg_trickle/{VERSION}/stream_table/{self.pgt_id}/{name}",
            f"Refresh {prepared.refresh_id} of {name}: {prepared.strategy.value}, {prepared.reason}",
            {"refresh_id": prepared.refresh_id, "run_id": prepared.run_id, "cut": prepared.cut},
        )
        attempts = Attempts(self.settings.ducklake_sink_max_retries + 1, started, failed)
        with beating(self.lake, delivery_id):
            result = deliver(self.lake, writes, identity, attempts, within, require_current)
        if result is None:
            with self.lake.connection() as connection, connection.transaction(), connection.cursor() as cursor:
                self._record(cursor, opened, writes, delivery_id, None, clock)
            return self._result(opened, writes, clock, None, DeliveryStatus.DELIVERED, None)
        clock.seconds["lock"] = result.lock_seconds
        return self._result(opened, writes, clock, result.snapshot_id, DeliveryStatus.DELIVERED, None)

    def _record(
        self,
        cursor: Cursor[tuple[Any, ...]],
        opened: OpenRefresh,
        writes: Sequence[TableWrite],
        delivery_id: str,
        snapshot: int | None,
        clock: _Clock,
    ) -> None:
        """Move the frontier and close history and delivery, in the commit's transaction."""
        prepared, before = opened.prepared, opened.frontier
        inputs = {window.relation: window.until for window in prepared.windows}
        content = snapshot if snapshot is not None else before.ducklake_snapshot_id if before else prepared.cut
        frontiers.lock(cursor, self.pgt_id)
        frontiers.require_unmoved(cursor, self.pgt_id, opened.planned, prepared.partitions)
        for key in prepared.partitions or (EVERY_PARTITION,):
            own = opened.planned.get(key)
            frontiers.advance(
                cursor,
                self.pgt_id,
                key,
                expect=None if own is None else own.inputs,
                inputs=inputs,
                cut=prepared.cut,
                snapshot_id=content,
                refresh_id=prepared.refresh_id,
            )
        if prepared.partitions is None:
            frontiers.forget(cursor, self.pgt_id, keep=EVERY_PARTITION)
        result = _result_write(writes, self.definition.name)
        inserted, deleted = (result.inserted, result.deleted) if result else (0, 0)
        seconds = clock.stop()
        history.complete(
            cursor,
            prepared.refresh_id,
            history.RefreshOutcome(
                strategy=StrategyName(prepared.strategy.value),
                reason=prepared.reason_code,
                reason_detail=prepared.reason,
                cut=prepared.cut,
                frontier=inputs,
                snapshot_id=snapshot,
                delta_row_count=prepared.delta_in,
                delta_rows_out=inserted + deleted,
                rows_inserted=inserted,
                rows_deleted=deleted,
                bytes_written=sum(write.bytes for write in writes),
                files_written=sum(len(write.files) for write in writes),
                spark_jobs=prepared.jobs + sum(write.jobs for write in writes),
                phase_seconds=seconds,
                was_full_fallback=prepared.strategy is Strategy.FULL and not self.definition.reasons,
            ),
        )
        rows = sum(write.inserted + write.deleted for write in writes)
        size = sum(write.bytes for write in writes)
        deliveries.deliver(cursor, delivery_id, snapshot_id=snapshot, bytes_written=size, rows_written=rows)
        if snapshot is not None:
            provenance.record(
                cursor,
                pgt_id=self.pgt_id,
                name=str(self.definition.name),
                snapshot_id=snapshot,
                refresh_id=prepared.refresh_id,
                delta_row_count=inserted + deleted,
            )

    def _result(
        self,
        opened: OpenRefresh,
        writes: Sequence[TableWrite],
        clock: _Clock,
        snapshot: int | None,
        status: DeliveryStatus,
        error: str | None,
    ) -> RefreshResult:
        prepared = opened.prepared
        result = _result_write(writes, self.definition.name)
        table = self.lake.table(self.definition.name)
        counts = self._partition_counts(result) if result is not None and error is None else {}
        return RefreshResult(
            stream_table=self.definition.name,
            strategy=prepared.strategy,
            reason_code=prepared.reason_code,
            reason=prepared.reason,
            delta_in=prepared.delta_in,
            delta_out=(result.inserted + result.deleted) if result else 0,
            rows_inserted=result.inserted if result else 0,
            rows_deleted=result.deleted if result else 0,
            bytes_written=sum(write.bytes for write in writes),
            files_written=sum(len(write.files) for write in writes),
            snapshot=snapshot,
            cut=prepared.cut,
            frontier={window.relation: window.until for window in prepared.windows},
            row_count=self.lake.scan(table).row_count if table is not None else 0,
            touched_partitions=tuple(sorted(counts)),
            partition_rows={},
            statements=prepared.statements,
            seconds=clock.stop(),
            jobs=prepared.jobs + sum(write.jobs for write in writes),
            refresh_id=prepared.refresh_id,
            delivery_status=status.value,
            error=error,
        )

    def _partition_counts(self, result: TableWrite) -> dict[str, int]:
        """Changed rows per partition key."""
        by = self.definition.stream_table.partitioning
        if result.is_empty:
            return {}
        if by is None:
            return {ALL_KEY: result.inserted + result.deleted}
        rows = result.rows
        if not is_arrow(rows):
            from pgtrickle_assets.lake.spark_columns import quoted_name

            rows = rows.select(quoted_name(by.column)).distinct().toArrow()
        return count_by_key(by, rows.column(by.column), rows.num_rows)

    def _sort_columns(self, table: TableName) -> tuple[str, ...]:
        target = next(target for target, name in self.definition.tables.items() if name == table)
        return self.definition.sort_columns(target)

    def _fail(self, refresh_id: int, error: Exception) -> None:
        with self.lake.connection() as connection:
            if isinstance(error, StaleFrontierError):
                history.skip(connection, refresh_id, "superseded", str(error))
                return
            permanent = isinstance(error, PgTrickleError) and not isinstance(error, TransientError)
            history.fail(
                connection,
                refresh_id,
                str(error),
                permanent=permanent,
                max_consecutive_errors=self.settings.max_consecutive_errors,
            )


@dataclass(slots=True)
class _Clock:
    """Seconds by phase; what is left of the total is the delivery's."""

    started_at: float
    seconds: dict[str, float]

    def stop(self) -> dict[str, float]:
        total = monotonic() - self.started_at
        return {**self.seconds, "deliver": total - self.seconds.get("prepare", 0.0), "total": total}


def _state(connection: Any, pgt_id: int) -> UpstreamState | None:
    """How far an upstream is: its whole content at one cut, or nothing yet."""
    stored = frontiers.frontiers(connection, pgt_id)
    whole = stored.get(EVERY_PARTITION)
    if whole is None:
        return None
    return UpstreamState(whole.cut, max(row.ducklake_snapshot_id for row in stored.values()))


def _frontier_of(stored: Mapping[str, Frontier], partitions: Sequence[str] | None) -> Frontier | None:
    """The frontier that a refresh starts from; partitions with different ones have none in common."""
    if partitions is None:
        return stored.get(EVERY_PARTITION)
    found = [stored.get(key) or stored.get(EVERY_PARTITION) for key in partitions]
    first = found[0]
    same = first is not None and all(other is not None and other.inputs == first.inputs for other in found)
    return first if same else None


def _result_write(writes: Sequence[TableWrite], name: TableName) -> TableWrite | None:
    return next((write for write in writes if write.name == name), None)
