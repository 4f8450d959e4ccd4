"""The rounds of one commit: lock, look, check, write, and what an error in each of them means."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from pgtrickle_assets.errors import (
    CommitStateUnknownError,
    LakeConflictError,
    LakeError,
    LakeUnavailableError,
)
from pgtrickle_assets.lake.bootstrap import lock_key
from pgtrickle_assets.lake.catalog import Lake, check_metadata
from pgtrickle_assets.lake.changes import format_changes, parse_changes
from pgtrickle_assets.lake.commit_session import (
    CommitSession,
    Head,
    HeadMovedError,
    Operation,
    PastCommit,
    run_together,
)
from pgtrickle_assets.lake.connections import is_lost

if TYPE_CHECKING:
    import psycopg
    from psycopg import Cursor

    from pgtrickle_assets.lake.connections import CatalogConnection

    Within = Callable[[Cursor[tuple[Any, ...]], int], None]

_RETRYABLE: Final = frozenset({"23505", "40001", "40P01", "55P03"})
_UNCERTAIN_SECONDS: Final = 60.0

# The functions of a select list run from left to right: the limits hold for the wait, and the clock is read after it.
_LOCK: Final = """
SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', %s, true),
  set_config('idle_in_transaction_session_timeout', %s, true), pg_advisory_xact_lock(%s, %s),
  extract(epoch FROM clock_timestamp())::float8
"""
_NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"
_STATE: Final = """
SELECT s.snapshot_id, s.schema_version, s.next_catalog_id, s.next_file_id,
  (SELECT jsonb_object_agg(m.key, m.value) FROM {c}.ducklake_metadata m WHERE m.scope IS NULL)
