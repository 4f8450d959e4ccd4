"""Deliveries into the lake and their state machine.

    PENDING -> WRITING -> DELIVERED
    PENDING, WRITING -> FAILED_RETRYABLE -> WRITING (the same refresh) or PENDING (a later one takes it up)
    PENDING, WRITING, FAILED_RETRYABLE -> FAILED_PERMANENT

Every step names its owner; a process that was declared dead can take none, so that it cannot commit what somebody else
is doing again. `deliver` runs in the transaction that makes the lake snapshot; the others are committed at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString

from pgtrickle_assets.control.database import fetch, fetch_one, run
from pgtrickle_assets.control.owner import is_certainly_dead, this_process
from pgtrickle_assets.control.scrub import scrub
from pgtrickle_assets.control.statuses import DeliveryStatus
from pgtrickle_assets.errors import ControlError, DeliveryOwnerLostError

if TYPE_CHECKING:
    from datetime import datetime

    from pgtrickle_assets.control.database import Handle

TRANSITIONS: Final[Mapping[DeliveryStatus, frozenset[DeliveryStatus]]] = {
    DeliveryStatus.PENDING: frozenset(
        {DeliveryStatus.WRITING, DeliveryStatus.FAILED_RETRYABLE, DeliveryStatus.FAILED_PERMANENT}
    ),
    DeliveryStatus.WRITING: frozenset(
        {DeliveryStatus.DELIVERED, DeliveryStatus.FAILED_RETRYABLE, DeliveryStatus.FAILED_PERMANENT}
    ),
    DeliveryStatus.FAILED_RETRYABLE: frozenset(
        {DeliveryStatus.PENDING, DeliveryStatus.WRITING, DeliveryStatus.FAILED_PERMANENT}
    ),
    DeliveryStatus.DELIVERED: frozenset(),
    DeliveryStatus.FAILED_PERMANENT: frozenset(),
}
"""From each status, the ones that may follow."""

OPEN: Final = (DeliveryStatus.PENDING, DeliveryStatus.WRITING)
"""Statuses of a delivery that some process is working on."""

ABANDONED: Final = "The process that delivered ended without finishing."

_NOBODY: Final = "nobody, was "
_FIRST_PAUSE_SECONDS: Final = 5.0
_LONGEST_PAUSE_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery; fields are the columns of `pgt_ducklake_sink_delivery`.

    Attributes:
        delivery_id: Identity that the names of its files carry.
        stream_table_id: `pgt_id` of the stream table.
        partitions: Partitions it covers; None for all.
        refresh_id: Refresh whose result it delivers.
        status: See the module.
        attempt_count: Attempts begun so far.
        bytes_written: Bytes of its new files, when delivered.
        rows_written: Rows inserted plus rows deleted, when delivered.
        ducklake_snapshot_id: Lake snapshot it made; None when there was nothing to write.
        owner: Process that works on it, or did last.
        heartbeat_at: When the owner showed life last.
        retry_at: When it may be tried again; for retryable ones only.
        started_at: When it was recorded.
        finished_at: When it was delivered or given up.
        last_error: Why the last failed attempt failed.
        superseded_by: Later delivery that wrote what this one could not.
    """

    delivery_id: str
    stream_table_id: int
    partitions: Sequence[str] | None
    refresh_id: int | None
    status: DeliveryStatus
    attempt_count: int
    bytes_written: int | None
    rows_written: int | None
    ducklake_snapshot_id: int | None
    owner: str
    heartbeat_at: datetime
    retry_at: datetime | None
    started_at: datetime
    finished_at: datetime | None
    last_error: str | None
    superseded_by: str | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", DeliveryStatus(self.status))


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """One line of `pgtrickle.ducklake_sink_status()`; `failed_attempts` is of the last delivery."""

    stream_table_name: str
    last_delivery_status: str | None
    last_delivery_at: datetime | None
    last_bytes_written: int | None
    last_rows_written: int | None
    failed_attempts: int
    last_error: str | None


