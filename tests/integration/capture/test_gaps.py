"""A change that was not recorded is never passed over: the next batch says so, and says what to copy."""

import psycopg
import pytest
from support import Follower, execute, table

from pgtrickle_assets.capture.postgres import PostgresSource
from pgtrickle_assets.errors import (
    CaptureGapError,
    SourceReplacedError,
    SourceSchemaChangedError,
    SourceTableError,
)

T = table("t")


@pytest.fixture
def follower(database):
    execute(
        database,
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        "CREATE TABLE t (id int, v text, n numeric(8,2), m mood)",
        "INSERT INTO t VALUES (1, 'a', 1, 'good')",
    )
    source = PostgresSource("s", database)
    source.install([T])
    follower = Follower(source, database, [T])
    follower.step()
    return follower


def recover(follower):
    """What the hint of every such error says: install again, copy, go on."""
    follower.source.install([T])
    follower.step(copy=[T])
    execute(follower.dsn, "DELETE FROM t WHERE id = 1")
    follower.step()
    follower.trim()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE t DROP COLUMN v", "column 'v' was dropped"),
        ("ALTER TABLE t RENAME COLUMN v TO w", "column 'v' was renamed to 'w'"),
        ("ALTER TABLE t ALTER COLUMN v TYPE int USING 1", "column 'v' changed its type from text to integer"),
        (
            "ALTER TABLE t ALTER COLUMN n TYPE numeric(10,4)",
            "column 'n' changed its type from numeric(8,2) to numeric(10,4)",
        ),
        ("ALTER TABLE t DROP COLUMN v, ADD COLUMN v text", "column 'v' was dropped"),
    ],
)
def test_a_changed_column_is_named_and_never_stops_a_writer(follower, statement, words):
    with psycopg.connect(follower.dsn, autocommit=True) as writer:
        writer.execute("INSERT INTO t (id) VALUES (2)")
        execute(follower.dsn, statement)
        writer.execute("INSERT INTO t (id) VALUES (3)")
        writer.execute("UPDATE t SET id = id + 1")
        writer.execute("DELETE FROM t WHERE id = 4")
    assert follower.source.has_changes(follower.position)
    with pytest.raises(SourceSchemaChangedError) as error:
        follower.step()
    assert words in str(error.value)
    assert error.value.tables == ("public.t",)
    recover(follower)


@pytest.mark.parametrize(
    "statement",
    ["ALTER TABLE t DROP COLUMN v", "ALTER TABLE t RENAME v TO w", "ALTER TABLE t ALTER v TYPE int USING 1"],
)
def test_a_changed_column_of_a_partitioned_table_never_stops_a_writer(database, statement):
    execute(
        database,
        "CREATE TABLE t (id int, v text) PARTITION BY LIST (id)",
        "CREATE TABLE t1 (v text, id int)",
        "ALTER TABLE t ATTACH PARTITION t1 DEFAULT",
    )
    source = PostgresSource("s", database)
    source.install([T])
    follower = Follower(source, database, [T])
    follower.step()
    with psycopg.connect(database, autocommit=True) as writer:
        writer.execute("INSERT INTO t (id) VALUES (1), (2)")
        follower.step()
        execute(database, statement)
        writer.execute("INSERT INTO t1 (id) VALUES (3)")
        writer.execute("UPDATE t SET id = id + 1")
        writer.execute("DELETE FROM t WHERE id = 4")
        writer.execute("TRUNCATE t")
    with pytest.raises(SourceSchemaChangedError, match="column 'v'"):
        follower.step()
    assert source.install([T]) == {T: "rebuilt"}
    follower.step(copy=[T])


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["DROP TABLE t"], "the table was dropped"),
        (["DROP TABLE t", "CREATE TABLE t (id int)"], "the table was dropped"),
        (["ALTER TABLE t RENAME TO u", "INSERT INTO u (id) VALUES (5)", "TRUNCATE u"], "renamed to public.u"),
    ],
)
def test_a_dropped_or_renamed_table_is_named(follower, statements, words):
    execute(follower.dsn, *statements)
    assert follower.source.has_changes(follower.position)
    with pytest.raises(SourceSchemaChangedError, match=words):
        follower.step()


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["ALTER TABLE t DISABLE TRIGGER ALL"], "missing or disabled"),
        (
            ["ALTER TABLE t DISABLE TRIGGER ALL", "DELETE FROM t", "ALTER TABLE t ENABLE TRIGGER ALL"],
            "missing or disabled",
        ),
        (
            [
                "DO $$ DECLARE n name; BEGIN FOR n IN SELECT tgname FROM pg_trigger WHERE tgrelid = 't'::regclass LOOP"
                " EXECUTE format('ALTER TABLE t DISABLE TRIGGER %I', n); INSERT INTO t (id) VALUES (5);"
                " EXECUTE format('ALTER TABLE t ENABLE ALWAYS TRIGGER %I', n); END LOOP; END $$"
            ],
            "disabled or replaced for a time",
        ),
        (["ALTER TABLE t ALTER COLUMN id TYPE int USING id + 1"], "rewritten by ALTER TABLE"),
        (["ALTER TYPE mood RENAME VALUE 'good' TO 'fine'"], "label of one of its enum types"),
        (["BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT; TRUNCATE t; COMMIT"], "truncated above READ COMMITTED"),
    ],
)
def test_an_unrecorded_change_is_a_gap(follower, statements, words):
    execute(follower.dsn, *statements)
    assert follower.source.has_changes(follower.position)
    with pytest.raises(CaptureGapError, match=words) as error:
        follower.step()
    assert error.value.tables == ("public.t",)
    recover(follower)


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE t ADD COLUMN x int DEFAULT 3", "ALTER TABLE t ADD COLUMN s int4range"],
        ["ALTER TYPE mood ADD VALUE 'great'"],
        ["ALTER TABLE t OWNER TO CURRENT_USER", "COMMENT ON TABLE t IS 'x'", "CREATE INDEX ON t (v)"],
        ["CREATE VIEW w AS SELECT * FROM t", "CREATE STATISTICS st ON id, v FROM t"],
    ],
)
def test_what_does_not_touch_captured_values_is_no_gap(follower, statements):
    execute(follower.dsn, *statements)
    assert not follower.source.has_changes(follower.position)
    execute(follower.dsn, "INSERT INTO t (id) VALUES (2)", "UPDATE t SET id = 3 WHERE id = 2")
    follower.step(columns="id, v, n, m::text")


