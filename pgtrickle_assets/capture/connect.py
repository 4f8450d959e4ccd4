"""Connections to a source, and what a failure to get or use one means.

Nothing here reads message texts, which are translated: a failure is classified by SQLSTATE, by exception type, or by
asking the server again in a way that tells (libpq gives no SQLSTATE for a failed login).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.capture.dsn import Place, place
from pgtrickle_assets.errors import (
    PgTrickleError,
    SourceBusyError,
    SourceError,
    SourcePrivilegeError,
    SourceUnavailableError,
)
from pgtrickle_assets.services.connection_limits import CONNECT_SECONDS, LIMITS

if TYPE_CHECKING:
    import psycopg

APPLICATION = "pgtrickle capture"
MINIMUM_VERSION = 140000
_TRANSACTION_TIMEOUT_VERSION = 170000

SESSION = (
    "SET client_encoding = 'UTF8'",
    "SET TimeZone = 'UTC'",
    "SET extra_float_digits = 3",
    # A policy that would hide rows becomes an error instead of a smaller table.
    "SET row_security = off",
    "SET search_path = pg_catalog, pg_temp",
)
"""Settings under which values are read, whatever the role or the database is configured to."""


def open_connection(dsn: str, *, autocommit: bool = False) -> psycopg.Connection[Any]:
    """Log in and prepare the session.

    Raises:
        SourceUnavailableError: Nothing answers there, or not yet.
        SourceError: Login refused, no such database, or a server older than PostgreSQL 14.
    """
    import psycopg

    where = place(dsn)
    try:
        connection = psycopg.connect(dsn, autocommit=True, **_defaults(dsn))
    except psycopg.OperationalError as error:
        raise _why_not(dsn, where, error) from None
    try:
        _prepare(connection, where)
        connection.autocommit = autocommit
    except BaseException:
        connection.close()
        raise
    return connection


def _defaults(dsn: str) -> dict[str, Any]:
    from psycopg.conninfo import conninfo_to_dict

    wanted: dict[str, Any] = {"application_name": APPLICATION, **LIMITS}
    given = conninfo_to_dict(dsn)
    return {name: value for name, value in wanted.items() if name not in given}


def bulk_uri(dsn: str) -> str:
    """The same connection string for the bulk reader, which takes no separate parameters."""
    from psycopg.conninfo import make_conninfo

    return make_conninfo(dsn, **_defaults(dsn))


def _prepare(connection: psycopg.Connection[Any], where: Place) -> None:
    version = connection.info.server_version
    if version < MINIMUM_VERSION:
        raise SourceError(
            f"{where} runs PostgreSQL {version // 10000}.",
            hint="Change capture needs PostgreSQL 14 or later.",
        )
    with translated(where):
        for statement in SESSION:
            connection.execute(statement.encode())
        if version >= _TRANSACTION_TIMEOUT_VERSION:
            # A copy is one long transaction; what the server allows its applications is not meant for it.
            connection.execute("SET transaction_timeout = 0")


def _why_not(dsn: str, where: Place, error: psycopg.OperationalError) -> PgTrickleError:
    """Tell apart: nothing there, not ready, no such database, login refused."""
    import psycopg

    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return SourceUnavailableError(f"{where} did not answer within {CONNECT_SECONDS} s.", hint=_CHECK_ADDRESS)
    state = _greeting(where)
    if state == "":
        return SourceUnavailableError(
            f"{where} cannot be reached: nothing accepts connections there.", hint=_CHECK_ADDRESS
        )
    if state is not None and state[:2] in ("57", "53"):
        return SourceUnavailableError(
            f"{where} refuses connections for now (SQLSTATE {state}).", hint="It starts, stops, or has no free slot."
        )
    if state == "3D000" or _other_database_opens(dsn, where):
        return SourceError(
            f"{where}: there is no such database, or the user may not connect to it.",
            hint="Check the database name in the connection string of the source.",
        )
    return SourceError(
        f"{where}: login refused.",
        hint="Check user and password in the connection string of the source, and pg_hba.conf on the server.",
    )


_CHECK_ADDRESS = "Check host and port in the connection string of the source, and that the server runs."


def _greeting(where: Place) -> str | None:
    """SQLSTATE with which the server turns down a bare login; None when it goes on to ask; "" when nobody answers."""
    body = b"".join(
        part.encode() + b"\0"
        for part in ("user", where.user, "database", where.database, "application_name", APPLICATION)
    )
    packet = (196608).to_bytes(4, "big") + body + b"\0"
    try:
        with _socket(where) as channel:
            channel.sendall((len(packet) + 4).to_bytes(4, "big") + packet)
            answer = channel.recv(4096)
    except OSError:
        return ""
    if answer[:1] != b"E":
        return None
    fields = answer[5:].split(b"\0")
    return next((f[1:].decode("ascii", "replace") for f in fields if f[:1] == b"C"), None)


def _socket(where: Place) -> socket.socket:
    if where.host.startswith("/"):
        channel = socket.socket(socket.AF_UNIX)
        channel.settimeout(CONNECT_SECONDS)
        channel.connect(f"{where.host}/.s.PGSQL.{where.port}")
        return channel
    return socket.create_connection((where.host, where.port), timeout=CONNECT_SECONDS)


def _other_database_opens(dsn: str, where: Place) -> bool:
    import psycopg

    for name in ("postgres", "template1"):
        if name == where.database:
            continue
        try:
            psycopg.connect(dsn, dbname=name, connect_timeout=CONNECT_SECONDS).close()
        except psycopg.Error:
            continue
        return True
    return False


@contextmanager
def translated(where: object) -> Iterator[None]:
    """Turn a driver's error into one of ours, by SQLSTATE.

    Args:
        where: Names the place or the table in the message.
    """
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise from_sqlstate(error.sqlstate, where, _primary(error), broken=_is_broken(error)) from error


def _primary(error: psycopg.Error) -> str:
    return error.diag.message_primary or type(error).__name__


def _is_broken(error: psycopg.Error) -> bool:
    import psycopg

    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None


def from_sqlstate(state: str | None, where: object, detail: str, *, broken: bool = False) -> PgTrickleError:
    """The error that stands for a SQLSTATE; `broken` means the connection is gone."""
    if broken or ((state or "")[:2] in ("08", "57", "53") and state != "57014"):
        return SourceUnavailableError(f"{where}: the connection was lost or refused ({detail}).", hint="Try again.")
    if state == "42501":
        return SourcePrivilegeError(f"{where}: {detail}.", hint="Grant it to the user of the source.")
    if state in ("55P03", "57014", "40P01", "40001"):
        return SourceBusyError(f"{where}: {detail}.", hint="Try again; another session was in the way.")
    return SourceError(f"{where}: {detail} (SQLSTATE {state}).")
