"""Installing and removing capture: whole or not at all, short locks, clear words."""

import threading
import time

import psycopg
import pytest
from support import Follower, execute, table

from pgtrickle_assets.capture.dsn import FixedDsn
from pgtrickle_assets.capture.locks import LockPolicy
from pgtrickle_assets.capture.postgres import PostgresSource
from pgtrickle_assets.errors import SourceBusyError, SourcePrivilegeError, SourceTableError, UnsupportedTypeError
from pgtrickle_assets.query.types import TableName

T = table("t")


@pytest.fixture
def roles(database):
    """An owner and a stranger, neither of them a superuser."""
    execute(
        database, "DROP ROLE IF EXISTS capture_owner", "DROP ROLE IF EXISTS capture_stranger",
        "CREATE ROLE capture_owner LOGIN PASSWORD 'geheim'", "CREATE ROLE capture_stranger LOGIN PASSWORD 'geheim'",
        "CREATE SCHEMA app AUTHORIZATION capture_owner", "SET ROLE capture_owner",
        "CREATE TABLE app.t (id int PRIMARY KEY)", "GRANT USAGE ON SCHEMA app TO capture_stranger",
    )  # fmt: skip
    yield database
    execute(
        database, "DROP OWNED BY capture_owner CASCADE", "DROP OWNED BY capture_stranger CASCADE",
        "DROP ROLE capture_owner", "DROP ROLE capture_stranger",
    )  # fmt: skip


def as_role(dsn, role):
    return psycopg.conninfo.make_conninfo(dsn, user=role, password="geheim")


def leftovers(dsn):
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT (SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'pgtrickle%'),"
            " (SELECT count(*) FROM pg_namespace WHERE nspname = 'pgtrickle_changes')"
        ).fetchone()


def test_uninstall_removes_everything(database):
    execute(
        database, "CREATE TABLE t (id int)", "CREATE TABLE p (id int) PARTITION BY LIST (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)",
    )  # fmt: skip
    source = PostgresSource("s", database)
    source.install([T, table("p")])
    execute(database, "INSERT INTO p VALUES (1)", "CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2)", "DROP TABLE t")
    source.uninstall()
    assert leftovers(database) == (0, 0)
    execute(database, "INSERT INTO p VALUES (1), (2)", "TRUNCATE p")
    source.uninstall()
    assert source.trigger_inventory() == []


def test_installing_again_changes_nothing_and_repairs_what_is_broken(database):
    execute(database, "CREATE TABLE t (id int)")
    source = PostgresSource("s", database)
    assert source.install([T]) == {T: "created"}
    execute(database, "INSERT INTO t VALUES (1)")
    assert source.install([T]) == {T: "unchanged"}
    assert source.pending(None) == {T: 1}
    name = source.trigger_inventory()[0].trigger
    execute(database, f"DROP TRIGGER {name} ON t")
    assert [state.healthy for state in source.trigger_inventory()] == [False, True, True, True]
    assert source.install([T]) == {T: "rebuilt"}
    assert all(state.healthy for state in source.trigger_inventory())


def test_columns_of_all_consumers_are_captured_together(database):
    execute(database, "CREATE TABLE t (a int, b int, c interval)")
    first = PostgresSource("s", database, consumer="first", exclude_columns={T: ["b", "c"]})
    second = PostgresSource("s", database, consumer="second", exclude_columns={T: ["a", "c"]})
    assert first.install([T]) == {T: "created"}
    assert second.install([T]) == {T: "rebuilt"}
    assert first.install([T]) == {T: "unchanged"}
    position = first.read_batch(None, [T], [T]).position
    execute(database, "INSERT INTO t VALUES (1, 2, '1 day'), (1, 3, NULL)")
    assert first.read_batch(position, [T]).changes[T].to_pylist() == [{"a": 1, "__pgt_weight": 2}]
    second.uninstall()
    assert first.install([T]) == {T: "rebuilt"}
    first.uninstall([T])
    assert leftovers(database) == (0, 0)


