"""Stream tables from SQL join a project, and what is wrong with one is its own matter."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pgtrickle_assets.control.sql_definitions import SqlDefinition
from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.project import Project
from pgtrickle_assets.query.types import DATE, INT64, ColumnSchema, TableName, TableSchema
from pgtrickle_assets.refresh.sql_tables import take_up
from pgtrickle_assets.schema_cache import KnownSchemas
from pgtrickle_assets.stream_table import StreamTable

ORDERS = TableName("public", "orders")
KNOWN = KnownSchemas(
    {"postgres": {ORDERS: TableSchema(ORDERS, (ColumnSchema("id", INT64), ColumnSchema("d", DATE)))}}, {}
)


def project(**queries):
    tables = [StreamTable(name=name.replace("__", "."), query=query) for name, query in queries.items()]
    return Project(tables, known=KnownSchemas())


def made(name, query, **options):
    return SqlDefinition(*name.split("."), query, options, datetime.now(UTC), None, None, None)


def test_sql_and_files_read_each_other():
    files = project(gold__days="SELECT d, count(*) AS n FROM silver.orders GROUP BY d")
    taken = take_up(
        files,
        KNOWN,
        [
            made("silver.orders", "SELECT id, d FROM public.orders"),
            made("gold.last", "SELECT max(d) AS d FROM gold.days", schedule="5m"),
        ],
    )
    assert taken.refused == {}
    assert taken.project.order == ("silver.orders", "gold.days", "gold.last")
    assert taken.project.stream_table("gold.last").schedule == "5m"


def test_what_is_wrong_with_one_stops_neither_the_others_nor_the_files():
    taken = take_up(
        project(silver__orders="SELECT id, d FROM public.orders"),
        KNOWN,
        [
            made("gold.a_reader", "SELECT * FROM gold.typo"),
            made("gold.days", "SELECT d, count(*) AS n FROM silver.orders GROUP BY d"),
            made("gold.typo", "SELECT dd FROM silver.orders"),
            made("gold.option", "SELECT d FROM silver.orders", schedule="often"),
            made("raw.mirror", "SELECT d FROM silver.orders"),
        ],
    )
    assert taken.project.order == ("silver.orders", "gold.days")
    problems = {str(name): text for name, text in taken.refused.items()}
    assert set(problems) == {"gold.a_reader", "gold.typo", "gold.option", "raw.mirror"}
    assert '"dd"' in problems["gold.typo"]
    assert "not a schedule" in problems["gold.option"]


def test_a_file_wins_over_sql_and_the_reason_names_it():
    files = Project(
        [StreamTable(name="gold.a", query="SELECT id FROM orders", path="stream_tables/gold/a.sql")],
        known=KnownSchemas(),
    )
    taken = take_up(files, KNOWN, [made("gold.a", "SELECT d FROM orders")])
    assert taken.project.stream_table("gold.a").query == "SELECT id FROM orders"
    assert "stream_tables/gold/a.sql" in taken.refused[TableName("gold", "a")]


def test_stream_tables_of_earlier_definitions_are_forgotten():
    taken = take_up(project(), KNOWN, [made("gold.a", "SELECT id FROM orders")])
    assert take_up(taken.project, KNOWN, []).project.order == ()


def test_files_that_do_not_load_are_an_error_whatever_sql_adds():
    files = project(gold__days="SELECT d FROM silver.orders")
    known = KnownSchemas(KNOWN.sources, {})
    with pytest.raises(ConfigurationError, match=r"silver\.orders"):
        take_up(files, known, [made("gold.a", "SELECT id FROM orders")])
