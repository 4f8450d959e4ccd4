"""The refresh history: one row per refresh of a stream table, from its start to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.control.database import as_json, fetch, fetch_one, run, scalar
from pgtrickle_assets.control.owner import is_certainly_dead, this_process
from pgtrickle_assets.control.scrub import scrub
from pgtrickle_assets.control.statuses import InitiatedBy, RefreshStatus, StrategyName
from pgtrickle_assets.errors import ControlError, DeliveryOwnerLostError

if TYPE_CHECKING:
    from datetime import datetime

    from pgtrickle_assets.control.database import Handle

RESTORED = "restored"
"""Reason code of a refresh that put the content of a named snapshot back."""

ABANDONED = "The process that ran this refresh ended without finishing it."


@dataclass(frozen=True, slots=True)
class RefreshOutcome:
    """What a refresh did, as it is recorded.

    Attributes:
        strategy: What it did.
        reason: Code of the reason for that strategy.
        reason_detail: The reason in words.
        cut: Lake snapshot at which base tables were read.
        frontier: Snapshot by input, after the refresh.
        snapshot_id: Lake snapshot that holds the result; None when nothing was written.
        delta_row_count: Rows in the inputs' deltas.
        delta_rows_out: Rows in the result's delta, inserted plus deleted.
        rows_inserted: Rows that went into the stream table.
        rows_deleted: Rows that left it.
        row_count: Rows in it afterwards; None when unknown.
        bytes_written: Bytes of new files.
        files_written: New files.
        spark_jobs: Spark jobs that ran.
        phase_seconds: Duration by phase.
        was_full_fallback: A differential refresh was possible by definition, and full was done.
        data_timestamp: Point in time that the content equals; now when None.
    """

    strategy: StrategyName
    reason: str
    reason_detail: str
    cut: int
    frontier: Mapping[str, int]
    snapshot_id: int | None = None
    delta_row_count: int = 0
    delta_rows_out: int = 0
    rows_inserted: int = 0
    rows_deleted: int = 0
    row_count: int | None = None
    bytes_written: int = 0
    files_written: int = 0
    spark_jobs: int = 0
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    was_full_fallback: bool = False
    data_timestamp: datetime | None = None


@dataclass(frozen=True, slots=True)
class RefreshRow:
    """One row of the history; fields are the columns of `pgt_refresh_history` and the stream table's name."""

    refresh_id: int
    pgt_id: int
    stream_table: str
    partitions: Sequence[str] | None
    run_id: str | None
    initiated_by: str
    owner: str
    status: str
    strategy: str | None
    action: str | None
    refresh_reason: str | None
    refresh_reason_detail: str | None
    was_full_fallback: bool
    estimates: Mapping[str, Any]
    delta_row_count: int | None
    delta_rows_out: int | None
    rows_inserted: int | None
    rows_deleted: int | None
    row_count: int | None
    bytes_written: int | None
    files_written: int | None
    spark_jobs: int | None
    phase_seconds: Mapping[str, float]
    cut: int | None
    frontier: Mapping[str, int] | None
    ducklake_snapshot_id: int | None
    data_timestamp: datetime | None
    start_time: datetime
    end_time: datetime | None
    error_message: str | None


@dataclass(frozen=True, slots=True)
class PastCost:
    """Cost of one completed refresh, for choosing the next strategy."""

    strategy: str
    delta_rows: int
    seconds: float


def start(
    handle: Handle,
    pgt_id: int,
    *,
    initiated_by: InitiatedBy,
    partitions: Sequence[str] | None = None,
    run_id: str | None = None,
    cut: int | None = None,
) -> int:
    """Record that a refresh begins. Commit it at once, so that others see it run.

    Args:
        handle: Connection or cursor.
        pgt_id: Stream table.
        initiated_by: What made it run.
        partitions: Partitions asked for; None for all.
        run_id: Dagster run.
        cut: Lake snapshot at which it is asked to read base tables; while it runs, no maintenance expires that.

    Returns:
        The refresh id.
    """
    return int(
        scalar(
            handle,
            """
            INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, initiated_by, partitions, run_id, owner, cut)
            VALUES (%s, %s, %s, %s, %s, %s) RETURNING refresh_id
            """,
            (pgt_id, initiated_by, None if partitions is None else list(partitions), run_id, this_process(), cut),
        )
    )


def note_choice(
    handle: Handle, refresh_id: int, strategy: StrategyName, reason: str, detail: str, estimates: Mapping[str, Any]
) -> None:
    """Record the chosen strategy and its estimates before the work starts, so that a failed refresh shows them too."""
    _require_running(
        handle,
        refresh_id,
        run(
            handle,
            """
            UPDATE pgtrickle.pgt_refresh_history
            SET strategy = %s, refresh_reason = %s, refresh_reason_detail = %s, estimates = %s
            WHERE refresh_id = %s AND status = 'RUNNING'
            """,
            (strategy, reason, scrub(detail), as_json(dict(estimates)), refresh_id),
        ),
    )


