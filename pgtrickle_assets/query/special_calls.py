"""Calls whose meaning depends on a constant argument: fields, formats, zones, JSON paths.

Sources: PostgreSQL 18 documentation 9.9 (dates and times), 9.16 (JSON).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query import array_calls, composed_calls, json_calls, moments, patterns
from pgtrickle_assets.query.casts import to_text
from pgtrickle_assets.query.coercion import constant_text, convert, is_unknown_text, postgres_name
from pgtrickle_assets.query.functions.datetimes import FRACTION_FIELDS, INTEGER_FIELDS, split_format
from pgtrickle_assets.query.functions.number_formats import parse_number_format
from pgtrickle_assets.query.functions.numbers import as_decimal
from pgtrickle_assets.query.moments import zone_of_row
from pgtrickle_assets.query.operators import call
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Call, Expression, Literal
from pgtrickle_assets.query.types import (
    DATE,
    FLOAT64,
    INT32,
    INTERVAL,
    MAX_DECIMAL_PRECISION,
    TIMESTAMP,
    TIMESTAMPTZ,
    VARCHAR,
    ColumnType,
    decimal,
)

if TYPE_CHECKING:
    from pgtrickle_assets.query.expressions import Analyzer

Handler = Callable[["Analyzer", str, list[Expression], "int | None"], "Expression | None"]
_FIELD_ALIASES = {
    "years": "year", "months": "month", "days": "day", "hours": "hour", "minutes": "minute", "seconds": "second",
    "weeks": "week", "quarters": "quarter", "millisecond": "milliseconds", "microsecond": "microseconds",
    "decades": "decade", "centuries": "century", "millennia": "millennium", "msec": "milliseconds", "min": "minute",
    "sec": "second", "hr": "hour", "mon": "month", "yr": "year", "dayofweek": "dow",
}  # fmt: skip
_TRUNCATIONS = (
    "microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade",
    "century", "millennium",
)  # fmt: skip
_DATE_FIELDS = frozenset(INTEGER_FIELDS) - {"hour", "minute"} | {"epoch"}
_FRACTION_TYPES = {
    "epoch": decimal(20, 6), "second": decimal(8, 6), "milliseconds": decimal(8, 3), "microseconds": decimal(14, 0),
}  # fmt: skip
_INTERVAL_FIELDS = ("epoch", "day", "hour", "minute", "second", "milliseconds", "microseconds")


def field_of(source: Expression, field: str, kind: ColumnType | None, line: int | None) -> Expression:
    """EXTRACT(field FROM source); `kind` overrides the numeric type (date_part gives double precision)."""
    name = field.lower()
    name = _FIELD_ALIASES.get(name, name)
    if is_unknown_text(source):
        raise QueryError("EXTRACT from a constant of unknown type: add a cast", line=line)
    allowed: frozenset[str] | tuple[str, ...] = (*INTEGER_FIELDS, *FRACTION_FIELDS[:-1])
    if source.type == DATE:
        allowed = _DATE_FIELDS
    elif source.type == INTERVAL:
        return _field_of_interval(source, name, kind, line)
    elif source.type not in (TIMESTAMP, TIMESTAMPTZ):
        raise QueryError(f"EXTRACT from {postgres_name(source.type)} is not supported", line=line)
    if name not in allowed:
        raise QueryError(f'unit "{name}" not supported for type {postgres_name(source.type)}', line=line)
    result = kind or _FRACTION_TYPES.get(name, decimal(10, 0))
    if name == "epoch" and source.type == DATE and kind is None:
        result = decimal(14, 0)
    return call("extract", result, Literal(name, VARCHAR), source)


def _field_of_interval(source: Expression, name: str, kind: ColumnType | None, line: int | None) -> Expression:
    constant = isinstance(source, Literal)
    if isinstance(source, Call) and source.function == "age":
        if name not in (*_INTERVAL_FIELDS, "year", "month"):
            raise QueryError(f'unit "{name}" of age() is not supported', line=line)
        return call("extract", kind or _FRACTION_TYPES.get(name, decimal(14, 0)), Literal(name, VARCHAR), source)
    if name not in _INTERVAL_FIELDS or (name != "epoch" and constant):
        raise QueryError(f'unit "{name}" of this interval is not supported', line=line)
    if not constant and not (isinstance(source, Call) and source.function == "timestamp_difference"):
        raise QueryError("EXTRACT needs a constant interval or the difference of two timestamps", line=line)
    return call("extract", kind or _FRACTION_TYPES.get(name, decimal(14, 0)), Literal(name, VARCHAR), source)


def _extract(analyzer: Analyzer, node: exp.Extract) -> Expression:
    return field_of(analyzer.analyze(node.expression), node.this.name, None, line_of(node))


def _date_part(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    if len(args) != 2:
        return None
    return field_of(args[1], constant_text(args[0], "the field of date_part", line), FLOAT64, line)


def _date_trunc(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    if len(args) not in (2, 3):
        return None
    field = constant_text(args[0], "the field of date_trunc", line).lower()
    field = _FIELD_ALIASES.get(field, field)
    if field not in _TRUNCATIONS:
        raise QueryError(f'unit "{field}" not recognized for date_trunc', line=line)
    source = args[1]
    if source.type == DATE or is_unknown_text(source):
        # date_trunc has no overload for date; timestamptz is the preferred type of its category
        source = convert(source, TIMESTAMPTZ, line=line)
    if source.type not in (TIMESTAMP, TIMESTAMPTZ):
        raise QueryError(f"date_trunc of {postgres_name(source.type)} is not supported", line=line)
    if len(args) == 3:
        if field in ("hour", "minute", "second", "milliseconds", "microseconds"):
            raise QueryError(f"date_trunc of {field} in a time zone is not supported", line=line)
        local = at_zone(convert(source, TIMESTAMPTZ, line=line), args[2], line)
        return at_zone(call("date_trunc", TIMESTAMP, Literal(field, VARCHAR), local), args[2], line)
    return call("date_trunc", source.type, Literal(field, VARCHAR), source)


def _to_char(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    if len(args) != 2 or args[0].type not in (DATE, TIMESTAMP, TIMESTAMPTZ):
        return _number_text(args, line) if len(args) == 2 and args[0].type.is_numeric else None
    text = constant_text(args[1], "the format of to_char", line)
    try:
        split_format(text)
    except ValueError as error:
        raise QueryError(str(error), line=line) from error
    source = convert(args[0], TIMESTAMP) if args[0].type == DATE else args[0]
    return call("to_char", VARCHAR, source, Literal(text, VARCHAR))


def _number_text(args: list[Expression], line: int | None) -> Expression:
    """to_char of a number, which PostgreSQL rounds to the digits of the format first."""
    number, text = args[0], constant_text(args[1], "the format of to_char", line)
    if number.type.is_float:
        raise QueryError(
            "to_char of double precision is not supported: it shows binary digits",
            line=line,
            hint="Cast the number to numeric(p,s).",
        )
    try:
        shape = parse_number_format(text)
    except ValueError as error:
        raise QueryError(str(error), line=line) from error
    kind = as_decimal(number.type)
    scale, places = kind.scale or 0, min(kind.scale or 0, shape.after)
    value = convert(number, kind)
    # A digit before the point more, for what is rounded up, and for what has none.
    rounded = decimal(min((kind.precision or 0) - scale + 1 + places, MAX_DECIMAL_PRECISION), places)
    if places < scale:
        value = call("round_decimal", rounded, value, Literal(places, INT32))
    elif (kind.precision or 0) == scale:
        value = convert(value, rounded)
    return call("number_to_char", VARCHAR, value, Literal(text, VARCHAR))


def at_zone(moment: Expression, zone: Expression, line: int | None) -> Expression:
    """`moment AT TIME ZONE zone`."""
    if not isinstance(zone, Literal):
        return _moved(moment, zone_of_row(zone, line), line)
    name = constant_text(zone, "a time zone", line)
    if not re.fullmatch(r"[A-Za-z_]+(/[A-Za-z_+\-0-9]+)+|UTC|utc|GMT", name):
        raise QueryError(f'time zone "{name}" is not supported', line=line, hint="Use a name such as Europe/Berlin.")
    name = "UTC" if name.upper() in ("UTC", "GMT") else name
    return _moved(moment, Literal(name, VARCHAR), line)


def _moved(moment: Expression, zone: Expression, line: int | None) -> Expression:
    if moment.type == DATE or is_unknown_text(moment):
        moment = convert(moment, TIMESTAMPTZ, line=line)
    if moment.type not in (TIMESTAMP, TIMESTAMPTZ):
        raise QueryError(f"AT TIME ZONE of {postgres_name(moment.type)} is not supported", line=line)
    result = TIMESTAMP if moment.type == TIMESTAMPTZ else TIMESTAMPTZ
    return call("at_time_zone", result, moment, zone)


def _at_time_zone(analyzer: Analyzer, node: exp.AtTimeZone) -> Expression:
    return at_zone(analyzer.analyze(node.this), analyzer.analyze(node.args["zone"]), line_of(node))


def _timezone(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    return at_zone(args[1], args[0], line) if len(args) == 2 else None


def _pad(_: Analyzer, name: str, args: list[Expression], line: int | None) -> Expression | None:
    if len(args) != 2:
        return None
    return call(name, VARCHAR, convert(args[0], VARCHAR), convert(args[1], INT32, line=line), Literal(" ", VARCHAR))


def _text_argument(_: Analyzer, name: str, args: list[Expression], line: int | None) -> Expression | None:
    """Functions of PostgreSQL that take a bytea or text and are common on text alone."""
    if name == "text" and len(args) == 1:
        return to_text(args[0], line)
    return None


FUNCTIONS: dict[str, Handler] = {
    "date_part": _date_part,
    "date_trunc": _date_trunc,
    "to_char": _to_char,
    "timezone": _timezone,
    **patterns.FUNCTIONS,
    "lpad": _pad,
    "rpad": _pad,
    **array_calls.FUNCTIONS,
    **composed_calls.FUNCTIONS,
    **json_calls.FUNCTIONS,
    **moments.FUNCTIONS,
    "text": _text_argument,
}
HANDLERS: dict[type, Callable[[Any, Any], Expression]] = {
    exp.Extract: _extract,
    exp.AtTimeZone: _at_time_zone,
    **patterns.HANDLERS,
    **array_calls.HANDLERS,
    **json_calls.HANDLERS,
    **composed_calls.HANDLERS,
    **moments.HANDLERS,
}
