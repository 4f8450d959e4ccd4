"""The values that status columns of the control schema may hold; their CHECK constraints list the same."""

from __future__ import annotations

from enum import StrEnum


class StreamTableStatus(StrEnum):
    """Life of a stream table."""

    INITIALIZING = "INITIALIZING"
    """Registered, or its query changed; not filled yet."""
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    """An operator stopped its refreshes."""
    SUSPENDED = "SUSPENDED"
    """Its refreshes failed `max_consecutive_errors` times in a row; `resume` or a refresh by name ends it."""
    ERROR = "ERROR"
    """The last refresh failed in a way that no retry mends."""

    @property
    def is_held(self) -> bool:
        """Whether sensors leave it alone."""
        return self in (StreamTableStatus.PAUSED, StreamTableStatus.SUSPENDED)


def how_to_resume(name: str) -> str:
    """What to do about a suspended stream table."""
    return f"Run `pgtrickle resume {name}` or `pgtrickle refresh {name}` after mending the cause."


class RefreshStatus(StrEnum):
    """State of one refresh."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


class InitiatedBy(StrEnum):
    """What made a refresh run."""

    SCHEDULER = "SCHEDULER"
    MANUAL = "MANUAL"
    INITIAL = "INITIAL"
    BACKFILL = "BACKFILL"
    RETRY = "RETRY"


class DeliveryStatus(StrEnum):
    """State of one delivery into the lake."""

    PENDING = "PENDING"
    """Recorded; nothing is written yet."""
    WRITING = "WRITING"
    """Files are being uploaded, or the commit is running."""
    DELIVERED = "DELIVERED"
    """In the lake; set in the transaction that made the snapshot."""
    FAILED_RETRYABLE = "FAILED_RETRYABLE"
    FAILED_PERMANENT = "FAILED_PERMANENT"


class SourceType(StrEnum):
    """What a stream table reads."""

    TABLE = "TABLE"
    """A table of a PostgreSQL source, through its mirror."""
    STREAM_TABLE = "STREAM_TABLE"
    LAKE_TABLE = "LAKE_TABLE"
    """A lake table that something else writes."""


class Origin(StrEnum):
    """Where a stream table was defined."""

    FILE = "file"
    PYTHON = "python"
    SQL = "sql"


class StrategyName(StrEnum):
    """What a refresh did."""

    NO_CHANGE = "no_change"
    DIFFERENTIAL = "differential"
    FULL = "full"
