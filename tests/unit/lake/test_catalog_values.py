from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from pgtrickle_assets.lake.values import inlined_value, parse_text
from pgtrickle_assets.query import types as t


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (None, t.INT32, None),
        ("true", t.BOOLEAN, True),
        ("0", t.BOOLEAN, False),
        ("-5", t.INT64, -5),
        ("1.50", t.decimal(5, 2), Decimal("1.50")),
        ("2024-01-01", t.DATE, date(2024, 1, 1)),
        ("10:00:00.25", t.TIME, time(10, 0, 0, 250000)),
        ("2024-01-01 00:00:00.12", t.TIMESTAMP, datetime(2024, 1, 1, 0, 0, 0, 120000)),
        ("2024-01-01 02:00:00+02", t.TIMESTAMPTZ, datetime(2024, 1, 1, tzinfo=UTC)),
        ("[1, NULL]", t.list_of(t.INT32), [1, None]),
        ("['a,b', 'c\"d']", t.list_of(t.VARCHAR), ["a,b", 'c"d']),
        (r"\x00ab", t.BLOB, b"\x00ab"),
    ],
)
def test_duckdb_s_text_is_read(text: str | None, kind: t.ColumnType, value: object) -> None:
    assert parse_text(text, kind) == value


@pytest.mark.parametrize(("text", "kind"), [("infinity", t.DATE), ("0044-03-15 (BC)", t.DATE), ("maybe", t.BOOLEAN)])
def test_a_value_that_python_cannot_hold_is_an_error(text: str, kind: t.ColumnType) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_text(text, kind)


def test_text_is_kept_as_bytes_in_inline_tables() -> None:
    assert inlined_value("ä".encode(), "varchar", t.VARCHAR) == "ä"


def test_a_promoted_float_has_the_value_that_was_stored() -> None:
    assert inlined_value(1.1, "float32", t.FLOAT64) == 1.100000023841858


def test_a_wide_integer_is_exact() -> None:
    assert inlined_value("18446744073709551615", "uint64", t.decimal(20, 0)) == Decimal(2**64 - 1)