FROM {c}.ducklake_snapshot s ORDER BY s.snapshot_id DESC LIMIT 1
"""
_WINDOW: Final = """
SELECT s.snapshot_id, h.changes_made, h.commit_extra_info FROM {c}.ducklake_snapshot s
LEFT JOIN {c}.ducklake_snapshot_changes h ON h.snapshot_id = s.snapshot_id
WHERE s.snapshot_id > %s ORDER BY 1
"""
# Times never go back, whatever the clock does: time travel looks for the newest snapshot before a moment.
_SNAPSHOT: Final = """
INSERT INTO {c}.ducklake_snapshot
SELECT %s, greatest(clock_timestamp(), s.snapshot_time), %s, %s, %s
FROM {c}.ducklake_snapshot s WHERE s.snapshot_id = %s
"""
_CHANGES: Final = "INSERT INTO {c}.ducklake_snapshot_changes VALUES (%s, %s, %s, %s, %s)"
_FIND: Final = """
SELECT snapshot_id, commit_extra_info FROM {c}.ducklake_snapshot_changes
WHERE snapshot_id > %s AND commit_extra_info LIKE %s ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """Limits of one commit.

    Attributes:
        conflict_scope: What another writer's rows in a table that we delete from mean. `partition`: a conflict when
            they are in a partition that we touch; `table`: always, as DuckDB decides; `file`: never, only the files
            that we change must be as planned (for callers that check their own frontier).
        max_attempts: Rounds before giving up.
        patience_seconds: No round begins later than this after the first; a lock that is never granted ends there.
        lock_seconds: Longest wait for the catalog lock or a row lock in one round.
        statement_seconds: Longest run of one statement.
        first_pause: Mean pause after the first lost round in seconds; doubles each round up to `longest_pause`.
        longest_pause: See `first_pause`.
    """

    conflict_scope: Literal["partition", "table", "file"] = "partition"
    max_attempts: int = 20
    patience_seconds: float = 90.0
    lock_seconds: float = 30.0
    statement_seconds: float = 60.0
    first_pause: float = 0.02
    longest_pause: float = 1.0


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit did.

    Attributes:
        snapshot_id: The new snapshot, or the earlier one when `repeated`.
        attempts: Rounds it took.
        lock_seconds: How long the catalog lock was held in the last round.
        seconds: From the first round's start to the acknowledged COMMIT: waits for the lock and lost rounds included.
        repeated: The delivery had been committed before; nothing was written.
    """

    snapshot_id: int
    attempts: int
    lock_seconds: float
    seconds: float = 0.0
    repeated: bool = False


def find_commit(lake: Lake, key: str, value: str, *, after: int = -1) -> int | None:
    """Id of the snapshot whose `commit_extra_info` has this value under `key` (e.g. `delivery_id`), or None."""
    return lake.connections.read(lambda connection: _find(lake, connection, key, value, after))


def _find(lake: Lake, connection: CatalogConnection, key: str, value: str, after: int) -> int | None:
    pattern = "%" + value.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    for snapshot_id, text in connection.execute(lake.sql(_FIND), (after, pattern)).fetchall():
        if _info(text).get(key) == value:
            return snapshot_id
    return None


def _info(text: str | None) -> Mapping[str, object]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _pause(policy: CommitPolicy, number: int) -> float:
    mean = min(policy.first_pause * 2 ** (number - 2), policy.longest_pause)
    return mean * random.uniform(0.5, 1.5)  # noqa: S311


class Attempt:
    """One commit over its rounds."""

    def __init__(
        self,
        lake: Lake,
        base: int,
        operations: Sequence[Operation],
        audit: tuple[str, str, dict[str, object]],
        within: Within | None,
        policy: CommitPolicy,
    ) -> None:
        self._lake = lake
        self._base = base
        self._operations = operations
        self._author, self._message, self._info = audit
        self._info_text = json.dumps(self._info, default=str)
        self._within = within
        self._policy = policy
        self.stage: Literal["planning", "caller", "committing"] = "planning"
        self._lost_to = ""

    def run_all(self) -> CommitResult:
        """Rounds until one is won.

        Raises:
            LakeUnavailableError: All were lost.
        """
        started, number = time.monotonic(), 0
        while number < self._policy.max_attempts and time.monotonic() - started < self._policy.patience_seconds:
            number += 1
            if number > 1:
                time.sleep(_pause(self._policy, number))
            result = self._run(number)
            if result is not None:
                return replace(result, seconds=time.monotonic() - started)
        raise LakeUnavailableError(
            f"the race for a lake snapshot was lost {number} times; the last reason was: {self._lost_to}",
            hint="Other writers are very busy; try again later.",
        )

    def _run(self, number: int) -> CommitResult | None:
        """One round; None when it was lost and may be tried again."""
        import psycopg

        self.stage = "planning"
        for operation in self._operations:
            operation.prepare()
        with self._lake.connection() as connection:
            try:
                return self._round(connection, number)
            except HeadMovedError as error:
                self._lost_to = str(error)
                connection.rollback()
                return None
            except psycopg.Error as error:
                if not connection.closed:
                    connection.rollback()
                failure = error
        return self._after_error(failure, number)

    def _round(self, connection: CatalogConnection, number: int) -> CommitResult:
        started, repeated, session = self._prepare(connection)
        if repeated is not None:
            connection.execute("ROLLBACK")
            return CommitResult(repeated, number, 0.0, repeated=True)
        if not session.changes:
            raise ValueError("a commit must change something")
        self._write(connection, session)
        if self._within is not None:
            self.stage = "caller"
            with connection.cursor() as cursor:
                self._within(cursor, session.snapshot_id)
        self.stage = "committing"
        connection.execute("COMMIT")
        return CommitResult(session.snapshot_id, number, time.monotonic() - started)

    def _prepare(self, connection: CatalogConnection) -> tuple[float, int | None, CommitSession]:
        lake = self._lake
        session = CommitSession(connection, lake.location.catalog_schema, lake.data_path, self._base)
        session.ask("BEGIN", ())
        locked = session.ask(_LOCK, self._lock_parameters())
        state = session.ask(_STATE, ())
        window = session.ask(_WINDOW, (self._base,))
        for operation in self._operations:
            operation.read(session)
        now = session.ask(_NOW, ())
        session.send()
        started = time.monotonic() - (now.rows()[0][-1] - locked.rows()[0][-1])
        repeated = self._read_window(session, state.row(), window.rows())
        if repeated is None:
            for operation in self._operations:
                operation.stage(session)
        return started, repeated, session

    def _lock_parameters(self) -> tuple[object, ...]:
        lock, run = self._policy.lock_seconds, self._policy.statement_seconds
        limits = (f"{int(seconds * 1000)}ms" for seconds in (lock, max(run, lock), run))
        return (*limits, *lock_key(self._lake.location.catalog_schema))

    def _check_metadata(self, metadata: dict[str, str]) -> None:
        check_metadata(metadata, self._lake.location)
        if metadata.get("require_commit_message", "false").lower() == "true" and not self._message:
            raise LakeError("the lake requires a commit message", hint="Give one.")

    def _read_window(
        self, session: CommitSession, head: tuple[Any, ...] | None, rows: list[tuple[Any, ...]]
    ) -> int | None:
        if head is None:
            raise LakeError("the lake's catalog has no snapshot at all", hint="Restore it from a backup.")
        session.head = Head(*head[:4])
        self._check_metadata(head[4] or {})
        if self._base > session.head.id:
            raise LakeError(f"the commit was planned on snapshot {self._base}, but the newest is {session.head.id}")
        delivery = self._info.get("delivery_id")
        if delivery is not None:
            for snapshot_id, _, text in rows:
                if text and str(delivery) in text and _info(text).get("delivery_id") == delivery:
                    return snapshot_id
        if [row[0] for row in rows] != list(range(self._base + 1, session.head.id + 1)):
            raise LakeConflictError(
                f"snapshots after {self._base} have been expired, so what changed since the plan is unknown",
                hint="Plan again from the newest snapshot, and keep snapshots longer than the longest job.",
            )
        session.window = tuple(PastCommit(row[0], parse_changes(row[1])) for row in rows)
        return None

    def _write(self, connection: CatalogConnection, session: CommitSession) -> None:
        audit = (format_changes(session.changes), self._author, self._message, self._info_text)
        results = run_together(
            connection,
            [
                (self._lake.sql(_SNAPSHOT), (session.snapshot_id, *session.counters, session.head.id)),
                *session.statements,
                (self._lake.sql(_CHANGES), (session.snapshot_id, *audit)),
            ],
        )
        if results[0][1] != 1:
            raise LakeConflictError(f"snapshot {session.head.id} vanished during the commit", hint="Plan again.")
        session.check_written([count for _, count in results[1:-1]])

    def _after_error(self, error: psycopg.Error, number: int) -> CommitResult | None:
        state = error.sqlstate
        self._lost_to = f"{type(error).__name__} ({state or 'connection lost'})"
        if state in (_RETRYABLE - {"23505"} if self.stage == "caller" else _RETRYABLE):
            return None
        if not is_lost(error):
            raise self._lake.connections.translate(error) from error
        self._lake.connections.close()
        return self._resolve(number, error) if self.stage == "committing" else None

    def _resolve(self, number: int, cause: Exception) -> CommitResult | None:
        """Find out whether a COMMIT whose answer was lost took effect; None when it did not."""
        commit_id = str(self._info["commit_id"])
        deadline = time.monotonic() + _UNCERTAIN_SECONDS
        pause = 0.1
        while True:
            try:
                found = self._look_for(commit_id)
            except LakeUnavailableError as error:
                if time.monotonic() > deadline:
                    raise CommitStateUnknownError(
                        f"the connection was lost during COMMIT, and the catalog could not be asked: {error.message}",
                        hint="Look for the delivery in the lake's snapshots when the database is back.",
                    ) from cause
                time.sleep(pause)
                pause = min(pause * 2, 5.0)
            else:
                return None if found is None else CommitResult(found, number, 0.0)

    def _look_for(self, commit_id: str) -> int | None:
        import psycopg

        connections = self._lake.connections
        try:
            with connections.checkout() as connection, connection.transaction():
                # Once we hold the lock, the transaction in question has ended.
                connection.execute(_LOCK, self._lock_parameters())
                return _find(self._lake, connection, "commit_id", commit_id, self._base)
        except psycopg.Error as error:
            raise LakeUnavailableError(f"the lake's catalog failed: {type(error).__name__}") from error
