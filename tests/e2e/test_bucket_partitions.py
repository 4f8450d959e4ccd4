"""Stream tables in buckets: every engine puts a row into the same one, and one bucket moves on alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.lake.types import from_arrow
from pgtrickle_assets.partitions import NULL_KEY, count_by_key, key_of, parse_partition_by
from pgtrickle_assets.query.plan import Column, Filter, Scan
from pgtrickle_assets.query.render import render
from pgtrickle_assets.refresh.model import RefreshResult
from pgtrickle_assets.refresh.partition_filter import Selection
from pgtrickle_assets.refresh.relations import as_frame
from pgtrickle_assets.services.duckdb import connect
from pgtrickle_assets.stream_table import StreamTable
from tests.e2e.lakehouse import Lakehouse, lakehouse

VALUES: dict[str, pa.Array] = {
    "smallint": pa.array([0, 1, -1, 32767, -32768, None], pa.int16()),
    "integer": pa.array([*range(-300, 300), 2**31 - 1, -(2**31), None], pa.int32()),
    "bigint": pa.array([0, 42, -42, 2**40, -(2**40), 2**63 - 1, -(2**63), None], pa.int64()),
    "date": pa.array([date(1970, 1, 1), date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), None], pa.date32()),
    "timestamp": pa.array([datetime(2024, 7, 1, 10, 15, 3, 7), datetime(1901, 5, 5), None], pa.timestamp("us")),
    "timestamptz": pa.array([datetime(2024, 7, 1, 10, 15, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
}
BY = "bucket(3, customer)"
QUERIES = {
    "st.lines": "SELECT id, customer, amount FROM orders",
    "st.spent": "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer",
}
SETUP = (
    "CREATE TABLE orders (id integer PRIMARY KEY, customer integer, amount numeric(10,2))",
    "INSERT INTO orders SELECT i, nullif(i % 40, 0), i FROM generate_series(1, 240) i",
)


@pytest.mark.parametrize("kind", VALUES)
def test_spark_duckdb_and_the_driver_put_each_value_into_the_same_bucket(kind: str, spark: Any) -> None:
    by = parse_partition_by("bucket(7, c)")
    rows = pa.table({"c": VALUES[kind]})
    column = Column("c1", from_arrow(rows.schema.field("c").type), True, "c")
    as_frame(spark, rows).createOrReplaceTempView("bucket_values")
    seen: dict[str, Counter[str]] = {"spark": Counter(), "duckdb": Counter()}
    with connect() as duckdb:
        duckdb.register("bucket_values", rows)
        for key in (*(by.values or ()), NULL_KEY):
            kept = Filter(Scan("stored", (column,), ("c",)), Selection(by, (key,)).condition(column))
            in_spark = render(kept, "spark", lambda _: "bucket_values", [("c1", "c")])
            seen["spark"][key] += spark.sql(in_spark).count()
            in_duckdb = render(kept, "duckdb", lambda _: "bucket_values", [("c1", "c")])
            seen["duckdb"][key] += len(duckdb.execute(in_duckdb).fetchall())
    expected = Counter(count_by_key(by, rows.column("c"), rows.num_rows))
    assert seen == {"spark": expected, "duckdb": expected}


def _bucket(rows: Counter[tuple[Any, ...]], key: str, place: int) -> Counter[tuple[Any, ...]]:
    by = parse_partition_by(BY)
    return Counter({row: count for row, count in rows.items() if key_of(by, row[place]) == key})


def _refreshed(system: Lakehouse, name: str, partitions: list[str] | None = None) -> RefreshResult:
    return system.engine.refresh(name, partitions=partitions, cut=system.engine.capture("test").cut)


@pytest.mark.parametrize("name", QUERIES)
def test_a_bucket_moves_alone_and_the_whole_table_from_all_frontiers(
    name: str, new_database: Callable[[], str], tmp_path: Path, spark: Any
) -> None:
    query = QUERIES[name]
    place = query.removeprefix("SELECT ").split(", ").index("customer")
    table = StreamTable(name=name, query=query, partition_by=BY)
    with lakehouse(new_database, tmp_path, spark, [table], SETUP) as system:
        assert set(_refreshed(system, name).touched_partitions) == {"0", "1", "2", NULL_KEY}
        assert system.lake_rows(name) == system.postgres_rows(query)
        _expect_one_bucket_per_file(system, name)

        system.execute("UPDATE orders SET amount = amount + 1", "UPDATE orders SET customer = 3 WHERE id = 7")
        before = system.lake_rows(name)
        for key in ("1", NULL_KEY):
            result = _refreshed(system, name, [key])
            assert (result.strategy.value, result.touched_partitions) == ("differential", (key,))
            now, answer = system.lake_rows(name), system.postgres_rows(query)
            assert _bucket(now, key, place) == _bucket(answer, key, place)
            for other in {"0", "2"}:
                assert _bucket(now, other, place) == _bucket(before, other, place)
            for report in (system.engine.check_equals_full(name), system.engine.check_agrees_with_duckdb(name)):
                assert report.passed, (report.detail, report.differences)
        assert _refreshed(system, name).strategy.value == "differential"
        assert system.lake_rows(name) == system.postgres_rows(query)
        system.check()


def _expect_one_bucket_per_file(system: Lakehouse, name: str) -> None:
    by, files = parse_partition_by(BY), dict[str, set[str]]()
    with connect() as duckdb:
        attach(duckdb, system.location)
        for value, file in duckdb.execute(f"SELECT customer, filename FROM lake.{name}").fetchall():
            files.setdefault(file, set()).add(key_of(by, value))
        found = duckdb.execute(f"SELECT count(*) > 0 FROM lake.{name} WHERE customer = 5").fetchone()
    assert all(len(keys) == 1 for keys in files.values())
    assert len(files) > 1
    assert found == (True,)
