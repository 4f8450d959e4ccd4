"""What counts as a change, whatever statement and whatever kind of table made it."""

from collections import Counter

import psycopg
import pytest
from support import Follower, execute, table

from pgtrickle_assets.capture.postgres import PostgresSource
from pgtrickle_assets.query.types import TableName

T = table("t")


@pytest.fixture
def source(database):
    execute(database, "CREATE TABLE t (id int, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    source = PostgresSource("s", database)
    source.install([T])
    return source


def net(source, position, name=T):
    rows = source.read_batch(position, [name]).changes[name].to_pylist()
    return Counter({tuple(list(row.values())[:-1]): row["__pgt_weight"] for row in rows})


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["INSERT INTO t VALUES (3, 'c')"], {(3, "c"): 1}),
        (["INSERT INTO t VALUES (3, 'c'), (3, 'c')"], {(3, "c"): 2}),
        (["INSERT INTO t VALUES (3, 'c')", "UPDATE t SET v = 'd' WHERE id = 3", "DELETE FROM t WHERE id = 3"], {}),
        (["UPDATE t SET v = 'z'", "UPDATE t SET v = CASE id WHEN 1 THEN 'a' ELSE 'b' END"], {}),
        (["UPDATE t SET id = 3 - id"], {(1, "a"): -1, (2, "b"): -1, (2, "a"): 1, (1, "b"): 1}),
        (["UPDATE t SET v = v"], {}),
        (["UPDATE t SET v = NULL WHERE id = 1"], {(1, "a"): -1, (1, None): 1}),
        (["DELETE FROM t WHERE false"], {}),
        (["TRUNCATE t"], {(1, "a"): -1, (2, "b"): -1}),
        (["TRUNCATE t", "INSERT INTO t VALUES (1, 'a')"], {(2, "b"): -1}),
        (["BEGIN; INSERT INTO t VALUES (9, 'x'); TRUNCATE t; INSERT INTO t VALUES (1, 'a'); COMMIT"], {(2, "b"): -1}),
        (
            ["BEGIN; SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; SAVEPOINT r; DELETE FROM t WHERE id = 1; COMMIT"],
            {(1, "a"): -1},
        ),
        (["COPY t FROM PROGRAM 'printf \"7\\tc\\n\"'"], {(7, "c"): 1}),
        (["SET session_replication_role = replica", "INSERT INTO t VALUES (3, 'c')"], {(3, "c"): 1}),
        (["ALTER TABLE t ADD COLUMN extra int DEFAULT 5", "INSERT INTO t VALUES (3, 'c')"], {(3, "c"): 1}),
        (["VACUUM FULL t", "CREATE INDEX ON t (id)"], {}),
        (["ALTER TABLE t ALTER v SET DEFAULT 'q'", "ALTER TABLE t ADD CHECK (id < 100)"], {}),
        (["ALTER TABLE t ALTER v SET NOT NULL", "ANALYZE t"], {}),
    ],
)
def test_net_changes(database, source, statements, expected):
    position = source.read_batch(None, [T], [T]).position
    execute(database, *statements)
    assert net(source, position) == Counter(expected)


def test_batch_at_position_takes_only_what_committed_since(database, source):
    position = source.read_batch(None, [T], [T]).position
    with psycopg.connect(database) as early, psycopg.connect(database) as late:
        early.execute("INSERT INTO t VALUES (10, 'early')")
        late.execute("INSERT INTO t VALUES (11, 'late')")
        late.commit()
        first = source.read_batch(position, [T])
        assert [row["id"] for row in first.changes[T].to_pylist()] == [11]
        assert source.holdback().description.startswith("user postgres")
        source.trim(first.position)
        early.commit()
    assert source.holdback() is None
    second = source.read_batch(first.position, [T])
    assert [row["id"] for row in second.changes[T].to_pylist()] == [10]
    source.trim(second.position)
    assert source.pending(None) == {T: 0}


