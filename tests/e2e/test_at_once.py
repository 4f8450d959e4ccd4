"""Several processes do the same thing at the same time, and each one ends well."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg

from pgtrickle_assets.control import registry
from pgtrickle_assets.stream_table import StreamTable
from tests.e2e.lakehouse import make_ready

TABLES = [
    StreamTable(name="st.a", query="SELECT id, s FROM t"),
    StreamTable(name="st.b", query="SELECT s, count(*) AS n FROM st.a GROUP BY s"),
    StreamTable(name="gold.c", query="SELECT u.id, t.s FROM u JOIN t ON t.id = u.id"),
]
NAMES = {table.name for table in TABLES}


def test_projects_that_are_made_ready_at_once_are_all_ready(new_database: Callable[[], str], tmp_path: Path) -> None:
    source, catalog = new_database(), new_database()
    with psycopg.connect(source) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, s text)")
        connection.execute("CREATE TABLE u (id int PRIMARY KEY)")

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: make_ready(tmp_path, source, catalog, TABLES), range(4))) == [NAMES] * 4
    with psycopg.connect(catalog) as connection:
        assert {str(row.name) for row in registry.stored(connection)} == NAMES
