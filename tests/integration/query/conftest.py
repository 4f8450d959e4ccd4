"""The sample tables in PostgreSQL and DuckDB, shared by the tests of planned queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgtrickle_assets.services.postgres import EmbeddedPostgres
from tests.integration.query.engines import arrow_tables, duckdb_with, load_postgres
from tests.workloads import loading, tpch


@pytest.fixture(scope="session")
def sample_postgres(postgres_server: EmbeddedPostgres) -> Iterator[Any]:
    """A connection to a PostgreSQL database with the sample tables."""
    import psycopg

    dsn = postgres_server.create_database("query_samples")
    with psycopg.connect(dsn, autocommit=True) as connection:
        load_postgres(connection)
        yield connection
    postgres_server.drop_database("query_samples")


@pytest.fixture(scope="session")
def sample_tables(sample_postgres: Any) -> dict[str, Any]:
    """The sample tables as Arrow tables."""
    return arrow_tables(sample_postgres)


@pytest.fixture(scope="session")
def sample_duckdb(sample_tables: dict[str, Any]) -> Iterator[Any]:
    """A DuckDB with the sample tables."""
    connection = duckdb_with(sample_tables)
    yield connection
    connection.close()


@pytest.fixture(scope="session")
def tpch_engines(
    postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any]]:
    """TPC-H at scale 0.01 in PostgreSQL and DuckDB."""
    import psycopg

    dsn = postgres_server.create_database("query_tpch")
    duck = tpch.generate(0.01)
    with psycopg.connect(dsn, autocommit=True) as connection:
        folder: Path = tmp_path_factory.mktemp("tpch")
        loading.load_postgres(tpch.TABLES, duck, connection, folder)
        yield connection, duck
    duck.close()
    postgres_server.drop_database("query_tpch")