def test_prepared_transactions_are_taken_when_they_are_committed(postgres_server, database, source):
    if not _prepared_allowed(database):
        pytest.skip("max_prepared_transactions is 0 on this server")
    position = source.read_batch(None, [T], [T]).position
    execute(database, "BEGIN; INSERT INTO t VALUES (5, 'p'); PREPARE TRANSACTION 'capture_test'")
    first = source.read_batch(position, [T])
    assert first.changes[T].num_rows == 0
    execute(database, "COMMIT PREPARED 'capture_test'")
    assert net(source, first.position) == Counter({(5, "p"): 1})


def _prepared_allowed(dsn):
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT current_setting('max_prepared_transactions')::int").fetchone()[0] > 0


def test_foreign_key_actions_are_captured(database, source):
    execute(
        database,
        "ALTER TABLE t ADD PRIMARY KEY (id)",
        "CREATE TABLE child (id int, t int REFERENCES t ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO child VALUES (1, 1), (2, 2)",
    )
    child = table("child")
    source.install([child])
    position = source.read_batch(None, [T, child], [T, child]).position
    execute(database, "DELETE FROM t WHERE id = 1", "UPDATE t SET id = 20 WHERE id = 2")
    batch = source.read_batch(position, [T, child])
    rows = {tuple(row.values()) for row in batch.changes[child].to_pylist()}
    assert rows == {(1, 1, -1), (2, 2, -1), (2, 20, 1)}


def test_writers_need_no_right_on_the_capture_schema(database, source):
    execute(
        database, "DROP ROLE IF EXISTS capture_app", "CREATE ROLE capture_app LOGIN", "GRANT ALL ON t TO capture_app",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY", "CREATE POLICY p ON t USING (id > 1)",
    )  # fmt: skip
    position = source.read_batch(None, [T], [T]).position
    execute(
        database,
        "SET ROLE capture_app",
        "SET search_path = nowhere",
        "INSERT INTO public.t VALUES (5, 'x')",
        "UPDATE public.t SET v = 'y'",
        "TRUNCATE public.t",
    )
    assert net(source, position) == Counter({(1, "a"): -1, (2, "b"): -1})
    execute(database, "DROP OWNED BY capture_app", "DROP ROLE capture_app")


NAMES = [
    TableName("public", "Straße \"x\" 'y' %s {0}; --"),
    TableName("Other Schema", "t" * 63),
    TableName("public", "UPPER.case"),
    TableName("public", "select"),
]
COLUMNS = (
    "weight",
    "b",
    "__usr_1",
    "new",
    "old",
    "tg_op",
    "found",
    'a"b',
    "%s",
    "{}",
    "c" * 63,
    "Ünï",
    "xmin_",
)


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_any_name_of_table_and_column_works(database, name):
    from psycopg import sql

    columns = sql.SQL(", ").join(sql.SQL("{} int").format(sql.Identifier(c)) for c in COLUMNS)
    identifier = sql.Identifier(name.schema, name.name)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(name.schema)))
        connection.execute(sql.SQL("CREATE TABLE {} ({})").format(identifier, columns))
        source = PostgresSource("s", database)
        source.install([name])
        position = source.read_batch(None, [name], [name]).position
        values = ", ".join(str(number) for number in range(len(COLUMNS)))
        connection.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(identifier, sql.SQL(values)))
        batch = source.read_batch(position, [name])
        assert batch.changes[name].column_names == [*COLUMNS, "__pgt_weight"]
        assert list(batch.changes[name].to_pylist()[0].values())[:-1] == list(range(len(COLUMNS)))
        connection.execute(sql.SQL("TRUNCATE {}").format(identifier))
        assert net(source, batch.position, name) == Counter({tuple(range(len(COLUMNS))): -1})


