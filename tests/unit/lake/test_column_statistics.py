from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtrickle_assets.lake.model import ColumnBounds, LakeColumn
from pgtrickle_assets.lake.statistics import ColumnStatistics, bound_key, leaves, merge, summarize
from pgtrickle_assets.query import types as t

INTS = st.lists(st.one_of(st.none(), st.integers(-100, 100)), min_size=1)


def bounds(values: list[int | None]) -> ColumnBounds:
    known = [value for value in values if value is not None]
    low, high = (str(min(known)), str(max(known))) if known else (None, None)
    return ColumnBounds(low, high, len(known), len(values) - len(known), None)


@settings(deadline=None)
@given(st.lists(INTS, min_size=1, max_size=6))
def test_merging_files_gives_the_bounds_of_all_rows(files: list[list[int | None]]) -> None:
    everything = summarize([bounds([value for file in files for value in file])], t.INT32)
    one_by_one = summarize([bounds(files[0])], t.INT32)
    for file in files[1:]:
        new = summarize([bounds(file)], t.INT32)
        assert one_by_one is not None
        assert new is not None
        one_by_one = merge(one_by_one, new, t.INT32)
    assert summarize([bounds(file) for file in files], t.INT32) == everything == one_by_one


@pytest.mark.parametrize(
    "unknown",
    [
        None,
        ColumnBounds(None, None, 3, 0, None),
        ColumnBounds("1", "2", None, 0, None),
        ColumnBounds("1", "2", 3, None, None),
        ColumnBounds("1", None, 3, 0, None),
    ],
)
def test_one_unknown_file_makes_the_column_unknown(unknown: ColumnBounds | None) -> None:
    assert summarize([bounds([1, 2]), unknown], t.INT32) is None


def test_a_file_of_nulls_only_changes_no_bound() -> None:
    assert summarize([bounds([1, 2]), bounds([None])], t.INT32) == ColumnStatistics(True, None, "1", "2")


def test_nan_is_outside_the_bounds_and_remembered() -> None:
    only_nan = ColumnBounds(None, None, 2, 0, True)
    numbers = ColumnBounds("-inf", "1.5", 2, 0, False)
    assert summarize([only_nan, numbers], t.FLOAT64) == ColumnStatistics(False, True, "-inf", "1.5")
    unknown = ColumnBounds("0.0", "1.0", 2, 0, None)
    merged = summarize([numbers, unknown], t.FLOAT64)
    assert merged is not None
    assert merged.contains_nan is None


def test_half_known_statistics_are_not_widened() -> None:
    new = ColumnStatistics(False, None, "1", "2")
    assert merge(ColumnStatistics(False, None, "1", None), new, t.INT32) is None
    assert merge(ColumnStatistics(None, None, "1", "2"), new, t.INT32) is None


@pytest.mark.parametrize(
    ("kind", "ordered"),
    [
        (t.INT64, ["-10", "-9", "0", "9", "10"]),
        (t.decimal(10, 2), ["-1.50", "0.00", "2.00", "10.00"]),
        (t.FLOAT64, ["-inf", "-1e+300", "0.0", "2.5", "1e+16", "inf"]),
        (t.BOOLEAN, ["0", "1"]),
        (t.DATE, ["-infinity", "0001-01-01", "2024-02-29", "9999-12-31", "infinity"]),
        (t.TIME, ["00:00:00", "10:00:00.25", "10:00:00.3"]),
        (t.TIMESTAMP, ["-infinity", "2024-01-01 00:00:00", "2024-01-01 00:00:00.1", "infinity"]),
        (t.TIMESTAMPTZ, ["2023-12-31 22:00:00.5+00", "2024-01-01 00:00:00+00"]),
        (t.VARCHAR, ["", "A", "a", "ä", "😀"]),
        (t.BLOB, ["", "00", "0041", "FF"]),
        (t.UUID, ["00000000-0000-0000-0000-000000000000", "94f78054-d913-494d-b107-8b3893d9c3b4"]),
    ],
)
def test_bounds_sort_as_their_values_do(kind: t.ColumnType, ordered: list[str]) -> None:
    shuffled = random.Random(1).sample(ordered, len(ordered))
    keys = {text: bound_key(text, kind) for text in shuffled}
    assert None not in keys.values()
    assert sorted(shuffled, key=lambda text: keys[text] or (0, text)) == ordered


def test_a_year_before_our_time_is_unknown() -> None:
    assert bound_key("0044-03-15 (BC)", t.DATE) is None


def test_a_list_has_the_statistics_of_its_innermost_element() -> None:
    column = LakeColumn(3, "l", t.list_of(t.list_of(t.INT32)), child_ids=(4, 5))
    assert [(leaf.id, leaf.type) for leaf in leaves([column])] == [(5, t.INT32)]
