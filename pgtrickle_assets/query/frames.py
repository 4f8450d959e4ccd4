"""Window frames as standard SQL text that Spark and DuckDB both read.

Frames that Spark lacks are said by ones that it has: GROUPS counts peer groups, which is RANGE over their rank; offsets
in time are numbers of days or seconds. Source: PostgreSQL 18 documentation 4.2.8. `exclusions` does EXCLUDE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.functions.numbers import as_decimal
from pgtrickle_assets.query.intervals import parse_interval
from pgtrickle_assets.query.operators import arithmetic, call
from pgtrickle_assets.query.plan import Cast, Expression, Literal, SortKey
from pgtrickle_assets.query.types import DATE, MAX_DECIMAL_PRECISION, TIMESTAMP, VARCHAR, ColumnType, decimal

_DAY_MICROSECONDS = 86_400 * 10**6
_EPOCH = decimal(20, 6)


@dataclass(frozen=True, slots=True)
class Frame:
    """The ORDER BY that a frame is counted over, and its text; empty for the default frame."""

    order_by: tuple[SortKey, ...]
    text: str = ""


def window_frame(
    spec: Any,
    order_by: Sequence[SortKey],
    rank_of_peers: Callable[[tuple[SortKey, ...]], Expression],
    line: int | None,
) -> Frame:
    """The frame of an OVER clause.

    Args:
        spec: The parsed frame clause, or None.
        order_by: The ORDER BY of the window.
        rank_of_peers: Gives the dense rank of each row under an ORDER BY.
        line: For errors.

    Raises:
        QueryError: An offset that is not a constant of a fixed length.
    """
    keys = tuple(order_by)
    if spec is None:
        return Frame(keys)
    kind, bounds = frame_bounds(spec)
    offsets = [value for value, _ in bounds if not isinstance(value, str)]
    if kind == "GROUPS":
        if not keys:
            raise QueryError("GROUPS mode requires an ORDER BY clause", line=line)
        keys, kind = (SortKey(rank_of_peers(keys)),), "RANGE"
        texts = [whole_offset(value, line) for value in offsets]
    elif kind == "RANGE" and offsets:
        if len(keys) != 1:
            raise QueryError("RANGE with an offset requires exactly one ORDER BY column", line=line)
        key, texts = _measured(keys[0].expression, offsets, line)
        keys = (replace(keys[0], expression=key),)
    else:
        texts = [whole_offset(value, line) for value in offsets]
    start, stop = (_bound(value, side, texts) for value, side in bounds)
    return Frame(keys, f"{kind} BETWEEN {start} AND {stop}")


def frame_bounds(spec: Any) -> tuple[str, list[tuple[Any, Any]]]:
    """ROWS, RANGE or GROUPS, and start and end of a frame clause, each with its side."""
    kind = str(spec.args.get("kind") or "RANGE").upper()
    start = (spec.args.get("start"), spec.args.get("start_side"))
    return kind, [start, (spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"))]


def exclusion(spec: Any) -> str:
    """What a frame clause excludes: CURRENT ROW, GROUP, TIES, or nothing (empty)."""
    exclude = None if spec is None else spec.args.get("exclude")
    text = "" if exclude is None else str(getattr(exclude, "name", exclude)).upper()
    return "" if text == "NO OTHERS" else text


def _bound(value: Any, side: Any, offsets: list[str]) -> str:
    if isinstance(value, str):
        text = value.upper()
        return text if text == "CURRENT ROW" else f"{text} {str(side).upper()}"
    return f"{offsets.pop(0)} {str(side).upper()}"


def whole_offset(value: Any, line: int | None) -> str:
    """The text of an offset in rows or groups."""
    if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdigit():
        raise QueryError("the offset of a window frame must be a constant whole number", line=line)
    return value.name


def _measured(key: Expression, offsets: Sequence[Any], line: int | None) -> tuple[Expression, list[str]]:
    """The ORDER BY column as a number, and the offsets in its unit."""
    kind = key.type
    if kind.is_integer or kind.name == "decimal":
        return _numbers(key, offsets, line)
    if kind.name not in ("date", "timestamp", "timestamptz"):
        raise QueryError("RANGE with an offset needs integers, numeric, dates or timestamps to order by", line=line)
    lengths = [_microseconds(offset, line) for offset in offsets]
    if kind == DATE and all(length % _DAY_MICROSECONDS == 0 for length in lengths):
        days = arithmetic("-", key, Literal("1970-01-01", DATE), line)
        return days, [str(length // _DAY_MICROSECONDS) for length in lengths]
    moment = Cast(key, TIMESTAMP) if kind == DATE else key
    seconds = call("extract", _EPOCH, Literal("epoch", VARCHAR), moment)
    return seconds, [f"{Decimal(length).scaleb(-6):f}" for length in lengths]


def _numbers(key: Expression, offsets: Sequence[Any], line: int | None) -> tuple[Expression, list[str]]:
    texts: list[str] = []
    for offset in offsets:
        if not isinstance(offset, exp.Literal) or offset.is_string:
            raise QueryError("the offset of this window frame must be a constant number", line=line)
        texts.append(f"{Decimal(offset.name):f}")
    digits = max(len(text.partition(".")[2]) for text in texts)
    exact = as_decimal(key.type)
    if digits <= (exact.scale or 0):
        return key, texts
    if key.type.is_integer:
        raise QueryError("an offset with a fraction needs a numeric column to order by", line=line)
    return Cast(key, _with_scale(exact, digits)), texts


def _with_scale(kind: ColumnType, scale: int) -> ColumnType:
    integers = (kind.precision or 0) - (kind.scale or 0)
    return decimal(min(integers + scale, MAX_DECIMAL_PRECISION), scale)


def _microseconds(value: Any, line: int | None) -> int:
    """The fixed length of a constant interval."""
    text, unit = "", None
    if isinstance(value, exp.Interval) and isinstance(value.this, exp.Literal):
        text, unit = value.this.name, value.args.get("unit")
    elif isinstance(value, exp.Cast) and isinstance(value.this, exp.Literal):
        text = value.this.name
    elif isinstance(value, exp.Literal) and value.is_string:
        text = value.name
    try:
        length = parse_interval(text, unit.name if unit is not None else None)
    except ValueError as error:
        raise QueryError("the offset of this window frame must be a constant interval", line=line) from error
    if not text or length.months:
        raise QueryError("an offset of a window frame in months is not supported: they differ in length", line=line)
    total = length.days * _DAY_MICROSECONDS + length.microseconds
    if total < 0:
        raise QueryError("invalid preceding or following size in window function", line=line)
    return total