def complete(handle: Handle, refresh_id: int, outcome: RefreshOutcome) -> None:
    """Record that a refresh is done, and bring the stream table's row up to date.

    A success ends SUSPENDED and ERROR: the cause is gone. A pause stays; an operator wanted it. So does the need of a
    rebuild after a refresh of some partitions: the others are still built by the earlier definition.

    Call it in the transaction that commits the content.

    Raises:
        ControlError: The refresh is not running (it was declared dead meanwhile).
    """
    touched = run(
        handle,
        """
        UPDATE pgtrickle.pgt_refresh_history
        SET status = 'COMPLETED', end_time = clock_timestamp(), strategy = %s, refresh_reason = %s,
            refresh_reason_detail = %s, cut = %s, frontier = %s, ducklake_snapshot_id = %s, delta_row_count = %s,
            delta_rows_out = %s, rows_inserted = %s, rows_deleted = %s, row_count = %s, bytes_written = %s,
            files_written = %s, spark_jobs = %s, phase_seconds = %s, was_full_fallback = %s,
            data_timestamp = coalesce(%s, start_time)
        WHERE refresh_id = %s AND status = 'RUNNING'
        """,
        (
            outcome.strategy,
            outcome.reason,
            scrub(outcome.reason_detail),
            outcome.cut,
            as_json(dict(outcome.frontier)),
            outcome.snapshot_id,
            outcome.delta_row_count,
            outcome.delta_rows_out,
            outcome.rows_inserted,
            outcome.rows_deleted,
            outcome.row_count,
            outcome.bytes_written,
            outcome.files_written,
            outcome.spark_jobs,
            as_json(dict(outcome.phase_seconds)),
            outcome.was_full_fallback,
            outcome.data_timestamp,
            refresh_id,
        ),
    )
    _require_running(handle, refresh_id, touched)
    run(
        handle,
        """
        UPDATE pgtrickle.pgt_stream_tables AS s
        SET is_populated = true, needs_reinit = s.needs_reinit AND h.partitions IS NOT NULL,
            last_refresh_at = h.end_time, data_timestamp = h.data_timestamp,
            consecutive_errors = 0, last_error_message = NULL, last_error_at = NULL,
            status = CASE WHEN s.status = 'PAUSED' THEN s.status ELSE 'ACTIVE' END
        FROM pgtrickle.pgt_refresh_history AS h
        WHERE h.refresh_id = %s AND s.pgt_id = h.pgt_id
        """,
        (refresh_id,),
    )


def add_phases(handle: Handle, refresh_id: int, seconds: Mapping[str, float]) -> None:
    """Add durations that are known only after the commit, such as the commit's own."""
    run(
        handle,
        "UPDATE pgtrickle.pgt_refresh_history SET phase_seconds = phase_seconds || %s WHERE refresh_id = %s",
        (as_json(dict(seconds)), refresh_id),
    )


def fail(handle: Handle, refresh_id: int, error: str, *, permanent: bool, max_consecutive_errors: int = 3) -> None:
    """Record that a refresh failed, and count it against the stream table.

    Args:
        handle: Connection or cursor.
        refresh_id: The refresh; nothing happens when it is not running any more.
        error: The error's text; secrets are taken out.
        permanent: No retry will mend it: the stream table goes to ERROR at once.
        max_consecutive_errors: So many failures in a row, of either kind, suspend the stream table.
    """
    text = scrub(error) or "unknown error"
    pgt_id = scalar(
        handle,
        """
        UPDATE pgtrickle.pgt_refresh_history
        SET status = 'FAILED', end_time = clock_timestamp(), error_message = %s
        WHERE refresh_id = %s AND status = 'RUNNING' RETURNING pgt_id
        """,
        (text, refresh_id),
    )
    if pgt_id is None:
        return
    run(
        handle,
        """
        UPDATE pgtrickle.pgt_stream_tables
        SET consecutive_errors = consecutive_errors + 1, last_error_message = %s, last_error_at = clock_timestamp(),
            status = CASE WHEN status IN ('PAUSED', 'SUSPENDED') THEN status
                          WHEN consecutive_errors + 1 >= %s THEN 'SUSPENDED'
                          WHEN %s THEN 'ERROR'
                          ELSE status END
        WHERE pgt_id = %s
        """,
        (text, max_consecutive_errors, permanent, pgt_id),
    )


def skip(handle: Handle, refresh_id: int, reason: str, detail: str) -> None:
    """Record that a refresh did nothing because it could not (an upstream failed, another refresh runs)."""
    run(
        handle,
        """
        UPDATE pgtrickle.pgt_refresh_history
        SET status = 'SKIPPED', end_time = clock_timestamp(), strategy = NULL, refresh_reason = %s,
            refresh_reason_detail = %s
        WHERE refresh_id = %s AND status = 'RUNNING'
        """,
        (reason, scrub(detail), refresh_id),
    )


