"""`pause`, `resume`, `snapshot`, `restore`, `migrate` and `list` on real databases."""

from __future__ import annotations

import psycopg
import pytest

from pgtrickle_assets.connections import project_settings
from pgtrickle_assets.control import frontier, history
from pgtrickle_assets.control.migrations import migrations
from pgtrickle_assets.control.statuses import InitiatedBy, StrategyName
from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.project import Project
from pgtrickle_assets.refresh.api import RefreshEngine
from pgtrickle_assets.services.duckdb import connect

BY_DAY = "SELECT day, count(*) AS n, sum(price) AS revenue FROM orders GROUP BY day"


@pytest.fixture
def shop(command):
    command.json("create", "silver.orders", "--query", "SELECT id, day, price FROM shop.public.orders")
    command.json("create", "gold.by_day", "--query", BY_DAY.replace("orders", "silver.orders"))
    return command


def content(command, name="gold.by_day"):
    with connect() as connection:
        attach(connection, LakeLocation(command.catalog, "main", str(command.folder / "lake")))
        return sorted(connection.execute(f"SELECT * FROM lake.{name}").fetchall())


def test_pause_and_resume_show_in_list_and_status(shop):
    assert shop.json("pause", "gold.by_day") == [{"stream_table": "gold.by_day", "status": "PAUSED"}]
    assert {row["name"]: row["status"] for row in shop.json("list")}["gold.by_day"] == "PAUSED"
    line = next(row for row in shop.json("status")["stream_tables"] if row["stream_table"] == "gold.by_day")
    assert (line["status"], line["up_to_date"]) == ("PAUSED", None)
    assert "pgtrickle resume gold.by_day" in shop.run("status")[1]
    assert shop.json("resume", "gold.by_day") == [{"stream_table": "gold.by_day", "status": "INITIALIZING"}]


def test_history_says_why_in_words_and_what_went_wrong(shop):
    assert "Nothing has been refreshed yet." in shop.run("history")[1]
    with psycopg.connect(shop.catalog) as connection:
        (pgt_id,) = connection.execute(
            "SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'by_day'"
        ).fetchone()
        for error in ("", "the query of gold.by_day fails on the rows that it reads: division by zero."):
            refresh = history.start(connection, pgt_id, initiated_by=InitiatedBy.MANUAL)
            history.note_choice(connection, refresh, StrategyName.FULL, "first_fill", "not filled before", {})
            if error:
                history.fail(connection, refresh, error, permanent=False)
    _, out, _ = shop.run("history", "gold.by_day")
    assert "RUNNING" in out
    assert "not filled before" in out
    assert "division by zero" in out
    assert "first_fill" not in out


def test_resume_ends_a_suspension_and_forgets_its_errors(shop):
    with psycopg.connect(shop.catalog) as connection:
        connection.execute(
            "UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED', consecutive_errors = 3, is_populated = true,"
            " last_error_message = 'x', last_error_at = now() WHERE pgt_name = 'by_day'"
        )
    shop.json("resume", "gold.by_day")
    facts = "status, consecutive_errors, last_error_message"
    rows = shop.ask(f"SELECT {facts} FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'by_day'")
    assert rows == [("ACTIVE", 0, None)]


@pytest.mark.parametrize("status", ["PAUSED", "SUSPENDED"])
def test_what_is_held_is_not_behind_although_its_upstream_is(shop, status):
    project = Project.load(shop.folder)
    with RefreshEngine.open(project, project_settings(project), lambda: pytest.fail("Spark was started")) as engine:
        assert engine.behind() == {"silver.orders", "gold.by_day"}
        with psycopg.connect(shop.catalog) as connection:
            connection.execute(
                "UPDATE pgtrickle.pgt_stream_tables SET status = %s WHERE pgt_name = 'by_day'", (status,)
            )
        assert engine.behind() == {"silver.orders"}


