"""A stream table's view in the lake: what DuckDB reads from it is PostgreSQL's answer, at any moment."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.lake.lint import lint
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.lake.views import CATALOG_PLACEHOLDER, stored_views
from pgtrickle_assets.project import Project
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh.api import RefreshEngine
from pgtrickle_assets.refresh.workspace import Workspace
from pgtrickle_assets.services.duckdb import connect
from pgtrickle_assets.settings import Settings
from pgtrickle_assets.stream_table import StreamTable

QUERY = "SELECT name, count(*) AS n, avg(amount)::numeric(12,2) AS mean FROM orders WHERE amount >= 10 GROUP BY name"
OTHER = "SELECT name, sum(amount) AS total FROM orders GROUP BY name"
ODD = 'na"me, ünï 日本 ' + "x" * 43
ODD_SCHEMA = 'sch"ema ä'


@pytest.fixture
def source(database: str) -> str:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE SCHEMA src")
        connection.execute("CREATE TABLE src.orders (id int PRIMARY KEY, name text, amount numeric(10,2))")
        connection.execute("INSERT INTO src.orders SELECT i, 'n' || i % 3, i FROM generate_series(1, 100) i")
    return database


@contextmanager
def opened(
    source: str, folder: Path, tables: Sequence[StreamTable], schema: str = "main"
) -> Iterator[tuple[Workspace, RefreshEngine]]:
    """A project whose lake lies in the source's database; without Spark, which nothing here needs."""
    project = Project(
        tables,
        sources={"shop": {"dsn": source, "schemas": ["src"]}},
        lake={"catalog": source, "data_path": f"{folder}/lake"},
        home=folder,
        name="views",
    )
    settings = Settings(home=folder, ducklake_catalog_schema=schema)
    with Workspace.open(project, settings, _no_spark) as workspace:
        engine = RefreshEngine(workspace)
        engine.sync()
        yield workspace, engine
        assert lint(workspace.lake) == ()


def _no_spark() -> Any:
    raise AssertionError("no Spark is needed here")


def seen(workspace: Workspace, name: TableName, alias: str = "lake") -> Counter[tuple[Any, ...]]:
    """The view as DuckDB reads it, attached under some name."""
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (alias, name.schema, name.name))
    with connect() as connection:
        attach(connection, workspace.lake.location, alias)
        return Counter(connection.execute(f"SELECT * FROM {quoted}").fetchall())


def answered(source: str, query: str) -> Counter[tuple[Any, ...]]:
    with psycopg.connect(source, options="-c search_path=src") as connection:
        return Counter(connection.execute(query).fetchall())


def table(query: str = QUERY, name: str = "gold.by_name", view: str | None = "live.by_name") -> StreamTable:
    return StreamTable(name=name, query=query, view=view)


VIEW = TableName("live", "by_name")


def test_the_view_answers_from_the_present_and_follows_an_alter_of_the_query_alone(source: str, tmp_path: Path) -> None:
    with opened(source, tmp_path, [table()]) as (workspace, engine):
        engine.capture("test")
        assert seen(workspace, VIEW) == answered(source, QUERY)
        assert seen(workspace, VIEW, "another") == answered(source, QUERY)
        with psycopg.connect(source) as connection:
            connection.execute("INSERT INTO src.orders VALUES (1000, 'new', 5000)")
        engine.capture("test")
        assert seen(workspace, VIEW) == answered(source, QUERY)
        head = engine.head()
    with opened(source, tmp_path, [table()]) as (workspace, engine):
        assert engine.head() == head, "an unchanged view is no new snapshot"
    with opened(source, tmp_path, [table(OTHER)]) as (workspace, _):
        assert seen(workspace, VIEW) == answered(source, OTHER)


def test_the_view_goes_with_the_option_and_with_the_stream_table(source: str, tmp_path: Path) -> None:
    with opened(source, tmp_path, [table(view=None)]) as (workspace, _):
        assert stored_views(workspace.lake) == {}
    with opened(source, tmp_path, [table(), table(name="gold.again", view="live.again")]) as (workspace, _):
        assert set(stored_views(workspace.lake)) == {VIEW, TableName("live", "again")}
    with opened(source, tmp_path, [table(view="live.renamed")]) as (workspace, _):
        assert set(stored_views(workspace.lake)) == {TableName("live", "renamed")}
    with opened(source, tmp_path, []) as (workspace, _):
        assert stored_views(workspace.lake) == {}


def test_what_stands_in_the_way_of_a_view_is_a_note_and_no_error(
    source: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(source, tmp_path, [table(view=None)]) as (workspace, _), connect() as connection:
        attach(connection, workspace.lake.location)
        connection.execute("CREATE VIEW lake.main.theirs AS SELECT 1 AS one")
    caplog.set_level(logging.WARNING)
    taken = [table(view="gold.by_name"), table(name="gold.two", view="main.theirs")]
    with opened(source, tmp_path, taken) as (workspace, engine):
        engine.capture("test")
        assert seen(workspace, TableName("main", "theirs")) == Counter([(1,)])
    assert "the lake has a table of that name" in caplog.text
    assert "somebody else has made a view of that name" in caplog.text


def test_odd_names_in_schema_table_and_catalog(source: str, tmp_path: Path) -> None:
    assert len(ODD.encode()) == 63
    name = TableName(ODD_SCHEMA, ODD)
    tables = [StreamTable(name=f"{ODD_SCHEMA}.{ODD} t"[: -len(" t")], query=QUERY, view=f"views.{ODD}")]
    with opened(source, tmp_path, tables, schema='lake "cat" ü') as (workspace, engine):
        engine.capture("test")
        assert workspace.lake.table(name) is not None
        assert seen(workspace, TableName("views", ODD)) == answered(source, QUERY)
        assert CATALOG_PLACEHOLDER in stored_views(workspace.lake)[TableName("views", ODD)].query
        assert engine.maintain().skipped == ""
        location: LakeLocation = workspace.lake.location
        assert location.catalog_schema == 'lake "cat" ü'
        assert engine.sink_status()[0]["stream_table_name"] == f"{ODD_SCHEMA}.{ODD}"


def test_a_view_needs_a_schema() -> None:
    with pytest.raises(ConfigurationError, match=r"schema\.view"):
        table(view="by_name")
