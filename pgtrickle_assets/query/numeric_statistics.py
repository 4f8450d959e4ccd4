"""Variance and standard deviation of exact numbers, as sums.

PostgreSQL computes them from N, sum(x) and sum(x*x) without rounding and divides once (numeric.c,
numeric_stddev_internal). Written as plain aggregates and one expression they are exact here too, and cheap to maintain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.functions.numbers import as_decimal
from pgtrickle_assets.query.operators import arithmetic, comparison
from pgtrickle_assets.query.plan import AggregateCall, Call, Case, ColumnRef, Expression, Literal
from pgtrickle_assets.query.types import INT64, MAX_DECIMAL_PRECISION, ColumnType, decimal


class Parts(Protocol):
    """A statistics call as written."""

    @property
    def name(self) -> str:
        """Function name."""
        ...

    @property
    def args(self) -> tuple[Expression, ...]:
        """Arguments."""
        ...

    @property
    def distinct(self) -> bool:
        """Whether DISTINCT was written."""
        ...

    @property
    def filter(self) -> Expression | None:
        """FILTER condition."""
        ...

    @property
    def line(self) -> int | None:
        """Line of the call."""
        ...


def expand(parts: Parts, add: Callable[[AggregateCall], ColumnRef]) -> Expression:
    """The expression over count, sum and sum of squares that equals the call.

    Args:
        parts: A call of the variance family over an integer or numeric argument.
        add: Adds an aggregate and returns its column.
    """
    (value,) = parts.args
    kind = value.type
    if not (kind.is_integer or kind.name == "decimal"):
        raise QueryError(f"function {parts.name} does not exist for this type", line=parts.line)
    exact = as_decimal(kind)
    scale = exact.scale or 0
    if 2 * scale > 12:
        raise QueryError(
            f"{parts.name} of a numeric with {scale} digits after the point is not supported: the squares do not fit",
            line=parts.line,
            hint="Cast to numeric(p,s) with s <= 6, or to double precision.",
        )
    empty = AggregateCall("count", (value,), INT64, parts.distinct, parts.filter, (), nullable=False)
    total_type = decimal(MAX_DECIMAL_PRECISION, scale)
    square = arithmetic("*", _cast(value, exact), _cast(value, exact), parts.line)
    if parts.distinct:
        # squares of different values of the same size would be merged
        raise QueryError(f"{parts.name}(DISTINCT ...) is not supported", line=parts.line)
    count = add(empty)
    total = add(replace(empty, function="sum", args=(_cast(value, exact),), type=total_type, nullable=True))
    squares_type = decimal(MAX_DECIMAL_PRECISION, 2 * scale)
    squares = add(replace(empty, function="sum", args=(square,), type=squares_type, nullable=True))
    return _formula(parts, count, total, squares)


def _cast(value: Expression, kind: ColumnType) -> Expression:
    from pgtrickle_assets.query.coercion import convert

    return convert(value, kind)


def _formula(parts: Parts, count: Expression, total: Expression, squares: Expression) -> Expression:
    line = parts.line
    sample = parts.name in ("var_samp", "variance", "stddev_samp", "stddev")
    zero, one = Literal(0, INT64), Literal(1, INT64)
    number = _cast(count, decimal(12, 0))
    scale = squares.type.scale or 0
    # Narrow enough that the products are exact; a group whose sums do not fit is an error.
    narrow_total = _cast(total, decimal(19 + scale // 2, scale // 2))
    narrow_squares = _cast(squares, decimal(25, scale))
    spread = _cast(
        arithmetic(
            "-",
            _cast(arithmetic("*", number, narrow_squares, line), decimal(MAX_DECIMAL_PRECISION, scale)),
            _cast(arithmetic("*", narrow_total, narrow_total, line), decimal(MAX_DECIMAL_PRECISION, scale)),
            line,
        ),
        decimal(MAX_DECIMAL_PRECISION, scale),
    )
    rest = arithmetic("-", count, one, line) if sample else count
    divisor = arithmetic("*", number, _cast(rest, decimal(12, 0)), line)
    variance = arithmetic("/", spread, divisor, line)
    result: Expression = variance
    if parts.name.startswith("stddev"):
        result = Call("sqrt_quotient", (variance, spread, divisor), variance.type)
    no_spread = comparison("<=", spread, Literal("0", decimal(1, 0)), line)
    flat = Case(((no_spread, _cast(Literal("0", decimal(1, 0)), result.type)),), result, result.type)
    enough = comparison(">", count, one if sample else zero, line)
    return Case(((enough, flat),), None, result.type)
