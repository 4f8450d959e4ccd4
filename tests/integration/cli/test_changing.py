"""`create`, `alter` and `drop` on real databases: what they check, what they write, what they leave."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import psycopg

from pgtrickle_assets.project import Project

BY_DAY = "SELECT day, count(*) AS n, sum(price) AS revenue FROM orders GROUP BY day"
STATE = "pgtrickle_state"


def test_create_writes_the_file_and_registers_it(command):
    made = command.json(
        "create",
        "gold.by_day",
        "--query",
        BY_DAY,
        "--partition-by",
        "day(day)",
        "--tag",
        "tier=hot",
        "--owner",
        "team:x",
    )
    assert (made["effect"], made["effective_mode"], made["reasons"]) == ("created", "differential", [])
    table = Project.load(command.folder).stream_table("gold.by_day")
    assert (table.query, table.partition_by, table.tags, table.owners) == (
        BY_DAY,
        "day(day)",
        {"tier": "hot"},
        ("team:x",),
    )
    # What the project's defaults say is not written into the file.
    assert "manual" not in command.file("gold.by_day").read_text()
    assert command.ask("SELECT schedule, origin, origin_path FROM pgtrickle.pgt_stream_tables") == [
        ("manual", "file", "stream_tables/gold/by_day.sql")
    ]
    assert {"gold.by_day", "raw.orders"} <= set(command.lake_tables())
    assert command.triggers() == {"orders"}


def test_create_takes_options_from_the_file_and_those_of_the_command_win(command, tmp_path):
    text = f"/*---\nschedule: 1h\ndescription: from the file\n---*/\n{BY_DAY};\n"
    (tmp_path / "query.sql").write_text(text)
    command.json("create", "gold.by_day", "--file", str(tmp_path / "query.sql"), "--schedule", "5m")
    table = Project.load(command.folder).stream_table("gold.by_day")
    assert (table.schedule, table.description) == ("5m", "from the file")


def test_nothing_is_written_for_what_cannot_be(command):
    refused = [
        (("create", "gold.x", "--query", "SELECT dya FROM orders"), 1, 'Did you mean "day"?'),
        (("create", "gold.x", "--query", "SELECT 1 FROM ordres"), 1, "Did you mean public.orders"),
        (("create", "gold.x", "--query", BY_DAY, "--refresh-mode", "differental"), 2, "Did you mean 'differential'?"),
        (("create", "gold.x", "--query", BY_DAY, "--schedule", "often"), 2, "not a schedule"),
        (("create", "gold.x", "--query", BY_DAY, "--partition-by", "day(revenue)"), 1, "cannot use a column"),
        (("create", "x", "--query", BY_DAY), 2, "schema.table"),
        (("create", "gold.x"), 2, "--query or --file"),
        (("create", "raw.x", "--query", BY_DAY), 1, "kept for mirrors"),
        (("create", "gold.x", "--query", "SELECT FROM WHERE"), 1, "stream_tables/gold/x.sql"),
    ]
    for arguments, expected, text in refused:
        status, _, error = command.run(*arguments)
        told = [line for line in error.splitlines() if not line.endswith(" ...")]
        assert (status, len(told)) == (expected, 1), error
        assert text in told[0]
    assert not (command.folder / "stream_tables").exists()
    assert command.ask("SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]


def test_a_table_that_is_there_is_not_created_again(command):
    command.json("create", "gold.by_day", "--query", BY_DAY)
    before = command.file("gold.by_day").read_text()
    status, _, error = command.run("create", "gold.by_day", "--query", "SELECT 1 AS one FROM orders")
    assert (status, command.file("gold.by_day").read_text()) == (2, before)
    assert "pgtrickle alter gold.by_day" in error


def test_files_are_put_back_when_registering_fails(command):
    with psycopg.connect(command.source) as connection:
        connection.execute("CREATE TABLE locked (id bigint PRIMARY KEY); CREATE ROLE other_owner")
        connection.execute("ALTER TABLE locked OWNER TO other_owner")
        connection.execute("CREATE ROLE shopkeeper LOGIN PASSWORD 'x'; GRANT SELECT ON locked, orders TO shopkeeper")
    try:
        place = command.source.rpartition("@")[2]
        os.environ["SHOP_DSN"] = f"postgresql://shopkeeper:x@{place}"
        status, _, error = command.run("create", "gold.x", "--query", "SELECT id FROM locked")
        assert status == 1
        assert "GRANT" in error
        assert not command.file("gold.x").exists()
        assert command.ask("SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]
    finally:
        with psycopg.connect(command.source) as connection:
            connection.execute("DROP TABLE locked; DROP OWNED BY shopkeeper; DROP ROLE shopkeeper, other_owner")


def test_alter_of_options_keeps_comments_and_content(command):
    command.json("create", "gold.by_day", "--query", BY_DAY)
    file = command.file("gold.by_day")
    file.write_text(f"/*---\nschedule: 1m   # often enough\ndescription: old\n---*/\n-- by day\n{BY_DAY}\n")
    command.json("apply")
    table = command.lake_tables()["gold.by_day"]
    altered = command.json("alter", "gold.by_day", "--schedule", "5m", "--unset", "description")
    assert altered["effect"] == "unchanged"
    assert file.read_text() == f"/*---\nschedule: 5m   # often enough\n---*/\n-- by day\n{BY_DAY}\n"
    assert command.lake_tables()["gold.by_day"] == table
    assert command.ask("SELECT schedule, needs_reinit, description FROM pgtrickle.pgt_stream_tables") == [
        ("5m", False, "")
    ]


def test_alter_of_the_query_keeps_the_table_where_columns_stay_and_says_so(command):
    mean = "SELECT day, avg(id)::numeric(38, 6) AS x, count(*) AS n FROM orders GROUP BY day"
    command.json("create", "gold.by_day", "--query", mean)
    before = command.lake_tables()
    assert {name for name in before if name.startswith(STATE)}
    status, out, _ = command.run("alter", "gold.by_day", "--query", mean.replace("avg(id)", "avg(id + 1)"))
    assert status == 0
    assert "its table is kept" in out
    assert command.lake_tables() == before

    # A state that no definition has any more goes; the result keeps its columns and so its table.
    plain = "SELECT day, id::numeric(38, 6) AS x, id AS n FROM orders"
    assert command.json("alter", "gold.by_day", "--query", plain)["effect"] == "recomputed"
    after = command.lake_tables()
    assert after["gold.by_day"] == before["gold.by_day"]
    assert not {name for name in after if name.startswith(STATE)}
    assert command.ask("SELECT state_tables FROM pgtrickle.pgt_stream_tables") == [([],)]

    assert command.json("alter", "gold.by_day", "--query", "SELECT day, id FROM orders")["effect"] == "rebuilt"
    assert command.lake_tables()["gold.by_day"] != before["gold.by_day"]
    assert command.lake_columns("gold.by_day") == ["day", "id"]


def test_alter_without_anything_to_alter_is_wrong_use(command):
    command.json("create", "gold.by_day", "--query", BY_DAY)
    assert command.run("alter", "gold.by_day")[0] == 2
    status, _, error = command.run("alter", "gold.by_dya", "--schedule", "5m")
    assert (status, "Did you mean 'gold.by_day'?" in error) == (2, True)
    status, _, error = command.run("alter", "gold.by_day", "--unset", "shedule")
    assert (status, "Did you mean 'schedule'?" in error) == (2, True)


def test_drop_takes_everything_of_its_own_along_and_nothing_that_others_need(command):
    command.json("create", "gold.by_day", "--query", BY_DAY)
    command.json(
        "create", "silver.lines", "--query", "SELECT l.id, o.day FROM lines l JOIN orders o ON o.id = l.order_id"
    )
    assert command.triggers() == {"orders", "lines"}
    dropped = command.json("drop", "silver.lines")
    assert dropped == {"dropped": ["silver.lines"], "files": ["stream_tables/silver/lines.sql"]}
    assert not command.file("silver.lines").exists()
    assert command.triggers() == {"orders"}
    tables = set(command.lake_tables())
    assert {"gold.by_day", "raw.orders"} <= tables
    assert not tables.intersection({"silver.lines", "raw.lines"})

    command.json("drop", "gold.by_day")
    assert command.triggers() == set()
    assert command.lake_tables() == {}
    for table in ("pgt_stream_tables", "pgt_source_mirrors", "pgt_frontiers"):
        assert command.ask(f"SELECT count(*) FROM pgtrickle.{table}") == [(0,)]


def test_drop_refuses_what_is_read_and_names_the_readers(command):
    command.json("create", "silver.orders", "--query", "SELECT id, day, price FROM shop.public.orders")
    command.json("create", "silver.big", "--query", "SELECT id, day FROM silver.orders WHERE price > 1")
    command.json("create", "gold.days", "--query", "SELECT day, count(*) AS n FROM silver.big GROUP BY day")
    status, _, error = command.run("drop", "silver.orders")
    assert status == 1
    assert "read by silver.big, gold.days" in error
    assert "--cascade" in error
    assert command.file("silver.orders").exists()
    dropped = command.json("drop", "silver.orders", "--cascade")["dropped"]
    assert dropped == ["gold.days", "silver.big", "silver.orders"]
    assert command.ask("SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]


def test_a_removed_file_that_another_one_reads_is_an_error_and_drops_nothing(command):
    command.json("create", "silver.orders", "--query", "SELECT id, day, price FROM shop.public.orders")
    command.json("create", "gold.by_day", "--query", BY_DAY.replace("orders", "silver.orders"))
    file = command.file("silver.orders")
    text = file.read_text()
    file.unlink()
    for command_name, message in (
        ("apply", "stream table silver.orders is read here, but its definition is gone"),
        ("refresh", "there is no table 'silver.orders'"),
    ):
        status, _, error = command.run(command_name)
        assert status == 1
        assert "stream_tables/gold/by_day.sql:" in error
        assert message in error
        assert "silver.orders" in command.lake_tables()
    file.write_text(text)
    assert command.run("apply")[0] == 0
    assert command.run("list")[0] == 0
    file.unlink()
    command.file("gold.by_day").unlink()
    assert command.run("apply")[0] == 0
    assert not {"silver.orders", "gold.by_day"} & set(command.lake_tables())


def test_the_installed_command_does_the_same(command):
    made = _finished(_started(command, "create", "gold.by_day", "--query", BY_DAY))
    # Without a terminal each step is a line.
    assert (made.status, made.err) == (0, "Checking the query against the sources ...\nRegistering ...\n")
    assert "wrote stream_tables/gold/by_day.sql" in made.out
    wrong = _finished(_started(command, "drop", "gold.by_dya"))
    assert (wrong.status, wrong.out) == (2, "")
    assert "Did you mean 'gold.by_day'?" in wrong.err
    assert _finished(_started(command, "drop", "gold.by_day")).status == 0
    assert not command.file("gold.by_day").exists()


def test_of_two_that_create_the_same_at_once_one_does_and_the_other_says_that_it_is_there(command):
    queries = [BY_DAY, "SELECT id FROM orders"]
    started = [_started(command, "create", "gold.same", "--query", query) for query in queries]
    ended = [_finished(process) for process in started]
    assert sorted(process.status for process in ended) == [0, 2]
    (loser,) = [process for process in ended if process.status]
    assert "there is a stream table gold.same already" in loser.err
    won = next(query for query, process in zip(queries, ended, strict=True) if process.status == 0)
    assert Project.load(command.folder).stream_table("gold.same").query == won


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str


def _started(command, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "pgtrickle_assets.cli.main", *arguments],
        cwd=command.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finished(process):
    out, err = process.communicate(timeout=120)
    return Ended(process.returncode, out, err)