def fail_abandoned(handle: Handle, *, dead_after_seconds: float) -> list[int]:
    """Mark running refreshes as failed whose process is gone.

    A process of this machine is asked for. One of another machine counts as gone when its delivery has shown no
    heartbeat for `dead_after_seconds`, or, without a delivery, when the refresh started a day before that.

    Returns:
        Their refresh ids.
    """
    open_rows = fetch(
        handle,
        _OpenRefresh,
        """
        SELECT h.refresh_id, h.owner,
               clock_timestamp() - coalesce(max(d.heartbeat_at), h.start_time + interval '1 day')
                   > make_interval(secs => %s) AS silent
        FROM pgtrickle.pgt_refresh_history AS h
        LEFT JOIN pgtrickle.pgt_ducklake_sink_delivery AS d USING (refresh_id)
        WHERE h.status = 'RUNNING'
        GROUP BY h.refresh_id
        ORDER BY h.refresh_id
        """,
        (dead_after_seconds,),
    )
    dead = [row.refresh_id for row in open_rows if row.silent or is_certainly_dead(row.owner)]
    run(
        handle,
        """
        UPDATE pgtrickle.pgt_refresh_history
        SET status = 'FAILED', end_time = clock_timestamp(), error_message = %s
        WHERE refresh_id = ANY(%s) AND status = 'RUNNING'
        """,
        (ABANDONED, dead),
    )
    return dead


def recent(handle: Handle, *, pgt_id: int | None = None, limit: int = 20) -> list[RefreshRow]:
    """The latest refreshes of one stream table, or of all, newest first."""
    return fetch(
        handle,
        RefreshRow,
        """
        SELECT h.*, s.pgt_schema || '.' || s.pgt_name AS stream_table
        FROM pgtrickle.pgt_refresh_history AS h JOIN pgtrickle.pgt_stream_tables AS s USING (pgt_id)
        WHERE %s::bigint IS NULL OR h.pgt_id = %s
        ORDER BY h.refresh_id DESC LIMIT %s
        """,
        (pgt_id, pgt_id, limit),
    )


def get(handle: Handle, refresh_id: int) -> RefreshRow | None:
    """One refresh, or None when it was pruned."""
    return fetch_one(
        handle,
        RefreshRow,
        """
        SELECT h.*, s.pgt_schema || '.' || s.pgt_name AS stream_table
        FROM pgtrickle.pgt_refresh_history AS h JOIN pgtrickle.pgt_stream_tables AS s USING (pgt_id)
        WHERE h.refresh_id = %s
        """,
        (refresh_id,),
    )


def past_costs(handle: Handle, pgt_id: int, *, limit: int = 20) -> list[PastCost]:
    """What completed refreshes of a stream table took, newest first; those that computed nothing are left out."""
    return fetch(
        handle,
        PastCost,
        """
        SELECT strategy, coalesce(delta_row_count, 0) AS delta_rows,
               coalesce((phase_seconds ->> 'total')::float8,
                        extract(epoch FROM end_time - start_time)::float8) AS seconds
        FROM pgtrickle.pgt_refresh_history
        WHERE pgt_id = %s AND status = 'COMPLETED' AND strategy <> 'no_change'
          AND refresh_reason IS DISTINCT FROM %s
        ORDER BY refresh_id DESC LIMIT %s
        """,
        (pgt_id, RESTORED, limit),
    )


_PRUNABLE: Final = """
FROM pgtrickle.pgt_refresh_history AS h
WHERE h.end_time < clock_timestamp() - make_interval(days => %s)
  AND EXISTS (SELECT 1 FROM pgtrickle.pgt_refresh_history AS n
              WHERE n.pgt_id = h.pgt_id AND n.refresh_id > h.refresh_id)
  AND NOT EXISTS (SELECT 1 FROM pgtrickle.pgt_ducklake_sink_delivery AS d
                  WHERE d.refresh_id = h.refresh_id AND d.status IN ('PENDING', 'WRITING', 'FAILED_RETRYABLE'))
"""


def prune(handle: Handle, *, retention_days: int) -> int:
    """Remove refreshes that ended before the retention time, with their deliveries; returns how many.

    The newest refresh of each stream table stays, and so does one with a delivery that is still to be retried.
    """
    return run(handle, "DELETE " + _PRUNABLE, (retention_days,))


def prunable(handle: Handle, *, retention_days: int) -> int:
    """How many refreshes `prune` would remove."""
    return int(scalar(handle, "SELECT count(*) " + _PRUNABLE, (retention_days,)))


@dataclass(frozen=True, slots=True)
class _OpenRefresh:
    refresh_id: int
    owner: str
    silent: bool


def _require_running(handle: Handle, refresh_id: int, touched: int) -> None:
    if touched:
        return
    row = get(handle, refresh_id)
    hint = "Refresh the stream table again."
    if row is None:
        raise ControlError(f"Refresh {refresh_id} is not in the history.", hint=hint)
    # Only its own process ends a refresh, unless another one took that for dead.
    raise DeliveryOwnerLostError(f"Refresh {refresh_id} is {row.status}, not {RefreshStatus.RUNNING}.", hint=hint)
