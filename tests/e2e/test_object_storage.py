"""A lake on S3: refreshes, checks, DuckDB as a reader, clean-up, and what a server refuses.

The server is real (`rclone serve s3`). Spark has no jars for S3 here, so its executors read and write through pyarrow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg
import pytest

from pgtrickle_assets.errors import LakeError, StorageUnavailableError, TransientError
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.lake.storage import storage_error, storage_for
from pgtrickle_assets.refresh.model import Strategy
from pgtrickle_assets.stream_table import StreamTable
from tests.e2e.lakehouse import Lakehouse, lakehouse
from tests.s3_server import S3Server

SETUP = (
    "CREATE TABLE shops (id int PRIMARY KEY, city text)",
    "CREATE TABLE sales (id int PRIMARY KEY, shop int, day date, amount numeric(12,2))",
    "INSERT INTO shops SELECT i, 'city ' || i % 4 FROM generate_series(1, 12) i",
    "INSERT INTO sales SELECT i, i % 12 + 1, date '2024-01-01' + i % 3, i FROM generate_series(1, 3000) i",
)
JOIN = "SELECT s.id, s.day, p.city, s.amount FROM sales s JOIN shops p ON p.id = s.shop"
TABLES = [
    StreamTable(name="st.lines", query=JOIN, partition_by="day(day)"),
    StreamTable(name="st.cities", query="SELECT city, count(*) AS n, sum(amount) AS t FROM st.lines GROUP BY city"),
]
ANSWERS = {"st.lines": JOIN, "st.cities": f"SELECT city, count(*), sum(amount) FROM ({JOIN}) q GROUP BY city"}
CHANGE = (
    "UPDATE sales SET amount = amount + 1 WHERE id % 100 = 0",
    "DELETE FROM sales WHERE id < 20",
    "INSERT INTO sales SELECT i, 1, date '2024-01-09', i FROM generate_series(9001, 9100) i",
)

Open = Callable[..., AbstractContextManager[Lakehouse]]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3") / "buckets") as server:
        yield server


@pytest.fixture
def on_s3(new_database: Callable[[], str], tmp_path: Path, spark: object, s3: S3Server) -> Open:
    """Opens a system whose lake is in a folder of its own in the bucket; its name has what URLs escape."""

    def make(tables: object = TABLES, **options: object) -> AbstractContextManager[Lakehouse]:
        path = f"s3://{s3.bucket}/{tmp_path.name} a%20b"
        storage = {**s3.storage_options, **options.pop("storage", {})}
        return lakehouse(new_database, tmp_path, spark, tables, SETUP, data_path=path, storage=storage, **options)

    return make


def expect_right(system: Lakehouse) -> None:
    for name, query in ANSWERS.items():
        assert system.lake_rows(name) == system.postgres_rows(query), name
    system.check()


def test_refreshes_on_s3_are_right_and_leave_only_what_the_catalog_names(
    on_s3: Open, s3: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with on_s3(orphan_retention_hours=0) as system:
        system.refresh()
        before = system.engine.head()
        old = system.lake_rows("st.lines")
        system.execute(*CHANGE)
        assert {r.strategy for r in system.refresh().values()} == {Strategy.DIFFERENTIAL}
        expect_right(system)
        assert system.lake_rows("st.lines", at=before) == old
        stray = f"{system.location.data_path}/st/lines/pgt-dead-{'0' * 32}.parquet"
        storage = storage_for(stray, s3.storage_options)
        with storage.open_output(stray) as file:
            file.write(b"left by a dead process")
        assert system.engine.maintain().orphaned_files >= 1
        assert not storage.exists(stray)
        expect_right(system)
        no_markers = [path for path in s3.folder.rglob("*") if path.is_file() and path.stat().st_size == 0]
        assert no_markers == []
        expect_no_secrets(system, s3, caplog.text)


def expect_no_secrets(system: Lakehouse, s3: S3Server, log: str) -> None:
    """Nothing of the credentials is in the catalog's database or was logged."""
    with psycopg.connect(system.location.catalog_dsn) as connection:
        tables = connection.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('main', 'pgtrickle')"
        ).fetchall()
        texts = [str(connection.execute(f"SELECT * FROM {name}").fetchall()) for (name,) in tables]
    for secret in s3.secrets:
        assert secret not in log
        assert not any(secret in text for text in texts)


def test_refusals_are_told_by_what_the_server_answers(s3: S3Server) -> None:
    def failure(path: str, **options: str) -> LakeError:
        given = {**s3.storage_options, "max_attempts": "1", **options}
        with pytest.raises(OSError, match="AWS Error") as caught, storage_for(path, given).open_output(path) as file:
            file.write(b"x")
        return storage_error(caught.value, path, given)

    denied = failure(f"s3://{s3.bucket}/x", secret_access_key="wrong")
    assert "denied" in str(denied)
    missing = failure("s3://no-such-bucket/x")
    assert "bucket of s3://no-such-bucket/x does not exist" in str(missing)
    away = failure(f"s3://{s3.bucket}/x", endpoint="http://127.0.0.1:1")
    assert isinstance(away, StorageUnavailableError)
    for error in (denied, missing):
        assert not isinstance(error, TransientError)
    assert not any(secret in str(error) for error in (denied, missing, away) for secret in s3.secrets)


def test_a_location_shows_no_secret(s3: S3Server) -> None:
    storage = storage_for("s3://lake/x", s3.storage_options)
    shown = repr(LakeLocation("dbname=x", "main", "s3://lake/x", s3.storage_options)) + repr(storage)
    assert not any(secret in shown for secret in s3.secrets)
