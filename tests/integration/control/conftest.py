from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgtrickle_assets.control import registry_sync
from pgtrickle_assets.control.migrations import migrate
from pgtrickle_assets.control.registry import StreamTableDefinition
from pgtrickle_assets.control.statuses import Origin
from pgtrickle_assets.query.types import TableName


@pytest.fixture
def catalog(database: str) -> Iterator[psycopg.Connection[Any]]:
    """An open connection to a database with the control schema."""
    migrate(database)
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def pgt_id(catalog: psycopg.Connection[Any]) -> int:
    """A registered stream table, silver.orders."""
    name = TableName("silver", "orders")
    definition = StreamTableDefinition(name, Origin.FILE, "SELECT 1", "SELECT 1")
    return registry_sync.sync(catalog, "test", [definition]).ids[name]