def create(handle: Handle, pgt_id: int, *, refresh_id: int, partitions: Sequence[str] | None) -> Delivery:
    """Record a delivery before anything is written.

    A failed delivery of the same partitions that may be retried is taken up again: its attempts count on. Without this,
    `ducklake_sink_max_retries` would start anew with every run.

    Args:
        handle: Connection or cursor; commit afterwards.
        pgt_id: Stream table.
        refresh_id: Refresh whose result is delivered.
        partitions: Partitions it covers; None for all.

    Returns:
        The delivery, PENDING, with the attempts it had.
    """
    wanted = None if partitions is None else sorted(partitions)
    taken = fetch_one(
        handle,
        Delivery,
        """
        UPDATE pgtrickle.pgt_ducklake_sink_delivery AS d
        SET status = 'PENDING', owner = %s, refresh_id = %s, heartbeat_at = clock_timestamp(), retry_at = NULL
        WHERE d.delivery_id = (
            SELECT delivery_id FROM pgtrickle.pgt_ducklake_sink_delivery
            WHERE stream_table_id = %s AND status = 'FAILED_RETRYABLE' AND partitions IS NOT DISTINCT FROM %s::text[]
            ORDER BY started_at LIMIT 1 FOR UPDATE SKIP LOCKED
        )
        RETURNING d.*
        """,
        (this_process(), refresh_id, pgt_id, wanted),
    )
    if taken is not None:
        return taken
    delivery_id = str(uuid.uuid4())
    run(
        handle,
        """
        INSERT INTO pgtrickle.pgt_ducklake_sink_delivery (delivery_id, stream_table_id, partitions, refresh_id, owner)
        VALUES (%s, %s, %s, %s, %s)
        """,
        (delivery_id, pgt_id, wanted, refresh_id, this_process()),
    )
    return _require(handle, delivery_id)


def begin_attempt(handle: Handle, delivery_id: str) -> int:
    """Go to WRITING and count the attempt; returns its number, from 1.

    Raises:
        ControlError: The delivery's status does not allow it.
        DeliveryOwnerLostError: Another process has taken it over.
    """
    _move(
        handle,
        delivery_id,
        DeliveryStatus.WRITING,
        """
        UPDATE pgtrickle.pgt_ducklake_sink_delivery
        SET status = 'WRITING', attempt_count = attempt_count + 1, retry_at = NULL, heartbeat_at = clock_timestamp()
        WHERE delivery_id = %s AND owner = %s AND status = ANY(%s)
        """,
        (),
    )
    return _require(handle, delivery_id).attempt_count


def heartbeat(handle: Handle, delivery_id: str) -> bool:
    """Show that the owner lives; returns False when the delivery is not its own any more."""
    touched = run(
        handle,
        """
        UPDATE pgtrickle.pgt_ducklake_sink_delivery SET heartbeat_at = clock_timestamp()
        WHERE delivery_id = %s AND owner = %s AND status IN ('PENDING', 'WRITING')
        """,
        (delivery_id, this_process()),
    )
    return touched == 1


def deliver(
    handle: Handle, delivery_id: str, *, snapshot_id: int | None, bytes_written: int, rows_written: int
) -> None:
    """Go to DELIVERED, in the transaction that makes the lake snapshot.

    Failed deliveries of the same stream table that this one covers are closed with it.

    Args:
        handle: Connection or cursor in that transaction.
        delivery_id: The delivery.
        snapshot_id: The new lake snapshot; None when there was nothing to write.
        bytes_written: Bytes of new files.
        rows_written: Rows inserted plus rows deleted.

    Raises:
        ControlError: The delivery's status does not allow it.
        DeliveryOwnerLostError: Another process has taken it over; the transaction must not commit.
    """
    _move(
        handle,
        delivery_id,
        DeliveryStatus.DELIVERED,
        """
        UPDATE pgtrickle.pgt_ducklake_sink_delivery
        SET ducklake_snapshot_id = %s, bytes_written = %s, rows_written = %s, status = 'DELIVERED',
            finished_at = clock_timestamp(), heartbeat_at = clock_timestamp()
        WHERE delivery_id = %s AND owner = %s AND status = ANY(%s)
        """,
        (snapshot_id, bytes_written, rows_written),
    )
    run(
        handle,
        """
        UPDATE pgtrickle.pgt_ducklake_sink_delivery AS old
        SET status = 'FAILED_PERMANENT', retry_at = NULL, finished_at = clock_timestamp(),
            superseded_by = new.delivery_id
        FROM pgtrickle.pgt_ducklake_sink_delivery AS new
        WHERE new.delivery_id = %s AND old.stream_table_id = new.stream_table_id AND old.delivery_id <> new.delivery_id
          AND old.status = 'FAILED_RETRYABLE' AND (new.partitions IS NULL OR old.partitions <@ new.partitions)
        """,
        (delivery_id,),
    )