def test_another_column_set_is_captured_after_installing_again(database):
    execute(database, "CREATE TABLE t (a int, b int)")
    assert PostgresSource("s", database, exclude_columns={T: ["b"]}).install([T]) == {T: "created"}
    source = PostgresSource("s", database)
    assert source.install([T]) == {T: "rebuilt"}
    follower = Follower(source, database, [T])
    follower.step()
    execute(database, "INSERT INTO t VALUES (1, 2)")
    follower.step()


def test_a_busy_table_is_given_up_in_time_and_the_holder_is_named(database):
    execute(database, "CREATE TABLE t (id int)")
    source = PostgresSource("s", database, lock_policy=LockPolicy(0.2, 0.1, 1.0))
    with psycopg.connect(database, application_name="nightly load") as writer:
        writer.execute("INSERT INTO t VALUES (1)")
        started = time.monotonic()
        with pytest.raises(SourceBusyError) as error:
            source.install([T])
        assert time.monotonic() - started < 15
        assert f"locked by pid {writer.info.backend_pid} (user postgres, nightly load, idle in transaction" in str(
            error.value
        )
        assert leftovers(database)[0] == 0
    assert source.install([T]) == {T: "created"}


def test_installing_waits_for_a_short_transaction_without_stopping_the_others(database):
    execute(database, "CREATE TABLE t (id int)")
    source = PostgresSource("s", database, lock_policy=LockPolicy(0.1, 0.3, 30.0))
    stop, delays = threading.Event(), []

    def write():
        with psycopg.connect(database, autocommit=True) as connection:
            while not stop.is_set():
                started = time.monotonic()
                connection.execute("INSERT INTO t VALUES (2)")
                delays.append(time.monotonic() - started)
                time.sleep(0.02)

    with psycopg.connect(database) as slow:
        slow.execute("INSERT INTO t VALUES (1)")
        installer = threading.Thread(target=source.install, args=([T],))
        writer = threading.Thread(target=write)
        writer.start()
        installer.start()
        time.sleep(1.5)
        slow.commit()
        installer.join()
        stop.set()
        writer.join()
    assert all(state.healthy for state in source.trigger_inventory())
    # Without giving the lock request up in between, one insert would have waited for the slow transaction.
    assert sorted(delays)[-1] < 1.2


def test_an_owner_who_is_no_superuser_can_install_and_read(roles):
    name = TableName("app", "t")
    source = PostgresSource("s", as_role(roles, "capture_owner"))
    with pytest.raises(SourcePrivilegeError, match="may not create schema pgtrickle_changes") as error:
        source.install([name])
    assert "GRANT CREATE ON DATABASE" in error.value.hint
    execute(roles, "CREATE SCHEMA pgtrickle_changes AUTHORIZATION capture_owner")
    source.install([name])
    follower = Follower(source, source.dsn, [name])
    follower.step()
    execute(roles, "INSERT INTO app.t VALUES (1)")
    follower.step()
    follower.trim()
    source.uninstall()
    assert leftovers(roles)[0] == 0


def test_who_does_not_own_a_table_is_told_what_to_grant(roles):
    name = TableName("app", "t")
    source = PostgresSource("s", as_role(roles, "capture_stranger"))
    with pytest.raises(SourcePrivilegeError, match=r"may not read table app\.t"):
        source.describe([name])
    execute(
        roles,
        "GRANT SELECT ON app.t TO capture_stranger",
        "CREATE SCHEMA pgtrickle_changes AUTHORIZATION capture_stranger",
    )
    with pytest.raises(SourcePrivilegeError, match="needs its owner 'capture_owner'") as error:
        source.install([name])
    assert 'GRANT "capture_owner"' in error.value.hint
    execute(roles, "ALTER TABLE app.t ENABLE ROW LEVEL SECURITY")
    with pytest.raises(SourcePrivilegeError, match="row level security hides rows"):
        source.describe([name])


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        ("CREATE VIEW t AS SELECT 1 AS x", "is a view"),
        ("CREATE MATERIALIZED VIEW t AS SELECT 1 AS x", "is a materialized view"),
        ("CREATE UNLOGGED TABLE t (id int)", "is unlogged"),
        ("CREATE TABLE t (id int); CREATE TABLE u () INHERITS (t)", "tables that inherit from it"),
        ("CREATE TABLE tt (id int)", "does not exist. Did you mean public.tt?"),
        ("CREATE SCHEMA x; CREATE TABLE x.t (id int)", "does not exist. Did you mean x.t?"),
        ("CREATE TABLE t ()", "has no column to capture"),
    ],
)
def test_what_cannot_be_captured_is_refused_with_a_way_out(database, ddl, words):
    execute(database, *ddl.split(";"))
    with pytest.raises(SourceTableError) as error:
        PostgresSource("s", database).install([T])
    assert words in str(error.value)
    assert error.value.hint
    assert leftovers(database) == (0, 0)


