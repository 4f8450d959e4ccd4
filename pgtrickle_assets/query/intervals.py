"""Constant intervals: PostgreSQL's text to months, days and microseconds.

Source: PostgreSQL 18 documentation, 8.5.4 (interval input, `postgres` style and ISO 8601 with designators).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_UNITS: dict[str, tuple[str, int]] = {
    "microsecond": ("microseconds", 1), "us": ("microseconds", 1), "usec": ("microseconds", 1),
    "millisecond": ("microseconds", 10**3), "ms": ("microseconds", 10**3), "msec": ("microseconds", 10**3),
    "second": ("microseconds", 10**6), "sec": ("microseconds", 10**6), "s": ("microseconds", 10**6),
    "minute": ("microseconds", 60 * 10**6), "min": ("microseconds", 60 * 10**6), "m": ("microseconds", 60 * 10**6),
    "hour": ("microseconds", 3600 * 10**6), "hr": ("microseconds", 3600 * 10**6), "h": ("microseconds", 3600 * 10**6),
    "day": ("days", 1), "d": ("days", 1), "week": ("days", 7), "w": ("days", 7),
    "month": ("months", 1), "mon": ("months", 1),
    "year": ("months", 12), "yr": ("months", 12), "y": ("months", 12),
    "decade": ("months", 120), "century": ("months", 1200), "centurie": ("months", 1200),
    "millennium": ("months", 12000),
}  # fmt: skip
_DAY = 86_400 * 10**6
_ITEM = re.compile(r"([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)\s*([a-zA-Z]+)")
_CLOCK = re.compile(r"([+-]?)(\d+):(\d{1,2})(?::(\d{1,2}(?:\.\d*)?))?")
_YEARS_MONTHS = re.compile(r"([+-]?)(\d+)-(\d{1,2})")
_ISO = re.compile(r"([+-]?\d+(?:\.\d+)?)([YMWDHS])")


@dataclass(frozen=True, slots=True)
class Interval:
    """Months, days and microseconds, each with its own sign."""

    months: int = 0
    days: int = 0
    microseconds: int = 0

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.months + other.months, self.days + other.days, self.microseconds + other.microseconds)

    def __neg__(self) -> Interval:
        return Interval(-self.months, -self.days, -self.microseconds)

    def times(self, factor: Fraction) -> Interval:
        """The interval times a number; fractions of months become days of 1/30, fractions of days become time."""
        months = self.months * factor
        whole_months = _truncate(months)
        days = self.days * factor + (months - whole_months) * 30
        whole_days = _truncate(days)
        time = self.microseconds * factor + (days - whole_days) * _DAY
        return Interval(whole_months, whole_days, round(time))

    @property
    def span(self) -> int:
        """Length in microseconds as PostgreSQL compares intervals: a month has 30 days, a day 24 hours."""
        return (self.months * 30 + self.days) * _DAY + self.microseconds

    def text(self) -> str:
        """A text that `parse_interval` reads back."""
        return f"{self.months} months {self.days} days {self.microseconds} microseconds"


def _truncate(value: Fraction) -> int:
    return int(value)


def parse_interval(text: str, unit: str | None = None) -> Interval:
    """Read an interval constant.

    Args:
        text: What stands between the quotes.
        unit: The field after the quotes (`INTERVAL '3' DAY`), if any.

    Raises:
        ValueError: The text is not an interval.
    """
    text = text.strip()
    if unit is not None and re.fullmatch(r"[+-]?\d+(\.\d+)?", text):
        text = f"{text} {unit}"
    if text[:1] in "pP" and len(text) > 1:
        return _parse_iso(text[1:])
    standard = _YEARS_MONTHS.fullmatch(text)
    if standard is not None:
        sign, years, months = standard.groups()
        total = Interval(months=int(years) * 12 + int(months))
        return -total if sign == "-" else total
    rest, total, ago = text, Interval(), False
    if rest.lower().endswith(" ago"):
        rest, ago = rest[:-4], True
    seen = False
    for match in _CLOCK.finditer(rest):
        sign, hours, minutes, seconds = match.groups()
        micro = (int(hours) * 3600 + int(minutes) * 60) * 10**6 + round(Fraction(seconds or 0) * 10**6)
        total, seen = total + Interval(microseconds=-micro if sign == "-" else micro), True
    rest = _CLOCK.sub(" ", rest)
    for match in _ITEM.finditer(rest):
        total, seen = total + _unit(match.group(1), match.group(2)), True
    rest = _ITEM.sub(" ", rest)
    bare = re.fullmatch(r"\s*@?\s*([+-]?\d+(?:\.\d+)?)?\s*", rest)
    if bare is None or not (seen or bare.group(1)):
        raise ValueError(f"invalid input syntax for type interval: {text!r}")
    if bare.group(1):
        total = total + _unit(bare.group(1), "second" if not _CLOCK.search(text) else "day")
    return -total if ago else total


def _unit(number: str, name: str) -> Interval:
    name = name.lower()
    field, size = _UNITS.get(name) or _UNITS.get(name.rstrip("s"), ("", 0))
    if not field:
        raise ValueError(f"unknown interval unit {name!r}")
    base = Interval(**{field: 1})
    return base.times(Fraction(number) * size)


def _parse_iso(text: str) -> Interval:
    date, _, time = text.upper().partition("T")
    total = Interval()
    for part, names in (
        (date, {"Y": "year", "M": "month", "W": "week", "D": "day"}),
        (time, {"H": "hour", "M": "minute", "S": "second"}),
    ):
        for number, letter in _ISO.findall(part):
            total = total + _unit(number, names[letter])
    return total
