"""The refresh engine: everything that can be done with the stream tables of one project.

Plain Python; Dagster, sensors and the command line use it through the same methods, so there is one code path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.control import delivery as deliveries
from pgtrickle_assets.control import frontier as frontiers
from pgtrickle_assets.control import history as refresh_history
from pgtrickle_assets.control import registry, sql_definitions
from pgtrickle_assets.control import snapshots as named_snapshots
from pgtrickle_assets.control.frontier import EVERY_PARTITION
from pgtrickle_assets.control.sink_counts import SinkCounts, sink_counts
from pgtrickle_assets.control.statuses import InitiatedBy
from pgtrickle_assets.control.statuses import StreamTableStatus as Status
from pgtrickle_assets.errors import ConfigurationError, ControlError, LakeConflictError
from pgtrickle_assets.lake.maintenance import recover_compactions
from pgtrickle_assets.lake.spark_read import read_table
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh import snapshots as taking
from pgtrickle_assets.refresh.freshness import freshness, lag_of
from pgtrickle_assets.refresh.model import (
    CheckReport,
    DueRetry,
    Effect,
    Freshness,
    Lag,
    MirrorReport,
    PreparedRefresh,
    Recovered,
    RefreshResult,
    SchemaChange,
    StreamTableStatus,
)
from pgtrickle_assets.refresh.partition_filter import Selection
from pgtrickle_assets.refresh.refreshing import OpenRefresh, Refreshing, RefreshRequest
from pgtrickle_assets.refresh.registration import Observation, effect_of, observe, register
from pgtrickle_assets.refresh.table_write import existing_table
from pgtrickle_assets.refresh.upkeep import UpkeepReport, maintain
from pgtrickle_assets.refresh.verification import verify
from pgtrickle_assets.refresh.workspace import SparkProvider, Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pgtrickle_assets.control.snapshots import NamedSnapshot
    from pgtrickle_assets.control.sql_definitions import SqlRequests
    from pgtrickle_assets.project import Project
    from pgtrickle_assets.schema_cache import KnownSchemas
    from pgtrickle_assets.settings import Settings


_SYNC_ATTEMPTS: Final = 5


class RefreshEngine:
    """Refreshes of one project; see `open`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._open: dict[int, tuple[Refreshing, OpenRefresh]] = {}

    @classmethod
    @contextmanager
    def open(cls, project: Project, settings: Settings, spark: SparkProvider) -> Iterator[RefreshEngine]:
        """Open a project; its lake and control schema are made when they are missing.

        Args:
            project: The project.
            settings: Settings in force.
            spark: Gives the Spark session; called only when something has to be computed.
        """
        with Workspace.open(project, settings, spark) as workspace:
            yield cls(workspace)

    @property
    def project(self) -> Project:
        """The project, with what is known of its sources."""
        return self._workspace.project

    def sync(self) -> KnownSchemas:
        """Make sources, lake and control schema fit the project.

        Returns:
            What it saw of the sources and of foreign lake tables.
        """
        observed = self._registered()
        self.recover()
        return observed.known

    def _registered(self, attempts: int = _SYNC_ATTEMPTS) -> Observation:
        """Observe and register; from the start when another process did so at the same time."""
        try:
            observed = observe(self._workspace)
            register(self._workspace, observed)
        except LakeConflictError:
            if attempts == 1:
                raise
            return self._registered(attempts - 1)
        return observed

    def validate(self) -> KnownSchemas:
        """Plan every query on what sources and lake have now; registers and makes nothing.

        Returns:
            What it saw of the sources and of foreign lake tables.
        """
        observed = observe(self._workspace)
        for table in self.project.stream_tables:
            if table.table in observed.refused and not table.from_sql:
                raise ConfigurationError(
                    f"there is a stream table {table.name} that was made from SQL.",
                    hint=f"Drop it there first: SELECT pgtrickle.drop_stream_table('{table.name}');",
                )
            self._workspace.definition(table.name)
        return observed.known

    def requests(self) -> SqlRequests:
        """What was asked for from SQL and waits; refreshes of what is paused wait on and are not in it."""
        with self._workspace.lake.connection() as connection:
            asked = sql_definitions.waiting(connection, self.project.name)
        paused, known = self.paused(), self.project.order
        free = [n for n in asked.refreshes if n not in known or not paused.intersection(self.project.closure([n]))]
        return replace(asked, refreshes=tuple(free))

    def effect_of(self, name: str) -> Effect:
        """What registering a stream table as the project now has it would do; call `validate` first."""
        return effect_of(self._workspace, name)

    def pause(self, name: str) -> None:
        """Stop the refreshes of a stream table until `resume`."""
        row = self._row(name)
        with self._workspace.lake.connection() as connection:
            registry.pause(connection, row.pgt_id)

    def resume(self, name: str) -> str:
        """Let a paused, suspended or failed stream table refresh again; its new status."""
        row = self._row(name)
        with self._workspace.lake.connection() as connection, connection.transaction():
            return registry.resume(connection, row.pgt_id).value

    def paused(self) -> frozenset[str]:
        """Stream tables that an operator has paused."""
        with self._workspace.lake.connection() as connection:
            return frozenset(str(name) for name in registry.paused(connection, self.project.name))

    def take_snapshot(self, name: str, label: str | None) -> NamedSnapshot:
        """Name the present content of a stream table, so that it can be put back."""
        return taking.take(self._workspace.lake, self._row(name), label)

    def snapshots(self, name: str | None) -> list[NamedSnapshot]:
        """Named snapshots of one stream table or of all of the project, the newest first."""
        with self._workspace.lake.connection() as connection:
            own = [row.pgt_id for row in registry.stored(connection, project=self.project.name)]
            found = named_snapshots.taken(connection, None if name is None else self._row(name).pgt_id)
        return [snapshot for snapshot in found if snapshot.pgt_id in own]

    def drop_snapshot(self, name: str, label: str) -> None:
        """Forget a named snapshot."""
        with self._workspace.lake.connection() as connection:
            named_snapshots.drop(connection, self._row(name), label)

    def prepare_restore(self, name: str, label: str | None, *, run_id: str = "") -> PreparedRefresh:
        """Compute what puts the content of a named snapshot back; `deliver` writes it.

        Args:
            name: The stream table.
            label: The snapshot; the newest when None.
            run_id: Goes into history and provenance.
        """
        request = RefreshRequest(None, None, True, run_id, InitiatedBy.MANUAL)
        refreshing = self._refreshing(name)
        opened = taking.prepare_restore(refreshing, self._row(name), label, request)
        self._open[opened.prepared.refresh_id] = refreshing, opened
        return opened.prepared

    def has_source_changes(self) -> bool:
        """Whether a source holds a change that is not in the lake; no Spark."""
        return self._workspace.capture.has_changes()

    def behind(self) -> frozenset[str]:
        """Stream tables that are not built for the present lake state of what they read; buffers do not count.

        Paused and suspended ones are not meant to be, so they are left out.
        """
        lags = self.lags()
        with self._workspace.lake.connection() as connection:
            rows = registry.stored(connection, project=self.project.name)
        held = {str(row.name) for row in rows if row.status.is_held}
        found: set[str] = set()
        for name in self.project.order:
            if name in lags or (name not in held and any(read in found for read in self.project.upstream[name])):
                found.add(name)
        return frozenset(found)

    def lags(self) -> Mapping[str, Lag]:
        """Why stream tables are behind the lake; those that are not, are held or only wait for another are left out."""
        found: dict[str, Lag] = {}
        for name in self.project.order:
            row = self._found_row(name)
            lag = lag_of(self._workspace.lake, row)
            if lag and not (row is not None and row.status.is_held):
                found[name] = lag
        return found

    def schema_changes(self) -> tuple[SchemaChange, ...]:
        """Tables that stream tables read and whose columns changed since; no Spark, nothing is adapted yet."""
        from pgtrickle_assets.refresh.schema_changes import schema_changes

        return schema_changes(self._workspace)

    def freshness(self, name: str) -> Freshness:
        """How old the content of a stream table is, against its schedule; no Spark."""
        sources: dict[str, set[TableName]] = {}
        for stream_table in self.project.closure([name]):
            for reference in self.project.references[stream_table].values():
                if reference.source is not None and reference.source_table is not None:
                    sources.setdefault(reference.source, set()).add(reference.source_table)
        waiting = self._workspace.capture.has_changes(sources)
        rows = [self._row(read) for read in self.project.closure([name])]
        return freshness(self._workspace.lake, self.project.schedules[name], rows, waiting=waiting)

    def capture(self, run_id: str) -> MirrorReport:
        """Move the change buffers of all sources into the mirrors, in one snapshot."""
        return self._workspace.capture.run(run_id)

    def head(self) -> int:
        """The newest lake snapshot."""
        return self._workspace.lake.head()

    def prepare(
        self,
        name: str,
        *,
        partitions: Sequence[str] | None = None,
        cut: int | None = None,
        full: bool = False,
        run_id: str = "",
        initiated_by: str = "MANUAL",
    ) -> PreparedRefresh:
        """Compute what has to change in a stream table; nothing of it is in the lake yet.

        Args:
            name: The stream table, `schema.table`.
            partitions: Partition keys; None for all.
            cut: Lake snapshot at which base tables are read; None for the newest consistent one.
            full: Recompute instead of moving the difference.
            run_id: Goes into history and provenance.
            initiated_by: See `control.statuses.InitiatedBy`.

        Raises:
            UpstreamNotReadyError: A stream table that it reads is not built for the cut.
            ConfigurationError: It has no such partition.
            ControlError: It is paused.
        """
        if self._row(name).status is Status.PAUSED:
            raise ControlError(f"stream table {name} is paused.", hint=f"Run `pgtrickle resume {name}`.")
        named = partitions if self._is_partitioned(name) else None
        keys = None if named is None else self.project.partition_keys(name, named)
        request = RefreshRequest(keys, cut, full, run_id, InitiatedBy(initiated_by))
        refreshing = self._refreshing(name)
        opened = refreshing.prepare(request)
        self._open[opened.prepared.refresh_id] = refreshing, opened
        return opened.prepared

    def deliver(self, prepared: PreparedRefresh) -> RefreshResult:
        """Write a prepared refresh into the lake, exactly once."""
        found = self._open.pop(prepared.refresh_id, None)
        if found is None:
            raise ControlError(
                f"refresh {prepared.refresh_id} of {prepared.stream_table} was not prepared here, or is delivered.",
                hint="Refresh the stream table again.",
            )
        refreshing, opened = found
        return refreshing.deliver(opened)

    def refresh(self, name: str, **request: Any) -> RefreshResult:
        """Prepare and deliver."""
        return self.deliver(self.prepare(name, **request))

    def check_equals_full(self, name: str) -> CheckReport:
        """Compare what is stored with the query run in full on its inputs at the frontier."""
        return verify(self._workspace.lake, self._workspace.spark, self._workspace.definition(name), self._built(name))

    def check_agrees_with_duckdb(self, name: str) -> CheckReport:
        """The same comparison with what DuckDB computes and reads; no Spark."""
        from pgtrickle_assets.refresh.duckdb_verification import DuckDBVerification

        definition, scratch = self._workspace.definition(name), self.project.home / "duckdb"
        return DuckDBVerification(self._workspace.lake, definition, self._built(name), scratch).run()

    def read(self, name: str, partitions: Sequence[str] | None = None) -> DataFrame:
        """The stored content of a lake table, or of some partitions of a stream table."""
        lake, spark = self._workspace.lake, self._workspace.spark()
        table = existing_table(lake, TableName(*name.split(".", 1)))
        columns = [column.name for column in table.columns]
        rows = read_table(spark, lake.scan(table), columns, storage_options=lake.location.storage_options)
        if partitions is None or name not in self.project.order:
            return rows
        definition = self._workspace.definition(name)
        partitioning = definition.stream_table.partitioning
        if partitioning is None:
            return rows
        from pgtrickle_assets.refresh.partition_rows import only_partitions

        return only_partitions(spark, rows, definition.plan.output, Selection(partitioning, tuple(partitions)))

    def maintain(self, *, dry_run: bool = False) -> UpkeepReport:
        """Compact the lake's tables, expire snapshots, and remove files and history that nobody needs any more.

        Args:
            dry_run: Only say what would be done.
        """
        if not dry_run:
            self.recover()
        return maintain(self._workspace.lake, self._workspace.settings, dry_run=dry_run)

    def status(self) -> list[StreamTableStatus]:
        """One line per stream table of the project."""
        lake = self._workspace.lake
        with lake.connection() as connection:
            rows = registry.stored(connection, project=self.project.name)
            cuts = {row.pgt_id: frontiers.frontiers(connection, row.pgt_id) for row in rows}
            last = {row.pgt_id: refresh_history.recent(connection, pgt_id=row.pgt_id, limit=1) for row in rows}
        tables = dict(zip((row.name for row in rows), lake.tables_named([row.name for row in rows]), strict=True))
        return [_status(row, cuts[row.pgt_id], last[row.pgt_id], _row_count(lake, tables[row.name])) for row in rows]

    def history(self, name: str | None, limit: int) -> list[dict[str, Any]]:
        """The latest refreshes, newest first."""
        with self._workspace.lake.connection() as connection:
            pgt_id = None if name is None else self._row(name).pgt_id
            rows = refresh_history.recent(connection, pgt_id=pgt_id, limit=limit)
        return [{**asdict(row), "seconds": row.phase_seconds.get("total")} for row in rows]

    def sink_status(self) -> list[dict[str, Any]]:
        """State of the deliveries by stream table."""
        with self._workspace.lake.connection() as connection:
            return [asdict(row) for row in deliveries.sink_status(connection)]

    def due_retries(self) -> tuple[DueRetry, ...]:
        """Failed deliveries of the project that may be tried again now; what dead processes left is among them."""
        self.recover()
        settings = self._workspace.settings
        with self._workspace.lake.connection() as connection:
            rows = registry.stored(connection, project=self.project.name)
            due = deliveries.due_retries(connection, dead_after_seconds=settings.delivery_dead_after_seconds)
        names = {row.pgt_id: str(row.name) for row in rows if str(row.name) in self.project.order}
        return tuple(
            DueRetry(
                names[row.stream_table_id],
                None if row.partitions is None else tuple(row.partitions),
                row.attempt_count,
                row.last_error or "",
            )
            for row in due
            if row.stream_table_id in names
        )

    def sink_counts(self) -> list[SinkCounts]:
        """How often deliveries succeeded and failed, by stream table."""
        with self._workspace.lake.connection() as connection:
            return sink_counts(connection)

    def explain(self, name: str) -> dict[str, Any]:
        """Plan, delta plan and reasons of a stream table."""
        from pgtrickle_assets.refresh.explanation import explain

        return explain(self._workspace.definition(name))

    def analyze(self, name: str) -> dict[str, Any]:
        """`explain`, with what a refresh would do now: rows and time of each step. Needs Spark; writes nothing."""
        from pgtrickle_assets.refresh.explanation import analysis

        refreshing = self._refreshing(name)
        found = analysis(refreshing.definition, refreshing.rehearse(), waiting=self.has_source_changes())
        return {**self.explain(name), "analysis": found}

    def _refreshing(self, name: str) -> Refreshing:
        workspace = self._workspace
        definition = workspace.definition(name)
        row = self._row(name)
        return Refreshing(
            workspace.lake,
            workspace.spark,
            workspace.settings,
            definition,
            row.pgt_id,
            {table: self._row(str(table)).pgt_id for table in definition.upstream},
            row.needs_reinit,
        )

    def _built(self, name: str) -> Mapping[str, frontiers.Frontier]:
        with self._workspace.lake.connection() as connection:
            return frontiers.frontiers(connection, self._row(name).pgt_id)

    def _row(self, name: str) -> registry.StreamTableRow:
        row = self._found_row(name)
        if row is None:
            raise ControlError(f"stream table {name} is not registered.", hint="Run `pgtrickle apply`.")
        return row

    def _found_row(self, name: str) -> registry.StreamTableRow | None:
        table = self.project.stream_table(name).table
        with self._workspace.lake.connection() as connection:
            return registry.find(connection, table)

    def _is_partitioned(self, name: str) -> bool:
        return self.project.stream_table(name).partitioning is not None

    def recover(self) -> Recovered:
        """Close what dead processes left open, so that it can be tried again; no Spark."""
        settings = self._workspace.settings
        dead_after, retries = settings.delivery_dead_after_seconds, settings.ducklake_sink_max_retries
        with self._workspace.lake.connection() as connection, connection.transaction():
            closed = deliveries.fail_abandoned(connection, dead_after_seconds=dead_after, max_retries=retries)
            refreshes = refresh_history.fail_abandoned(connection, dead_after_seconds=dead_after)
        recover_compactions(self._workspace.lake)
        return Recovered(tuple(row.delivery_id for row in closed), tuple(refreshes))


def _row_count(lake: Any, table: Any) -> int | None:
    return None if table is None else lake.scan(table).row_count


def _status(
    row: registry.StreamTableRow,
    cuts: Mapping[str, frontiers.Frontier],
    last: Sequence[refresh_history.RefreshRow],
    row_count: int | None,
) -> StreamTableStatus:
    whole = cuts.get(EVERY_PARTITION)
    return StreamTableStatus(
        name=row.name,
        status=str(row.status),
        refresh_mode=row.refresh_mode,
        effective_mode=row.effective_refresh_mode or "full",
        reasons=tuple((reason["code"], reason["detail"]) for reason in row.mode_reasons),
        cut=whole.cut if whole else None,
        row_count=row_count,
        last_strategy=last[0].strategy if last else None,
        last_refresh_at=row.last_refresh_at.isoformat() if row.last_refresh_at else None,
        last_error=row.last_error_message,
        partitions=max(1, len(cuts)),
    )