def fail(
    handle: Handle, delivery_id: str, error: str, *, retryable: bool, max_retries: int, retry_after_seconds: float = 0.0
) -> DeliveryStatus:
    """Record a failed attempt.

    Args:
        handle: Connection or cursor; commit afterwards.
        delivery_id: The delivery.
        error: The error's text; secrets are taken out.
        retryable: Whether trying again can help.
        max_retries: Retries after the first attempt; after them the delivery is given up.
        retry_after_seconds: Pause before the next attempt.

    Returns:
        FAILED_RETRYABLE or FAILED_PERMANENT.

    Raises:
        ControlError: The delivery's status does not allow it (it was delivered after all).
        DeliveryOwnerLostError: Another process has taken it over.
    """
    attempts = _require(handle, delivery_id).attempt_count
    status = (
        DeliveryStatus.FAILED_RETRYABLE if retryable and attempts <= max_retries else DeliveryStatus.FAILED_PERMANENT
    )
    _move(
        handle,
        delivery_id,
        status,
        """
        UPDATE pgtrickle.pgt_ducklake_sink_delivery
        SET status = %s, last_error = %s,
            retry_at = CASE WHEN %s THEN clock_timestamp() + make_interval(secs => %s) END,
            finished_at = CASE WHEN %s THEN NULL ELSE clock_timestamp() END
        WHERE delivery_id = %s AND owner = %s AND status = ANY(%s)
        """,
        (
            status,
            scrub(error) or "unknown error",
            status is DeliveryStatus.FAILED_RETRYABLE,
            retry_after_seconds,
            status is DeliveryStatus.FAILED_RETRYABLE,
        ),
    )
    return status


def supersede(handle: Handle, delivery_id: str, reason: str) -> None:
    """Close a delivery whose content another one has written meanwhile: it is given up, and counts as no failure.

    Args:
        handle: Connection or cursor; commit afterwards.
        delivery_id: The delivery.
        reason: What happened.

    Raises:
        ControlError: The delivery's status does not allow it.
        DeliveryOwnerLostError: Another process has taken it over.
    """
    _move(
        handle,
        delivery_id,
        DeliveryStatus.FAILED_PERMANENT,
        """
        UPDATE pgtrickle.pgt_ducklake_sink_delivery AS old
        SET status = 'FAILED_PERMANENT', last_error = %s, finished_at = clock_timestamp(), retry_at = NULL,
            superseded_by = (
                SELECT delivery_id FROM pgtrickle.pgt_ducklake_sink_delivery AS new
                WHERE new.stream_table_id = old.stream_table_id AND new.status = 'DELIVERED'
                ORDER BY finished_at DESC LIMIT 1
            )
        WHERE delivery_id = %s AND owner = %s AND status = ANY(%s)
        """,
        (scrub(reason),),
    )


def fail_abandoned(handle: Handle, *, dead_after_seconds: float, max_retries: int) -> list[Delivery]:
    """Make deliveries of dead processes retryable, or give them up when their retries are used.

    Args:
        handle: Connection or cursor; commit afterwards.
        dead_after_seconds: A process on another machine counts as dead after so long without a heartbeat; one on this
            machine is looked for.
        max_retries: As for `fail`.

    Returns:
        The deliveries, as they are now; their uploaded files belong to nobody.
    """
    candidates = fetch(
        handle,
        _Candidate,
        """
        SELECT delivery_id, owner, clock_timestamp() - heartbeat_at > make_interval(secs => %s) AS silent
        FROM pgtrickle.pgt_ducklake_sink_delivery
        WHERE status IN ('PENDING', 'WRITING')
        ORDER BY started_at
        FOR UPDATE SKIP LOCKED
        """,
        (dead_after_seconds,),
    )
    dead = [row.delivery_id for row in candidates if row.silent or is_certainly_dead(row.owner)]
    # The owner changes with the status: should the old process live after all, none of its steps is taken any more.
    return fetch(
        handle,
        Delivery,
        """
        UPDATE pgtrickle.pgt_ducklake_sink_delivery AS d
        SET status = CASE WHEN counted.attempts <= %s THEN 'FAILED_RETRYABLE' ELSE 'FAILED_PERMANENT' END,
            retry_at = CASE WHEN counted.attempts <= %s THEN clock_timestamp()
                + make_interval(secs => least(%s * 2.0 ^ counted.attempts, %s) * (0.5 + random() / 2)) END,
            finished_at = CASE WHEN counted.attempts <= %s THEN NULL ELSE clock_timestamp() END,
            attempt_count = counted.attempts, last_error = %s, owner = %s || owner
        FROM (
            -- Dying before an attempt counts as one: it must not go on for ever.
            SELECT delivery_id AS id, attempt_count + (status = 'PENDING')::int AS attempts
            FROM pgtrickle.pgt_ducklake_sink_delivery
        ) AS counted
        WHERE d.delivery_id = counted.id AND d.delivery_id = ANY(%s)
        RETURNING d.*
        """,
        (
            max_retries, max_retries, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS,
            max_retries, ABANDONED, _NOBODY, dead,
        ),
    )  # fmt: skip


