from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.model import ColumnBounds, DataFile, InlinedRows, LakeColumn, LakeTable, ScanPlan
from pgtrickle_assets.lake.prune import bounds_of, prune
from pgtrickle_assets.query import types as t
from pgtrickle_assets.query.types import TableName


def scan_of(kind, *bounds, missing=()):
    column = LakeColumn(1, "c", kind)
    files = tuple(
        DataFile(
            n, f"/f{n}", 10, 100, 0, 1, None, None, None,
            bounds={} if b is None else {1: b}, missing=frozenset({1}) if n in missing else frozenset(),
        )
        for n, b in enumerate(bounds)
    )  # fmt: skip
    table = LakeTable(1, TableName("main", "t"), (column,), "/t/", 5, 1)
    return ScanPlan(table, files, InlinedRows(((1,),), (7,)))


def bounds(low, high, values=10, nulls=0, nan=None):
    return ColumnBounds(low, high, values, nulls, nan)


def kept(scan, **wanted):
    return [file.id for file in prune(scan, "c", **wanted).files]


def test_a_file_stays_when_a_wanted_value_lies_between_its_bounds():
    scan = scan_of(t.INT64, bounds("1", "10"), bounds("20", "30"), bounds("-5", "-5"))
    assert kept(scan, values=[5, 15]) == [0]
    assert kept(scan, values=[11, 25, -5]) == [1, 2]
    assert kept(scan, values=[]) == []
    assert kept(scan, minimum=10) == [0, 1]
    assert kept(scan, maximum=0) == [2]
    assert kept(scan, minimum=11, maximum=19) == []


def test_unknown_statistics_keep_the_file():
    scan = scan_of(t.INT64, None, bounds(None, None), bounds("x", "y"), bounds("1", None), bounds(None, "1"))
    assert kept(scan, values=[5]) == [0, 1, 2, 3]
    assert kept(scan, values=[0]) == [0, 1, 2, 4]


def test_a_file_older_than_the_column_stays():
    assert kept(scan_of(t.INT64, bounds("1", "2"), missing={0}), values=[5]) == [0]


def test_null_is_wanted_by_name_only():
    scan = scan_of(t.INT64, bounds("1", "2", nulls=0), bounds("1", "2", nulls=3), bounds("1", "2", nulls=None))
    assert kept(scan, values=[None]) == [1, 2]
    assert kept(scan, values=[9]) == []
    assert kept(scan_of(t.INT64, bounds(None, None, values=0, nulls=10)), values=[9]) == []


def test_nan_is_above_all_numbers_and_not_in_the_bounds():
    scan = scan_of(t.FLOAT64, bounds("1.0", "2.0", nan=False), bounds("1.0", "2.0", nan=True), bounds("1.0", "2.0"))
    assert kept(scan, values=[math.nan]) == [1, 2]
    assert kept(scan, minimum=5.0) == [1, 2]
    assert kept(scan, minimum=5.0, maximum=9.0) == []
    assert kept(scan, maximum=math.nan) == [0, 1, 2]


def test_a_float_bound_left_by_a_promotion_is_widened_to_the_value_it_stands_for():
    stored = 1.100000023841858  # the float32 whose shortest text is 1.1
    assert kept(scan_of(t.FLOAT64, bounds("1.1", "1.1")), values=[stored]) == [0]
    assert kept(scan_of(t.FLOAT64, bounds("1.1", "1.1")), values=[1.1]) == [0]


@pytest.mark.parametrize(
    ("kind", "low", "high", "inside", "outside"),
    [
        (t.VARCHAR, "a", "c", "b\U0010ffff", "d"),
        (t.BOOLEAN, "0", "0", False, True),
        (t.decimal(9, 2), "-1.50", "2.00", Decimal("2"), Decimal("2.01")),
        (t.DATE, "2024-01-01", "2024-02-01", date(2024, 1, 15), date(2023, 12, 31)),
        (t.TIMESTAMP, "2024-01-01 00:00:00", "2024-01-01 00:00:00.5", datetime(2024, 1, 1), datetime(2024, 1, 2)),
        (
            t.TIMESTAMPTZ, "2024-01-01 00:00:00+00", "2024-01-01 00:00:01+00",
            datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 2),
        ),
        (t.BLOB, "00", "00FF", b"\0\1", b"\1"),
        (t.UUID, "0" * 8 + "-0000-0000-0000-" + "0" * 12, "a" * 8 + "-0000-0000-0000-" + "0" * 12,
         "AAAAAAAA-0000-0000-0000-000000000000", "bbbbbbbb-0000-0000-0000-000000000000"),
    ],
)  # fmt: skip
def test_bounds_of_every_type_are_compared_as_values(kind, low, high, inside, outside):
    scan = scan_of(kind, bounds(low, high))
    assert kept(scan, values=[inside]) == [0]
    assert kept(scan, values=[outside]) == []


def test_values_that_python_cannot_hold_are_unknown():
    scan = scan_of(t.DATE, bounds("0044-03-15 (BC)", "infinity"))
    assert kept(scan, values=[date(2024, 1, 1)]) == [0]
    assert bounds_of(scan.files[0], scan.table.columns[0]) is None


def test_list_columns_and_catalog_rows_stay():
    scan = scan_of(t.list_of(t.INT64), bounds("1", "2"))
    assert prune(scan, "c", values=[[9]]) is scan
    assert prune(scan_of(t.INT64, bounds("1", "2")), "c", values=[9]).inlined.row_ids == (7,)


def test_an_unknown_column_is_named():
    with pytest.raises(LakeError, match=r"main\.t.*'x'"):
        prune(scan_of(t.INT64), "x", values=[1])
