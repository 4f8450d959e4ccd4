"""Looking for a few rows on the driver finds what reading everything and filtering finds, and reads less."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from zsets import multiset

from pgtrickle_assets.lake.arrow_read import find_rows_arrow, read_table_arrow
from pgtrickle_assets.lake.file_cache import FileCache
from pgtrickle_assets.lake.parquet_columns import file_columns, table_columns
from pgtrickle_assets.lake.parquet_read import Wanted, matching_rows
from pgtrickle_assets.lake.storage import storage_for

SCRIPT = (
    "CALL lake.set_option('data_inlining_row_limit', 20)",
    "CALL lake.set_option('parquet_row_group_size', 2048)",
    "CREATE TABLE t (id BIGINT, day DATE, price DECIMAL(9,2), name VARCHAR, tags INTEGER[])",
    "INSERT INTO t SELECT i, DATE '2024-01-01' + (i % 90)::INT, i / 100, 'n' || i % 13, [i] FROM range(20000) r(i)",
    "INSERT INTO t SELECT i, NULL, NULL, NULL, NULL FROM range(7) r(i)",
    "DELETE FROM t WHERE id % 100 = 5",
    "UPDATE t SET name = 'changed' WHERE id BETWEEN 4000 AND 4003",
    "ALTER TABLE t ADD COLUMN late INTEGER DEFAULT 3",
    "INSERT INTO t SELECT i, DATE '2025-01-01', i, 'late', NULL, i % 5 FROM range(30000, 30100) r(i)",
)
IDS = pa.array([5, 6, 17, 4001, 4002, 19_999, 30_003, 77_777], pa.int64())
NAMES = pa.array(["n3", "changed", None])


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted({"id": IDS}),
        Wanted({"name": NAMES}),
        Wanted({"id": IDS, "name": NAMES}),
        Wanted({"late": pa.array([4], pa.int32())}),
        Wanted({"day": pa.array([19723 + 364, 19723 + 3], pa.int32()).cast(pa.date32())}),
        Wanted(
            {"id": IDS, "name": pa.array(["n6", "n5", "changed"])},
            (pa.table({"id": pa.array([6, 17, 4001], pa.int64()), "name": ["n6", "n6", "changed"]}),),
        ),
    ],
    ids=["keys", "values and NULL", "two columns", "column with a default", "dates", "combinations"],
)
def test_wanted_rows_are_those_that_a_filter_keeps(lake: object, wanted: Wanted) -> None:
    lake.sql(*SCRIPT)  # type: ignore[attr-defined]
    scan = lake.scan("t")  # type: ignore[attr-defined]
    columns = ["id", "day", "price", "name", "tags", "late"]
    expected = wanted.only(read_table_arrow(scan, columns))
    assert expected.num_rows
    found = find_rows_arrow(scan, columns, wanted, expected.num_rows)
    assert found is not None
    assert multiset(found) == multiset(expected)
    assert find_rows_arrow(scan, columns, wanted, expected.num_rows - 1) is None


@pytest.mark.parametrize("limit", [0, 300_000, 1 << 30], ids=["nothing kept", "some kept", "all kept"])
def test_searches_that_share_what_they_read_find_the_same(lake: object, limit: int) -> None:
    lake.sql(*SCRIPT)  # type: ignore[attr-defined]
    scan = lake.scan("t")  # type: ignore[attr-defined]
    cache = FileCache(limit)
    for columns in (["id", "name"], ["day", "tags", "late"], ["name", "id", "price"]):
        for wanted in (Wanted({"id": IDS}), Wanted({"name": NAMES}), Wanted({"id": IDS, "name": NAMES})):
            alone = find_rows_arrow(scan, columns, wanted, 20_000)
            shared = find_rows_arrow(scan, columns, wanted, 20_000, cache=cache)
            assert alone is not None
            assert shared is not None
            assert alone.num_rows
            assert multiset(shared) == multiset(alone)


def test_row_groups_that_cannot_hold_a_key_are_not_opened(lake: object) -> None:
    lake.sql(*SCRIPT)  # type: ignore[attr-defined]
    scan = lake.scan("t")  # type: ignore[attr-defined]
    storage = storage_for(scan.table.path, None)
    (largest,) = (file for file in scan.files if file.record_count == 20_000)
    columns = file_columns(table_columns(scan.table, ["id"]), largest)
    looked_at: list[int] = []

    class Counting(Wanted):
        def places(self, rows: pa.Table) -> np.ndarray:
            looked_at.append(rows.num_rows)
            return super().places(rows)

    wanted = Counting({"id": pa.array([7000], pa.int64())})
    found = pa.concat_tables(matching_rows(storage, largest, columns, columns, wanted))
    assert found.to_pydict() == {"id": [7000]}
    assert len(looked_at) == 1
