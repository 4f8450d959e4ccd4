"""Connections to the catalog database: a few idle ones kept per process, with time limits, and errors in our words."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pgtrickle_assets.errors import LakeError, LakeUnavailableError
from pgtrickle_assets.services.connection_limits import LIMITS

if TYPE_CHECKING:
    from psycopg import Connection

    CatalogConnection = Connection[tuple[Any, ...]]

T = TypeVar("T")

_MAX_IDLE: Final = 4
_LOST: Final = ("08", "25P03", "25P04", "57P")
"""SQLSTATEs after which the session is gone: broken, ended by a time limit, or by a server that stops."""

_SESSION: Final = """
SET statement_timeout = '300s'; SET lock_timeout = '60s'; SET idle_in_transaction_session_timeout = '300s';
SET timezone = 'UTC'; SET datestyle = 'ISO'; SET jit = off
"""


class Connections:
    """Idle connections of one process to one catalog; safe under threads and after a fork."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._idle: list[CatalogConnection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def open(self) -> CatalogConnection:
        """A new connection.

        Raises:
            LakeUnavailableError: The database cannot be reached or refuses us.
        """
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        from pgtrickle_assets.services.bounded_connection import BoundedConnection

        try:
            given = conninfo_to_dict(self._dsn)
            given = {"application_name": "pgtrickle lake", **LIMITS, **given}
            connection = BoundedConnection.connect(**given, autocommit=True)  # pyright: ignore[reportArgumentType]
            connection.execute(_SESSION)
        except psycopg.ProgrammingError as error:
            raise LakeError("the connection string of the lake's catalog is malformed") from error
        except psycopg.OperationalError as error:
            raise LakeUnavailableError(
                f"cannot connect to the lake's catalog at {self.address()}: {first_line(error)}",
                hint="Check that PostgreSQL runs there and that user and password are right.",
            ) from error
        return connection

    def address(self) -> str:
        """Host, port and database of the catalog, without secrets."""
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        try:
            parts = conninfo_to_dict(self._dsn)
        except psycopg.ProgrammingError:
            return "(malformed connection string)"
        host = parts.get("host") or parts.get("hostaddr") or "local socket"
        return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user') or ''}"

    @contextmanager
    def checkout(self) -> Iterator[CatalogConnection]:
        """An autocommit connection; kept for reuse unless the block raises.

        Raises:
            LakeUnavailableError: The database cannot be reached, or went away in the block.
            LakeError: It refused a statement of the block.
        """
        import psycopg

        connection = self._take() or self.open()
        try:
            yield connection
        except psycopg.Error as error:
            connection.close()
            raise self.translate(error) from error
        except BaseException:
            connection.close()
            raise
        self._give(connection)

    def read(self, work: Callable[[CatalogConnection], T]) -> T:
        """Run `work` in one read-only transaction that sees one state of the catalog.

        The connection is in pipeline mode: cursors that `connection.execute` returns may be fetched later, in any
        order. A kept connection that turns out to be dead is replaced once; `work` may then run twice.

        Raises:
            LakeUnavailableError: The connection was lost or timed out.
            LakeError: The catalog is not there or must not be read.
        """
        import psycopg

        for kept in (self._take(), None):
            connection = kept or self.open()
            try:
                result = _read_only(connection, work)
            except psycopg.OperationalError as error:
                died = connection.closed
                connection.close()
                if kept is None or not died:
                    raise self.translate(error) from error
                self.close()
            except BaseException as error:
                connection.close()
                if isinstance(error, psycopg.Error):
                    raise self.translate(error) from error
                raise
            else:
                self._give(connection)
                return result
        raise AssertionError("the second attempt returns or raises")

    def fetch(self, query: bytes, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        """Rows of one query, in one round trip; repeated once when a kept connection turns out to be dead.

        Raises:
            LakeUnavailableError: The connection was lost or timed out.
            LakeError: The catalog is not there or must not be read.
        """
        import psycopg

        for last in (False, True):
            connection = None if last else self._take()
            connection = connection or self.open()
            try:
                rows = connection.execute(query, parameters).fetchall()
            except psycopg.Error as error:
                died = connection.closed
                connection.close()
                if last or not died:
                    raise self.translate(error) from error
                self.close()
            else:
                self._give(connection)
                return rows
        raise AssertionError("the second attempt returns or raises")

    def translate(self, error: Exception) -> LakeError:
        """Our error for a driver's, by SQLSTATE."""
        import psycopg

        state = getattr(error, "sqlstate", None) or ""
        if state in ("42P01", "3F000"):
            return LakeError(
                f"there is no complete lake in {self.address()}: {first_line(error)}", hint="Run `pgtrickle apply`."
            )
        if state == "42501":
            return LakeError(f"the lake's catalog denies access: {first_line(error)}", hint="Grant the role access.")
        if isinstance(error, psycopg.OperationalError) or is_lost(error):
            return LakeUnavailableError(f"the lake's catalog at {self.address()} failed: {first_line(error)}")
        return LakeError(f"the lake's catalog at {self.address()} failed: {first_line(error)}")

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
            inherited = self._pid != os.getpid()
            self._pid = os.getpid()
        for connection in idle:
            if not inherited:
                connection.close()

    def _take(self) -> CatalogConnection | None:
        if self._pid != os.getpid():
            self.close()
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not connection.closed and not _has_news(connection):
                    return connection
                connection.close()
        return None

    def _give(self, connection: CatalogConnection) -> None:
        from psycopg.pq import TransactionStatus

        with self._lock:
            usable = not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
            if usable and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()


def is_lost(error: Exception) -> bool:
    """Whether a driver's error means that its session has ended."""
    import psycopg

    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return state.startswith(_LOST) if state else isinstance(error, psycopg.OperationalError)


def _has_news(connection: CatalogConnection) -> bool:
    """Whether the server said something while the connection was idle: good-bye, as a restart does. No round trip."""
    readable, _, _ = select.select([connection.fileno()], [], [], 0)
    return bool(readable)


def _read_only(connection: CatalogConnection, work: Callable[[CatalogConnection], T]) -> T:
    with connection.pipeline():
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        result = work(connection)
    connection.execute("ROLLBACK")
    return result


def first_line(error: Exception) -> str:
    """The first line of a driver's message."""
    return (str(error).splitlines() or [type(error).__name__])[0].strip()
