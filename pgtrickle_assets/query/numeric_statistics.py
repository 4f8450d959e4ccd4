"""Variance, covariance, correlation and regression of exact numbers, as counts and sums.

PostgreSQL computes variances of exact numbers from N, sum(x) and sum(x*x) without rounding and divides once (numeric.c,
numeric_stddev_internal). Written as plain aggregates and one expression they are exact here too, and cheap to maintain.
The functions of two arguments it computes in double precision (float.c, float8_regr_accum); from exact sums their
results have fewer rounding errors, and the same type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.functions.numbers import as_decimal
from pgtrickle_assets.query.operators import arithmetic, comparison
from pgtrickle_assets.query.plan import AggregateCall, Call, Case, Cast, Expression, Literal
from pgtrickle_assets.query.rewrite import conjunction, is_not_null
from pgtrickle_assets.query.types import FLOAT64, INT64, MAX_DECIMAL_PRECISION, ColumnType, decimal

_COUNT = decimal(12, 0)
_SUM_DIGITS = 25
"""Narrow enough that a product with a count, or of two sums, is exact; a group whose sums do not fit is an error."""
_PAIRED_DIGITS = 12
"""Two arguments of up to this many digits are summed exactly; wider ones would soon reach the limit."""
_ZERO = Literal("0", decimal(1, 0))

Add = Callable[[AggregateCall], Expression]
"""Computes an aggregate over the group or the frame of the call."""


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


def expand(parts: Parts, add: Add) -> Expression:
    """The expression over count, sum and sum of squares that equals the call.

    Args:
        parts: A call of the variance family over an integer or numeric argument.
        add: Computes an aggregate.
    """
    (value,) = parts.args
    kind = value.type
    if not (kind.is_integer or kind.name == "decimal"):
        raise QueryError(f"function {parts.name} does not exist for this type", line=parts.line)
    scale = as_decimal(kind).scale or 0
    if 2 * scale > 12:
        raise QueryError(
            f"{parts.name} of a numeric with {scale} digits after the point is not supported: the squares do not fit",
            line=parts.line,
            hint="Cast to numeric(p,s) with s <= 6, or to double precision.",
        )
    if parts.distinct:
        # squares of different values of the same size would be merged
        raise QueryError(f"{parts.name}(DISTINCT ...) is not supported", line=parts.line)
    count = add(AggregateCall("count", (value,), INT64, False, parts.filter, (), nullable=False))
    total, squares = _sum(parts, value, add), _sum(parts, _product(value, value, parts.line), add)
    return _variance(parts, count, total, squares)


def is_exact_pair(parts: Parts) -> bool:
    """Whether a call of two arguments is computed from exact sums."""
    if len(parts.args) != 2 or parts.distinct:
        return False
    kinds = [arg.type for arg in parts.args]
    if not all(kind.is_integer or kind.name == "decimal" for kind in kinds):
        return False
    exact = [as_decimal(kind) for kind in kinds]
    return all((kind.precision or 0) <= _PAIRED_DIGITS and (kind.scale or 0) <= 6 for kind in exact)


def expand_pair(parts: Parts, add: Add) -> Expression:
    """The expression over counts and exact sums that equals a call of two arguments (`is_exact_pair`).

    Rows in which one of the two is NULL do not count.
    """
    y, x = parts.args
    both = conjunction([is_not_null(arg) for arg in parts.args if arg.nullable])
    if both is not None:
        y, x = (Case(((both, arg),), None, arg.type) for arg in (y, x))
    line = parts.line
    count = add(AggregateCall("count", (x,), INT64, False, parts.filter, (), nullable=False))
    if parts.name == "regr_count":
        return count
    sums = {name: _sum(parts, value, add) for name, value in (("x", x), ("y", y))}
    if parts.name in ("regr_avgx", "regr_avgy"):
        return _some(count, _over(_double(sums[parts.name[-1]]), _double(count), line), line)

    def spread(one: str, other: str) -> Expression:
        values = {"x": x, "y": y}
        product = _sum(parts, _product(values[one], values[other], line), add)
        return _spread(count, product, sums[one], sums[other], line)

    n = _double(count)
    match parts.name:
        case "covar_pop":
            value = _over(_over(_double(spread("x", "y")), n, line), n, line)
        case "covar_samp":
            rest = _double(arithmetic("-", count, Literal(1, INT64), line))
            value = _over(_over(_double(spread("x", "y")), n, line), rest, line)
        case "regr_sxx" | "regr_syy" | "regr_sxy":
            value = _over(_double(spread(parts.name[-2], parts.name[-1])), n, line)
        case "corr":
            root = Call("sqrt", (_times(_positive(spread("x", "x")), _positive(spread("y", "y")), line),), FLOAT64)
            value = _over(_double(spread("x", "y")), root, line)
        case "regr_r2":
            xy = _double(spread("x", "y"))
            across = _times(_positive(spread("x", "x")), _positive(spread("y", "y")), line)
            share = _over(_times(xy, xy, line), across, line)
            level = comparison("<=", spread("y", "y"), _ZERO, line)
            one = Case(((comparison(">", spread("x", "x"), _ZERO, line), Literal("1.0", FLOAT64)),), None, FLOAT64)
            value = Case(((level, one),), share, FLOAT64)
        case "regr_slope":
            value = _over(_double(spread("x", "y")), _positive(spread("x", "x")), line)
        case _:
            slope = _over(_double(spread("x", "y")), _positive(spread("x", "x")), line)
            rise = arithmetic("-", _double(sums["y"]), _times(slope, _double(sums["x"]), line), line)
            value = _over(rise, n, line)
    return _some(count, value, line)


def convert(value: Expression, kind: ColumnType) -> Expression:
    """The value in another type; `coercion` imports the function registry, which is not complete yet up there."""
    from pgtrickle_assets.query import coercion

    return coercion.convert(value, kind)


def _sum(parts: Parts, value: Expression, add: Add) -> Expression:
    exact = as_decimal(value.type)
    kind = decimal(MAX_DECIMAL_PRECISION, exact.scale or 0)
    return add(AggregateCall("sum", (convert(value, exact),), kind, False, parts.filter))


def _product(left: Expression, right: Expression, line: int | None) -> Expression:
    return arithmetic("*", convert(left, as_decimal(left.type)), convert(right, as_decimal(right.type)), line)


def _spread(
    count: Expression, products: Expression, left: Expression, right: Expression, line: int | None
) -> Expression:
    """N * sum(x*y) - sum(x) * sum(y), exactly."""
    scale = products.type.scale or 0
    wide = decimal(MAX_DECIMAL_PRECISION, scale)
    whole = (MAX_DECIMAL_PRECISION - 1 - scale) // 2
    narrow = [convert(total, decimal(whole + _scale(total), _scale(total))) for total in (left, right)]
    first = arithmetic("*", convert(count, _COUNT), convert(products, decimal(_SUM_DIGITS, scale)), line)
    second = arithmetic("*", narrow[0], narrow[1], line)
    return convert(arithmetic("-", convert(first, wide), convert(second, wide), line), wide)


def _scale(value: Expression) -> int:
    return value.type.scale or 0


def _double(value: Expression) -> Expression:
    return Cast(value, FLOAT64)


def _positive(spread: Expression) -> Expression:
    """A spread as a divisor: NULL where nothing varies."""
    return Case(((comparison(">", spread, _ZERO, None), _double(spread)),), None, FLOAT64)


def _times(left: Expression, right: Expression, line: int | None) -> Expression:
    return arithmetic("*", left, right, line)


def _over(left: Expression, right: Expression, line: int | None) -> Expression:
    """A quotient that is NULL for a divisor of 0."""
    divisor = Case(((comparison("<>", right, Literal("0.0", FLOAT64), line), right),), None, FLOAT64)
    return arithmetic("/", left, divisor, line)


def _some(count: Expression, value: Expression, line: int | None) -> Expression:
    return Case(((comparison(">", count, Literal(0, INT64), line), value),), None, value.type)


def _variance(parts: Parts, count: Expression, total: Expression, squares: Expression) -> Expression:
    line = parts.line
    sample = parts.name in ("var_samp", "variance", "stddev_samp", "stddev")
    zero, one = Literal(0, INT64), Literal(1, INT64)
    spread = _spread(count, squares, total, total, line)
    rest = arithmetic("-", count, one, line) if sample else count
    divisor = arithmetic("*", convert(count, _COUNT), convert(rest, _COUNT), line)
    variance = arithmetic("/", spread, divisor, line)
    result: Expression = variance
    if parts.name.startswith("stddev"):
        result = Call("sqrt_quotient", (variance, spread, divisor), variance.type)
    flat = Case(((comparison("<=", spread, _ZERO, line), convert(_ZERO, result.type)),), result, result.type)
    enough = comparison(">", count, one if sample else zero, line)
    return Case(((enough, flat),), None, result.type)
