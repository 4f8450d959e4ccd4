"""EXCLUDE of a window frame, which Spark does not have, as frames beside each other.

What a frame keeps lies before the excluded rows, after them, or is the current row alone. Counts, sums and extremes of
the parts are put together. Source: PostgreSQL 18 documentation 4.2.8 (frame_exclusion); src/backend/executor/
nodeWindowAgg.c (row_is_in_frame).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.coercion import convert
from pgtrickle_assets.query.frames import Frame, frame_bounds, whole_offset
from pgtrickle_assets.query.functions.numbers import as_decimal, shows_own_digits
from pgtrickle_assets.query.operators import arithmetic, comparison
from pgtrickle_assets.query.plan import AggregateCall, Call, Case, Expression, Literal, SortKey
from pgtrickle_assets.query.rewrite import conjunction, is_not_null, is_null
from pgtrickle_assets.query.types import FLOAT64, INT64, MAX_DECIMAL_PRECISION, decimal

Number = Callable[[str, tuple[SortKey, ...]], Expression]
"""Numbers the rows of a partition under an ORDER BY with a window function."""
_COMBINED = {
    "min": "least", "max": "greatest", "any_value": "least", "bool_and": "and", "bool_or": "or",
    "bit_and": "bit_and", "bit_or": "bit_or", "bit_xor": "bit_xor",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """A frame without exclusion, of the partitions of the window or of smaller ones."""

    partition_by: tuple[Expression, ...]
    frame: Frame


@dataclass(frozen=True, slots=True)
class Kept:
    """What a frame with EXCLUDE keeps; `current` says whether the current row is kept beside the parts."""

    parts: tuple[Part, ...]
    current: bool


def kept_rows(
    spec: Any,
    exclude: str,
    partition_by: tuple[Expression, ...],
    order_by: tuple[SortKey, ...],
    number: Number,
    line: int | None,
) -> Kept:
    """The parts of a frame with EXCLUDE.

    Args:
        spec: The parsed frame clause.
        exclude: CURRENT ROW, GROUP or TIES.
        partition_by: PARTITION BY of the window.
        order_by: ORDER BY of the window.
        number: Gives row_number or dense_rank under an ORDER BY.
        line: For errors.

    Raises:
        QueryError: The frame has an offset that does not go with what is excluded.
    """
    kind, bounds = frame_bounds(spec)
    start, end = (_position(value, side, line) for value, side in bounds)
    far = any(math.isfinite(bound) and bound for bound in (start, end))
    if kind == "GROUPS" and not order_by:
        raise QueryError("GROUPS mode requires an ORDER BY clause", line=line)
    if far and kind == "RANGE":
        raise QueryError("EXCLUDE with an offset in RANGE mode is not supported", line=line)
    if far and kind == "ROWS" and exclude != "CURRENT ROW":
        raise QueryError(f"EXCLUDE {exclude} with an offset in ROWS mode is not supported", line=line)
    inside = start <= 0 <= end
    if kind == "ROWS" and exclude == "CURRENT ROW":
        return Kept(_beside(start, end, partition_by, number("row_number", order_by)), current=False)
    rank = number("dense_rank", order_by) if order_by else None
    parts = () if rank is None else _beside(start, end, partition_by, rank)
    if exclude == "CURRENT ROW" and inside:
        peers = partition_by if rank is None else (*partition_by, rank)
        parts = (*parts, *_beside(-math.inf, math.inf, peers, number("row_number", order_by)))
    return Kept(parts, current=inside and exclude == "TIES")


def _position(value: Any, side: Any, line: int | None) -> float:
    """A bound as a number of rows or groups from the current one."""
    sign = -1 if str(side).upper() == "PRECEDING" else 1
    if isinstance(value, str):
        return 0 if value.upper() == "CURRENT ROW" else sign * math.inf
    return sign * int(whole_offset(value, line))


def _beside(start: float, end: float, partition_by: tuple[Expression, ...], key: Expression) -> tuple[Part, ...]:
    """The part of a frame before the current value of a number, and the part after it."""
    ranges = [(start, min(end, -1)), (max(start, 1), end)]
    return tuple(
        Part(partition_by, Frame((SortKey(key),), f"RANGE BETWEEN {_bound(low)} AND {_bound(high)}"))
        for low, high in ranges
        if low <= high
    )


def _bound(position: float) -> str:
    side = "PRECEDING" if position < 0 else "FOLLOWING"
    return f"{'UNBOUNDED' if math.isinf(position) else abs(int(position))} {side}"


def over_kept(
    call: AggregateCall, kept: Kept, over: Callable[[AggregateCall, Part], Expression], line: int | None
) -> Expression:
    """An aggregate over what a frame with EXCLUDE keeps.

    Args:
        call: The aggregate as it would stand without OVER.
        kept: The rows of its frame.
        over: Computes an aggregate over one part.
        line: For errors.

    Raises:
        QueryError: The aggregate cannot be put together from parts.
    """
    if call.function == "avg":
        return _average(call, kept, over, line)
    if call.function not in ("count", "sum", *_COMBINED):
        raise QueryError(f"{call.function} over a frame with EXCLUDE is not supported", line=line)
    values = [over(call, part) for part in kept.parts]
    if kept.current:
        values.append(_of_one_row(call))
    if not values:
        return Literal(0 if call.function == "count" else None, call.type)
    result = values[0]
    for value in values[1:]:
        result = _together(call, result, value, line)
    return result


def _of_one_row(call: AggregateCall) -> Expression:
    """The aggregate over the current row alone."""
    if call.function != "count":
        value = convert(call.args[0], call.type)
        return value if call.filter is None else Case(((call.filter, value),), None, call.type)
    counted = conjunction([*(is_not_null(arg) for arg in call.args), *([call.filter] if call.filter else [])])
    one = Literal(1, INT64)
    return one if counted is None else Case(((counted, one),), Literal(0, INT64), INT64, nullable=False)


def _together(call: AggregateCall, left: Expression, right: Expression, line: int | None) -> Expression:
    if call.function == "count":
        return arithmetic("+", left, right, line)
    if call.function == "sum":
        both = convert(arithmetic("+", left, right, line), call.type)
    else:
        function = _COMBINED[call.function]
        both = Call(function, (left, right), call.type)
        if function in ("least", "greatest"):
            return both
    return Case(((is_null(left), right), (is_null(right), left)), both, call.type)


def _average(
    call: AggregateCall, kept: Kept, over: Callable[[AggregateCall, Part], Expression], line: int | None
) -> Expression:
    (value,) = call.args
    kind = FLOAT64
    if not value.type.is_float:
        exact = as_decimal(value.type)
        if shows_own_digits(exact):
            raise QueryError(
                "avg of a numeric without a fixed scale over a frame with EXCLUDE is not supported", line=line
            )
        kind = decimal(MAX_DECIMAL_PRECISION, exact.scale or 0)
        value = convert(value, exact)
    total = over_kept(replace(call, function="sum", args=(value,), type=kind), kept, over, line)
    count = over_kept(replace(call, function="count", args=(value,), type=INT64), kept, over, line)
    divisor = convert(count, FLOAT64) if kind == FLOAT64 else count
    some = comparison(">", count, Literal(0, INT64), line)
    return Case(((some, Call("/", (total, divisor), call.type)),), None, call.type)
