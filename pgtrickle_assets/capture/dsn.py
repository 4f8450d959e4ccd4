"""Where a source is and as whom to log in, without letting the password out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pgtrickle_assets.errors import ConfigurationError

DsnProvider = Callable[[], str]
"""Yields a libpq connection string; picklable, so that an executor can log in by itself."""


@dataclass(frozen=True, slots=True)
class FixedDsn:
    """A connection string that never shows in a log: its representation hides it."""

    dsn: str = field(repr=False)

    def __call__(self) -> str:
        """The connection string."""
        return self.dsn


@dataclass(frozen=True, slots=True)
class Place:
    """Where a connection string leads, fit for messages."""

    host: str
    port: int
    database: str
    user: str

    def __str__(self) -> str:
        return f"database {self.database!r} on {self.host}:{self.port} as user {self.user!r}"


def place(dsn: str) -> Place:
    """The address in a connection string, with libpq's defaults and environment filled in.

    Raises:
        ConfigurationError: The text is no connection string (it is not repeated: it may hold a password).
    """
    import psycopg
    from psycopg import pq
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise _unreadable() from None
    defaults = {o.keyword.decode(): o.val.decode() for o in pq.Conninfo.get_defaults() if o.val is not None}
    merged = {**defaults, **{name: str(value) for name, value in given.items() if value not in (None, "")}}
    user = merged.get("user") or "?"
    host = merged.get("host") or merged.get("hostaddr") or "local socket"
    port = merged.get("port", "5432").split(",")[0]
    if not port.isdigit():
        raise _unreadable()
    return Place(host.split(",")[0], int(port), merged.get("dbname") or user, user)


def _unreadable() -> ConfigurationError:
    return ConfigurationError(
        "the connection string of a source cannot be read.",
        hint="Write it as postgresql://user:password@host:port/database, special characters percent-encoded.",
    )
