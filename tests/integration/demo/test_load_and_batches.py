"""The example's database: what is loaded, and what the batches do to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pgtrickle_assets.bundled_example import example_folder
from pgtrickle_assets.demo.batches import BATCHES, Batch, last_day, play
from pgtrickle_assets.demo.load import SOURCE_TABLES, load_flights
from pgtrickle_assets.errors import SourceError

if TYPE_CHECKING:
    from pgtrickle_assets.services.postgres import EmbeddedPostgres

EXAMPLE = example_folder()


@pytest.fixture(scope="module")
def loaded(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """A template database with the year loaded."""
    dsn = postgres_server.create_database("demo_template")
    assert load_flights(dsn, EXAMPLE / "source")
    yield dsn
    postgres_server.drop_database("demo_template")


@pytest.fixture
def flights(postgres_server: EmbeddedPostgres, loaded: str) -> Iterator[str]:
    """A copy of the loaded database, to change."""
    _query(postgres_server.start("postgres"), "CREATE DATABASE demo_copy TEMPLATE demo_template")
    yield postgres_server.start("demo_copy")
    postgres_server.drop_database("demo_copy")


def _query(dsn: str, query: str) -> list[tuple[object, ...]]:
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(query)
        return cursor.fetchall() if cursor.description else []


def _content(dsn: str, columns: str = "*", table: str = "flights") -> object:
    rows = f"SELECT {columns} FROM {table}"
    return _query(dsn, f"SELECT md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM ({rows}) t")


def test_the_whole_year_is_loaded(loaded: str) -> None:
    counts = {table: _query(loaded, f"SELECT count(*) FROM {table}")[0][0] for table in SOURCE_TABLES}
    # 4 airports and 721 aircraft that flights name are not in the data set and were entered by code.
    assert counts == {"airlines": 16, "airports": 1462, "planes": 4043, "weather": 26115, "flights": 336776}


def test_missing_values_of_the_files_are_null(loaded: str) -> None:
    query = "SELECT count(*) FILTER (WHERE departure IS NULL), count(*) FILTER (WHERE tailnum IS NULL) FROM flights"
    assert _query(loaded, query) == [(8255, 2512)]


def test_midnight_written_as_2400_is_a_time(loaded: str) -> None:
    assert _query(loaded, "SELECT max(arrival), min(arrival) FROM flights")[0][1].isoformat() == "00:00:00"  # type: ignore[attr-defined]


def test_a_second_load_reuses_the_first(loaded: str) -> None:
    assert load_flights(loaded, EXAMPLE / "source") is False


def test_a_database_with_a_table_of_the_same_name_is_left_alone(database: str) -> None:
    _query(database, "CREATE TABLE flights (id integer)")
    with pytest.raises(SourceError, match="already holds a table 'flights'"):
        load_flights(database, EXAMPLE / "source")


def test_two_rounds_of_batches_move_the_calendar_by_four_days(flights: str) -> None:
    before = last_day(flights)
    for batch in (*BATCHES, *BATCHES):
        play(flights, batch, EXAMPLE / "batches")
    assert (last_day(flights) - before).days == 4


def test_batches_are_deterministic(postgres_server: EmbeddedPostgres, flights: str) -> None:
    for batch in BATCHES:
        play(flights, batch, EXAMPLE / "batches")
    first = [_content(flights, table=table) for table in SOURCE_TABLES]
    postgres_server.drop_database("demo_copy")
    _query(postgres_server.start("postgres"), "CREATE DATABASE demo_copy TEMPLATE demo_template")
    for batch in BATCHES:
        play(flights, batch, EXAMPLE / "batches")
    assert [_content(flights, table=table) for table in SOURCE_TABLES] == first


def test_corrections_move_join_keys(flights: str) -> None:
    play(flights, BATCHES[0], EXAMPLE / "batches")
    play(flights, BATCHES[0], EXAMPLE / "batches")
    _query(flights, "CREATE TABLE before AS SELECT * FROM flights")
    play(flights, Batch("corrections", ("corrections",)), EXAMPLE / "batches")
    query = """
        SELECT count(*) FILTER (WHERE f.tailnum IS DISTINCT FROM b.tailnum) > 10,
               count(*) FILTER (WHERE f.dest <> b.dest) > 3,
               count(*) FILTER (WHERE f.arrival_delay IS DISTINCT FROM b.arrival_delay) > 100
        FROM flights f JOIN before b USING (flight_id)
    """
    assert _query(flights, query) == [(True, True, True)]


def test_the_undone_batch_changes_nothing_that_is_read(flights: str) -> None:
    play(flights, BATCHES[0], EXAMPLE / "batches")
    read = dict.fromkeys(SOURCE_TABLES, "*") | {"planes": "tailnum, manufacturer, model, seats, year_built"}
    before = [_content(flights, columns, table) for table, columns in read.items()]
    play(flights, Batch("undone", ("undone",), days=0), EXAMPLE / "batches")
    assert [_content(flights, columns, table) for table, columns in read.items()] == before
