"""Files that we write are laid out, partitioned and described as DuckDB would have done it."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from zsets import multiset

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.arrow_read import read_table_arrow
from pgtrickle_assets.lake.commit import commit
from pgtrickle_assets.lake.model import TableChange
from pgtrickle_assets.lake.parquet_write import WriteOptions
from pgtrickle_assets.lake.spark_read import read_table
from pgtrickle_assets.lake.write import write_rows
from pgtrickle_assets.query.types import TableName

T = TableName("main", "t")

PARTITIONED = {
    "boolean": ("BOOLEAN", ["identity"], [True, False, None]),
    "int": ("INTEGER", ["identity", "bucket"], [0, -1, 2**31 - 1, -(2**31), 7, None]),
    "bigint": ("BIGINT", ["identity", "bucket"], [0, -(2**63), 2**63 - 1, 42, None]),
    "decimal": (
        "DECIMAL(9,2)", ["identity", "bucket"],
        [Decimal("-1.50"), Decimal("0.00"), Decimal("1234567.89"), None],
    ),
    "big_decimal": ("DECIMAL(18,4)", ["bucket"], [Decimal("-1.5000"), Decimal("12345678901234.5678"), None]),
    "text": ("VARCHAR", ["identity", "bucket"], ["", "a b/=%", "é😀", "x", "abcdefg", "abcdefgh", "NULL", None]),
    "uuid": (
        "UUID", ["identity", "bucket"],
        ["ffffffff-ffff-4fff-bfff-ffffffffffff", "00000000-0000-0000-0000-000000000001", None],
    ),
    "date": (
        "DATE", ["identity", "year", "month", "day", "bucket"],
        [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31), None],
    ),
    "timestamp": (
        "TIMESTAMP", ["identity", "year", "month", "day", "hour", "bucket"],
        [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 2, 29, 5, 6, 7, 10), None],
    ),
    "timestamptz": (
        "TIMESTAMPTZ", ["identity", "year", "month", "day", "hour", "bucket"],
        [datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(2024, 2, 29, 5, 6, 7, tzinfo=UTC), None],
    ),
    "double": ("DOUBLE", ["identity"], [0.1, -1e300, 5.0, None]),
}  # fmt: skip


def _transform(name, column):
    return column if name == "identity" else f"bucket(7, {column})" if name == "bucket" else f"{name}({column})"


def _commit(lake, table, files):
    commit(lake.lake, base=lake.head(), changes=[TableChange(T, added_files=files)], author="test", message="test")


def _layout(lake, at=None):
    """(partition values, directory, contents) of each live file."""
    scan = lake.scan("t", at)
    names = [column.name for column in scan.table.columns]
    found = []
    for file in scan.files:
        one = replace(scan, files=(file,))
        directory = file.path.removeprefix(scan.table.path).rpartition("/")[0]
        found.append((file.partition_values, directory, frozenset(multiset(read_table_arrow(one, names)).items())))
    return sorted(found, key=repr)


@pytest.mark.parametrize("name", PARTITIONED)
def test_partitions_are_those_that_duckdb_makes(lake, name):
    kind, transforms, values = PARTITIONED[name]
    for transform in transforms:
        lake.sql(
            "DROP TABLE IF EXISTS t", f'CREATE TABLE t (n INTEGER, "c" {kind})',
            "CALL lake.set_option('data_inlining_row_limit', 0)",
            f"ALTER TABLE t SET PARTITIONED BY ({_transform(transform, 'c')})",
        )  # fmt: skip
        table = lake.table("t")
        rows = pa.table({"n": list(range(len(values))), "c": values})
        files = write_rows(rows, table, delivery_id="d")
        _commit(lake, table, files)
        ours = _layout(lake)
        lake.duckdb.register("given", rows)
        lake.sql("DELETE FROM t", f"INSERT INTO t SELECT n, CAST(c AS {kind}) FROM given")
        assert ours == _layout(lake), transform


def test_duckdb_prunes_and_compacts_partitions_that_we_wrote(lake):
    lake.sql(
        "CALL lake.set_option('data_inlining_row_limit', 0)",
        "CREATE TABLE t (id BIGINT, day DATE, s VARCHAR)",
        "ALTER TABLE t SET PARTITIONED BY (bucket(4, id), year(day), s)",
    )
    for n in range(3):
        rows = pa.table(
            {"id": list(range(100)), "day": [date(2020 + i % 2, 1, 1) for i in range(100)], "s": [f"s {n % 2}"] * 100}
        )
        table = lake.table("t")
        _commit(lake, table, write_rows(rows, table, delivery_id=f"d{n}"))
    for i in range(100):
        found = lake.duckdb.execute(f"SELECT count(*) FROM t WHERE id = {i} AND year(day) = {2020 + i % 2}").fetchone()
        assert found == (3,)
    lake.sql("CALL ducklake_merge_adjacent_files('lake')")
    assert lake.duckdb.execute("SELECT count(*), sum(id) FROM t").fetchone() == (300, 3 * 4950)


def test_executors_write_partitions_like_the_driver(lake, spark):
    lake.sql(
        "CALL lake.set_option('data_inlining_row_limit', 0)",
        'CREATE TABLE t (id BIGINT, day DATE, "s.`" VARCHAR)',
        'ALTER TABLE t SET PARTITIONED BY (bucket(3, id), month(day), "s.`")',
    )
    table = lake.table("t")
    rows = pa.table(
        {"id": list(range(200)), "day": [date(2020, 1 + i % 3, 1) for i in range(200)], "s.`": ["a", None] * 100}
    )
    _commit(lake, table, write_rows(rows, table, delivery_id="d"))
    ours = _layout(lake)
    frame = read_table(spark, lake.scan("t"), ["s.`", "day", "id"])
    again = write_rows(frame, table, delivery_id="d")
    lake.sql("DELETE FROM t")
    _commit(lake, table, again)
    assert _layout(lake) == ours
    assert len(again) == 3 * 3 * 2


def test_files_close_at_their_target_size_and_row_groups_at_theirs(lake):
    lake.sql("CREATE TABLE t (id BIGINT, s VARCHAR)")
    table = lake.table("t")
    rows = pa.table({"id": list(range(20_000)), "s": [str(i * 7919 % 65_537) for i in range(20_000)]})
    options = WriteOptions(target_file_bytes=30_000, row_group_rows=1000, sort_by=("s",))
    files = write_rows(rows, table, delivery_id="d7", options=options)
    assert len(files) > 2
    assert sum(file.record_count for file in files) == 20_000
    for file in files:
        assert Path(file.path).name.startswith("pgt-d7-")
        path = table.path + file.path
        metadata = pq.ParquetFile(path).metadata
        assert file.file_size_bytes == Path(path).stat().st_size
        assert file.footer_size == metadata.serialized_size
        assert {metadata.row_group(n).num_rows for n in range(metadata.num_row_groups - 1)} <= {1000}
        assert sum(file.column_sizes.values()) < file.file_size_bytes
    ends = [(file.bounds[2].minimum, file.bounds[2].maximum) for file in files]
    assert all(left[1] <= right[0] for left, right in pairwise(ends))
    _commit(lake, table, files)
    assert multiset(lake.rows("t", lake.head())) == multiset(rows)


def test_a_row_is_written_as_often_as_its_weight_says(lake, spark):
    lake.sql("CREATE TABLE t (id BIGINT)")
    table = lake.table("t")
    rows = pa.table({"id": [1, 2, 3], "__pgt_weight": pa.array([2, 0, 1], pa.int64())})
    for given in (rows, spark.createDataFrame(rows)):
        files = write_rows(given, table, delivery_id="d")
        found = [pq.read_table(table.path + file.path).column("id").to_pylist() for file in files]
        assert sorted(value for values in found for value in values) == [1, 1, 3]
    with pytest.raises(LakeError, match=r"main\.t.*negative"):
        write_rows(pa.table({"id": [1], "__pgt_weight": pa.array([-1], pa.int64())}), table, delivery_id="d")


@pytest.mark.parametrize("on_executors", [False, True])
def test_rows_that_do_not_fit_name_table_and_column_and_leave_no_file(lake, request, on_executors):
    lake.sql("CREATE TABLE t (id BIGINT NOT NULL, n DECIMAL(4,2), u UUID)")
    table = lake.table("t")
    session = request.getfixturevalue("spark") if on_executors else None
    cases = [
        ({"id": [1, None], "n": [None, None], "u": ["0" * 32] * 2}, "main.t", "'id'", "NOT NULL"),
        ({"id": [1], "n": [Decimal("123.45")], "u": ["0" * 32]}, "'n' of main.t", "", ""),
        ({"id": [1], "n": [Decimal("1.23")], "u": ["no uuid"]}, "main.t", "UUID", ""),
        ({"id": [1], "n": [Decimal("1.23")]}, "main.t", "'u'", ""),
    ]
    for rows, *texts in cases:
        given = session.createDataFrame(pa.table(rows)) if session else pa.table(rows)
        with pytest.raises(LakeError) as raised:
            write_rows(given, table, delivery_id="d")
        assert all(text in str(raised.value) for text in texts), str(raised.value)
    assert not list(Path(table.path).rglob("*.parquet"))


def test_bounds_tell_nan_from_numbers(lake):
    lake.sql("CREATE TABLE t (f DOUBLE, g FLOAT)")
    table = lake.table("t")
    rows = pa.table({"f": [math.nan, 1.5, None], "g": pa.array([math.nan] * 3, pa.float32())})
    (file,) = write_rows(rows, table, delivery_id="d")
    f, g = file.bounds[1], file.bounds[2]
    assert (f.minimum, f.maximum, f.value_count, f.null_count, f.contains_nan) == ("1.5", "1.5", 2, 1, True)
    assert (g.minimum, g.maximum, g.value_count, g.contains_nan) == (None, None, 3, True)
