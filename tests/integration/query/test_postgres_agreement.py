"""PostgreSQL decides: each query of the corpus gives the same rows, names and types on PostgreSQL and, planned, on DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.query.engines import (
    CORPUS,
    arrow_tables,
    corpus,
    duckdb_with,
    load_postgres,
    multiset,
    planned,
    postgres_answer,
    rendered,
)

from pgtrickle_assets.services.postgres import EmbeddedPostgres

NAMES = sorted(path.stem for path in CORPUS.glob("*.sql"))
CASES = [pytest.param(sql, id=f"{name}-{i}") for name in NAMES for i, sql in enumerate(corpus(name), 1)]


@pytest.fixture(scope="module")
def engines(postgres_server: EmbeddedPostgres) -> Iterator[tuple[Any, Any]]:
    import psycopg

    dsn = postgres_server.create_database("query_agreement")
    with psycopg.connect(dsn, autocommit=True) as connection:
        load_postgres(connection)
        duck = duckdb_with(arrow_tables(connection))
        yield connection, duck
        duck.close()
    postgres_server.drop_database("query_agreement")


@pytest.mark.parametrize("sql", CASES)
def test_duckdb_gives_what_postgres_gives(engines: tuple[Any, Any], sql: str) -> None:
    connection, duck = engines
    plan = planned(sql)
    expected = postgres_answer(connection, sql, plan)
    actual = multiset(duck.execute(rendered(plan, "duckdb")).fetchall(), plan)
    assert actual == expected
