"""Short locks on busy tables: wait a moment, let go, try again, and in the end say who is in the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pgtrickle_assets.errors import SourceBusyError

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LockPolicy:
    """How long to insist on a lock.

    Attributes:
        wait_seconds: Longest wait of one attempt; new writers queue behind it, so it is short.
        pause_seconds: Time between attempts, in which writers go on.
        total_seconds: After that the attempt fails with the name of the session that holds the lock.
    """

    wait_seconds: float = 0.5
    pause_seconds: float = 1.0
    total_seconds: float = 30.0


def in_short_transaction(
    connection: Connection, policy: LockPolicy, relids: Callable[[], list[int]], what: str, work: Callable[[], Result]
) -> Result:
    """Run `work` in a transaction whose lock waits are short, again and again until it gets its locks.

    Args:
        connection: In autocommit mode.
        policy: How long to insist.
        relids: Tables that may be locked by others, for the message.
        what: What is being attempted, for the message.
        work: All or nothing; it may run several times.

    Raises:
        SourceBusyError: Time is up; the sessions in the way are named.
    """
    import psycopg

    end = time.monotonic() + policy.total_seconds
    while True:
        try:
            with connection.transaction():
                connection.execute(
                    "SELECT set_config('lock_timeout', %s, true)", [f"{int(policy.wait_seconds * 1000)}ms"]
                )
                return work()
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            if time.monotonic() + policy.pause_seconds > end:
                holders = describe_holders(connection, relids())
                raise SourceBusyError(
                    f"{what}: no lock within {policy.total_seconds:g} s; {holders}.",
                    hint="End that session or wait for it, then try again.",
                ) from None
        time.sleep(policy.pause_seconds)


_HOLDERS = """
SELECT DISTINCT l.relation::regclass::text, a.pid, a.usename::text, a.application_name, a.state,
       extract(epoch FROM clock_timestamp() - a.xact_start)::bigint
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.granted AND l.relation = ANY (%s) AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY 6 DESC NULLS LAST LIMIT 3
"""


def describe_holders(connection: Connection, relids: list[int]) -> str:
    """Who holds locks on tables, as the end of a sentence."""
    rows = connection.execute(_HOLDERS, [relids]).fetchall()
    if not rows:
        return "the session that held it is gone by now"
    texts: list[str] = []
    for table, pid, user, application, state, seconds in rows:
        if pid is None:
            texts.append(f"{table} is locked by a prepared transaction (see pg_prepared_xacts)")
            continue
        age = "" if seconds is None else f", transaction open for {seconds} s"
        texts.append(
            f"{table} is locked by pid {pid} (user {user}, {application or 'no application name'}, {state}{age})"
        )
    return "; ".join(texts)
