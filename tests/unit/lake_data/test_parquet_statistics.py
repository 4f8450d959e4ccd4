from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtrickle_assets.lake.model import LakeColumn
from pgtrickle_assets.lake.parquet_statistics import FileStatistics, lower_bound, upper_bound, value_text
from pgtrickle_assets.query import types as t


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (True, t.BOOLEAN, "1"),
        (-5, t.INT32, "-5"),
        (1.1, t.FLOAT64, "1.1"),
        (1.100000023841858, t.FLOAT32, "1.1"),
        (1e30, t.FLOAT64, "1e+30"),
        (-math.inf, t.FLOAT64, "-inf"),
        (Decimal("-1.50"), t.decimal(9, 2), "-1.50"),
        (Decimal("0.0000000001"), t.decimal(38, 10), "0.0000000001"),
        (date(1, 1, 1), t.DATE, "0001-01-01"),
        (time(10, 0, 0, 250000), t.TIME, "10:00:00.25"),
        (time(10), t.TIME, "10:00:00"),
        (datetime(2024, 1, 1), t.TIMESTAMP, "2024-01-01 00:00:00"),
        (datetime(1, 1, 1, 0, 0, 0, 123456), t.TIMESTAMP, "0001-01-01 00:00:00.123456"),
        (datetime(2023, 12, 31, 22, 0, 0, 500000, tzinfo=UTC), t.TIMESTAMPTZ, "2023-12-31 22:00:00.5+00"),
        (b"\0A", t.BLOB, "0041"),
        (b"A" * 257, t.BLOB, None),
    ],
)
def test_texts_are_those_that_duckdb_stores(value, kind, text):
    assert value_text(value, kind) == text


@settings(deadline=None)
@given(st.text(min_size=1).map(lambda text: text * 300))
def test_a_cut_bound_still_bounds(text):
    low, high = lower_bound(text, t.VARCHAR), upper_bound(text, t.VARCHAR)
    assert low is None or (low <= text and len(low.encode()) <= 256)
    assert high is None or (high >= text and len(high.encode()) <= 260)
    assert "\0" in text or low is not None


def test_a_text_with_nul_has_no_bound():
    assert lower_bound("a\0b", t.VARCHAR) is None
    assert upper_bound("a\0b", t.VARCHAR) is None


def test_the_next_text_skips_surrogates():
    assert upper_bound("\ud7ff" * 100, t.VARCHAR).endswith("\ue000")
    assert upper_bound("\U0010ffff" * 100, t.VARCHAR) is None


def test_statistics_add_up_over_batches_and_nested_lists():
    columns = [LakeColumn(1, "n", t.INT32), LakeColumn(2, "l", t.list_of(t.list_of(t.VARCHAR)), child_ids=(3, 4))]
    statistics = FileStatistics(columns)
    kind = pa.list_(pa.list_(pa.string()))
    statistics.add(pa.table({"n": pa.array([3, None], pa.int32()), "l": pa.array([[["b"], None], None], kind)}))
    statistics.add(pa.table({"n": pa.array([1], pa.int32()), "l": pa.array([[["a", None]]], kind)}))
    found = statistics.bounds()
    assert (found[1].minimum, found[1].maximum, found[1].value_count, found[1].null_count) == ("1", "3", 2, 1)
    assert (found[4].minimum, found[4].maximum, found[4].value_count, found[4].null_count) == ("a", "b", 2, 3)