@pytest.mark.parametrize(
    "column",
    [
        "v interval", "v int4range", "v money", "v point", "v numeric(40,2)", "v xml", "v bit(3)", "v timetz",
        "v int GENERATED ALWAYS AS (1) VIRTUAL", "__pgt_weight int",
    ],
)  # fmt: skip
def test_a_column_without_exact_type_is_named(database, column):
    execute(database, f"CREATE TABLE t (id int, {column})")
    name = column.split()[0]
    with pytest.raises(UnsupportedTypeError, match=f"column '{name}' of source table public.t"):
        PostgresSource("s", database).describe([T])
    source = PostgresSource("s", database, exclude_columns={T: [name]})
    assert [c.name for c in source.describe([T])[T].schema.columns] == ["id"]
    (unsupported,) = PostgresSource("s", database).describe()[T].unsupported
    assert unsupported.name == name


@pytest.mark.parametrize("excluded", ["a", "A"])
def test_columns_that_differ_only_in_case_are_named(database, excluded):
    execute(database, 'CREATE TABLE t (a int, b int, "A" int)')
    with pytest.raises(
        UnsupportedTypeError, match=r"column 'A' of source table public\.t .* column 'a', .*exclude_colu"
    ):
        PostgresSource("s", database).describe([T])
    source = PostgresSource("s", database, exclude_columns={T: [excluded]})
    assert {c.name for c in source.describe([T])[T].schema.columns} == {"a", "b", "A"} - {excluded}
    assert [c.name for c in PostgresSource("s", database).describe()[T].schema.columns] == ["a", "b"]


def test_describe_knows_keys_and_foreign_keys(database):
    execute(
        database,
        "CREATE TABLE parent (a int, b text, PRIMARY KEY (b, a))",
        "CREATE TABLE t (id int NOT NULL, a int, b text, UNIQUE (a, b), FOREIGN KEY (b, a) REFERENCES parent)",
        "CREATE UNIQUE INDEX ON t (id) INCLUDE (a)",
        "CREATE UNIQUE INDEX ON t (lower(b))",
    )
    found = PostgresSource("s", database).describe()
    assert found[table("parent")].schema.key == ("b", "a")
    assert found[T].schema.key == ("id",)
    (foreign,) = found[T].foreign_keys
    assert (foreign.columns, foreign.target, foreign.target_columns) == (("b", "a"), table("parent"), ("b", "a"))
    assert PostgresSource("s", database, exclude_columns={T: ["id"]}).describe([T])[T].schema.key == ()


def test_an_unproved_not_null_is_nullable(database):
    execute(database, "CREATE TABLE t (id int UNIQUE)", "ALTER TABLE t ADD CONSTRAINT c NOT NULL id NOT VALID")
    described = PostgresSource("s", database).describe([T])[T]
    assert described.schema.columns[0].nullable
    assert described.schema.key == ()


def test_an_unknown_excluded_column_is_an_error_with_the_nearest_name(database):
    execute(database, "CREATE TABLE t (amount int)")
    with pytest.raises(SourceTableError, match="has no column 'amont'") as error:
        PostgresSource("s", database, exclude_columns={T: ["amont"]}).describe([T])
    assert error.value.hint == "Did you mean 'amount'?"


def test_the_password_shows_nowhere(database):
    source = PostgresSource("s", database)
    secret = psycopg.conninfo.conninfo_to_dict(database).get("password") or "postgres@"
    assert secret not in repr(source)
    assert secret not in repr(FixedDsn(database))
