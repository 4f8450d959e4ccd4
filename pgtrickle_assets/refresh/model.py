"""What a refresh is asked for, what it found and what it did, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from pgtrickle_assets.query.types import TableName


class Strategy(Enum):
    """What a refresh did (design, section 2)."""

    NO_CHANGE = "no_change"
    DIFFERENTIAL = "differential"
    FULL = "full"


class Effect(Enum):
    """What a new definition does to the table of a stream table."""

    CREATED = "created"
    UNCHANGED = "unchanged"
    """The content stays right."""
    RECOMPUTED = "recomputed"
    """The table stays; the next refresh recomputes it and writes the difference."""
    REBUILT = "rebuilt"
    """Its columns or partitions changed: the table is made anew and filled by the next refresh."""


@dataclass(frozen=True, slots=True)
class TableDelta:
    """Rows that go into or out of one lake table.

    Attributes:
        table: The lake table.
        rows: A Z-set over the table's columns and the weight column: Arrow when it is known to be small, else a
            Spark frame that has not run yet.
        inserts_only: Known to hold no row that goes.
    """

    table: TableName
    rows: pa.Table | DataFrame
    inserts_only: bool = False


@dataclass(frozen=True, slots=True)
class InputWindow:
    """The part of an input's history that one refresh moves over: (since, until]."""

    relation: str
    since: int | None
    until: int


@dataclass(frozen=True, slots=True)
class PreparedRefresh:
    """A computed refresh; nothing of it is in the lake yet.

    Attributes:
        stream_table: The stream table's name.
        refresh_id: Row in the refresh history.
        run_id: Identity of the Dagster run, or of the process for a direct call.
        strategy: What was chosen.
        reason_code: Code of the reason for the choice.
        reason: The reason in words.
        cut: Lake snapshot at which base tables were read.
        windows: What each input moved over.
        partitions: Partition keys asked for, or None for all.
        expected_frontier: Frontier the plan was made from; the commit stops when it moved.
        outputs: Deltas of the result and of the state tables.
        delta_in: Rows in the inputs' deltas.
        statements: SQL sent to Spark, by step.
        seconds: Duration by phase.
        jobs: Spark jobs started so far.
        started_at: `time.monotonic()` at the start.
        data_timestamp: Point in time that the content will equal; that of the start when None.
    """

    stream_table: TableName
    refresh_id: int
    run_id: str
    strategy: Strategy
    reason_code: str
    reason: str
    cut: int
    windows: tuple[InputWindow, ...]
    partitions: tuple[str, ...] | None
    outputs: tuple[TableDelta, ...]
    delta_in: int
    statements: tuple[tuple[str, str], ...]
    seconds: Mapping[str, float]
    jobs: int
    started_at: float
    data_timestamp: datetime | None = None


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """What a refresh did; `seconds` has the phases and `total`."""

    stream_table: TableName
    strategy: Strategy
    reason_code: str
    reason: str
    delta_in: int
    delta_out: int
    rows_inserted: int
    rows_deleted: int
    bytes_written: int
    files_written: int
    snapshot: int | None
    cut: int
    frontier: Mapping[str, int]
    row_count: int
    touched_partitions: tuple[str, ...]
    partition_rows: Mapping[str, int]
    statements: tuple[tuple[str, str], ...]
    seconds: Mapping[str, float]
    jobs: int
    refresh_id: int
    delivery_status: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DueRetry:
    """A delivery that failed for a reason that can pass and that may be tried again now; `partitions` None: all."""

    stream_table: str
    partitions: tuple[str, ...] | None
    attempts: int
    last_error: str


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """One capture batch: rows that went into and out of each mirror, and the cut that readers may use."""

    cut: int
    snapshot: int | None
    changes: Mapping[TableName, tuple[int, int]]
    seconds: float


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Result of comparing stored content with a recompute at the same snapshots.

    `differences` has up to twenty rows: the values as text and the surplus (+) or missing (-) count in the stored
    table. `recompute_seconds` is what the recompute alone took, None where it ran in one job with the comparison.
    """

    stream_table: TableName
    check: str
    passed: bool
    stored_rows: int
    expected_rows: int
    surplus_rows: int
    missing_rows: int
    columns: tuple[str, ...]
    differences: tuple[tuple[tuple[str | None, ...], int], ...]
    snapshot: int
    seconds: float
    detail: str = ""
    recompute_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """Why a stream table is behind the lake.

    Attributes:
        unfilled: It was never filled, its definition changed, or not all of its partitions are built to one point.
        moved: Inputs that changed since its frontier, or whose state at the frontier is gone.
    """

    unfilled: bool = False
    moved: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether it is behind at all."""
        return self.unfilled or bool(self.moved)


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old the content of a stream table is.

    Attributes:
        fresh: It holds everything there is, or is not older than it may be.
        age_seconds: Since when something newer is there to be read; 0 when nothing is.
        allowed_seconds: How old it may be; None for a schedule that allows any age.
        cut: Lake snapshot at which it was built; None before its first fill.
        detail: The verdict in words.
    """

    fresh: bool
    age_seconds: float
    allowed_seconds: float | None
    cut: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A table whose columns are no longer those that stream tables were built on.

    Attributes:
        source: Name of the PostgreSQL source; empty for a lake table.
        table: The table there.
        lake_table: What stream tables read: the mirror, or the lake table itself.
        added: Columns that are new.
        dropped: Columns that are gone.
        retyped: Columns with another type: name, old and new type.
        readers: Stream tables that read it.
        broken: Those of them whose query no longer works, with the reason.
    """

    source: str
    table: TableName
    lake_table: TableName
    added: tuple[str, ...]
    dropped: tuple[str, ...]
    retyped: tuple[tuple[str, str, str], ...]
    readers: tuple[str, ...]
    broken: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What dead processes had left open and what was closed now: ids of deliveries and of refreshes."""

    deliveries: tuple[str, ...] = ()
    refreshes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamTableStatus:
    """A line of `pgtrickle status`."""

    name: TableName
    status: str
    refresh_mode: str
    effective_mode: str
    reasons: tuple[tuple[str, str], ...]
    cut: int | None
    row_count: int | None
    last_strategy: str | None
    last_refresh_at: str | None
    last_error: str | None
    partitions: int = 1
    notes: tuple[str, ...] = field(default_factory=tuple)
