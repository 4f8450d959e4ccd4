from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgtrickle_assets.control import registry_sync
from pgtrickle_assets.control.migrations import migrate
from pgtrickle_assets.control.registry import StreamTableDefinition
from pgtrickle_assets.control.statuses import Origin
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.services.postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
def control_dsn(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """DSN of a database with the control schema, made once."""
    dsn = postgres_server.create_database("control_tests")
    migrate(dsn)
    yield dsn
    postgres_server.drop_database("control_tests")


@pytest.fixture
def catalog(control_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """An open connection to an empty control schema."""
    with psycopg.connect(control_dsn, autocommit=True) as connection:
        connection.execute(
            "TRUNCATE pgtrickle.pgt_stream_tables, pgtrickle.pgt_change_tracking, pgtrickle.pgt_source_mirrors "
            "RESTART IDENTITY CASCADE"
        )
        yield connection


@pytest.fixture
def pgt_id(catalog: psycopg.Connection[Any]) -> int:
    """A registered stream table, silver.orders."""
    name = TableName("silver", "orders")
    definition = StreamTableDefinition(name, Origin.FILE, "SELECT 1", "SELECT 1")
    return registry_sync.sync(catalog, "test", [definition]).ids[name]
