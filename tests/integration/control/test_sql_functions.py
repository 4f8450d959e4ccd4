"""The functions of the schema `pgtrickle`: what they write, what they refuse, and what to do then."""

from __future__ import annotations

import psycopg
import pytest

from pgtrickle_assets.control import history, registry, sql_definitions
from pgtrickle_assets.control.registry import Dependency, StreamTableDefinition
from pgtrickle_assets.control.registry_sync import sync
from pgtrickle_assets.control.statuses import InitiatedBy, Origin, SourceType, StrategyName, StreamTableStatus
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.stream_table import StreamTableOptions

A, B, FILE = TableName("gold", "a"), TableName("gold", "b"), TableName("silver", "f")
from_file = StreamTableDefinition(FILE, Origin.FILE, "SELECT 1", "SELECT 1", origin_path="stream_tables/silver/f.sql")
a = StreamTableDefinition(A, Origin.SQL, "SELECT 1", "SELECT 1")
b = StreamTableDefinition(
    B, Origin.SQL, "SELECT 1", "SELECT 1", dependencies=(Dependency(SourceType.STREAM_TABLE, "gold.a"),)
)


@pytest.fixture
def shop(catalog):
    catalog.execute("TRUNCATE pgtrickle.pgt_projects CASCADE")
    sql_definitions.add_project(catalog, "shop")
    sync(catalog, "shop", [from_file])
    return catalog


def take_up(catalog, *definitions, refused=()):
    """What a registration does with what SQL made."""
    with catalog.transaction():
        seen = sql_definitions.definitions(catalog, "shop")
        sync(catalog, "shop", [from_file, *definitions])
        sql_definitions.note_outcomes(catalog, seen, dict(refused))


def call(catalog, text, *values):
    return catalog.execute(f"SELECT pgtrickle.{text}", values).fetchone()[0]


def refused(catalog, text, *values):
    with pytest.raises(psycopg.Error) as caught:
        call(catalog, text, *values)
    return f"{caught.value.diag.message_primary} | {caught.value.diag.message_hint}"


def test_a_definition_waits_until_it_is_taken_up(shop):
    call(shop, "create_stream_table('gold.a', 'SELECT 1', '5m', 'AUTO', partition_by => 'day(d)')")
    (made,) = sql_definitions.definitions(shop, "shop")
    assert (made.name, made.query) == (A, "SELECT 1")
    assert made.options == {"schedule": "5m", "refresh_mode": "auto", "partition_by": "day(d)"}
    asked = sql_definitions.waiting(shop, "shop")
    assert (asked.refreshes, asked.definitions) == (("gold.a",), ("gold.a",))
    take_up(shop, a)
    asked = sql_definitions.waiting(shop, "shop")
    assert (asked.refreshes, asked.definitions) == (("gold.a",), ())


def test_a_refused_definition_says_why_and_waits_no_more(shop):
    call(shop, "create_stream_table('gold.a', 'SELECT x')")
    take_up(shop, refused={A: 'column "x" does not exist'}.items())
    asked = sql_definitions.waiting(shop, "shop")
    assert (asked.refreshes, asked.definitions) == ((), ())
    assert asked.refused == {"gold.a": 'column "x" does not exist'}
    assert ("error", 'column "x" does not exist') in shop.execute(
        "SELECT * FROM pgtrickle.explain_st('gold.a')"
    ).fetchall()
    assert shop.execute("SELECT status FROM pgtrickle.pgt_requests").fetchall() == [("FAILED",)]
    call(shop, "alter_stream_table('gold.a', query => 'SELECT 1')")
    asked = sql_definitions.waiting(shop, "shop")
    assert (asked.refreshes, asked.definitions, asked.refused) == (("gold.a",), ("gold.a",), {})


def test_a_request_is_met_by_the_next_refresh_and_shows_how_it_ended(shop):
    take_up(shop, a)
    call(shop, "create_stream_table('gold.b', 'SELECT 1', initialize => false)")
    call(shop, "refresh_stream_table('silver.f')")
    pgt_id = registry.find(shop, FILE).pgt_id
    assert sql_definitions.waiting(shop, "shop").refreshes == ("silver.f",)
    refresh = history.start(shop, pgt_id, initiated_by=InitiatedBy.MANUAL)
    assert sql_definitions.waiting(shop, "shop").refreshes == ()
    history.complete(
        shop, refresh, history.RefreshOutcome(StrategyName.NO_CHANGE, "inputs_unchanged", "", cut=1, frontier={})
    )
    rows = shop.execute("SELECT stream_table, status, refresh_id FROM pgtrickle.pgt_requests").fetchall()
    assert rows == [("silver.f", "COMPLETED", refresh)]


