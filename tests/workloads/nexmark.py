"""Nexmark: schemas, queries 0 to 9, data and changes.

After Tucker, Tufte, Papadimos and Maier, "NEXMark: a benchmark for queries over data streams". People open auctions,
others bid. The stream of events is a table here, so the windows of queries 5, 7 and 8 are groups of a table and move
when an event is corrected, not only when one arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pgtrickle_assets.query.types import TableSchema
from tests.integration.query.tables import SampleTable

QUERIES = Path(__file__).parent / "nexmark"
NUMBERS = range(10)

TABLES = {
    table.name: table
    for table in (
        SampleTable(
            "person",
            (("id", "int8"), ("name", "text"), ("city", "text"), ("state", "text"), ("date_time", "timestamp")),
            ("id",),
            "",
        ),
        SampleTable(
            "auction",
            (
                ("id", "int8"),
                ("item_name", "text"),
                ("initial_bid", "int8"),
                ("reserve", "int8"),
                ("date_time", "timestamp"),
                ("expires", "timestamp"),
                ("seller", "int8"),
                ("category", "int4"),
            ),
            ("id",),
            "",
        ),
        # Bids have no key, and two may be the same.
        SampleTable(
            "bid",
            (
                ("auction", "int8"),
                ("bidder", "int8"),
                ("price", "int8"),
                ("channel", "text"),
                ("date_time", "timestamp"),
            ),
            (),
            "",
        ),
    )
}


def resolve(parts: tuple[str, ...]) -> TableSchema | None:
    """The schema of a Nexmark table."""
    table = TABLES.get(parts[-1])
    return None if table is None else table.schema()


def query(number: int) -> str:
    """The text of a query, in PostgreSQL's dialect."""
    return (QUERIES / f"q{number}.sql").read_text("utf-8")


def _people(first: int, count: int) -> str:
    return (
        f"SELECT i AS id, 'person ' || i % 997 AS name, 'city ' || i * 7 % 31 AS city, "
        "substr('oridcawaazny', CAST(i * 5 % 6 * 2 + 1 AS int), 2) AS state, "
        f"TIMESTAMP '2015-07-15 00:00:00' + i * INTERVAL '1 second' AS date_time "
        f"FROM {_series(first, count)}"
    )


def _auctions(first: int, count: int, people: int) -> str:
    # A few sellers have most of the auctions.
    return (
        "SELECT i AS id, 'item ' || i % 13 AS item_name, i % 100 AS initial_bid, i % 100 + 50 AS reserve, "
        f"TIMESTAMP '2015-07-15 00:00:00' + {_whole(3)} * INTERVAL '1 second' AS date_time, "
        f"TIMESTAMP '2015-07-15 00:00:00' + ({_whole(3)} + 20 + i * 11 % 60) * INTERVAL '1 second' AS expires, "
        f"CASE WHEN i % 4 = 0 THEN i * 31 % {people} + 1 ELSE i % 9 + 1 END AS seller, "
        "CAST(CASE WHEN i % 17 = 0 THEN NULL ELSE 10 + i % 5 END AS int) AS category "
        f"FROM {_series(first, count)}"
    )


def _bids(first: int, count: int, auctions: int, people: int) -> str:
    # Hot auctions get half of the bids; every fiftieth bid has no auction, as one whose auction is not known yet.
    return (
        f"SELECT CASE WHEN i % 50 = 0 THEN NULL WHEN i % 2 = 0 THEN {_whole(20)} * 10 % {auctions} + 1 "
        f"ELSE i * 13 % {auctions} + 1 END AS auction, "
        f"i * 17 % {people} + 1 AS bidder, 100 + i * 7919 % 1000 AS price, "
        "CASE i % 4 WHEN 0 THEN NULL WHEN 1 THEN 'Google' WHEN 2 THEN 'Baidu' ELSE '' END AS channel, "
        f"TIMESTAMP '2015-07-15 00:00:00' + {_whole(12)} * INTERVAL '1 second' AS date_time "
        f"FROM {_series(first, count)}"
    )


