"""Which differing rows are the same but for the last digits of floats."""

from __future__ import annotations

import math

import pytest

from pgtrickle_assets.refresh.duckdb_verification import rounding_pairs
from pgtrickle_assets.refresh.schema_changes import difference

KEY_AND_FLOAT = (None, 1e-9)


@pytest.mark.parametrize(
    ("rows", "paired"),
    [
        ([(1, "a", 0.1 + 0.2, 1), (2, "a", 0.3, -1)], [1, 2]),
        ([(1, "a", 1.0, 1), (2, "a", 1.0001, -1)], []),
        ([(1, "a", 1.0, 1), (2, "b", 1.0, -1)], []),
        ([(1, "a", 1.0, 1), (2, "a", 1.0 + 1e-15, 1)], []),
        # Two rows of one kind cannot pair with one of the other.
        ([(1, "a", 1.0, 2), (2, "a", 1.0 + 1e-15, -1)], []),
        ([(1, "a", None, 1), (2, "a", 0.0, -1)], []),
        ([(1, "a", math.nan, 1), (2, "a", math.nan, -1)], [1, 2]),
        ([(1, "a", math.nan, 1), (2, "a", math.inf, -1)], []),
        ([(1, "a", 0.0, 1), (2, "a", 1e-300, -1)], []),
        ([(1, None, 2.0, 1), (2, None, math.nextafter(2.0, 3), -1)], [1, 2]),
    ],
)
def test_rows_pair_up_only_by_the_last_digits(rows, paired):
    assert list(rounding_pairs(rows, KEY_AND_FLOAT)) == paired


def test_several_rows_of_one_key_pair_in_the_order_of_their_floats():
    rows = [(1, "a", 3.0, 1), (2, "a", 1.0, 1), (3, "a", 1.0 + 1e-15, -1), (4, "a", 3.0 + 1e-15, -1)]
    assert set(rounding_pairs(rows, KEY_AND_FLOAT)) == {1, 2, 3, 4}


def test_exact_columns_are_never_forgiven():
    assert list(rounding_pairs([(1, 1, 1), (2, 2, -1)], (None,))) == []


def test_columns_differ_by_name_and_type_and_not_by_order():
    before = [("id", "int32"), ("note", "varchar")]
    assert difference(before, list(reversed(before))) == ((), (), ())
    assert difference(before, [("id", "int64"), ("more", "date")]) == (
        ("more",),
        ("note",),
        (("id", "int32", "int64"),),
    )
