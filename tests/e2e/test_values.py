"""Values that are awkward for one of the engines come out as PostgreSQL has them, or as a clear error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pgtrickle_assets.errors import QueryDataError
from pgtrickle_assets.stream_table import StreamTable
from tests.e2e.lakehouse import lakehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES = {
    "st.grouped": "SELECT tm, count(*) AS n FROM t GROUP BY tm",
    "st.least": "SELECT k, min(tm) AS least, max(tm) AS most FROM t GROUP BY k",
    "st.distinct": "SELECT DISTINCT tm FROM t",
    "st.ranked": "SELECT k, tm, rank() OVER (PARTITION BY tm ORDER BY k) AS place FROM t",
    "st.joined": "SELECT a.k, b.k AS k2, b.tm FROM t a LEFT JOIN t b ON a.tm = b.tm",
    "st.last": "SELECT k, tm FROM t ORDER BY tm DESC, k LIMIT 2",
    "st.lists": "SELECT k, ARRAY[tm] AS l FROM t",
}
LISTS = {
    "st.kept": "SELECT k, a FROM t",
    "st.made": "SELECT k, ARRAY[i, k] AS x FROM t",
    "st.longer": "SELECT k, a || 9 AS x FROM t",
}


def test_times_of_day_are_maintained(new_database: Callable[[], str], tmp_path: Path, spark: SparkSession) -> None:
    setup = (
        "CREATE TABLE t (k int, tm time)",
        "INSERT INTO t VALUES (1, '10:00'), (1, '23:59:59.999999'), (2, '11:00'), (3, NULL), (4, '00:00')",
    )
    with lakehouse(new_database, tmp_path, spark, TIMES, setup) as system:
        system.refresh()
        for change in (
            "DELETE FROM t WHERE k = 2",
            "INSERT INTO t VALUES (5, '10:00'), (6, '12:34:56.000001')",
            "UPDATE t SET tm = '10:00' WHERE tm IS NULL",
        ):
            system.execute(change)
            system.refresh()
            for name, query in TIMES.items():
                assert system.lake_rows(name) == system.postgres_rows(query), name
        system.check()


def test_a_list_that_must_not_be_null_may_hold_null(
    new_database: Callable[[], str], tmp_path: Path, spark: SparkSession
) -> None:
    setup = ("CREATE TABLE t (k int, a int[] NOT NULL, i int)", "INSERT INTO t VALUES (1, '{1,NULL}', NULL)")
    with lakehouse(new_database, tmp_path, spark, LISTS, setup) as system:
        system.refresh()
        for change in ("INSERT INTO t VALUES (2, '{NULL}', NULL), (3, '{}', 4)", "DELETE FROM t WHERE k = 1"):
            system.execute(change)
            system.refresh()
            for name, query in LISTS.items():
                assert system.lake_rows(name) == system.postgres_rows(query), name
        system.check()


@pytest.mark.parametrize("expression", ["n / 3", "u / 3", "m / 7"])
def test_a_quotient_that_is_too_large_is_an_error(
    expression: str, new_database: Callable[[], str], tmp_path: Path, spark: SparkSession
) -> None:
    setup = (
        "CREATE TABLE t (k int PRIMARY KEY, n numeric(38,0), u numeric, m numeric(30,5))",
        # Three times 2^64: a quotient in 64 bits would come out as 0.
        "INSERT INTO t VALUES (1, 55340232221128654848, 55340232221128654848, 123456789012345678901234.12345)",
    )
    query = f"SELECT k, {expression} AS x FROM t"
    with lakehouse(new_database, tmp_path, spark, {"st.q": query}, setup) as system:
        with pytest.raises(QueryDataError, match="fails on the rows that it reads: a number is out of the range"):
            system.refresh()
        system.execute("UPDATE t SET n = 100, u = -7, m = 0.5")
        system.refresh()
        assert system.lake_rows("st.q") == system.postgres_rows(query)


def test_a_partition_value_may_be_longer_than_a_file_name(
    new_database: Callable[[], str], tmp_path: Path, spark: SparkSession
) -> None:
    query = "SELECT id, s FROM t"
    table = StreamTable(name="st.p", query=query, partition_by="value(s)")
    setup = (
        "CREATE TABLE t (id int PRIMARY KEY, s text)",
        "INSERT INTO t VALUES (1, 'a'), (2, repeat('x', 300)), (3, repeat('ж', 100)), (4, repeat('ж', 100) || '2')",
    )
    with lakehouse(new_database, tmp_path, spark, [table], setup) as system:
        system.refresh()
        assert system.lake_rows("st.p") == system.postgres_rows(query)
        system.execute(
            "DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (5, repeat('x', 300)), (6, repeat('x', 301))"
        )
        system.refresh()
        assert system.lake_rows("st.p") == system.postgres_rows(query)
        system.check()
