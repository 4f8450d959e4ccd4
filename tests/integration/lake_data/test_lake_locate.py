"""Rows that a delta deletes are found by content and count, and nothing else is."""

from __future__ import annotations

import math
import random

import pyarrow as pa
import pytest
from zsets import multiset

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.commit import commit
from pgtrickle_assets.lake.locate import locate_rows
from pgtrickle_assets.lake.model import TableChange
from pgtrickle_assets.query.types import TableName

T = TableName("main", "t")


def _wanted(rows, counts):
    return pa.table(rows).append_column("__pgt_weight", pa.array(counts, pa.int64()))


def _delete(lake, located):
    change = TableChange(T, deletes=located.deletes, removed_inlined_rows=located.inlined_rows)
    commit(lake.lake, base=lake.head(), changes=[change], author="test", message="test")


def _no_session():
    raise AssertionError("no Spark job is needed")


@pytest.fixture(autouse=True, params=["on the driver", "on Spark"])
def place(request, monkeypatch):
    """Where the files are looked through; the answer is the same."""
    if request.param == "on Spark":
        monkeypatch.setattr("pgtrickle_assets.lake.locate.fits_driver", lambda scan: False)


@pytest.fixture
def messy(lake):
    """Files with duplicates, NULLs and NaNs, some rows deleted already, some inlined."""
    lake.sql(
        "CALL lake.set_option('data_inlining_row_limit', 10)",
        "CREATE TABLE t (k INTEGER, f DOUBLE, s VARCHAR, l INTEGER[], u UUID)",
        "INSERT INTO t SELECT i % 5, CASE i % 3 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN NULL ELSE -0.0 END, "
        "CASE i % 2 WHEN 0 THEN NULL ELSE 's' || i % 4 END, CASE i % 2 WHEN 0 THEN [i % 3, NULL] END, "
        "'00000000-0000-0000-0000-00000000000' || i % 3 FROM range(240) r(i)",
        "INSERT INTO t SELECT * FROM t LIMIT 100",
        "DELETE FROM t WHERE k = 3",
        "DELETE FROM t WHERE k = 4 AND s IS NULL",
        "INSERT INTO t SELECT DISTINCT * FROM t WHERE k = 1 LIMIT 4",
        "DELETE FROM t WHERE rowid = 7",
    )
    return lake


def test_exactly_the_wanted_rows_go(messy, spark):
    rows = messy.rows("t", messy.head(), "* REPLACE (CAST(u AS VARCHAR) AS u)")
    distinct = list({tuple(map(repr, row.values())): row for row in rows.to_pylist()}.values())
    counts = multiset(rows)
    generator = random.Random(3)
    for _ in range(4):
        before = multiset(messy.rows("t", messy.head(), "* REPLACE (CAST(u AS VARCHAR) AS u)"))
        chosen = generator.sample(distinct, 6)
        names = rows.column_names
        table = pa.Table.from_pylist(chosen, schema=rows.schema)
        keys = [next(iter(multiset(table.slice(n, 1)))) for n in range(len(chosen))]
        take = [generator.randint(0, before[key]) for key in keys]
        wanted = _wanted({name: table.column(name) for name in names}, take).filter(
            pa.compute.greater(pa.array(take), 0)
        )
        if not wanted.num_rows:
            continue
        located = locate_rows(lambda: spark, messy.scan("t", bounds=True), wanted, ["k"])
        assert located == locate_rows(lambda: spark, messy.scan("t", bounds=True), wanted, [])
        _delete(messy, located)
        after = multiset(messy.rows("t", messy.head(), "* REPLACE (CAST(u AS VARCHAR) AS u)"))
        before.subtract(dict(zip(keys, take, strict=True)))
        assert after == +before
    assert counts


def test_too_few_rows_is_an_error_that_names_the_table(messy, spark):
    scan = messy.scan("t", bounds=True)
    with pytest.raises(LakeError, match=r"1 row\(s\).*main\.t"):
        locate_rows(lambda: spark, scan, _wanted({"k": [2_000_000]}, [1]))
    total = messy.rows("t", messy.head()).num_rows
    with pytest.raises(LakeError, match=rf"{10**6 - multiset(messy.rows('t', messy.head(), 'k'))[(0,)]} row"):
        locate_rows(lambda: spark, scan, _wanted({"k": [0]}, [10**6]))
    assert total


def test_zero_and_minus_zero_are_one_value_and_nan_is_itself(lake, spark):
    lake.sql("CALL lake.set_option('data_inlining_row_limit', 0)", "CREATE TABLE t (f DOUBLE)")
    lake.sql("INSERT INTO t VALUES (-0.0), ('nan'), (NULL), (1)")
    located = locate_rows(lambda: spark, lake.scan("t"), _wanted({"f": [0.0, math.nan, None]}, [1, 1, 1]))
    assert [entry.positions for entry in located.deletes] == [(0, 1, 2)]


def test_both_zeros_wanted_are_two_rows_of_one_value(lake, spark):
    lake.sql("CALL lake.set_option('data_inlining_row_limit', 0)", "CREATE TABLE t (f DOUBLE)")
    lake.sql("INSERT INTO t VALUES (0.0), (-0.0), (0.0), (2)")
    located = locate_rows(lambda: spark, lake.scan("t"), _wanted({"f": [-0.0, 0.0]}, [1, 1]))
    assert [entry.positions for entry in located.deletes] == [(0, 1)]


def test_nothing_wanted_finds_nothing_without_a_job(lake):
    lake.sql("CREATE TABLE t (f DOUBLE)")
    located = locate_rows(_no_session, lake.scan("t"), _wanted({"f": pa.array([], pa.float64())}, []))
    assert (located.deletes, located.inlined_rows) == ((), ())


def test_a_table_with_millions_of_equal_rows_gives_up_the_first_ones(lake, spark, monkeypatch):
    monkeypatch.setattr("pgtrickle_assets.lake.locate._RANK_ABOVE", 10)
    lake.sql("CALL lake.set_option('data_inlining_row_limit', 0)", "CREATE TABLE t (s VARCHAR)")
    lake.sql("INSERT INTO t SELECT 'same' FROM range(1000)", "INSERT INTO t SELECT 'same' FROM range(1000)")
    lake.sql("DELETE FROM t WHERE rowid < 3")
    located = locate_rows(lambda: spark, lake.scan("t"), _wanted({"s": ["same"]}, [1000]))
    first, second = located.deletes
    assert first.positions == tuple(range(3, 1000))
    assert second.positions == (0, 1, 2)
