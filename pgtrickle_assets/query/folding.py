"""Computes constant dates and times, so that comparisons with them are comparisons with constants.

`day < DATE '1996-01-01' + INTERVAL '3 months'` compares timestamps in PostgreSQL. As `day < DATE '1996-04-01'` it says
which files and rows matter.

Source: PostgreSQL 18 documentation, 9.9 (date arithmetic: months first, to the last day of a shorter month, then days,
then time; a date that meets a timestamp becomes one at midnight).
"""

from __future__ import annotations

import calendar
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from typing import Final

from pgtrickle_assets.query.intervals import Interval, parse_interval
from pgtrickle_assets.query.plan import Call, Cast, ColumnRef, Expression, Literal, Node
from pgtrickle_assets.query.rewrite import map_node_expressions, map_nodes, map_operands
from pgtrickle_assets.query.types import DATE, TIMESTAMP

_LATER_IN_THE_DAY: Final = {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}
"""What a comparison of a timestamp at midnight with a later one on some day is for the days."""

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


def fold_constants(node: Node) -> Node:
    """The plan with constant dates and times computed."""
    return map_nodes(node, lambda part: map_node_expressions(part, _folded))


def _folded(expression: Expression) -> Expression:
    over_constants = map_operands(expression, _folded)
    return _computed(over_constants) or over_constants


def _computed(expression: Expression) -> Expression | None:
    """What an expression over folded operands is, where that is known."""
    match expression:
        case Cast(arg=Literal(type=kind) as day, type=target) if kind == DATE and target == TIMESTAMP:
            moment = _moment(day)
            return None if moment is None else _timestamp(moment)
        case Call(function="plus_interval" | "minus_interval", args=(Literal() as moment, Literal() as span)):
            return _moved(moment, str(span.value), back=expression.function == "minus_interval")
        case Call(function="plus_days" | "minus_days", args=(Literal() as day, Literal(value=int(days)))):
            moment = _moment(day)
            with suppress(OverflowError):
                step = timedelta(days=-days if expression.function == "minus_days" else days)
                return None if moment is None else Literal((moment + step).date().isoformat(), DATE)
        case Call(args=(left, right)) if expression.function in _MIRRORED:
            if isinstance(left, Literal):
                left, right, function = right, left, _MIRRORED[expression.function]
            else:
                function = expression.function
            return _of_days(expression, left, function, right)
        case _:
            pass
    return None


def _of_days(comparison: Call, left: Expression, function: str, right: Expression) -> Expression | None:
    """The comparison of a day's midnight with a constant timestamp as one of days."""
    if not (isinstance(left, Cast) and isinstance(left.arg, ColumnRef) and left.arg.type == DATE):
        return None
    if left.type != TIMESTAMP or not isinstance(right, Literal) or right.type != TIMESTAMP:
        return None
    moment = _moment(right)
    if moment is None:
        return None
    if moment.time() != time():
        if function not in _LATER_IN_THE_DAY:
            return None
        function = _LATER_IN_THE_DAY[function]
    day = Literal(moment.date().isoformat(), DATE)
    return Call(function, (left.arg, day), comparison.type, comparison.nullable)


def _moved(moment: Literal, span: str, *, back: bool) -> Literal | None:
    start = _moment(moment)
    if start is None:
        return None
    step = -parse_interval(span) if back else parse_interval(span)
    with suppress(OverflowError, ValueError):
        return _timestamp(_plus(start, step))
    return None


def _plus(moment: datetime, step: Interval) -> datetime:
    year, month = divmod(moment.year * 12 + moment.month - 1 + step.months, 12)
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day) + timedelta(step.days, microseconds=step.microseconds)


def _moment(literal: Literal) -> datetime | None:
    """The time that a constant date or timestamp stands for; None for others, and outside of years 1 to 9999."""
    with suppress(ValueError):
        if literal.type == DATE:
            return datetime.combine(date.fromisoformat(str(literal.value)), time())
        if literal.type == TIMESTAMP:
            return datetime.fromisoformat(str(literal.value))
    return None


def _timestamp(moment: datetime) -> Literal:
    return Literal(moment.isoformat(" "), TIMESTAMP)
