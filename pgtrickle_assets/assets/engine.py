"""What the Dagster side asks of the refresh engine.

`pgtrickle_assets.refresh` knows nothing of Dagster; this protocol is all that assets, sensors and the command line use
of it. None of the methods needs Spark unless it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pgtrickle_assets.control.sink_counts import SinkCounts
    from pgtrickle_assets.control.snapshots import NamedSnapshot
    from pgtrickle_assets.control.sql_definitions import SqlRequests
    from pgtrickle_assets.project import Project
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
    from pgtrickle_assets.refresh.upkeep import UpkeepReport
    from pgtrickle_assets.schema_cache import KnownSchemas


class Engine(Protocol):
    """Refreshes of one project."""

    @property
    def project(self) -> Project:
        """The project, since `sync` with what is known of its sources and with the stream tables made from SQL."""
        ...

    def sync(self) -> KnownSchemas:
        """Makes lake, control schema and capture fit the project, cheap when they do; returns what it saw."""
        ...

    def validate(self) -> KnownSchemas:
        """Plans every query on what sources and lake have now; registers and makes nothing."""
        ...

    def effect_of(self, name: str) -> Effect:
        """What registering a stream table as the project now has it would do."""
        ...

    def requests(self) -> SqlRequests:
        """What was asked for from SQL and waits."""
        ...

    def pause(self, name: str) -> None:
        """Stops the refreshes of a stream table."""
        ...

    def resume(self, name: str) -> str:
        """Lets a paused, suspended or failed stream table refresh again; its new status."""
        ...

    def paused(self) -> frozenset[str]:
        """Stream tables that an operator has paused."""
        ...

    def take_snapshot(self, name: str, label: str | None) -> NamedSnapshot:
        """Names the present content of a stream table."""
        ...

    def snapshots(self, name: str | None) -> Sequence[NamedSnapshot]:
        """Named snapshots of one stream table or of all, the newest first."""
        ...

    def drop_snapshot(self, name: str, label: str) -> None:
        """Forgets a named snapshot."""
        ...

    def prepare_restore(self, name: str, label: str | None, *, run_id: str) -> PreparedRefresh:
        """Computes what puts the content of a named snapshot back (Spark)."""
        ...

    def has_source_changes(self) -> bool:
        """Whether a change buffer of any source holds a change that is not in the lake."""
        ...

    def behind(self) -> frozenset[str]:
        """Stream tables not built for the present lake state of what they read; change buffers do not count."""
        ...

    def lags(self) -> Mapping[str, Lag]:
        """Why stream tables are behind the lake; those that are not, or are held, are left out."""
        ...

    def schema_changes(self) -> Sequence[SchemaChange]:
        """Tables that stream tables read and whose columns changed since they were built."""
        ...

    def recover(self) -> Recovered:
        """Closes what dead processes left open."""
        ...

    def freshness(self, name: str) -> Freshness:
        """How old the content of a stream table is, against its schedule."""
        ...

    def capture(self, run_id: str) -> MirrorReport:
        """Moves the change buffers of all sources into the mirrors, in one snapshot."""
        ...

    def head(self) -> int:
        """The newest lake snapshot."""
        ...

    def prepare(
        self,
        name: str,
        *,
        partitions: Sequence[str] | None,
        cut: int | None,
        full: bool,
        run_id: str,
        initiated_by: str,
    ) -> PreparedRefresh:
        """Computes the delta of a stream table (Spark); nothing of it is in the lake yet.

        `partitions` None means all of them; `cut` None lets the engine choose the newest consistent one.
        """
        ...

    def deliver(self, prepared: PreparedRefresh) -> RefreshResult:
        """Writes a prepared refresh into the lake (Spark for large ones)."""
        ...

    def check_equals_full(self, name: str) -> CheckReport:
        """Compares what is stored with the query run in full on its inputs at the frontier (Spark)."""
        ...

    def check_agrees_with_duckdb(self, name: str) -> CheckReport:
        """Compares what is stored with what DuckDB computes from the inputs at the frontier."""
        ...

    def read(self, name: str, partitions: Sequence[str] | None = None) -> DataFrame:
        """The stored content of a stream table, or of some of its partitions (Spark)."""
        ...

    def maintain(self, *, dry_run: bool = False) -> UpkeepReport:
        """Compacts the lake's tables, expires snapshots, and removes files and history that nobody needs any more."""
        ...

    def status(self) -> Sequence[StreamTableStatus]:
        """One line per stream table."""
        ...

    def due_retries(self) -> Sequence[DueRetry]:
        """Failed deliveries that may be tried again now, those that dead processes left among them."""
        ...

    def history(self, name: str | None, limit: int) -> Sequence[Mapping[str, Any]]:
        """The latest refreshes, newest first: the columns of `pgt_refresh_history`, `stream_table` and `seconds`."""
        ...

    def sink_status(self) -> Sequence[Mapping[str, Any]]:
        """State of the deliveries by stream table."""
        ...

    def sink_counts(self) -> Sequence[SinkCounts]:
        """How often deliveries succeeded and failed, by stream table."""
        ...

    def explain(self, name: str) -> Any:
        """Plan, delta plan and reasons of a stream table."""
        ...

    def analyze(self, name: str) -> Any:
        """`explain`, with rows and time of each step of the pending delta (Spark); nothing is written."""
        ...


SparkProvider = Callable[[], "SparkSession"]
OpenEngine = Callable[["Project", SparkProvider], AbstractContextManager[Engine]]


class EngineSession:
    """An engine that opens at its first use and stays open for a run.

    It also carries what the run has pinned, `cut`, and what it has delivered, `results` by stream table.

    Args:
        project: The project.
        spark: Gives the Spark session when it is needed.
        open_engine: Opens the engine.
    """

    def __init__(self, project: Project, spark: SparkProvider, open_engine: OpenEngine) -> None:
        self.project = project
        self.cut: int | None = None
        self.results: dict[str, RefreshResult] = {}
        self._spark = spark
        self._open = open_engine
        self._lock = RLock()
        self._context: AbstractContextManager[Engine] | None = None
        self._engine: Engine | None = None
        self._synced = False

    @property
    def engine(self) -> Engine:
        """The open engine."""
        with self._lock:
            if self._engine is None:
                self._context = self._open(self.project, self._spark)
                self._engine = self._context.__enter__()
            return self._engine

    def synced(self) -> Engine:
        """The open engine, with sources, lake and control schema made ready once."""
        with self._lock:
            engine = self.engine
            if not self._synced:
                seen = engine.sync()
                self.project.remember(lambda known: replace(seen, bounds={**known.bounds, **seen.bounds}))
                self._synced = True
            return engine

    def known_project(self, names: Sequence[str]) -> Project:
        """The project as it was loaded; as it is registered now where that lacks one of the names."""
        if set(names) <= set(self.project.order):
            return self.project
        return self.synced().project

    def close(self) -> None:
        """Closes the engine if it was opened; the Spark session stays, others may use it."""
        with self._lock:
            context, self._context, self._engine = self._context, None, None
            if context is not None:
                context.__exit__(None, None, None)

    @contextmanager
    def closing(self) -> Iterator[EngineSession]:
        """Closes the engine at the end."""
        try:
            yield self
        finally:
            self.close()