def due_retries(handle: Handle, *, dead_after_seconds: float) -> list[Delivery]:
    """Deliveries that may be tried again now and that nobody works on, oldest first.

    Args:
        handle: Connection or cursor.
        dead_after_seconds: As for `fail_abandoned`; a live process that waits for its own next attempt keeps its
            delivery.
    """
    due = fetch(
        handle,
        Delivery,
        """
        SELECT d.* FROM pgtrickle.pgt_ducklake_sink_delivery AS d
        WHERE status = 'FAILED_RETRYABLE' AND retry_at <= clock_timestamp()
        ORDER BY retry_at, delivery_id
        """,
    )
    silent = fetch(
        handle,
        _Id,
        """
        SELECT delivery_id FROM pgtrickle.pgt_ducklake_sink_delivery
        WHERE status = 'FAILED_RETRYABLE' AND clock_timestamp() - heartbeat_at > make_interval(secs => %s)
        """,
        (dead_after_seconds,),
    )
    given_away = {row.delivery_id for row in silent}
    return [
        row
        for row in due
        if row.owner.startswith(_NOBODY) or row.delivery_id in given_away or is_certainly_dead(row.owner)
    ]


def get(handle: Handle, delivery_id: str) -> Delivery | None:
    """One delivery, or None."""
    return fetch_one(
        handle,
        Delivery,
        "SELECT d.* FROM pgtrickle.pgt_ducklake_sink_delivery AS d WHERE delivery_id = %s",
        (delivery_id,),
    )


def recent(handle: Handle, pgt_id: int, *, limit: int = 20) -> list[Delivery]:
    """The latest deliveries of a stream table, newest first."""
    return fetch(
        handle,
        Delivery,
        """
        SELECT d.* FROM pgtrickle.pgt_ducklake_sink_delivery AS d
        WHERE stream_table_id = %s ORDER BY started_at DESC, delivery_id DESC LIMIT %s
        """,
        (pgt_id, limit),
    )


def protected_ids(handle: Handle) -> frozenset[str]:
    """Ids of deliveries whose files may still be committed; orphan removal leaves them alone."""
    found = fetch(
        handle,
        _Id,
        "SELECT delivery_id FROM pgtrickle.pgt_ducklake_sink_delivery WHERE status IN ('PENDING', 'WRITING')",
    )
    return frozenset(row.delivery_id for row in found)


def sink_status(handle: Handle) -> list[SinkStatus]:
    """State of the last delivery of every stream table."""
    return fetch(handle, SinkStatus, "SELECT * FROM pgtrickle.ducklake_sink_status()")


def sources_of(status: DeliveryStatus) -> frozenset[DeliveryStatus]:
    """Statuses from which `status` may be reached."""
    return frozenset(before for before, after in TRANSITIONS.items() if status in after)


@dataclass(frozen=True, slots=True)
class _Candidate:
    delivery_id: str
    owner: str
    silent: bool


@dataclass(frozen=True, slots=True)
class _Id:
    delivery_id: str


def _move(
    handle: Handle, delivery_id: str, status: DeliveryStatus, query: LiteralString, parameters: Sequence[object]
) -> None:
    allowed: Collection[DeliveryStatus] = sources_of(status)
    touched = run(handle, query, (*parameters, delivery_id, this_process(), sorted(allowed)))
    if touched == 1:
        return
    stored = _require(handle, delivery_id)
    if stored.owner != this_process():
        raise DeliveryOwnerLostError(
            f"Delivery {delivery_id} was taken over by another process.",
            hint="That process finishes it; nothing was written here.",
        )
    raise ControlError(f"Delivery {delivery_id} cannot go from {stored.status} to {status}.")


def _require(handle: Handle, delivery_id: str) -> Delivery:
    found = get(handle, delivery_id)
    if found is None:
        raise ControlError(f"Delivery {delivery_id} is not recorded.", hint="Its stream table may have been dropped.")
    return found
