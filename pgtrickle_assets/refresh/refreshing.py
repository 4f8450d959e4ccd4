"""One refresh of one stream table, from its frontier to its delivery, with every step on record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.control import delivery as deliveries
from pgtrickle_assets.control import frontier as frontiers
from pgtrickle_assets.control import history, provenance
from pgtrickle_assets.control.frontier import EVERY_PARTITION, Frontier
from pgtrickle_assets.control.statuses import DeliveryStatus, InitiatedBy, StrategyName
from pgtrickle_assets.errors import (
    DeliveryGivenUpError,
    LakeUnavailableError,
    PgTrickleError,
    QueryDataError,
    StaleFrontierError,
    TransientError,
)
from pgtrickle_assets.partitions import ALL_KEY, count_by_key
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh.delivery import Attempts, Identity, deliver, patiently
from pgtrickle_assets.refresh.heartbeat import beating
from pgtrickle_assets.refresh.model import InputWindow, PreparedRefresh, RefreshResult, Strategy
from pgtrickle_assets.refresh.partition_filter import Selection
from pgtrickle_assets.refresh.parts import Part, parts_of, selection_of
from pgtrickle_assets.refresh.preparation import Computation, Preparation, together
from pgtrickle_assets.refresh.relations import is_arrow
from pgtrickle_assets.refresh.spark_failures import spark_failures
from pgtrickle_assets.refresh.steps_runner import Measures
from pgtrickle_assets.refresh.strategy import Choice, PastRefresh
from pgtrickle_assets.refresh.table_write import TableWrite, changed_rows
from pgtrickle_assets.refresh.windows import UpstreamNotReadyError, UpstreamState, choose_cut, windows_at
from pgtrickle_assets.version import VERSION

if TYPE_CHECKING:
    from psycopg import Cursor
    from pyspark.sql import SparkSession

    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.lake.commit import CommitResult
    from pgtrickle_assets.refresh.definition import Definition
    from pgtrickle_assets.settings import Settings

logger = logging.getLogger(__name__)


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
    content_snapshot: int | None
    planned: Mapping[str, Frontier]


@dataclass(frozen=True, slots=True)
class _Start:
    """Stored frontiers, the cut, parts with what each moves over, and what past refreshes cost."""

    stored: Mapping[str, Frontier]
    cut: int
    parts: tuple[tuple[Part, tuple[InputWindow, ...]], ...]
    past: Sequence[PastRefresh]

    @property
    def windows(self) -> tuple[InputWindow, ...]:
        """What the refresh as a whole moves over: the last part is the table but for some partitions."""
        return self.parts[-1][1]

    @property
    def content_snapshot(self) -> int | None:
        """The lake snapshot in which the content of all parts is; None when some part was never filled."""
        found = [part.frontier for part, _ in self.parts]
        known = [frontier.ducklake_snapshot_id for frontier in found if frontier is not None]
        return max(known) if known and len(known) == len(found) else None


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a refresh would do: its computation, what was measured of it, and rows (in, out) by lake table."""

    computation: Computation
    cut: int
    windows: tuple[InputWindow, ...]
    measures: Measures
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
                cut=request.cut,
            )
        try:
            with spark_failures(self.definition.name):
                return self._prepare(request, refresh_id, started)
        except UpstreamNotReadyError as error:
            with self.lake.connection() as connection:
                history.skip(connection, refresh_id, "upstream_not_ready", str(error))
            raise
        except Exception as error:
            self.fail(refresh_id, error)
            raise

    def rehearse(self) -> Rehearsal:
        """Compute what a refresh would change, step by step; nothing is written or recorded anywhere.

        Raises:
            UpstreamNotReadyError: What it reads is not there for the cut.
        """
        request = RefreshRequest(None, None, full=False, run_id="", initiated_by=InitiatedBy.MANUAL)
        started = monotonic()
        start = self._start(request)
        measures = Measures()
        computation = self._compute(request, start, measures)
        try:
            changes = {output.table: changed_rows(output.rows) for output in computation.outputs}
        finally:
            computation.close()
        return Rehearsal(computation, start.cut, start.windows, measures, changes, monotonic() - started)

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
        parts: list[tuple[Part, tuple[InputWindow, ...]]] = []
        for part in parts_of(stored, request.partitions):
            known = None if part.frontier is None or self.needs_rebuild else part.frontier.inputs
            parts.append((part, windows_at(self.definition.name, cut, self.definition.inputs, upstream, known)))
        return _Start(stored, cut, tuple(parts), past)

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
        return OpenRefresh(prepared, computation, self.pgt_id, start.content_snapshot, start.stored)

    def _compute(self, request: RefreshRequest, start: _Start, measures: Measures | None = None) -> Computation:
        full_because = self._full_because(request, start)
        if full_because is None:
            parts = [
                self._preparation(selection_of(part, self.definition), windows, measures)
                for part, windows in start.parts
            ]
            choices = [part.choose(start.past) for part in parts]
            full_because = self._full_after(request, choices)
            if full_because is None:
                found = [part.compute(choice) for part, choice in zip(parts, choices, strict=True)]
                return together(found, self.spark)
        asked = Part(request.partitions or (), others=request.partitions is None, frontier=None)
        return self._preparation(selection_of(asked, self.definition), start.windows, measures).compute(full_because)

    def _preparation(
        self, selection: Selection | None, windows: tuple[InputWindow, ...], measures: Measures | None
    ) -> Preparation:
        return Preparation(
            self.lake,
            self.spark,
            self.definition,
            windows,
            selection,
            self.settings.small_delta_rows,
            self.settings.ducklake_compaction_policy,
            measures,
        )

    def _full_because(self, request: RefreshRequest, start: _Start) -> Choice | None:
        """Why only a full refresh will do, whatever changed."""
        if request.full:
            return _full("rebuild_asked", "a full refresh was asked for")
        if any(part.frontier is None for part, _ in start.parts):
            what = "the stream table was" if request.partitions is None else "some of the partitions were"
            return _full("first_fill", f"{what} not filled before")
        if self.needs_rebuild:
            return _full("definition_changed", "the definition changed since the last refresh")
        if request.partitions is None and len(start.parts) > 1 and self.definition.partition_columns is None:
            return _full("partitions_realigned", "some partitions were refreshed on their own since")
        windows = [window for _, moved in start.parts for window in moved]
        if any(window.since is None for window in windows):
            return _full("new_input", "an input was not read before")
        backwards = next((w for w in windows if w.since is not None and w.since > w.until), None)
        if backwards is not None:
            detail = f"{backwards.relation} was read at snapshot {backwards.since}, after the cut"
            raise UpstreamNotReadyError(f"{self.definition.name} is newer than the cut: {detail}.")
        return None

    def _full_after(self, request: RefreshRequest, choices: Sequence[Choice]) -> Choice | None:
        """The choice of a part that only a full refresh of all parts can follow."""
        full = next((choice for choice in choices if choice.strategy is Strategy.FULL), None)
        is_mixed = request.partitions is not None and self.definition.partition_columns is None
        if full is None and is_mixed and any(choice.strategy is Strategy.DIFFERENTIAL for choice in choices):
            return _full("partitions_asked", "its group states do not belong to one partition each")
        return full

    def deliver(self, opened: OpenRefresh) -> RefreshResult:
        """Write a prepared refresh, or only move the frontier when nothing changes.

        Raises:
            TransientError: Another run was faster or took the delivery over, or the catalog is away.
            PgTrickleError: Given up, because it cannot work or after the last attempt. With
                `ducklake_sink_failure_mode` warn that is returned as a result with an error instead.
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
        record = patiently(lambda: self._record_delivery(prepared))
        clock = _Clock(prepared.started_at, dict(prepared.seconds))
        try:
            return self._deliver(opened, writes, record.delivery_id, clock)
        except Exception as error:
            if isinstance(error, StaleFrontierError):
                reason = str(error)
                patiently(lambda: self._supersede(record.delivery_id, reason))
            self.fail(prepared.refresh_id, error)
            given_up = isinstance(error, PgTrickleError) and not isinstance(error, TransientError | QueryDataError)
            if given_up and self.settings.ducklake_sink_failure_mode == "warn":
                return self._result(opened, writes, clock, None, DeliveryStatus.FAILED_PERMANENT, str(error))
            raise
        finally:
            for write in writes:
                write.release()
            opened.computation.close()

    def _deliver(
        self, opened: OpenRefresh, writes: Sequence[TableWrite], delivery_id: str, clock: _Clock
    ) -> RefreshResult:
        prepared, name = opened.prepared, self.definition.name

        def within(cursor: Cursor[tuple[Any, ...]], snapshot: int) -> None:
            self._record(cursor, opened, writes, delivery_id, snapshot, clock)

        def started() -> None:
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

        def give_up(error: TransientError) -> DeliveryGivenUpError:
            return DeliveryGivenUpError(
                f"The delivery of {name} was given up after {self.settings.ducklake_sink_max_retries} retries:"
                f" {error.message}",
                hint="Mend the cause; the next refresh delivers.",
            )

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
            try:
                result = deliver(self.lake, writes, identity, attempts, within, require_current)
            except TransientError as error:
                if patiently(lambda: self._status(delivery_id)) is not DeliveryStatus.FAILED_PERMANENT:
                    raise
                raise give_up(error) from error
        if result is None:
            patiently(lambda: self._record_alone(opened, writes, delivery_id, clock))
            return self._result(opened, writes, clock, None, DeliveryStatus.DELIVERED, None)
        self._note_commit(prepared.refresh_id, result, clock)
        return self._result(opened, writes, clock, result.snapshot_id, DeliveryStatus.DELIVERED, None)

    def _record_delivery(self, prepared: PreparedRefresh) -> deliveries.Delivery:
        with self.lake.connection() as connection:
            return deliveries.create(
                connection, self.pgt_id, refresh_id=prepared.refresh_id, partitions=prepared.partitions
            )

    def _supersede(self, delivery_id: str, reason: str) -> None:
        with self.lake.connection() as connection:
            deliveries.supersede(connection, delivery_id, reason)

    def _status(self, delivery_id: str) -> DeliveryStatus | None:
        with self.lake.connection() as connection:
            found = deliveries.get(connection, delivery_id)
        return None if found is None else found.status

    def _note_commit(self, refresh_id: int, result: CommitResult, clock: _Clock) -> None:
        """Keep how long the commit took and held the lock; they are known only after it, and may get lost."""
        import psycopg

        phases = {"lock": result.lock_seconds, "commit": result.seconds}
        clock.seconds.update(phases)
        try:
            with self.lake.connection() as connection:
                history.add_phases(connection, refresh_id, phases)
        except (psycopg.Error, PgTrickleError) as error:
            logger.warning("The times of refresh %d were not recorded: %s", refresh_id, error)

    def _record_alone(self, opened: OpenRefresh, writes: Sequence[TableWrite], delivery_id: str, clock: _Clock) -> None:
        """The same as `_record`, in a transaction of its own that makes no snapshot."""
        # Safe to repeat: the answer to an earlier COMMIT may have been lost.
        if self._status(delivery_id) is DeliveryStatus.DELIVERED:
            return
        with self.lake.connection() as connection, connection.transaction(), connection.cursor() as cursor:
            self._record(cursor, opened, writes, delivery_id, None, clock)

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
        prepared = opened.prepared
        inputs = {window.relation: window.until for window in prepared.windows}
        before = prepared.cut if opened.content_snapshot is None else opened.content_snapshot
        content = before if snapshot is None else snapshot
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
                data_timestamp=prepared.data_timestamp,
            ),
        )
        rows = sum(write.inserted + write.deleted for write in writes)
        size = sum(write.bytes for write in writes)
        deliveries.deliver(cursor, delivery_id, snapshot_id=snapshot, bytes_written=size, rows_written=rows)
        if snapshot is not None:
            provenance.record(
                cursor.connection,
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
            row_count=patiently(self._row_count),
            touched_partitions=tuple(sorted(counts)),
            partition_rows={},
            statements=prepared.statements,
            seconds=clock.stop(),
            jobs=prepared.jobs + sum(write.jobs for write in writes),
            refresh_id=prepared.refresh_id,
            delivery_status=status.value,
            error=error,
        )

    def _row_count(self) -> int:
        table = self.lake.table(self.definition.name)
        return 0 if table is None else self.lake.scan(table).row_count

    def _partition_counts(self, result: TableWrite) -> dict[str, int]:
        """Changed rows per partition key."""
        by = self.definition.stream_table.partitioning
        if result.is_empty:
            return {}
        if by is None:
            return {ALL_KEY: result.inserted + result.deleted}
        rows = result.rows
        if not is_arrow(rows):
            from pgtrickle_assets.lake.spark_collect import collect
            from pgtrickle_assets.lake.spark_columns import quoted_name

            rows = collect(rows.select(quoted_name(by.column)).distinct())
        return count_by_key(by, rows.column(by.column), rows.num_rows)

    def _sort_columns(self, table: TableName) -> tuple[str, ...]:
        target = next(target for target, name in self.definition.tables.items() if name == table)
        return self.definition.sort_columns(target)

    def fail(self, refresh_id: int, error: Exception) -> None:
        """Record that a refresh of this stream table failed, or was overtaken."""
        try:
            patiently(lambda: self._note_failure(refresh_id, error))
        except LakeUnavailableError as unavailable:
            # The cause must not be lost over it; the row is closed when this process is gone.
            logger.warning("The failure of refresh %d was not recorded: %s", refresh_id, unavailable)

    def _note_failure(self, refresh_id: int, error: Exception) -> None:
        with self.lake.connection() as connection:
            if isinstance(error, StaleFrontierError):
                history.skip(connection, refresh_id, "superseded", str(error))
                return
            permanent = isinstance(error, PgTrickleError) and not isinstance(
                error, TransientError | DeliveryGivenUpError
            )
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


def _full(code: str, detail: str) -> Choice:
    return Choice(Strategy.FULL, code, detail)


def _result_write(writes: Sequence[TableWrite], name: TableName) -> TableWrite | None:
    return next((write for write in writes if write.name == name), None)
