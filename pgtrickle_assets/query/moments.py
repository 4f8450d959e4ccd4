"""Functions of dates and times that are put together from others.

Source: PostgreSQL 18 documentation 9.9, and timestamp.c (timestamp_age, overlaps_timestamp).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.coercion import common_type, constant_text, convert, is_unknown_text, postgres_name
from pgtrickle_assets.query.intervals import Interval, parse_interval
from pgtrickle_assets.query.operators import arithmetic, call, comparison
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Call, Case, Expression, Literal
from pgtrickle_assets.query.rewrite import conjunction, disjunction, is_not_null, negation
from pgtrickle_assets.query.types import (
    BOOLEAN,
    DATE,
    FLOAT64,
    INT32,
    INTERVAL,
    TIMESTAMP,
    TIMESTAMPTZ,
    VARCHAR,
)

if TYPE_CHECKING:
    from pgtrickle_assets.query.expressions import Analyzer

_UNITS = ("years", "months", "weeks", "days", "hours", "mins", "secs")


def _date_bin(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    if len(args) != 3:
        return None
    stride = convert(args[0], INTERVAL, line=line)
    if not isinstance(stride, Literal) or stride.value is None:
        raise QueryError("the stride of date_bin must be a constant interval", line=line)
    length = parse_interval(str(stride.value))
    if length.months or length.span <= 0:
        raise QueryError("the stride of date_bin must be positive, without months and years", line=line)
    source, origin = args[1:]
    kind = TIMESTAMPTZ if TIMESTAMPTZ in (source.type, origin.type) else TIMESTAMP
    return call("date_bin", kind, stride, convert(source, kind, line=line), convert(origin, kind, line=line))


def _age(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    """age(later, earlier); with one argument it depends on the current date, and is left to the overloads."""
    if len(args) != 2:
        return None
    kind = TIMESTAMPTZ if all(arg.type == TIMESTAMPTZ for arg in args) else TIMESTAMP
    if any(arg.type not in (DATE, TIMESTAMP, TIMESTAMPTZ) and not is_unknown_text(arg) for arg in args):
        return None
    return call("age", INTERVAL, *(convert(convert(arg, kind, line=line), TIMESTAMP, line=line) for arg in args))


_DATE_FORMAT = re.compile(r"(YYYY|MM|DD)|([^A-Za-z0-9\"\\])")


def _to_date(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    """A text of exactly the format; where PostgreSQL would guess, it is an error."""
    if len(args) != 2:
        return None
    written = constant_text(args[1], "the format of to_date", line)
    parts = [match.groups() for match in _DATE_FORMAT.finditer(written.upper())]
    fields = [field for field, _ in parts if field]
    if "".join(field or other for field, other in parts) != written.upper() or sorted(fields) != ["DD", "MM", "YYYY"]:
        raise QueryError(
            f"to_date format {written!r} is not supported", line=line, hint="Use YYYY, MM and DD, each of them once."
        )
    apart = all(field is None or index == 0 or parts[index - 1][1] for index, (field, _) in enumerate(parts))
    short = r"([0-9]{1,2})" if apart else "([0-9]{2})"
    texts = ["([0-9]{4})" if field == "YYYY" else short if field else re.escape(other) for field, other in parts]
    pattern = Literal(f"(?s)^{''.join(texts)}\\z", VARCHAR)
    text = convert(args[0], VARCHAR, line=line)

    def number(field: str) -> Expression:
        group = Literal(fields.index(field) + 1, INT32)
        return convert(Call("regexp_substring", (text, pattern, group), VARCHAR), INT32)

    date = Call("make_date", (number("YYYY"), number("MM"), number("DD")), DATE)
    wrong = Call("raise", (Literal(f"to_date: a text does not have the format {written}", VARCHAR),), DATE)
    return Case(((call("regexp_like", BOOLEAN, text, pattern), date), (is_not_null(text), wrong)), None, DATE)


def _make_timestamp(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    if len(args) != 6:
        return None
    parts = [*(convert(arg, INT32, line=line) for arg in args[:5]), convert(args[5], FLOAT64, line=line)]
    return call("make_timestamp", TIMESTAMP, *parts)


def _make_interval(analyzer: Analyzer, node: exp.Anonymous) -> Expression:
    """An interval of constants, or of one number that is computed."""
    line, total = line_of(node), Interval()
    computed: list[Expression] = []
    for index, item in enumerate(node.expressions):
        named = isinstance(item, exp.Kwarg)
        unit = item.this.name.lower() if named else _UNITS[min(index, len(_UNITS) - 1)]
        value = analyzer.analyze(item.expression if named else item)
        if unit not in _UNITS or not value.type.is_numeric:
            raise QueryError(f"make_interval with {unit} => {postgres_name(value.type)} is not supported", line=line)
        one = parse_interval(f"1 {unit}")
        if isinstance(value, Literal) and value.value is not None:
            factor = arithmetic("*", Literal(one.text(), INTERVAL), value, line)
            assert isinstance(factor, Literal)
            total = total + parse_interval(str(factor.value))
        else:
            computed.append(arithmetic("*", Literal(one.text(), INTERVAL), value, line))
    if not computed:
        return Literal(total.text(), INTERVAL)
    if len(computed) > 1 or total != Interval():
        raise QueryError("make_interval of several parts is supported for constants only", line=line)
    return computed[0]


@dataclass(frozen=True, slots=True)
class _Period:
    """The two ends in order; a missing end is NULL."""

    start: Expression
    end: Expression


def _overlaps(analyzer: Analyzer, node: exp.Overlaps) -> Expression:
    line = line_of(node)
    rows = [analyzer.row(node.this), analyzer.row(node.expression)]
    ends = [[*row] for row in rows if row is not None]
    if len(ends) != 2 or any(len(row) != 2 for row in ends):
        raise QueryError("OVERLAPS needs two rows of two values", line=line)
    for row in ends:
        if row[1].type == INTERVAL:
            row[1] = arithmetic("+", row[0], row[1], line)
    kind = common_type([part.type for row in ends for part in row])
    if kind is None or kind not in (DATE, TIMESTAMP, TIMESTAMPTZ):
        raise QueryError("OVERLAPS needs dates or timestamps", line=line)
    a, b = (_period(convert(row[0], kind, line=line), convert(row[1], kind, line=line)) for row in ends)
    return Case(
        (
            (comparison(">", a.start, b.start, line), _reaches(a, b, line)),
            (comparison("<", a.start, b.start, line), _reaches(b, a, line)),
            (_known(a.end, b.end), Literal(True, BOOLEAN)),
        ),
        None,
        BOOLEAN,
    )


def _period(start: Expression, end: Expression) -> _Period:
    ordered = Call("greatest", (start, end), end.type, end.nullable)
    last = Case(((_known(start, end), ordered),), None, end.type)
    return _Period(Call("least", (start, end), start.type, start.nullable and end.nullable), last)


def _known(*expressions: Expression) -> Expression:
    return conjunction([is_not_null(e) for e in expressions]) or Literal(True, BOOLEAN)


def _reaches(later: _Period, earlier: _Period, line: int | None) -> Expression:
    """Whether the earlier period lasts until the later begins; NULL where an end is missing that could matter."""
    reached = comparison("<", later.start, earlier.end, line)
    return Case(
        ((reached, Literal(True, BOOLEAN)), (_known(later.end, earlier.end), Literal(False, BOOLEAN))), None, BOOLEAN
    )


def zone_of_row(zone: Expression, line: int | None) -> Expression:
    """A computed time zone, checked in each row: only full names mean the same everywhere."""
    name = convert(zone, VARCHAR, line=line)
    if name.type != VARCHAR:
        raise QueryError(f"a time zone must be text, not {postgres_name(zone.type)}", line=line)
    full = call("regexp_like", BOOLEAN, name, Literal(r"(?s)^([A-Za-z_]+(/[A-Za-z_+0-9-]+)+|UTC)\z", VARCHAR))
    wrong = Call("raise", (Literal("a time zone must have a name such as Europe/Berlin", VARCHAR),), VARCHAR)
    unknown = disjunction([negation(is_not_null(name)), full]) or full
    return Case(((unknown, name),), wrong, VARCHAR, name.nullable)


FUNCTIONS: dict[str, Callable[[Analyzer, str, list[Expression], int | None], Expression | None]] = {
    "age": _age,
    "date_bin": _date_bin,
    "make_timestamp": _make_timestamp,
    "to_date": _to_date,
}
SYNTAX: dict[str, Callable[[Analyzer, Any], Expression]] = {"make_interval": _make_interval}
HANDLERS: dict[type, Callable[[Any, Any], Expression]] = {exp.Overlaps: _overlaps}
