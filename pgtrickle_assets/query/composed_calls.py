"""Functions that say in one word what an expression over others says.

Source: PostgreSQL 18 documentation 9.2 (num_nulls), 9.3 (div, lcm, trim_scale, width_bucket), 9.4 (bit_length, ^@).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.casts import to_text
from pgtrickle_assets.query.coercion import common_type, convert, postgres_name
from pgtrickle_assets.query.functions.numbers import as_decimal
from pgtrickle_assets.query.functions.quotients import OWN_DIGITS_SCALE
from pgtrickle_assets.query.operators import arithmetic, call, comparison, unify
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Call, Case, Cast, Expression, Literal
from pgtrickle_assets.query.rewrite import is_not_null
from pgtrickle_assets.query.types import BOOLEAN, INT16, INT32, MAX_DECIMAL_PRECISION, UNKNOWN, VARCHAR, decimal

if TYPE_CHECKING:
    from pgtrickle_assets.query.expressions import Analyzer


def _null_count(_: Analyzer, name: str, args: list[Expression], line: int | None) -> Expression | None:
    test = "is_null" if name == "num_nulls" else "is_not_null"
    ones: list[Expression] = [
        Case(((Call(test, (arg,), BOOLEAN, nullable=False), Literal(1, INT32)),), Literal(0, INT32), INT32, False)
        for arg in args
    ]
    return reduce(lambda left, right: call("+", INT32, left, right), ones) if ones else None


def _bit_length(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    if len(args) != 1:
        return None
    length = call("octet_length", INT32, convert(args[0], VARCHAR, line=line))
    return arithmetic("*", length, Literal(8, INT32), line)


def _whole_quotient(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    """div(a, b) as (a - a % b) / b, which leaves no rest to round."""
    if len(args) != 2 or not all(arg.type.is_integer or arg.type.name == "decimal" for arg in args):
        return None
    left, right = (convert(arg, as_decimal(arg.type), line=line) for arg in args)
    multiple = arithmetic("-", left, arithmetic("%", left, right, line), line)
    quotient = arithmetic("/", multiple, right, line)
    precision, scale = quotient.type.precision or 0, quotient.type.scale or 0
    return call("trunc", decimal(max(precision - scale, 1), 0), quotient)


def _common_divisor(_: Analyzer, name: str, args: list[Expression], line: int | None) -> Expression | None:
    """The overloads know gcd; two smallints fit several of them."""
    if [arg.type for arg in args] == [INT16, INT16]:
        hint = "Cast an argument to integer."
        raise QueryError(f"function {name}(smallint, smallint) is not unique", line=line, hint=hint)
    return None


def _common_multiple(analyzer: Analyzer, name: str, args: list[Expression], line: int | None) -> Expression | None:
    """lcm(a, b) as |a / gcd(a, b) * b|, and 0 where a is 0."""
    kind = common_type([arg.type for arg in args]) if len(args) == 2 else None
    if kind is None or not (kind.is_integer or kind.name == "decimal"):
        return None
    _common_divisor(analyzer, name, args, line)
    left, right = (convert(arg, kind, line=line) for arg in args)
    quotient = arithmetic("/", left, call("gcd", kind, left, right), line)
    if kind.name == "decimal":
        precision, scale = quotient.type.precision or 0, quotient.type.scale or 0
        quotient = call("trunc", decimal(max(precision - scale, 1), 0), quotient)
    product = arithmetic("*", quotient, right, line)
    nothing = arithmetic("*", right, Literal(0, INT32), line)
    zero = comparison("=", left, Literal(0, INT32), line)
    return Case(((zero, convert(nothing, product.type)),), call("abs", product.type, product), product.type)


def _width_bucket(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    """width_bucket(operand, thresholds) as the number of thresholds that are not above the operand."""
    if len(args) != 2 or args[1].type.element is None:
        return None
    items = _constants(args[1], line)
    operand, *thresholds = unify([args[0], *items], "width_bucket", line)[1]
    constants = [threshold for threshold in thresholds if isinstance(threshold, Literal)]
    order = [_position(constant) for constant in constants]
    if len(constants) < len(thresholds) or order != sorted(order):
        raise QueryError("the thresholds of width_bucket must be constants in ascending order", line=line)
    branches: list[tuple[Expression, Expression]] = [
        (comparison(">=", operand, constant, line), Literal(number, INT32))
        for number, constant in reversed(list(enumerate(constants, 1)))
    ]
    return Case((*branches, (is_not_null(operand), Literal(0, INT32))), None, INT32, operand.nullable)


def _constants(array: Expression, line: int | None) -> list[Expression]:
    """The elements of an array of constants, in the type that it was cast to."""
    written = array.arg if isinstance(array, Cast) else array
    items = written.args if isinstance(written, Call) and written.function == "array" else (written,)
    constants = [item for item in items if isinstance(item, Literal) and item.value is not None]
    element = array.type.element
    if element is None or len(constants) < len(items):
        raise QueryError("the thresholds of width_bucket must be an array of constants without NULL", line=line)
    texts = [Literal(item.value, UNKNOWN) if item.type == VARCHAR else item for item in constants]
    return [convert(item, element, line=line) for item in texts]


def _position(constant: Literal) -> Decimal | bytes:
    """What orders constants of one type as PostgreSQL does."""
    if constant.type.is_numeric:
        number = Decimal(str(constant.value))
        return Decimal("Infinity") if number.is_nan() else number
    return str(constant.value).encode()


def _trim_scale(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    """A value of a type that counts as a numeric without scale: its digits are those of the value."""
    if len(args) != 1 or not (args[0].type.is_integer or args[0].type.name == "decimal"):
        return None
    kind = as_decimal(args[0].type)
    integers = max((kind.precision or 0) - (kind.scale or 0), 1)
    if integers + OWN_DIGITS_SCALE > MAX_DECIMAL_PRECISION or (kind.scale or 0) > OWN_DIGITS_SCALE:
        raise QueryError(
            f"trim_scale of {postgres_name(kind)} is not supported: it needs more than 38 digits",
            line=line,
            hint="Cast the argument to numeric(p,s) with p - s <= 20 and s <= 18.",
        )
    result = decimal(integers + OWN_DIGITS_SCALE, OWN_DIGITS_SCALE)
    return call("trim_scale", result, convert(convert(args[0], kind, line=line), result, line=line))


def _starts_with(analyzer: Analyzer, node: exp.StartsWith) -> Expression:
    line = line_of(node)
    text, start = (convert(analyzer.analyze(part), VARCHAR, line=line) for part in (node.this, node.expression))
    return call("starts_with", BOOLEAN, text, start)


def row_text(fields: list[Expression], line: int | None) -> Expression:
    """A text that is the same for equal rows only: of each field its length and its text, or a dash for NULL."""
    parts: list[Expression] = []
    for field in fields:
        text = to_text(convert(field, VARCHAR) if field.type.name == "unknown" else field, line)
        length = to_text(call("length", INT32, text), line)
        whole = call("||", VARCHAR, call("||", VARCHAR, length, Literal(":", VARCHAR)), text)
        parts.append(Call("coalesce", (whole, Literal("-", VARCHAR)), VARCHAR, nullable=False))
    return Call("concat", tuple(parts), VARCHAR, nullable=False)


FUNCTIONS: dict[str, Callable[[Analyzer, str, list[Expression], int | None], Expression | None]] = {
    "num_nulls": _null_count,
    "num_nonnulls": _null_count,
    "bit_length": _bit_length,
    "div": _whole_quotient,
    "gcd": _common_divisor,
    "lcm": _common_multiple,
    "trim_scale": _trim_scale,
    "width_bucket": _width_bucket,
}
HANDLERS: dict[type, Callable[[Any, Any], Expression]] = {exp.StartsWith: _starts_with}