def _whole(divisor: int) -> str:
    # The same in both databases, of which one divides integers to fractions.
    return f"CAST((i - i % {divisor}) / {divisor} AS bigint)"


def _series(first: int, count: int) -> str:
    # With an alias for the column, both databases know it; bigint, so that products do not overflow.
    return f"(SELECT CAST(n AS bigint) AS i FROM generate_series({first}, {first + count - 1}) AS s(n)) AS numbers"


def _sizes(events: int) -> tuple[int, int, int]:
    """People, auctions and bids among so many events: 1 to 3 to 46, as in the original generator."""
    return max(10, events // 50), max(30, events * 3 // 50), max(460, events * 46 // 50)


def generate(events: int) -> Any:
    """A DuckDB with the tables after so many events."""
    from pgtrickle_assets.services.duckdb import connect

    people, auctions, bids = _sizes(events)
    connection = connect()
    connection.execute(f"CREATE TABLE person AS {_people(1, people)}")
    connection.execute(f"CREATE TABLE auction AS {_auctions(1, auctions, people)}")
    connection.execute(f"CREATE TABLE bid AS {_bids(1, bids, auctions, people)}")
    return connection


def refresh_set(cycle: int, churn: float, events: int, table: Callable[[str], str] = str) -> list[str]:
    """Statements of one cycle: events arrive, the oldest are dropped, others are corrected.

    Args:
        cycle: Number of the cycle, from 0; the same number gives the same statements.
        churn: Share of the events that each of the three functions touches.
        events: Events that were generated.
        table: Name in SQL of a table.
    """
    sizes = _sizes(events)
    people, auctions, _ = sizes
    new_people, new_auctions, new_bids = (max(2, round(size * churn)) for size in sizes)
    arrived = [size + cycle * new for size, new in zip(sizes, (new_people, new_auctions, new_bids), strict=True)]
    person, auction, bid = table("person"), table("auction"), table("bid")
    step = max(5, round(1 / churn))
    oldest = (cycle + 1) * new_auctions
    return [
        f"INSERT INTO {person} (id, name, city, state, date_time) {_people(arrived[0] + 1, new_people)}",
        f"INSERT INTO {auction} (id, item_name, initial_bid, reserve, date_time, expires, seller, category) "
        f"{_auctions(arrived[1] + 1, new_auctions, people)}",
        f"INSERT INTO {bid} (auction, bidder, price, channel, date_time) "
        f"{_bids(arrived[2] + 1, new_bids, arrived[1] + new_auctions, people)}",
        # A second copy of some bids.
        f"INSERT INTO {bid} SELECT * FROM {bid} WHERE price % {step * 3} = {cycle}",
        f"DELETE FROM {bid} WHERE auction <= {oldest} AND auction > {oldest - new_auctions}",
        f"DELETE FROM {auction} WHERE id <= {oldest} AND id % 2 = 0",
        f"DELETE FROM {person} WHERE id % {step * 2} = {cycle * 3 + 1}",
        f"UPDATE {person} SET state = CASE WHEN state = 'or' THEN 'ny' ELSE 'or' END WHERE id % {step} = {cycle * 2}",
        f"UPDATE {person} SET date_time = date_time + INTERVAL '10 seconds' WHERE id % {step} = {cycle * 2 + 1}",
        f"UPDATE {auction} SET category = 10, expires = expires - INTERVAL '15 seconds' "
        f"WHERE id % {step} = {cycle * 2}",
        f"UPDATE {auction} SET seller = seller % {people} + 1 WHERE id % {step} = {cycle * 2 + 1}",
        f"UPDATE {bid} SET price = price + 500 WHERE bidder % {step} = {cycle}",
        f"UPDATE {bid} SET auction = auction % {auctions} + 1, channel = 'Apple' WHERE bidder % {step} = {cycle + 1}",
        f"UPDATE {bid} SET auction = NULL WHERE bidder % {step} = {cycle + 2} AND price % 3 = 0",
    ]
