"""Creating and opening lakes: odd names, lakes of others, and what is wrong said in one line."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import duckdb
import psycopg
import pytest
from lake_pair import Pair, attached, location_in

from pgtrickle_assets.errors import LakeError, LakeUnavailableError
from pgtrickle_assets.lake.catalog import Lake
from pgtrickle_assets.lake.ddl import Comment
from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.lake.lint import lint
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.lake.model import TableChange, TableDefinition
from pgtrickle_assets.lake.schema_ddl import parse_tables
from pgtrickle_assets.query import types as t
from pgtrickle_assets.query.types import ColumnSchema, TableName
from pgtrickle_assets.services.duckdb import connect

NAME = TableName("gold", "t")
DEFINITION = TableDefinition(NAME, (ColumnSchema("x", t.INT32),))


def test_the_catalog_has_exactly_the_columns_that_duckdb_creates(database: str, tmp_path: Path) -> None:
    Lake.bootstrap(location_in(database, tmp_path, "ours"))
    duck = connect()
    duck.execute(
        f"ATTACH 'ducklake:postgres:{database}' AS lake (DATA_PATH '{tmp_path}/theirs/', METADATA_SCHEMA 'theirs')"
    )
    query = """SELECT table_name, ordinal_position, column_name, data_type, is_nullable
        FROM information_schema.columns WHERE table_schema = %s ORDER BY 1, 2"""
    with psycopg.connect(database) as connection:
        ours, theirs = (connection.execute(query, (schema,)).fetchall() for schema in ("ours", "theirs"))
    assert ours == theirs
    assert {row[0] for row in ours} == {f"ducklake_{name}" for name in parse_tables()}


def test_a_catalog_schema_may_have_any_name(database: str, tmp_path: Path) -> None:
    location = location_in(database, tmp_path, 'my 50% "lake" ü')
    Lake.bootstrap(location)
    pair = Pair(location)
    pair.create(DEFINITION, [{"x": 1}])
    pair.delete(NAME, x=1)
    pair.append(NAME, [{"x": 2}])
    pair.check(NAME)
    pair.duckdb("INSERT INTO gold.t VALUES (3)")
    pair.check(NAME)
    pair.long_lived.close()


def test_a_server_that_vanishes_is_noticed_within_a_minute(database: str, tmp_path: Path) -> None:
    lake = Lake.bootstrap(location_in(database, tmp_path, "main"))
    with lake.connection() as connection, socket.socket(fileno=socket.dup(connection.fileno())) as wire:
        limits = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        idle, interval, number = (wire.getsockopt(socket.IPPROTO_TCP, limit) for limit in limits)
        assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert idle + interval * number <= 60
        assert 0 < wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 60_000


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_lake_of_duckdb_is_opened_and_its_data_path_stays_as_it_is(
    database: str, tmp_path: Path, prefix: str
) -> None:
    data_path = f"{prefix}{tmp_path}/lake/"
    duck = connect()
    duck.execute(f"ATTACH 'ducklake:postgres:{database}' AS lake (DATA_PATH '{data_path}', METADATA_SCHEMA 'main')")
    duck.execute("CREATE TABLE lake.d AS SELECT 1 AS x, {'a': 1} AS s")
    location = LakeLocation(database)
    assert Lake.bootstrap(location).data_path == data_path
    assert Lake.open(LakeLocation(database, "main", f"{tmp_path}/lake")).data_path == data_path
    pair = Pair(location)
    pair.create(DEFINITION, [{"x": 1}])
    pair.check(NAME)
    table = pair.table(TableName("main", "d"))
    assert [column.name for column in table.columns] == ["x"]
    assert table.unsupported == (("s", "struct"),)
    with pytest.raises(LakeError, match=r"not supported: s \(struct\)"):
        pair.append(table.name, [{"x": 2}])
    assert duck.execute("SELECT * FROM lake.gold.t").fetchall() == [(1,)]


def test_a_lake_can_be_attached_at_a_snapshot_and_read_only(pair: Pair) -> None:
    pair.create(DEFINITION, [{"x": 1}])
    pair.append(NAME, [{"x": 2}])
    assert attached(pair.location, at=1).execute("SELECT * FROM gold.t").fetchall() == [(1,)]
    with pytest.raises(duckdb.Error, match="read-only"):
        attached(pair.location, read_only=True).execute("INSERT INTO gold.t VALUES (3)")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("UPDATE main.ducklake_metadata SET value = '1.1' WHERE key = 'version'", "version 1.1, and only 1.0"),
        ("UPDATE main.ducklake_metadata SET value = 'true' WHERE key = 'encrypted'", "encrypted"),
        ("DELETE FROM main.ducklake_metadata", "holds no DuckLake"),
        ("DROP SCHEMA main CASCADE", "no complete lake"),
    ],
)
def test_a_lake_that_is_not_ours_to_use_is_refused_in_one_line(pair: Pair, change: str, text: str) -> None:
    with psycopg.connect(pair.location.catalog_dsn) as connection:
        connection.execute(change)  # type: ignore[arg-type]
    with pytest.raises(LakeError, match=text.replace(".", r"\.")) as caught:
        Lake.open(pair.location)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_lake_that_changed_its_version_is_not_written(pair: Pair) -> None:
    pair.create(DEFINITION, [{"x": 1}])
    files = pair.files(pair.table(NAME), [{"x": 2}])
    with psycopg.connect(pair.location.catalog_dsn) as connection:
        connection.execute("UPDATE main.ducklake_metadata SET value = '1.1' WHERE key = 'version'")
    with pytest.raises(LakeError, match=r"version 1\.1"):
        pair.commit(TableChange(NAME, added_files=files))


def test_an_unreachable_catalog_is_named_without_its_password(location: LakeLocation) -> None:
    parts = urlsplit(location.catalog_dsn)
    for netloc in ("postgres:geheim@127.0.0.1:1", f"postgres:geheim@{parts.hostname}:{parts.port}"):
        wrong = LakeLocation(urlunsplit(parts._replace(netloc=netloc)), "main", location.data_path)
        with pytest.raises(LakeUnavailableError) as caught:
            Lake.open(wrong)
        assert "geheim" not in str(caught.value)
        assert "127.0.0.1" in str(caught.value)
        with pytest.raises(LakeUnavailableError) as caught:
            attach(connect(), wrong)
        assert "geheim" not in str(caught.value)


def test_a_new_lake_needs_a_data_path(database: str) -> None:
    with pytest.raises(LakeError, match="needs a data path"):
        Lake.bootstrap(LakeLocation(database))
    with pytest.raises(LakeError, match="no complete lake"):
        Lake.open(LakeLocation(database))


def test_a_kept_connection_that_died_is_replaced(pair: Pair) -> None:
    pair.create(DEFINITION, [{"x": 1}])
    for _ in range(2):
        with psycopg.connect(pair.location.catalog_dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'pgtrickle lake'"
            )
        assert pair.lake.head() >= 1
        with psycopg.connect(pair.location.catalog_dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'pgtrickle lake'"
            )
        assert pair.append(NAME, [{"x": 2}]).snapshot_id == pair.lake.head()
    assert lint(pair.lake) == ()


def test_twenty_thousand_files_are_planned_with_statistics_and_an_empty_delta_costs_nothing(pair: Pair) -> None:
    pair.create(DEFINITION, [{"x": 0}])
    table = pair.table(NAME)
    with psycopg.connect(pair.location.catalog_dsn, autocommit=True) as connection:
        for text in (
            """INSERT INTO main.ducklake_data_file SELECT n, %s, 1, NULL, NULL, 'f' || n || '.parquet', true, 'parquet',
               1, 300, 100, n, NULL, NULL, NULL, NULL FROM generate_series(1000, 20999) AS g (n)""",
            """INSERT INTO main.ducklake_file_column_stats SELECT n, %s, 1, 30, 1, 0, n::text, n::text, NULL, NULL
               FROM generate_series(1000, 20999) AS g (n)""",
        ):
            connection.execute(text, (table.id,))
        connection.execute("UPDATE main.ducklake_snapshot SET next_file_id = 21000")
    scan = pair.lake.scan(table, bounds_of=[1])
    assert len(scan.files) == 20001
    assert scan.files[-1].bounds[1].maximum == "20999"
    pair.alter(Comment(NAME, "a new snapshot"))
    assert pair.lake.delta(pair.table(NAME), 1).is_empty
