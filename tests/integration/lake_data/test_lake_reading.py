"""What DuckDB did to a table is what we read: every state, and every delta between two states."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from zsets import added, multiset

from pgtrickle_assets.lake.arrow_read import read_delta_arrow, read_table_arrow
from pgtrickle_assets.lake.inlined import initial_value
from pgtrickle_assets.lake.parquet_columns import file_columns, table_columns
from pgtrickle_assets.lake.parquet_read import rows_at
from pgtrickle_assets.lake.spark_read import read_delta, read_table
from pgtrickle_assets.lake.storage import storage_for
from pgtrickle_assets.lake.types import arrow_type

SCRIPTS = {
    "files": [
        "CALL lake.set_option('data_inlining_row_limit', 0)",
        "CREATE TABLE t (id INTEGER, v VARCHAR)",
        "INSERT INTO t SELECT i, 'v' || i % 7 FROM range(1000) r(i)",
        "DELETE FROM t WHERE id % 10 = 0",
        "UPDATE t SET v = 'new' WHERE id % 10 = 1",
        "INSERT INTO t SELECT 1, 'same' FROM range(5)",
        "DELETE FROM t WHERE id % 10 = 2",
        "DELETE FROM t WHERE v = 'same'",
        "TRUNCATE TABLE t",
        "INSERT INTO t VALUES (NULL, NULL), (NULL, NULL)",
    ],
    "inlined": [
        "CALL lake.set_option('data_inlining_row_limit', 50)",
        "CREATE TABLE t (id INTEGER, v VARCHAR)",
        "INSERT INTO t SELECT i, 'v' || i FROM range(200) r(i)",
        "INSERT INTO t VALUES (1, 'v1'), (NULL, NULL)",
        "DELETE FROM t WHERE id < 5",
        "UPDATE t SET v = 'x' WHERE id IN (7, 8)",
        "INSERT INTO t VALUES (1000, 'a'), (1001, 'b')",
        "DELETE FROM t WHERE id = 1000",
        "DELETE FROM t WHERE id BETWEEN 100 AND 190",
        "CALL ducklake_flush_inlined_data('lake')",
        "INSERT INTO t VALUES (2000, 'a')",
        "DELETE FROM t WHERE id IN (150, 195, 2000)",
    ],
    "evolution": [
        "CALL lake.set_option('data_inlining_row_limit', 5)",
        "CREATE TABLE t (id INTEGER, v VARCHAR, gone DOUBLE, f FLOAT, d DECIMAL(5,2), l INTEGER[])",
        "INSERT INTO t SELECT i, 'v' || i, i, i / 10, i / 100, [i, NULL] FROM range(100) r(i)",
        "INSERT INTO t VALUES (-1, 'inlined', 0, 1.1, 2.2, [3])",
        "ALTER TABLE t RENAME v TO w",
        "ALTER TABLE t ADD COLUMN n INTEGER DEFAULT 7",
        "ALTER TABLE t ADD COLUMN seen TIMESTAMPTZ DEFAULT '2024-01-01 00:00:00+00'",
        "INSERT INTO t SELECT i, 'w' || i, i, i, i / 50, NULL, i, NULL FROM range(100, 150) r(i)",
        "ALTER TABLE t DROP gone",
        "ALTER TABLE t ALTER id TYPE BIGINT",
        "ALTER TABLE t ALTER f TYPE DOUBLE",
        "ALTER TABLE t ALTER d TYPE DECIMAL(12,4)",
        "DELETE FROM t WHERE w LIKE '%3'",
        "ALTER TABLE t ADD COLUMN gone VARCHAR DEFAULT 'again'",
        "UPDATE t SET n = n + 1, gone = NULL WHERE w LIKE '%1%'",
        "ALTER TABLE t RENAME w TO v",
        "INSERT INTO t (id, v) VALUES (9000000000, 'big')",
    ],
    "compaction": [
        "CALL lake.set_option('data_inlining_row_limit', 0)",
        "CREATE TABLE t (id INTEGER, v VARCHAR)",
        *[f"INSERT INTO t SELECT i, 'v' || i FROM range({n * 10}, {n * 10 + 10}) r(i)" for n in range(6)],
        "CALL ducklake_merge_adjacent_files('lake')",
        "DELETE FROM t WHERE id % 4 = 0",
        "INSERT INTO t VALUES (500, 'later')",
        "DELETE FROM t WHERE id % 4 = 1",
        "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.1)",
        "UPDATE t SET v = 'u' WHERE id = 2",
        "INSERT INTO t VALUES (501, 'later')",
        "CALL ducklake_merge_adjacent_files('lake')",
        "DELETE FROM t WHERE id > 400",
    ],
    "partitions": [
        "CALL lake.set_option('data_inlining_row_limit', 0)",
        "CREATE TABLE t (id INTEGER, day DATE, part VARCHAR)",
        "ALTER TABLE t SET PARTITIONED BY (part, month(day))",
        "INSERT INTO t SELECT i, DATE '2024-01-01' + i::INTEGER, "
        "CASE i % 4 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE 'a b/=%' END FROM range(120) r(i)",
        "DELETE FROM t WHERE id % 5 = 0",
        "UPDATE t SET part = 'moved' WHERE id % 7 = 0",
    ],
}  # fmt: skip


def _states(lake, table="t"):
    """Ids of the snapshots at which the table exists."""
    return [at for at in range(lake.head() + 1) if lake.lake.table(lake.table(table).name, at) is not None]


def _columns_at(lake, at):
    return [column.name for column in lake.table("t", at).columns]


def _play(lake, name):
    for statement in SCRIPTS[name]:
        lake.sql(statement)


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_state_equals_duckdbs_time_travel(lake, spark, script):
    _play(lake, script)
    for at in _states(lake):
        scan = lake.scan("t", at)
        expected = multiset(lake.rows("t", at))
        columns = _columns_at(lake, at)
        assert multiset(read_table_arrow(scan, columns)) == expected, at
        assert multiset(read_table(spark, scan, columns).toArrow()) == expected, at


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_delta_leads_from_one_state_to_the_other(lake, script):
    _play(lake, script)
    states = _states(lake)
    for until in states:
        columns = _columns_at(lake, until)
        new = multiset(read_table_arrow(lake.scan("t", until), columns))
        for since in (at for at in states if at <= until):
            delta = lake.delta("t", since, until)
            old = multiset(_as_of_schema(lake, since, until, columns))
            assert added(old, multiset(read_delta_arrow(delta, columns))) == new, (since, until)


@pytest.mark.parametrize("script", ["files", "inlined", "evolution", "compaction"])
def test_a_delta_read_by_spark_is_the_one_read_by_the_driver(lake, spark, script):
    generator = random.Random(7)
    _play(lake, script)
    states = _states(lake)
    for _ in range(4):
        since, until = sorted(generator.sample(states, 2))
        delta = lake.delta("t", since, until)
        columns = _columns_at(lake, until)
        by_spark = read_delta(spark, delta, columns).toArrow()
        assert multiset(by_spark) == multiset(read_delta_arrow(delta, columns)), (since, until)


def _as_of_schema(lake, since, until, columns):
    """The rows of `since` with the columns that the table has at `until`, matched by column id."""
    old, new = lake.table("t", since), lake.table("t", until)
    names = {column.id: column.name for column in old.columns}
    rows = read_table_arrow(lake.scan("t", since), list(names.values()))
    arrays = []
    for column in (new.column(name) for name in columns):
        kind = arrow_type(column.type)
        if column.id in names:
            arrays.append(rows.column(names[column.id]).cast(kind))
        else:
            arrays.append(pa.repeat(pa.scalar(initial_value(column), kind), rows.num_rows))
    return pa.table(arrays, names=columns)


def test_positions_are_where_the_rows_are(lake, spark):
    _play(lake, "files")
    at = lake.head() - 2
    scan = lake.scan("t", at)
    found = read_table(spark, scan, ["id", "v"], positions=True).toArrow().to_pylist()
    assert len(found) == scan.row_count > 100
    assert len({(row["__pgt_file_id"], row["__pgt_position"]) for row in found}) == len(found)
    by_id = {file.id: file for file in scan.files}
    for file_id, file in by_id.items():
        mine = sorted((row["__pgt_position"], row["id"], row["v"]) for row in found if row["__pgt_file_id"] == file_id)
        columns = file_columns(table_columns(scan.table, ["id", "v"]), file)
        rows = rows_at(storage_for(file.path), file, columns, np.array([p for p, _, _ in mine], dtype=np.int64))
        assert [(row["id"], row["v"]) for row in rows.to_pylist()] == [(i, v) for _, i, v in mine]


@pytest.mark.parametrize("script", ["files", "inlined", "evolution", "compaction"])
def test_executors_without_a_hadoop_file_system_read_the_same(lake, spark, script):
    _play(lake, script)
    options = {"spark_reader": "arrow"}
    for at in _states(lake)[::3]:
        scan = lake.scan("t", at)
        columns = _columns_at(lake, at)
        frame = read_table(spark, scan, columns, storage_options=options)
        assert multiset(frame.toArrow()) == multiset(lake.rows("t", at)), at
    since, until = _states(lake)[2], _states(lake)[-1]
    delta = lake.delta("t", since, until)
    columns = _columns_at(lake, until)
    found = read_delta(spark, delta, columns, storage_options=options).toArrow()
    assert multiset(found) == multiset(read_delta_arrow(delta, columns))