def test_a_large_copy_is_streamed_in_parts_that_run_anywhere(database):
    import pickle

    from pgtrickle_assets.capture.batch import copy_part

    execute(
        database,
        "CREATE TABLE t (id int, v text)",
        "INSERT INTO t SELECT i, repeat('x', 500) FROM generate_series(1, 20000) i",
    )
    source = PostgresSource("s", database)
    source.install([T])
    with source.open_batch(None, [T], [T], part_bytes=1 << 20) as batch:
        parts = batch.copies[T]
        assert len(parts) > 5
        execute(
            database,
            "DELETE FROM t WHERE id % 2 = 0",
            "INSERT INTO t SELECT i, 'new' FROM generate_series(20001, 40000) i",
        )
        again = [pickle.loads(pickle.dumps(part)) for part in parts]
        ids = [row for part in again for rows in copy_part(part) for row in rows.column("id").to_pylist()]
        assert sorted(ids) == list(range(1, 20001))
        assert database.split("@")[0] not in repr(parts)
    assert source.read_batch(batch.position, [T]).changes[T].num_rows == 30000


def test_reading_the_changes_of_many_transactions_uses_the_index(database, source):
    position = source.read_batch(None, [T], [T]).position
    with psycopg.connect(database, autocommit=True) as connection:
        for number in range(300):
            connection.execute("INSERT INTO t SELECT %s, 'x' FROM generate_series(1, 30)", [number])
        connection.execute("ANALYZE")
        with source.open_batch(position, [T]) as batch:
            later = batch.position
        from pgtrickle_assets.capture.position import Position
        from pgtrickle_assets.capture.read_sql import unseen

        where = unseen(Position.parse(later).snapshot).as_string(None)
        oid = connection.execute("SELECT 't'::regclass::oid").fetchone()[0]
        plan = connection.execute(f"EXPLAIN SELECT EXISTS (SELECT FROM pgtrickle_changes.changes_{oid} WHERE {where})")
        assert any("Index" in line for (line,) in plan)


def test_partitions_come_and_rows_arrive_by_every_way(database):
    execute(
        database,
        "CREATE TABLE t (at date, v int) PARTITION BY RANGE (at)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM ('2024-01-01') TO ('2025-01-01') PARTITION BY LIST (v)",
        "CREATE TABLE t11 PARTITION OF t1 FOR VALUES IN (1)",
        "CREATE TABLE t1x PARTITION OF t1 DEFAULT",
    )
    source = PostgresSource("s", database)
    source.install([T])
    follower = Follower(source, database, [T])
    follower.step()
    for statements in (
        ["INSERT INTO t VALUES ('2024-05-05', 1), ('2024-05-05', 2)", "INSERT INTO t1x VALUES ('2024-05-06', 3)"],
        ["UPDATE t SET v = 3 - v WHERE v < 3", "UPDATE t1x SET v = 9"],
        [
            "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')",
            "INSERT INTO t VALUES ('2025-01-01', 1)",
        ],
        ["TRUNCATE t11", "DELETE FROM t2"],
        [
            "CREATE TABLE t3 (v int, gone int, at date)", "ALTER TABLE t3 DROP gone",
            "INSERT INTO t3 VALUES (4, '2026-01-01'), (5, '2026-01-01')",
            "ALTER TABLE t ATTACH PARTITION t3 FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')",
            "UPDATE t SET v = 6 WHERE v = 5", "DELETE FROM t WHERE v = 4",
        ],
        [
            "CREATE TABLE t4 PARTITION OF t FOR VALUES FROM ('2027-01-01') TO ('2028-01-01')",
            "INSERT INTO t4 VALUES ('2027-01-01', 1)", "TRUNCATE t4", "INSERT INTO t4 VALUES ('2027-01-02', 1)",
        ],
    ):  # fmt: skip
        execute(database, *statements)
        batch = follower.step()
        if batch.pending_leaves:
            assert source.install([T]) == {T: "extended"}
        follower.trim()
    execute(database, "TRUNCATE t")
    assert not follower.step().pending_leaves
    assert not follower.content[T]


def test_a_table_that_inherits_is_captured_through_its_parent(database):
    execute(database, "CREATE TABLE parent (id int)", "CREATE TABLE t (v text) INHERITS (parent)")
    source = PostgresSource("s", database)
    source.install([T])
    position = source.read_batch(None, [T], [T]).position
    execute(database, "INSERT INTO t VALUES (1, 'a')", "UPDATE parent SET id = 2", "INSERT INTO parent VALUES (7)")
    assert net(source, position) == Counter({(2, "a"): 1})
