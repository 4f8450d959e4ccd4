"""Ordered, versioned changes of the control schema.

Each migration is a file `sql/NNNN_name.sql`, applied with its record in one transaction. The version in
`pgt_schema_version` is the file's number. Files are never changed once released; a new one is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.errors import ControlError

if TYPE_CHECKING:
    from psycopg import Connection

# Any fixed number that no one else locks: the first bytes of "pgtrickle" in ASCII.
_LOCK_KEY = 0x7067747269636B6C
_LOCK_SECONDS = 60

_VERSION_TABLE = """
CREATE TABLE IF NOT EXISTS pgtrickle.pgt_schema_version (
    version text PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    description text NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema.

    Attributes:
        version: Number with leading zeros; versions sort as text.
        description: What the step adds.
        sql: Its statements.
    """

    version: str
    description: str
    sql: str


def migrations() -> tuple[Migration, ...]:
    """All steps of this version of the product, in order."""
    folder = files("pgtrickle_assets.control").joinpath("sql")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(_read(name, folder.joinpath(name).read_text(encoding="utf-8")) for name in names)


def migrate(dsn: str, *, steps: Sequence[Migration] | None = None) -> tuple[str, ...]:
    """Bring the control schema of a catalog database to this version of the product.

    Safe to call at every start and from many processes at once: it takes a lock only when there is something to do.

    Args:
        dsn: Catalog database.
        steps: Steps to apply; all known ones when None.

    Returns:
        Versions applied by this call, in order.

    Raises:
        ControlError: The schema is newer than this version, or the user may not create it.
        psycopg.Error: The database cannot be reached.
    """
    import psycopg

    known = migrations() if steps is None else tuple(steps)
    with psycopg.connect(dsn) as connection:
        is_current = not _pending(_applied(connection), known)
        connection.rollback()
        if is_current and _recorded_product(connection) == _product():
            return ()
        connection.rollback()
        try:
            return _apply(connection, known)
        except psycopg.errors.InsufficientPrivilege as error:
            raise ControlError(
                f"User {connection.info.user} may not create the schema pgtrickle in database "
                f"{connection.info.dbname}.",
                hint="Grant CREATE on the database, or let an administrator run `pgtrickle migrate`.",
            ) from error
        except psycopg.errors.LockNotAvailable as error:
            raise ControlError(
                f"Another process has been changing the schema pgtrickle for {_LOCK_SECONDS} s.",
                hint="Wait for it, or look for an idle transaction in pg_stat_activity.",
            ) from error


def schema_version(connection: Connection[Any]) -> str | None:
    """Newest applied version, or None when the schema is not installed."""
    applied = _applied(connection)
    return max(applied) if applied else None


def pending(connection: Connection[Any]) -> tuple[Migration, ...]:
    """Steps that `migrate` would apply, in order.

    Raises:
        ControlError: The schema is newer than this version.
    """
    return tuple(_pending(_applied(connection), migrations()))


def require_current(connection: Connection[Any]) -> None:
    """Check that the schema fits this version of the product, without changing anything.

    Raises:
        ControlError: It is missing, older or newer.
    """
    missing = pending(connection)
    if missing:
        raise ControlError(
            f"The control schema in database {connection.info.dbname} lacks the version {missing[0].version}.",
            hint="Run `pgtrickle migrate`.",
        )


def _apply(connection: Connection[Any], known: Sequence[Migration]) -> tuple[str, ...]:
    with connection.transaction():
        connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{_LOCK_SECONDS}s",))
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))
        # IF NOT EXISTS would ask for the right to create it even where an administrator has made it for us.
        # Asked of the catalog: to_regnamespace() may answer from before the lock was waited for.
        if connection.execute("SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'pgtrickle'").fetchone() is None:
            connection.execute("CREATE SCHEMA pgtrickle")
        connection.execute(_VERSION_TABLE)
        # Read again under the lock: another process may have done it meanwhile.
        missing = _pending(_applied(connection), known)
        for step in missing:
            connection.execute(step.sql.encode())
            connection.execute(
                "INSERT INTO pgtrickle.pgt_schema_version (version, description) VALUES (%s, %s)",
                (step.version, step.description),
            )
        _record_product(connection)
    return tuple(step.version for step in missing)


def _pending(applied: frozenset[str], known: Sequence[Migration]) -> list[Migration]:
    unknown = applied - {step.version for step in known}
    if unknown:
        raise ControlError(
            f"The control schema has version {max(unknown)}; this pgtrickle ({_product()}) knows versions up to "
            f"{known[-1].version if known else 'none'}.",
            hint="Upgrade pgtrickle on this machine; an older one would damage what the newer one wrote.",
        )
    return [step for step in known if step.version not in applied]


def _applied(connection: Connection[Any]) -> frozenset[str]:
    if connection.execute("SELECT to_regclass('pgtrickle.pgt_schema_version')").fetchone() == (None,):
        return frozenset()
    rows = connection.execute("SELECT version FROM pgtrickle.pgt_schema_version").fetchall()
    return frozenset(str(row[0]) for row in rows)


def _recorded_product(connection: Connection[Any]) -> str | None:
    if connection.execute("SELECT to_regprocedure('pgtrickle.version()')").fetchone() == (None,):
        return None
    row = connection.execute("SELECT pgtrickle.version()").fetchone()
    return None if row is None else str(row[0])


def _record_product(connection: Connection[Any]) -> None:
    from psycopg import sql

    connection.execute(
        sql.SQL("CREATE OR REPLACE FUNCTION pgtrickle.version() RETURNS text LANGUAGE sql IMMUTABLE AS {}").format(
            sql.Literal(f"SELECT '{_product()}'::text")
        )
    )


def _product() -> str:
    return version("pgtrickle-assets")


def _read(name: str, text: str) -> Migration:
    number, _, description = name.removesuffix(".sql").partition("_")
    return Migration(number, description.replace("_", " "), text)
