import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from pgtrickle_assets.control.migrations import Migration, migrate, migrations, require_current, schema_version
from pgtrickle_assets.errors import ControlError


def test_a_new_database_gets_every_version_and_a_second_run_none(database):
    known = tuple(step.version for step in migrations())
    assert migrate(database) == known
    assert migrate(database) == ()
    with psycopg.connect(database) as connection:
        assert schema_version(connection) == known[-1]
        require_current(connection)


def test_versions_are_recorded_with_time_and_description(database):
    migrate(database)
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT version, description, applied_at FROM pgtrickle.pgt_schema_version"
        ).fetchall()
    assert [(version, text) for version, text, _ in rows] == [(s.version, s.description) for s in migrations()]
    assert all(applied is not None for _, _, applied in rows)


def test_processes_that_migrate_at_once_apply_each_version_once(database):
    code = "import sys; from pgtrickle_assets.control.migrations import migrate; print(len(migrate(sys.argv[1])))"

    def run(_: int) -> int:
        command = [sys.executable, "-c", code, database]
        return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(run, range(8))) == len(migrations())


def test_a_newer_schema_is_refused_and_left_alone(database):
    migrate(database)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("INSERT INTO pgtrickle.pgt_schema_version VALUES ('9999', now(), 'from the future')")
        with pytest.raises(ControlError, match=r"9999.*Upgrade"):
            migrate(database)
        with pytest.raises(ControlError, match="9999"):
            require_current(connection)


def test_a_failing_version_leaves_nothing_behind(database):
    steps = [
        Migration("0001", "good", "CREATE TABLE pgtrickle.a (n int);"),
        Migration("0002", "bad", "CREATE TABLE pgtrickle.b (n int); SELECT 1/0;"),
    ]
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(database, steps=steps)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regnamespace('pgtrickle')").fetchone() == (None,)


def test_later_versions_are_added_to_an_older_schema(database):
    first = Migration("0001", "first", "CREATE TABLE pgtrickle.a (n int);")
    second = Migration("0002", "second", "ALTER TABLE pgtrickle.a ADD m int;")
    assert migrate(database, steps=[first]) == ("0001",)
    assert migrate(database, steps=[first, second]) == ("0002",)


def test_a_missing_schema_is_an_error_that_says_what_to_run(database):
    with psycopg.connect(database) as connection, pytest.raises(ControlError, match="pgtrickle migrate"):
        require_current(connection)
    with psycopg.connect(database) as connection:
        assert schema_version(connection) is None


def test_a_user_without_the_right_gets_a_way_out(database, postgres_server):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS plain")
        connection.execute("CREATE ROLE plain LOGIN PASSWORD 'p'")
        try:
            dsn = database.replace(f"postgres:{postgres_server.password()}@", "plain:p@")
            with pytest.raises(ControlError, match=r"plain.*Grant CREATE"):
                migrate(dsn)
            connection.execute("CREATE SCHEMA pgtrickle AUTHORIZATION plain")
            assert migrate(dsn) != ()
        finally:
            connection.execute("DROP OWNED BY plain CASCADE")
            connection.execute("DROP ROLE plain")


def test_every_foreign_key_has_an_index_that_starts_with_its_columns(catalog):
    missing = catalog.execute(
        """
        SELECT c.conrelid::regclass::text, c.conname
        FROM pg_constraint AS c
        WHERE c.contype = 'f' AND c.connamespace = 'pgtrickle'::regnamespace
          AND NOT EXISTS (
              SELECT 1 FROM pg_index AS i
              WHERE i.indrelid = c.conrelid
                AND (i.indkey::int2[])[0:cardinality(c.conkey) - 1] @> c.conkey
          )
        """
    ).fetchall()
    assert missing == []


def test_the_functions_and_views_answer_on_an_empty_schema(catalog):
    assert catalog.execute("SELECT * FROM pgtrickle.pgt_status()").fetchall() == []
    assert catalog.execute("SELECT * FROM pgtrickle.ducklake_sink_status()").fetchall() == []
    assert catalog.execute("SELECT * FROM pgtrickle.stream_tables_info").fetchall() == []
    version = catalog.execute("SELECT pgtrickle.version()").fetchone()
    assert version is not None
    assert version[0][0].isdigit()