def test_what_is_defined_by_a_file_is_changed_there(shop):
    for text in ("alter_stream_table('silver.f', schedule => '1m')", "drop_stream_table('silver.f')"):
        assert "is defined in file stream_tables/silver/f.sql of project 'shop'" in refused(shop, text)
    assert "already" in refused(shop, "create_stream_table('silver.f', 'SELECT 1')")
    call(shop, "create_stream_table_if_not_exists('silver.f', 'SELECT 1')")
    assert sql_definitions.definitions(shop, "shop") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("create_stream_table('a', 'SELECT 1')", "schema.table"),
        ("create_stream_table('gold.a', 'SELECT 1', refresh_mode => 'fast')", "Modes: auto, differential, full"),
        ("""create_stream_table('gold.a', 'SELECT 1', options => '{"sink": 1}')""", "unknown option 'sink'"),
        ("create_stream_table('gold.a', 'SELECT 1', project => 'shoop')", "Projects: shop"),
        ("refresh_stream_table('silver.g')", "Stream tables: silver.f"),
        ("pause_stream_table('silver.g')", "there is no stream table 'silver.g'"),
        ("drop_stream_table('silver.g')", "there is no stream table 'silver.g'"),
        ("alter_stream_table('silver.f', status => 'SLEEPY')", "ACTIVE or PAUSED"),
    ],
)
def test_wrong_use_says_what_would_be_right(shop, text, expected):
    assert expected in refused(shop, text)


def test_the_functions_know_every_option_of_a_stream_table(shop):
    with pytest.raises(psycopg.Error) as caught:
        call(shop, """create_stream_table('gold.a', 'SELECT 1', options => '{"sink": 1}')""")
    known = caught.value.diag.message_hint.removeprefix("Options: ").removesuffix(".").split(", ")
    assert set(known) == set(StreamTableOptions.model_fields)


def test_a_project_is_named_where_there_are_several(shop):
    sql_definitions.add_project(shop, "other")
    assert "Projects: other, shop" in refused(shop, "create_stream_table('gold.a', 'SELECT 1')")
    call(shop, "create_stream_table('gold.a', 'SELECT 1', project => 'other')")
    assert [d.name for d in sql_definitions.definitions(shop, "other")] == [A]
    shop.execute("TRUNCATE pgtrickle.pgt_projects CASCADE")
    assert "pgtrickle apply" in refused(shop, "create_stream_table('gold.a', 'SELECT 1')")


def test_drop_refuses_what_is_read_and_cascades_over_what_sql_made(shop):
    call(shop, "create_stream_table('gold.a', 'SELECT 1')")
    call(shop, "create_stream_table('gold.b', 'SELECT 1')")
    take_up(shop, a, b)
    message = refused(shop, "drop_stream_table('gold.a')")
    assert "is read by gold.b" in message
    assert "cascade => true" in message
    call(shop, "drop_stream_table('gold.a', cascade => true)")
    assert sql_definitions.definitions(shop, "shop") == []
    assert sql_definitions.waiting(shop, "shop").definitions == ("gold.a", "gold.b")
    take_up(shop)
    assert registry.find(shop, A) is None


def test_a_cascade_stops_at_what_a_file_defines(shop):
    call(shop, "create_stream_table('gold.a', 'SELECT 1')")
    reader = StreamTableDefinition(
        FILE, Origin.FILE, "SELECT 1", "SELECT 1", origin_path="x.sql", dependencies=b.dependencies
    )
    with shop.transaction():
        sync(shop, "shop", [a, reader])
    assert "stream table silver.f is defined in file x.sql" in refused(shop, "drop_stream_table('gold.a', true)")
    assert len(sql_definitions.definitions(shop, "shop")) == 1


def test_pause_and_resume_write_statuses_that_the_table_allows(shop):
    call(shop, "pause_stream_table('silver.f')")
    assert registry.find(shop, FILE).status is StreamTableStatus.PAUSED
    assert "resume_stream_table('silver.f')" in refused(shop, "refresh_stream_table('silver.f')")
    call(shop, "resume_stream_table('silver.f')")
    assert registry.find(shop, FILE).status is StreamTableStatus.INITIALIZING
    shop.execute("UPDATE pgtrickle.pgt_stream_tables SET is_populated = true")
    assert call(shop, "pause_all()") == 1
    assert call(shop, "resume_all()") == 1
    assert registry.find(shop, FILE).status is StreamTableStatus.ACTIVE
    call(shop, "alter_stream_table('silver.f', status => 'paused')")
    assert registry.find(shop, FILE).status is StreamTableStatus.PAUSED


def test_replacing_with_the_same_query_changes_nothing(shop):
    call(shop, "create_or_replace_stream_table('gold.a', 'SELECT 1')")
    take_up(shop, a)
    call(shop, "create_or_replace_stream_table('gold.a', E' SELECT\\n  1 ')")
    assert sql_definitions.waiting(shop, "shop").definitions == ()
    call(shop, "create_or_replace_stream_table('gold.a', 'SELECT 2')")
    assert sql_definitions.waiting(shop, "shop").definitions == ("gold.a",)


def test_a_broken_definition_keeps_the_stream_table_and_a_dropped_one_does_not(shop):
    with shop.transaction():
        sync(shop, "shop", [from_file, a])
    assert sync(shop, "shop", [from_file], kept=[A]).removed == ()
    assert registry.find(shop, A) is not None
    assert [name for name, _, _ in sync(shop, "shop", [from_file]).removed] == [A]


def test_explain_shows_where_and_how_a_stream_table_is_kept(shop):
    rows = dict(shop.execute("SELECT * FROM pgtrickle.explain_st('silver.f')").fetchall())
    assert (rows["defined in"], rows["query"], rows["status"]) == (
        "stream_tables/silver/f.sql",
        "SELECT 1",
        "INITIALIZING",
    )
