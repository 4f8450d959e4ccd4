"""A stream table made from SQL and one made from a file are the same thing."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import psycopg

from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.services.duckdb import connect

ORDERS = "SELECT id, day, price FROM shop.public.orders"
BY_DAY = "SELECT day, count(*) AS n, sum(price) AS revenue FROM silver.orders GROUP BY day"


def sql(command, text, *values):
    with psycopg.connect(command.catalog) as connection:
        return connection.execute(text, values).fetchall()


def content(command, name):
    with connect() as connection:
        attach(connection, LakeLocation(command.catalog, "main", str(command.folder / "lake")))
        return sorted(connection.execute(f"SELECT * FROM lake.{name}").fetchall())


def test_a_run_takes_up_what_sql_made_and_refreshes_it_like_a_file(command, spark):
    command.json("create", "silver.orders", "--query", ORDERS)
    sql(command, "SELECT pgtrickle.create_stream_table('gold.by_day', %s, 'manual')", BY_DAY)
    rows = command.json("refresh")["refreshes"]
    assert {row["stream_table"] for row in rows} == {"silver.orders", "gold.by_day"}
    assert content(command, "gold.by_day") == [
        (date(2024, 7, 1), 2, Decimal("3.50")),
        (date(2024, 7, 2), 1, Decimal("4.00")),
    ]
    assert sql(command, "SELECT status FROM pgtrickle.pgt_requests") == [("COMPLETED",)]
    # From the next load on it is an asset with a step and a check of its own.
    assert [row["name"] for row in command.json("list")] == ["silver.orders", "gold.by_day"]
    with psycopg.connect(command.source) as connection:
        connection.execute("DELETE FROM orders WHERE id = 1")
    rows = command.json("refresh", "gold.by_day")["refreshes"]
    assert {row["stream_table"]: row["strategy"] for row in rows}["gold.by_day"] == "differential"
    assert command.json("check")["success"]


def test_files_and_sql_do_not_define_the_same_and_the_error_says_who_wins(command):
    command.json("create", "silver.orders", "--query", ORDERS)
    sql(command, "SELECT pgtrickle.create_stream_table('gold.by_day', %s, initialize => false)", BY_DAY)
    command.json("apply")
    assert sql(command, "SELECT origin FROM pgtrickle.pgt_stream_tables ORDER BY pgt_name") == [("sql",), ("file",)]
    for arguments in (("alter", "gold.by_day", "--schedule", "5m"), ("drop", "gold.by_day")):
        status, _, error = command.run(*arguments)
        assert (status, "was made from SQL" in error) == (1, True)
    assert command.run("create", "gold.by_day", "--query", BY_DAY)[0] == 2

    file = command.file("gold.by_day")
    file.parent.mkdir()
    file.write_text(BY_DAY)
    _, _, warning = command.run("apply")
    assert "gold.by_day, made from SQL, was not taken up: stream_tables/gold/by_day.sql defines it too" in warning
    assert sql(command, "SELECT origin FROM pgtrickle.pgt_stream_tables ORDER BY pgt_name") == [("file",), ("file",)]
    file.unlink()
    command.json("apply")
    assert sql(command, "SELECT origin FROM pgtrickle.pgt_stream_tables ORDER BY pgt_name") == [("sql",), ("file",)]


def test_what_sql_defines_wrong_is_said_and_stops_nothing(command):
    command.json("create", "silver.orders", "--query", ORDERS)
    sql(command, "SELECT pgtrickle.create_stream_table('gold.by_day', %s)", BY_DAY)
    sql(command, "SELECT pgtrickle.create_stream_table('gold.wrong', 'SELECT dya FROM silver.orders')")
    status, _, warning = command.run("apply")
    assert status == 0
    assert 'column "dya" does not exist' in warning
    assert {row["name"] for row in command.json("list")} == {"silver.orders", "gold.by_day"}
    # A definition that was good keeps its table when it breaks.
    sql(command, "SELECT pgtrickle.alter_stream_table('gold.by_day', query => 'SELECT nope FROM silver.orders')")
    assert command.run("apply")[0] == 0
    assert "gold.by_day" in command.lake_tables()
    sql(command, "SELECT pgtrickle.drop_stream_table('gold.by_day')")
    assert command.run("apply")[0] == 0
    assert "gold.by_day" not in command.lake_tables()


def test_a_file_may_read_what_sql_made(command):
    command.json("create", "silver.orders", "--query", ORDERS)
    sql(command, "SELECT pgtrickle.create_stream_table('gold.by_day', %s)", BY_DAY)
    command.json("apply")
    command.json("create", "gold.best", "--query", "SELECT max(revenue) AS revenue FROM gold.by_day")
    status, _, error = command.run("drop", "silver.orders", "--cascade")
    assert (status, "gold.by_day was made from SQL" in error) == (1, True)
    assert command.file("gold.best").exists()
    assert command.run("list")[0] == 0
