"""Delivering a computed refresh into the lake: serialized, retried, exactly once.

The state machine of a delivery is kept in the control schema: PENDING before anything is written, WRITING while files
are uploaded, and DELIVERED in the very transaction that makes the snapshot and moves the frontier. What fails before
that leaves the lake as it was. A failed attempt that landed after all finds its own delivery id among the snapshots.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pgtrickle_assets.errors import (
    DeliveryOwnerLostError,
    LakeConflictError,
    LakeUnavailableError,
    StaleFrontierError,
    TransientError,
)
from pgtrickle_assets.lake.commit import CommitPolicy, CommitResult, commit, find_commit
from pgtrickle_assets.refresh.spark_failures import spark_failures

if TYPE_CHECKING:
    from psycopg import Cursor

    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.lake.model import TableChange
    from pgtrickle_assets.refresh.table_write import TableWrite

T = TypeVar("T")

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
LOST_RACE_PAUSE_SECONDS: Final = 0.1
"""First pause after another writer was faster: nothing has to recover, so it is short."""

CATALOG_PATIENCE_SECONDS: Final = 60.0
"""How long a delivery waits for a catalog that went away, before it can note what happened."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who delivers what: goes into the snapshot's author, message and extra info."""

    delivery_id: str
    author: str
    message: str
    extra_info: dict[str, object]


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a delivery is tried and what is told about it.

    Attributes:
        limit: Attempts in all.
        started: Called before an attempt.
        failed: Called with the error of a failed attempt and the pause before the next; says whether there may be one.
    """

    limit: int
    started: Callable[[], None]
    failed: Callable[[Exception, float], bool]


def deliver(
    lake: Lake,
    writes: Sequence[TableWrite],
    identity: Identity,
    attempts: Attempts,
    within: Callable[[Cursor[tuple[Any, ...]], int], None],
    require_current: Callable[[], None],
) -> CommitResult | None:
    """Write files and commit, trying again after what may pass.

    Args:
        lake: The lake.
        writes: The tables that change.
        identity: Of the delivery.
        attempts: Limit and reporting.
        within: Writes frontier, history and delivery rows in the commit's transaction; checks once more there.
        require_current: Raises StaleFrontierError when the content that the writes were computed from has changed.

    Returns:
        The commit, or None when there is nothing to write.

    Raises:
        StaleFrontierError: Another run did the work.
        DeliveryOwnerLostError: This process was taken for dead.
        TransientError: Still failing after the last attempt, or the catalog was away longer than
            `CATALOG_PATIENCE_SECONDS`.
        PgTrickleError: Failed for good.
    """
    number = 0
    while True:
        number += 1
        patiently(attempts.started)
        try:
            return _attempt(lake, writes, identity, within, require_current)
        except Exception as error:
            landed = patiently(lambda: find_commit(lake, "delivery_id", identity.delivery_id))
            if landed is not None:
                return CommitResult(landed, number, 0.0, repeated=True)
            pause = pause_seconds(number, error)
            allowed = patiently(lambda error=error, pause=pause: attempts.failed(error, pause))
            # Someone else did the work, or was told to: no attempt will change that.
            passing = isinstance(error, TransientError) and not isinstance(
                error, StaleFrontierError | DeliveryOwnerLostError
            )
            if not (passing and allowed and number < attempts.limit):
                raise
        time.sleep(pause)


def patiently(work: Callable[[], T], seconds: float = CATALOG_PATIENCE_SECONDS) -> T:
    """Do something in the catalog's database, again and again while it cannot be reached.

    Args:
        work: Safe to repeat.
        seconds: Longest wait.

    Raises:
        LakeUnavailableError: It stayed away.
    """
    deadline = time.monotonic() + seconds
    number = 0
    while True:
        try:
            return work()
        except LakeUnavailableError:
            if time.monotonic() > deadline:
                raise
        number += 1
        time.sleep(min(0.1 * 2**number, 2.0) * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries


def _attempt(
    lake: Lake,
    writes: Sequence[TableWrite],
    identity: Identity,
    within: Callable[[Cursor[tuple[Any, ...]], int], None],
    require_current: Callable[[], None],
) -> CommitResult | None:
    for write in writes:
        if not write.files:
            with spark_failures(write.name):
                write.write_files(identity.delivery_id)
    changed = [write for write in writes if not write.is_empty]
    if not changed:
        return None
    base = lake.head()
    # In this order: what is current now was so at the base, and its rows can be located there.
    require_current()
    changes: list[TableChange] = []
    for write in changed:
        with spark_failures(write.name):
            changes.append(write.change(base))
    return commit(
        lake,
        base=base,
        changes=changes,
        author=identity.author,
        message=identity.message,
        extra_info={**identity.extra_info, "delivery_id": identity.delivery_id},
        within=within,
        policy=CommitPolicy(conflict_scope="file"),
    )


def pause_seconds(attempt: int, error: Exception) -> float:
    """Pause after a failed attempt: exponential, with jitter."""
    first = LOST_RACE_PAUSE_SECONDS if isinstance(error, LakeConflictError) else FIRST_PAUSE_SECONDS
    longest = min(first * 2**attempt, LONGEST_PAUSE_SECONDS)
    return random.uniform(longest / 2, longest)  # noqa: S311 - spreads retries, protects nothing
