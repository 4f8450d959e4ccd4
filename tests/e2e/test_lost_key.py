"""A key that the plans of stream tables rest on goes away, and the rows that it kept out come in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pgtrickle_assets.errors import SourceSchemaChangedError
from tests.e2e.lakehouse import lakehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = {
    "st.in_key": "SELECT id, pid FROM o WHERE pid IN (SELECT id FROM p WHERE k = 'x')",
    "st.groups": (
        "SELECT p.id, g.s FROM p JOIN (SELECT pid, sum(n) AS s, count(*) AS c FROM o GROUP BY pid) g ON g.pid = p.id"
        " WHERE p.k = 'x'"
    ),
    "st.scalar": "SELECT id, (SELECT sum(o.n) FROM o WHERE o.pid = p.id) AS s FROM p WHERE k = 'x'",
}
SETUP = [
    "CREATE TABLE p (id int PRIMARY KEY, k text)",
    "CREATE TABLE o (id int PRIMARY KEY, pid int, n int)",
    "INSERT INTO p VALUES (1, 'x'), (2, 'x'), (3, 'y')",
    "INSERT INTO o VALUES (1, 1, 10), (2, 1, 20), (3, 2, 5), (4, 3, 1), (5, NULL, 7)",
]


STATEMENTS = (
    "SELECT 1",
    "UPDATE o SET n = n + 1",
    "DELETE FROM p WHERE k = 'y'",
    "INSERT INTO o VALUES (9, 3, 3)",
)


def test_rows_with_a_key_twice_are_right(new_database: Callable[[], str], tmp_path: Path, spark: SparkSession) -> None:
    with lakehouse(new_database, tmp_path, spark, QUERIES, SETUP) as system:
        system.refresh()
        system.execute("INSERT INTO p VALUES (4, 'x')", "INSERT INTO o VALUES (6, 4, 3)")
        system.refresh()
        system.check()
        system.execute("ALTER TABLE p DROP CONSTRAINT p_pkey", "INSERT INTO p VALUES (1, 'x'), (3, 'x'), (3, 'x')")
        with pytest.raises(SourceSchemaChangedError, match=r"public\.p \(id\)"):
            system.refresh()
        tables = [system.engine.project.stream_table(name) for name in system.engine.project.order]
    with system.with_stream_tables(tables) as again:
        for statement in STATEMENTS:
            again.execute(statement)
            again.refresh()
            for name, query in QUERIES.items():
                assert again.lake_rows(name) == again.postgres_rows(query), (name, statement)


def test_another_key_over_fewer_columns_will_do(
    new_database: Callable[[], str], tmp_path: Path, spark: SparkSession
) -> None:
    setup = ["CREATE TABLE p (id int NOT NULL, k text NOT NULL, PRIMARY KEY (id, k))", *SETUP[1:]]
    queries = {"st.pairs": "SELECT id FROM o WHERE (pid, 'x') IN (SELECT id, k FROM p)"}
    with lakehouse(new_database, tmp_path, spark, queries, setup) as system:
        system.refresh()
        system.execute(
            "ALTER TABLE p DROP CONSTRAINT p_pkey", "CREATE UNIQUE INDEX ON p (id)", "DELETE FROM p WHERE id = 2"
        )
        system.refresh()
        assert system.lake_rows("st.pairs") == system.postgres_rows(queries["st.pairs"])
        system.execute("DROP INDEX p_id_idx")
        with pytest.raises(SourceSchemaChangedError):
            system.refresh()
