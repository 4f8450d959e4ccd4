"""Constant intervals."""

from __future__ import annotations

from fractions import Fraction

import pytest

from pgtrickle_assets.query.intervals import Interval, parse_interval


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 day", Interval(days=1)),
        ("1 year 2 mons 3 days 04:05:06.7", Interval(14, 3, (4 * 3600 + 5 * 60 + 6) * 10**6 + 700_000)),
        ("-1 month", Interval(months=-1)),
        ("2 weeks ago", Interval(days=-14)),
        ("90 minutes", Interval(microseconds=5400 * 10**6)),
        ("1.5 days", Interval(days=1, microseconds=43200 * 10**6)),
        ("P1Y2M3DT4H", Interval(14, 3, 14400 * 10**6)),
        ("5", Interval(microseconds=5 * 10**6)),
    ],
)
def test_text_is_read_as_postgres_reads_it(text: str, expected: Interval) -> None:
    assert parse_interval(text) == expected


def test_text_of_an_interval_is_read_back() -> None:
    interval = Interval(-3, 5, -7)
    assert parse_interval(interval.text()) == interval


def test_a_fraction_of_a_month_becomes_days() -> None:
    assert Interval(months=1).times(Fraction(1, 2)) == Interval(days=15)


@pytest.mark.parametrize("text", ["", "abc", "1 fortnight"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="interval"):
        parse_interval(text)
