"""PostgreSQL's answers against a real DuckLake, written by DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pgtrickle_assets.demo.oracle import Comparison, DefiningQuery, compare_with_lake, postgres_answers
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.services.duckdb import connect

if TYPE_CHECKING:
    import duckdb

TOTALS = TableName("gold", "totals")
QUERIES = (
    DefiningQuery(TableName("silver", "rows"), "SELECT id, amount, seen_at FROM facts WHERE amount IS NOT NULL"),
    DefiningQuery(TOTALS, "SELECT id, sum(amount) AS amount, max(seen_at) AS seen_at FROM silver.rows GROUP BY id"),
)


@pytest.fixture
def lake(database: str, tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE facts (id integer, amount numeric(10, 2), seen_at timestamptz)")
        connection.execute(
            "INSERT INTO facts VALUES "
            "(1, 1.10, '2024-01-01 00:00:00Z'), (1, 2.20, '2024-01-02 00:00:00Z'), (2, 0.30, NULL), "
            "(2, NULL, NULL)"
        )
    with connect() as duck:
        duck.execute(f"ATTACH 'ducklake:postgres:{database}' AS lake (DATA_PATH '{tmp_path}/', METADATA_SCHEMA 'main')")
        duck.execute("CREATE SCHEMA lake.gold")
        duck.execute("CREATE TABLE lake.gold.totals (id INTEGER, amount DECIMAL(38, 2), seen_at TIMESTAMPTZ)")
        duck.execute("INSERT INTO lake.gold.totals VALUES (1, 3.30, '2024-01-02 00:00:00Z'), (2, 0.30, NULL)")
        yield duck


def _compare(database: str, lake: duckdb.DuckDBPyConnection) -> Comparison:
    answers = dict(postgres_answers(database, QUERIES))
    row = lake.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchone()
    assert row is not None
    return compare_with_lake(lake, "lake", TOTALS, int(row[0]), answers[TOTALS])


def test_equal_contents_agree(database: str, lake: duckdb.DuckDBPyConnection) -> None:
    assert _compare(database, lake).equal


def test_the_source_keeps_nothing_of_the_comparison(database: str, lake: duckdb.DuckDBPyConnection) -> None:
    import psycopg

    _compare(database, lake)
    with psycopg.connect(database) as connection:
        query = "SELECT nspname FROM pg_namespace WHERE nspname IN ('silver', 'gold')"
        assert connection.execute(query).fetchall() == []


def test_a_wrong_digit_is_found_and_shown(database: str, lake: duckdb.DuckDBPyConnection) -> None:
    lake.execute("UPDATE lake.gold.totals SET amount = 0.31 WHERE id = 2")
    found = _compare(database, lake)
    assert not found.equal
    assert found.differing == 2
    assert {(row[0], str(row[1])[:4], row[-1]) for row in found.examples} == {(2, "0.30", 1), (2, "0.31", -1)}


def test_a_duplicate_is_a_difference(database: str, lake: duckdb.DuckDBPyConnection) -> None:
    lake.execute("INSERT INTO lake.gold.totals VALUES (2, 0.30, NULL)")
    assert _compare(database, lake).differing == 1


def test_renamed_columns_are_a_difference(database: str, lake: duckdb.DuckDBPyConnection) -> None:
    lake.execute("ALTER TABLE lake.gold.totals RENAME COLUMN amount TO total")
    assert _compare(database, lake).columns_differ