def test_a_longer_varchar_is_no_gap(database):
    execute(database, "CREATE TABLE t (v varchar(3))")
    source = PostgresSource("s", database)
    source.install([T])
    follower = Follower(source, database, [T])
    follower.step()
    execute(database, "ALTER TABLE t ALTER v TYPE varchar(300)", "INSERT INTO t VALUES (repeat('x', 200))")
    follower.step()
    assert source.install([T]) == {T: "unchanged"}


@pytest.mark.parametrize("statement", ["ALTER TABLE t DETACH PARTITION t1", "DROP TABLE t1"])
def test_a_partition_that_leaves_is_a_gap(database, statement):
    execute(
        database,
        "CREATE TABLE t (id int) PARTITION BY LIST (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2)",
        "INSERT INTO t VALUES (1), (2)",
    )
    source = PostgresSource("s", database)
    source.install([T])
    follower = Follower(source, database, [T])
    follower.step()
    execute(database, statement)
    assert source.has_changes(follower.position)
    with pytest.raises(CaptureGapError, match="a partition was detached or dropped"):
        follower.step()
    follower.step(copy=[T])


def test_a_table_that_becomes_a_partition_must_be_installed_again(database):
    execute(database, "CREATE TABLE t (id int)", "CREATE TABLE root (id int) PARTITION BY LIST (id)")
    source = PostgresSource("s", database)
    source.install([T])
    follower = Follower(source, database, [T])
    follower.step()
    execute(database, "ALTER TABLE root ATTACH PARTITION t FOR VALUES IN (1)", "INSERT INTO root VALUES (1)")
    with pytest.raises(SourceSchemaChangedError, match="part of another one"):
        follower.step()
    assert source.install([T]) == {T: "rebuilt"}
    follower.step(copy=[T])
    execute(database, "INSERT INTO root VALUES (1)", "TRUNCATE root", "INSERT INTO root VALUES (1)")
    follower.step()
    follower.trim()
    assert all(state.healthy for state in source.trigger_inventory())


def test_a_restored_database_is_noticed(follower):
    with psycopg.connect(follower.dsn) as connection:
        connection.execute("DELETE FROM pgtrickle_changes.receipts")
    with pytest.raises(SourceReplacedError, match="went back to a state before"):
        follower.step()
    follower.position = None
    follower.step(copy=[T])


def test_another_database_is_noticed(postgres_server, follower):
    other = postgres_server.create_database("capture_other")
    try:
        execute(other, "CREATE TABLE t (id int)")
        source = PostgresSource("s", other)
        source.install([T])
        with pytest.raises(SourceReplacedError, match="not the database that was captured before"):
            source.read_batch(follower.position, [T])
        with pytest.raises(SourceReplacedError):
            source.trim(follower.position)
    finally:
        postgres_server.drop_database("capture_other")


def test_a_schema_that_came_with_a_dump_is_replaced(follower):
    with psycopg.connect(follower.dsn) as connection:
        connection.execute("UPDATE pgtrickle_changes.identity SET database_oid = 1")
    with pytest.raises(SourceReplacedError, match="dump of another database"):
        follower.step()
    assert follower.source.install([T]) == {T: "created"}
    follower.position = None
    follower.step(copy=[T])
    assert len(follower.source.trigger_inventory()) == 4


def test_an_old_position_is_refused_after_its_changes_were_removed(follower):
    old = follower.position
    execute(follower.dsn, "INSERT INTO t (id) VALUES (2)")
    follower.step()
    follower.trim()
    with pytest.raises(CaptureGapError, match="consumed and removed already"):
        follower.source.read_batch(old, [T])


def test_a_table_left_out_of_a_batch_has_to_be_copied(follower):
    execute(follower.dsn, "CREATE TABLE other (id int)")
    other = table("other")
    with pytest.raises(SourceTableError, match=r"not installed on source table public\.other"):
        follower.source.read_batch(follower.position, [T, other])
    follower.source.install([other])
    with pytest.raises(CaptureGapError, match="was not captured before") as error:
        follower.source.read_batch(follower.position, [T, other])
    assert error.value.tables == ("public.other",)
    batch = follower.source.read_batch(follower.position, [T, other], [other])
    assert set(batch.changes) == {T}
    assert set(batch.copied) == {other}
