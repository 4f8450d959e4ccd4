from __future__ import annotations

import math
from collections import Counter

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtrickle_assets.lake.consolidate import consolidate


def zset(weights, **columns):
    return pa.table({**columns, "__pgt_weight": pa.array(weights, pa.int64())})


def test_equal_rows_add_up_and_zeros_go():
    rows = zset([1, 1, -1, 2], a=[1, 1, 2, 2], b=["x", "x", None, None])
    assert consolidate(rows).to_pylist() == [
        {"a": 1, "b": "x", "__pgt_weight": 2},
        {"a": 2, "b": None, "__pgt_weight": 1},
    ]


def test_nan_is_one_value_and_zeros_are_two():
    rows = zset([1, -1, 1, -1], a=[math.nan, -math.nan, 0.0, -0.0])
    assert sorted(str(row["a"]) for row in consolidate(rows).to_pylist()) == ["-0.0", "0.0"]


def test_lists_are_compared_by_content():
    lists = pa.array([[1, None], [1, None], [], None, None], pa.list_(pa.int32()))
    rows = consolidate(zset([1, 1, 1, 1, -1], l=lists)).to_pylist()
    assert rows == [{"l": [1, None], "__pgt_weight": 2}, {"l": [], "__pgt_weight": 1}]


def test_a_relation_without_columns_keeps_its_count():
    assert consolidate(zset([2, -1])).to_pylist() == [{"__pgt_weight": 1}]
    assert consolidate(zset([1, -1])).num_rows == 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 2)), st.sampled_from("ab"), st.integers(-2, 2))))
def test_the_result_is_the_sum(rows):
    table = zset(
        [w for *_, w in rows],
        a=pa.array([a for a, *_ in rows], pa.int64()),
        b=pa.array([b for _, b, _ in rows], pa.string()),
    )
    expected: Counter[tuple[object, object]] = Counter()
    for a, b, weight in rows:
        expected[a, b] += weight
    found = [((row["a"], row["b"]), row["__pgt_weight"]) for row in consolidate(table).to_pylist()]
    assert dict(found) == {row: count for row, count in expected.items() if count}
    assert len(found) == len(dict(found))
