"""PostgreSQL decides how to_char lays out a number."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest

from pgtrickle_assets.query.functions.number_formats import layout, parse_number_format

FORMATS = [
    fill + sign + whole + fraction + end
    for fill in ("", "FM")
    for sign, end in (("", ""), ("S", ""), ("", "S"), ("MI", ""), ("", "MI"))
    for whole in ("9", "0", "990", "909", "9,999", "0G009", ",99", "9,,0")
    for fraction in ("", ".9", ".00", "D099", ".90")
]
VALUES = [
    "0",
    "0.5",
    "-0.5",
    "0.1",
    "-0.05",
    "1",
    "-1",
    "12",
    "123.456",
    "-99.995",
    "1234.5",
    "-0.001",
    "10.10",
    "100000",
]


def _written(text: str, value: Decimal) -> str:
    shape = parse_number_format(text)
    number = value.quantize(Decimal(1).scaleb(-shape.after), rounding=ROUND_HALF_UP)
    whole, _, fraction = f"{abs(number):f}".partition(".")
    length = 0 if whole == "0" else min(len(whole), shape.before + 1)
    digits = whole + fraction
    parts = layout(shape, length, len(fraction.rstrip("0")), negative=number < 0)
    return "".join(digits[part] if isinstance(part, int) else part for part in parts)


@pytest.mark.parametrize("text", FORMATS)
def test_layouts_are_those_of_postgres(sample_postgres: Any, text: str) -> None:
    calls = ", ".join(f"to_char({value}::numeric, '{text}')" for value in VALUES)
    assert (
        tuple(_written(text, Decimal(value)) for value in VALUES)
        == sample_postgres.execute(f"SELECT {calls}").fetchone()
    )


@pytest.mark.parametrize(
    "text", ["RN", "L99", "9PR", "SG99", "9V9", "9 9", "9.9EEEE", "99.S", "9.9.9", "S9S", "MI9S", ".99", ""]
)
def test_other_formats_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"number format|decimal points"):
        parse_number_format(text)
