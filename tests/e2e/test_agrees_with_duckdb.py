"""The check `agrees_with_duckdb`: what the two engines agree on, and that no damage to the lake gets past it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pgtrickle_assets.errors import LakeHistoryExpiredError, PgTrickleError
from pgtrickle_assets.stream_table import StreamTable
from tests.e2e.lakehouse import Lakehouse, lakehouse

SETUP = (
    """CREATE TABLE readings (id int PRIMARY KEY, place text, d date, at timestamp, seen timestamptz,
       f double precision, r real, n numeric(20, 6), doc jsonb, tags text[], uid uuid, raw bytea, ok boolean)""",
    """INSERT INTO readings SELECT i, CASE i % 4 WHEN 0 THEN NULL ELSE 'p' || i % 3 END, date '2024-01-30' + i % 3,
       timestamp '2024-03-31 02:30:00.123456' + i * interval '37 minutes',
       timestamptz '2024-03-31 01:30+02' + i * interval '1 s',
       CASE i % 7 WHEN 0 THEN float8 'NaN' WHEN 1 THEN float8 '-0' WHEN 2 THEN float8 'Infinity' ELSE i / 7.0 END,
       i / 3.0, i / 7.0, jsonb_build_object('k', i % 3), ARRAY['a', NULL, 'b' || i % 2],
       ('00000000-0000-0000-0000-00000000000' || i % 10)::uuid,
       decode(lpad(to_hex(i), 4, '0'), 'hex'), i % 2 = 0 FROM generate_series(1, 60) i""",
)
QUERIES = {
    "st.everything": "SELECT * FROM readings",
    "st.sums": "SELECT place, count(*) AS n, sum(n) AS total, avg(n) AS mean, min(at) AS first, max(seen) AS last,"
    " sum(r) AS floats, stddev(n) AS spread FROM readings GROUP BY place",
    "st.zeros": "SELECT DISTINCT f FROM readings",
    "st.float_sums": "SELECT d, sum(f) FILTER (WHERE f < 1000) AS s FROM readings GROUP BY d",
    "st.windows": "SELECT id, rank() OVER (PARTITION BY place ORDER BY n DESC, id) AS r FROM readings",
}


@pytest.fixture(scope="module")
def system(postgres_server: Any, tmp_path_factory: Any, spark: Any) -> Iterator[Lakehouse]:
    """Filled stream tables; the tests damage one of them and mend it."""
    names = iter(("agrees_source", "agrees_lake"))
    tables = [StreamTable(name=name, query=query) for name, query in QUERIES.items()]
    tables.append(
        StreamTable(
            name="st.by_day", query="SELECT d, count(*) AS n FROM readings GROUP BY d", partition_by="day(d)",
            partition_start="2024-01-01",
        )
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("agrees")
    with lakehouse(lambda: postgres_server.create_database(next(names)), folder, spark, tables, SETUP) as opened:
        opened.refresh()
        change = "UPDATE readings SET f = f + 1, n = n * 2, d = NULL WHERE id % 5 = 0"
        opened.execute(change, "DELETE FROM readings WHERE id = 3")
        opened.refresh()
        yield opened


def test_engines_agree_on_every_type_and_on_floats_up_to_their_last_digits(system: Lakehouse) -> None:
    for name in system.engine.project.order:
        report = system.engine.check_agrees_with_duckdb(name)
        assert report.passed, f"{name}: {report.detail} {report.differences}"
        assert report.stored_rows == report.expected_rows > 0


@pytest.mark.parametrize(
    ("name", "damage", "surplus", "missing"),
    [
        ("st.everything", "UPDATE lake.st.everything SET n = n + 0.000001 WHERE id = 7", 1, 1),
        ("st.everything", "DELETE FROM lake.st.everything WHERE id IN (8, 9)", 0, 2),
        ("st.everything", 'UPDATE lake.st.everything SET "at" = "at" + INTERVAL 1 MICROSECOND WHERE id = 10', 1, 1),
        ("st.everything", "UPDATE lake.st.everything SET place = '' WHERE id = 4", 1, 1),
        ("st.everything", "INSERT INTO lake.st.everything SELECT * FROM lake.st.everything WHERE id = 11", 1, 0),
        ("st.float_sums", "UPDATE lake.st.float_sums SET s = s * 1.000001 WHERE d = DATE '2024-01-31'", 1, 1),
        ("st.float_sums", "UPDATE lake.st.float_sums SET s = 'NaN' WHERE d = DATE '2024-01-31'", 1, 1),
        ("st.zeros", "DELETE FROM lake.st.zeros WHERE isnan(f)", 0, 1),
        ("st.by_day", "UPDATE lake.st.by_day SET n = 0 WHERE d IS NULL", 1, 1),
    ],
)
def test_damage_by_another_writer_is_found_and_shown(
    system: Lakehouse, name: str, damage: str, surplus: int, missing: int
) -> None:
    with system.duckdb() as duckdb:
        duckdb.execute(f"CREATE TEMP TABLE before AS SELECT * FROM lake.{name}")
        duckdb.execute(damage)
        try:
            report = system.engine.check_agrees_with_duckdb(name)
        finally:
            duckdb.execute(f"DELETE FROM lake.{name}")
            duckdb.execute(f"INSERT INTO lake.{name} SELECT * FROM before")
    assert not report.passed
    assert (report.surplus_rows, report.missing_rows) == (surplus, missing)
    assert sorted(count for _, count in report.differences) == [-1] * missing + [1] * surplus


def test_other_columns_than_the_querys_fail_the_check(system: Lakehouse) -> None:
    with system.duckdb() as duckdb:
        duckdb.execute("ALTER TABLE lake.st.windows ADD COLUMN more INTEGER")
        try:
            report = system.engine.check_agrees_with_duckdb("st.windows")
        finally:
            duckdb.execute("ALTER TABLE lake.st.windows DROP COLUMN more")
    assert not report.passed
    assert "stored columns id, r, more" in report.detail


def test_partitions_are_compared_at_their_own_frontiers(
    new_database: Callable[[], str], tmp_path: Path, spark: Any
) -> None:
    days = {"partition_by": "day(d)", "partition_start": "2024-01-01"}
    table = StreamTable(name="st.by_day", query="SELECT d, n FROM t", **days)
    setup = ("CREATE TABLE t (d date, n int)", "INSERT INTO t VALUES ('2024-01-01', 1), ('2024-01-02', 2), (NULL, 3)")
    with lakehouse(new_database, tmp_path, spark, [table], setup) as system:
        with pytest.raises(PgTrickleError, match="has not been filled yet"):
            system.engine.check_agrees_with_duckdb("st.by_day")
        system.engine.capture("test")
        system.engine.refresh("st.by_day", partitions=["2024-01-02"])
        assert system.engine.check_agrees_with_duckdb("st.by_day").stored_rows == 1
        assert system.engine.check_agrees_with_duckdb("st.by_day").passed
        system.refresh()
        system.execute("UPDATE t SET n = n + 10")
        system.engine.capture("test")
        system.engine.refresh("st.by_day", partitions=["2024-01-01"])
        assert system.engine.check_agrees_with_duckdb("st.by_day").passed
        with system.duckdb() as duckdb:
            duckdb.execute("UPDATE lake.st.by_day SET n = 2 WHERE d = DATE '2024-01-01'")
        assert not system.engine.check_agrees_with_duckdb("st.by_day").passed


def test_an_expired_frontier_is_an_error_and_no_verdict(
    new_database: Callable[[], str], tmp_path: Path, spark: Any
) -> None:
    setup = ("CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)")
    with lakehouse(new_database, tmp_path, spark, {"st.t": "SELECT n FROM t"}, setup) as system:
        system.refresh()
        with system.duckdb() as duckdb:
            duckdb.execute("CREATE TABLE lake.main.other (x int)")
            duckdb.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
        with pytest.raises(LakeHistoryExpiredError):
            system.engine.check_agrees_with_duckdb("st.t")