def test_an_unknown_name_is_wrong_use_and_names_the_nearest(shop):
    for command in ("pause", "resume", "snapshot", "restore"):
        status, _, error = shop.run(command, "gold.by_dya")
        assert (status, error.count("\n")) == (2, 1)
        assert "Did you mean 'gold.by_day'?" in error


def test_a_stream_table_without_content_has_no_snapshot(shop):
    status, _, error = shop.run("snapshot", "gold.by_day")
    assert (status, "pgtrickle refresh gold.by_day" in error) == (1, True)
    status, _, error = shop.run("restore", "gold.by_day")
    assert (status, "has no snapshot" in error) == (1, True)


def test_migrate_says_what_it_would_do_and_does_it(command):
    versions = [step.version for step in migrations()]
    planned = command.json("migrate", "--dry-run")
    assert (planned["before"], [step["version"] for step in planned["steps"]]) == (None, versions)
    assert command.ask("SELECT to_regnamespace('pgtrickle')") == [(None,)]
    assert [step["version"] for step in command.json("migrate")["steps"]] == versions
    assert command.json("migrate")["steps"] == []
    assert "nothing to do" in command.run("migrate")[1]


def test_a_paused_stream_table_and_its_readers_are_left_out_of_a_run(shop, spark):
    shop.json("pause", "silver.orders")
    assert shop.json("refresh")["refreshes"] == []
    status, _, error = shop.run("refresh", "gold.by_day")
    assert status == 1
    assert "silver.orders is paused" in error
    assert "pgtrickle resume silver.orders" in error
    shop.json("resume", "silver.orders")
    assert len(shop.json("refresh")["refreshes"]) == 2


def test_a_snapshot_is_put_back_and_the_next_refresh_moves_on_from_it(shop, spark):
    shop.json("refresh")
    first = content(shop)
    taken = shop.json("snapshot", "gold.by_day", "--label", "monday")
    with psycopg.connect(shop.catalog) as connection:
        assert frontier.oldest_needed_snapshot(connection) <= min(taken["snapshot"], *taken["frontier"].values())
    with psycopg.connect(shop.source) as connection:
        connection.execute("UPDATE orders SET price = 10 WHERE id = 3; DELETE FROM orders WHERE id = 1")
    shop.json("refresh")
    second = content(shop)
    assert second != first
    # The frontier has moved on; the named snapshot still holds back what it was built from.
    with psycopg.connect(shop.catalog) as connection:
        assert frontier.oldest_needed_snapshot(connection) <= min(taken["snapshot"], *taken["frontier"].values())

    restored = shop.json("restore", "gold.by_day", "--label", "monday")
    assert [row["reason_code"] for row in restored["refreshes"]] == ["restored"]
    assert content(shop) == first
    assert shop.json("check", "gold.by_day")["success"]
    refreshed = {row["stream_table"]: row["strategy"] for row in shop.json("refresh")["refreshes"]}
    assert refreshed["gold.by_day"] == "differential"
    assert content(shop) == second
    assert shop.json("check")["success"]


def test_snapshots_are_listed_dropped_and_bound_to_their_definition(shop, spark):
    shop.json("refresh")
    shop.json("snapshot", "gold.by_day", "--label", "a")
    made_up = shop.json("snapshot", "gold.by_day")["label"]
    assert {row["label"] for row in shop.json("snapshot")} == {"a", made_up}
    status, _, error = shop.run("snapshot", "gold.by_day", "--label", "a")
    assert (status, "already" in error) == (1, True)
    status, _, error = shop.run("restore", "gold.by_day", "--label", made_up.replace("snap", "snop"))
    assert (status, f"Did you mean {made_up!r}?" in error) == (1, True)
    shop.json("snapshot", "gold.by_day", "--drop", made_up)
    assert [row["label"] for row in shop.json("snapshot", "--list")] == ["a"]
    shop.json(
        "alter", "gold.by_day", "--query", "SELECT day, count(*) AS n, sum(id) AS revenue FROM silver.orders GROUP BY 1"
    )
    status, _, error = shop.run("restore", "gold.by_day", "--label", "a")
    assert (status, "another definition" in error) == (1, True)
