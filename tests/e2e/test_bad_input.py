"""What a user gets wrong is told in one line that names the thing and says what to do, and leaves nothing behind."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle_assets.errors import (
    ConfigurationError,
    LakeError,
    PgTrickleError,
    SourceTableError,
    SourceUnavailableError,
    UnsupportedTypeError,
)
from pgtrickle_assets.stream_table import StreamTable
from tests.e2e.lakehouse import make_ready

SECRET = "not-the-password"


def _sync(folder: Path, source: str, catalog: str, **queries: str) -> PgTrickleError:
    """The error that making the project ready ends with."""
    tables = [StreamTable(name=f"st.{name}", query=query) for name, query in queries.items()]
    with pytest.raises(PgTrickleError) as caught:
        make_ready(folder, source, catalog, tables)
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)
    return caught.value


def _stream_tables(catalog: str) -> list[Any]:
    with psycopg.connect(catalog) as connection:
        return connection.execute("SELECT pgt_name FROM pgtrickle.pgt_stream_tables").fetchall()


def _lake_tables(catalog: str) -> list[Any]:
    with psycopg.connect(catalog) as connection:
        return connection.execute(
            "SELECT table_name FROM main.ducklake_table WHERE end_snapshot IS NULL ORDER BY 1"
        ).fetchall()


def test_an_unreachable_source_is_named(new_database: Callable[[], str], tmp_path: Path) -> None:
    catalog = new_database()
    error = _sync(tmp_path, f"postgresql://u:{SECRET}@127.0.0.1:1/shop", catalog, q="SELECT 1 AS a FROM t")
    assert isinstance(error, SourceUnavailableError)
    assert "127.0.0.1:1" in str(error)
    assert _stream_tables(catalog) == []


def test_a_wrong_password_is_told_without_the_password(new_database: Callable[[], str], tmp_path: Path) -> None:
    wrong = re.sub(r":[^:@]+@", f":{SECRET}@", new_database())
    error = _sync(tmp_path, wrong, new_database(), q="SELECT 1 AS a FROM t")
    assert "password" in str(error)


def test_an_unreachable_catalog_is_named(new_database: Callable[[], str], tmp_path: Path) -> None:
    error = _sync(tmp_path, new_database(), f"postgresql://u:{SECRET}@127.0.0.1:1/lake", q="SELECT 1 AS a FROM t")
    assert isinstance(error, LakeError)
    assert "127.0.0.1:1" in str(error)


def test_a_missing_table_is_named(new_database: Callable[[], str], tmp_path: Path) -> None:
    source, catalog = new_database(), new_database()
    with psycopg.connect(source) as connection:
        connection.execute("CREATE TABLE orders (id int)")
    error = _sync(tmp_path, source, catalog, q="SELECT id FROM ordres")
    assert isinstance(error, SourceTableError)
    assert "ordres" in str(error)
    assert "orders" in str(error)
    assert _stream_tables(catalog) == []


def test_a_missing_column_is_named_with_the_nearest(new_database: Callable[[], str], tmp_path: Path) -> None:
    source, catalog = new_database(), new_database()
    with psycopg.connect(source) as connection:
        connection.execute("CREATE TABLE orders (id int, amount int)")
    error = _sync(tmp_path, source, catalog, q="SELECT amuont FROM orders")
    assert isinstance(error, ConfigurationError)
    assert "amuont" in str(error)
    assert "amount" in str(error)
    assert _stream_tables(catalog) == []


def test_stream_tables_in_a_circle_are_named(new_database: Callable[[], str], tmp_path: Path) -> None:
    error = _sync(tmp_path, new_database(), new_database(), a="SELECT * FROM st.b", b="SELECT * FROM st.a")
    assert "st.a" in str(error)
    assert "st.b" in str(error)


def test_an_unsupported_type_names_the_column_and_a_way_out(new_database: Callable[[], str], tmp_path: Path) -> None:
    source, catalog = new_database(), new_database()
    with psycopg.connect(source) as connection:
        connection.execute("CREATE TABLE places (id int, at point)")
    error = _sync(tmp_path, source, catalog, q="SELECT id FROM places")
    assert isinstance(error, UnsupportedTypeError)
    assert "places" in str(error)
    assert "exclude_columns" in str(error)
    assert _stream_tables(catalog) == []


def test_columns_that_differ_only_in_case_are_named_before_anything_is_made(
    new_database: Callable[[], str], tmp_path: Path
) -> None:
    source, catalog = new_database(), new_database()
    with psycopg.connect(source) as connection:
        connection.execute('CREATE TABLE pairs (a int, "A" int)')
        connection.execute("CREATE TABLE orders (a int, b int)")
    error = _sync(tmp_path, source, catalog, q="SELECT a FROM pairs")
    assert isinstance(error, UnsupportedTypeError)
    assert "column 'A' of source table public.pairs" in str(error)
    error = _sync(tmp_path, source, catalog, q='SELECT a, b AS "A" FROM orders')
    assert isinstance(error, ConfigurationError)
    assert 'output columns "a" and "A" differ only in case' in str(error)
    assert _stream_tables(catalog) == []
    assert _lake_tables(catalog) == []


def test_tables_that_differ_only_in_case_are_named_before_anything_is_made(
    new_database: Callable[[], str], tmp_path: Path
) -> None:
    source, catalog = new_database(), new_database()
    with psycopg.connect(source) as connection:
        connection.execute('CREATE TABLE t (a int); CREATE TABLE "T" (a int)')
    with pytest.raises(ConfigurationError, match="differ only in case"):
        make_ready(tmp_path, source, catalog, [StreamTable(name="st.q", query='SELECT t.a FROM t JOIN "T" USING (a)')])
    # One after the other is no mistake: the mirror of the first gives its name to that of the second.
    make_ready(tmp_path, source, catalog, [StreamTable(name="st.q", query="SELECT a FROM t")])
    assert _lake_tables(catalog) == [("q",), ("t",)]
    make_ready(tmp_path, source, catalog, [StreamTable(name="st.Q", query='SELECT a FROM "T"')])
    assert _lake_tables(catalog) == [("Q",), ("T",)]
    # As is one that a stopped registration has left without a row.
    with psycopg.connect(catalog) as connection:
        connection.execute("DELETE FROM pgtrickle.pgt_source_mirrors")
    make_ready(tmp_path, source, catalog, [StreamTable(name="st.Q", query="SELECT a FROM t")])
    assert _lake_tables(catalog) == [("Q",), ("t",)]
    with pytest.raises(ConfigurationError, match="the lake has a schema 'st'"):
        make_ready(tmp_path, source, catalog, [StreamTable(name="ST.q", query="SELECT a FROM t")])
    assert _lake_tables(catalog) == [("Q",), ("t",)]


def test_a_lake_of_a_newer_specification_is_refused(new_database: Callable[[], str], tmp_path: Path) -> None:
    source, catalog = new_database(), new_database()
    with psycopg.connect(source) as connection:
        connection.execute("CREATE TABLE orders (id int)")
    make_ready(tmp_path, source, catalog, [])
    with psycopg.connect(catalog) as connection:
        connection.execute("UPDATE main.ducklake_metadata SET value = '1.1' WHERE key = 'version'")
    error = _sync(tmp_path, source, catalog, q="SELECT id FROM orders")
    assert isinstance(error, LakeError)
    assert "1.1" in str(error)
