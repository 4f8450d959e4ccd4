"""A lake on a real S3 server: our writer and DuckDB's on the same tables, and what a failing server does to uploads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
import pytest

from pgtrickle_assets.errors import LakeError, StorageUnavailableError, TransientError
from pgtrickle_assets.lake.arrow_read import read_table_arrow
from pgtrickle_assets.lake.catalog import Lake
from pgtrickle_assets.lake.commit import commit
from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.lake.lint import lint
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.lake.model import TableChange
from pgtrickle_assets.lake.orphans import remove_orphans
from pgtrickle_assets.lake.write import write_rows
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.services.duckdb import connect
from tests.fault_proxy import FaultProxy, Trap, Verdict
from tests.s3_server import S3Server

ITEMS = TableName("main", "items")
REQUEST = re.compile(rb"^(PUT|POST|GET|HEAD) ")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3") / "buckets") as server:
        yield server


@pytest.fixture
def location(database: str, s3: S3Server) -> LakeLocation:
    """A lake without tables; its path has what URLs escape."""
    found = LakeLocation(database, "main", f"s3://{s3.bucket}/{database.rpartition('/')[2]} a%20b", s3.storage_options)
    Lake.bootstrap(found).close()
    with connect() as duckdb:
        attach(duckdb, found)
        duckdb.execute("CREATE TABLE lake.main.items (id INTEGER, n INTEGER)")
    return found


def append(location: LakeLocation, lake: Lake, first: int, delivery: str = "d") -> None:
    base = lake.head()
    table = lake.table(ITEMS, base)
    assert table is not None
    rows = pa.table({"id": pa.array(range(first, first + 5), pa.int32()), "n": pa.array([0] * 5, pa.int32())})
    files = write_rows(rows, table, delivery_id=delivery, storage_options=location.storage_options)
    commit(lake, base=base, changes=[TableChange(ITEMS, added_files=files)], author="t", message="m")


def ours(location: LakeLocation, lake: Lake) -> list[tuple[int, int]]:
    table = lake.table(ITEMS)
    assert table is not None
    rows = read_table_arrow(lake.scan(table), ["id", "n"], storage_options=location.storage_options)
    return sorted((row["id"], row["n"]) for row in rows.to_pylist())


def test_our_writer_and_duckdb_share_a_lake_on_s3(location: LakeLocation, s3: S3Server) -> None:
    lake = Lake.open(location)
    with connect() as duckdb:
        attach(duckdb, location)
        append(location, lake, 0)
        duckdb.execute("INSERT INTO lake.main.items SELECT i, 1 FROM range(100, 105) t(i)")
        duckdb.execute("UPDATE lake.main.items SET n = n + 7 WHERE id IN (1, 101)")
        duckdb.execute("DELETE FROM lake.main.items WHERE id IN (2, 102)")
        append(location, lake, 10)
        theirs = sorted(duckdb.execute("FROM lake.main.items").fetchall())
    expected = dict.fromkeys([*range(5), *range(10, 15)], 0) | dict.fromkeys(range(100, 105), 1) | {1: 7, 101: 8}
    assert ours(location, lake) == theirs == sorted((k, n) for k, n in expected.items() if k not in (2, 102))
    assert lint(lake) == ()
    lake.close()


def test_clean_up_on_s3_removes_what_no_snapshot_names_and_leaves_no_markers(
    location: LakeLocation, s3: S3Server
) -> None:
    lake = Lake.open(location)
    append(location, lake, 0)
    table = lake.table(ITEMS)
    assert table is not None
    rows = pa.table({"id": pa.array([1], pa.int32()), "n": pa.array([1], pa.int32())})
    write_rows(rows, table, delivery_id="dead", storage_options=location.storage_options)
    removed = remove_orphans(lake, is_running=lambda _: False, minimum_age=timedelta(0))
    assert len(removed.paths) == 1
    assert "pgt-dead-" in removed.paths[0]
    assert len(ours(location, lake)) == 5
    assert [path for path in s3.folder.rglob("*") if path.is_file() and path.stat().st_size == 0] == []
    lake.close()


def _answer(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


def _through(proxy: FaultProxy, location: LakeLocation, attempts: int) -> LakeLocation:
    options = {
        **location.storage_options,
        "endpoint": f"http://127.0.0.1:{proxy.port}",
        "max_attempts": str(attempts),
        "connect_timeout": "2",
        "request_timeout": "2",
    }
    return LakeLocation(location.catalog_dsn, "main", location.data_path, options)


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    made = FaultProxy("127.0.0.1", s3.port)
    yield made
    made.close()


@pytest.mark.parametrize(
    "verdict", [_answer("500 Internal Server Error"), _answer("503 Slow Down"), "cut"], ids=["500", "503", "reset"]
)
def test_an_upload_gets_through_a_server_that_fails_twice(
    location: LakeLocation, proxy: FaultProxy, verdict: Verdict
) -> None:
    through = _through(proxy, location, attempts=3)
    lake = Lake.open(through)
    trap = Trap("request", REQUEST, lambda: verdict, hits=2)
    proxy.traps.append(trap)
    append(through, lake, 0)
    assert trap.sprung == 2
    assert len(ours(through, lake)) == 5
    lake.close()


@pytest.mark.parametrize(
    ("verdict", "transient", "text"),
    [(_answer("503 Slow Down"), True, "failed"), (_answer("403 Forbidden"), False, "denied")],
    ids=["503", "403"],
)
def test_an_upload_that_fails_for_good_leaves_no_snapshot_and_says_why(
    location: LakeLocation, proxy: FaultProxy, verdict: Verdict, transient: bool, text: str
) -> None:
    through = _through(proxy, location, attempts=2)
    lake = Lake.open(through)
    head = lake.head()
    proxy.traps.append(Trap("request", REQUEST, lambda: verdict, hits=1000))
    with pytest.raises(LakeError, match=text) as caught:
        append(through, lake, 0)
    assert isinstance(caught.value, StorageUnavailableError) == isinstance(caught.value, TransientError) == transient
    assert lake.head() == head
    lake.close()
