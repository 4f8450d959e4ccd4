"""Operators over typed operands: which conversion PostgreSQL makes and what type comes out.

Sources: PostgreSQL 18 documentation 9.1-9.3, 9.9 (date and time operators), 10.2 (operator type resolution), and
numeric.c for the scale of sums, products and quotients.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.coercion import (
    common_type,
    convert,
    exact_decimal,
    is_unknown_text,
    literal_as_decimal,
    numeric_constant,
    postgres_name,
)
from pgtrickle_assets.query.functions.numbers import as_decimal, multiplication_operands, quotient_type
from pgtrickle_assets.query.intervals import parse_interval
from pgtrickle_assets.query.plan import Call, Cast, Expression, Literal
from pgtrickle_assets.query.rewrite import conjunction, disjunction, equals
from pgtrickle_assets.query.types import (
    BOOLEAN,
    DATE,
    FLOAT64,
    INT32,
    INT64,
    INTERVAL,
    MAX_DECIMAL_PRECISION,
    TIMESTAMP,
    UNKNOWN,
    VARCHAR,
    ColumnType,
    decimal,
)

_EXACT = ("int16", "int32", "int64", "decimal")
_MOMENTS = ("date", "timestamp", "timestamptz")
NEGATED_COMPARISON = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def call(function: str, kind: ColumnType, *args: Expression) -> Call:
    """A strict call: NULL when an argument is."""
    return Call(function, args, kind, any(arg.nullable for arg in args))


def arithmetic(op: str, left: Expression, right: Expression, line: int | None) -> Expression:
    """`left op right` for + - * / % and ^."""
    left, right = _type_unknown(op, left, right, line)
    kinds = (left.type.name, right.type.name)
    if any(name in (*_MOMENTS, "interval", "time") for name in kinds):
        return _moments(op, left, right, line)
    if not (left.type.is_numeric and right.type.is_numeric):
        raise no_operator(op, left, right, line)
    if op == "^":
        return _power(left, right, line)
    common = common_type([left.type, right.type])
    assert common is not None
    if common.name == "decimal":
        return _decimal_arithmetic(op, literal_as_decimal_or_self(left), literal_as_decimal_or_self(right), line)
    if op == "%" and common.is_float:
        raise no_operator(op, left, right, line)
    return call(op, common, convert(left, common, line=line), convert(right, common, line=line))


def literal_as_decimal_or_self(expression: Expression) -> Expression:
    """An integer constant as the numeric of its digits; anything else as it is."""
    return literal_as_decimal(expression) if isinstance(expression, Literal) else expression


def _type_unknown(op: str, left: Expression, right: Expression, line: int | None) -> tuple[Expression, Expression]:
    if is_unknown_text(left) and is_unknown_text(right):
        raise QueryError(f"operator is not unique: unknown {op} unknown", line=line, hint="Add explicit type casts.")
    if is_unknown_text(left):
        return _like(left, right, op, line), right
    if is_unknown_text(right):
        return left, _like(right, left, op, line)
    return left, right


def _like(unknown: Expression, other: Expression, op: str, line: int | None) -> Expression:
    """A constant of unknown type beside a typed operand."""
    kind = other.type
    if kind.name in _MOMENTS and op in ("+", "-"):
        # date - unknown means date; timestamp +- unknown means interval
        if kind == DATE and op == "-":
            return convert(unknown, DATE, line=line)
        return convert(unknown, INTERVAL if op == "+" else kind, line=line)
    return constant_beside(unknown, kind, line)


def constant_beside(unknown: Expression, kind: ColumnType, line: int | None) -> Expression:
    """A constant of unknown type as a value of the type beside it; a numeric keeps the digits that are written."""
    if kind.name == "decimal" and isinstance(unknown, Literal) and unknown.value is not None:
        try:
            literal = numeric_constant(str(unknown.value))
        except (ValueError, ArithmeticError) as error:
            raise QueryError(f"invalid input syntax for type numeric: '{unknown.value}'", line=line) from error
        return exact_decimal(str(literal.value), kind) or literal
    return convert(unknown, kind, line=line)


def _decimal_arithmetic(op: str, left: Expression, right: Expression, line: int | None) -> Expression:
    a, b = as_decimal(left.type), as_decimal(right.type)
    scale = max(a.scale or 0, b.scale or 0)
    if op == "*":
        found = multiplication_operands(a, b)
        if found is None or (found[2].precision or 0) - (found[2].scale or 0) < _integers_wanted(a, b):
            raise QueryError(
                f"the product of {postgres_name(a)} and {postgres_name(b)} needs {(a.scale or 0) + (b.scale or 0)} "
                f"digits after the point, which leaves too few of {MAX_DECIMAL_PRECISION} before it",
                line=line,
                hint="Cast one operand to numeric(p,s) with a smaller scale first.",
            )
        return call("*", found[2], left, right)
    if op == "/":
        if scale > 29:
            raise QueryError(
                "a quotient of numerics with more than 29 digits after the point is not supported", line=line
            )
        return call("/", quotient_type(a, b), left, right)
    integers = max((a.precision or 0) - (a.scale or 0), (b.precision or 0) - (b.scale or 0))
    if op in "+-":
        integers += 1
    return call(op, decimal(max(min(integers + scale, MAX_DECIMAL_PRECISION), 1), scale), left, right)


def _integers_wanted(a: ColumnType, b: ColumnType) -> int:
    exact = (a.precision or 0) - (a.scale or 0) + (b.precision or 0) - (b.scale or 0)
    return min(exact, 6)


def _power(left: Expression, right: Expression, line: int | None) -> Expression:
    if "decimal" in (left.type.name, right.type.name):
        raise QueryError(
            "numeric ^ numeric is not supported: Spark cannot give PostgreSQL's digits",
            line=line,
            hint="Cast to double precision.",
        )
    return call("power", FLOAT64, convert(left, FLOAT64), convert(right, FLOAT64))


def _moments(op: str, left: Expression, right: Expression, line: int | None) -> Expression:
    a, b = left.type.name, right.type.name
    if op == "+" and ((a == "interval" and b in _MOMENTS) or (b == "date" and left.type.is_integer)):
        return _moments("+", right, left, line)
    match (a, op, b):
        case ("date", "-", "date"):
            return call("date_difference", INT32, left, right)
        case ("date", "+" | "-", "int16" | "int32"):
            return call("plus_days" if op == "+" else "minus_days", DATE, left, convert(right, INT32))
        case ("date" | "timestamp" | "timestamptz", "+" | "-", "interval"):
            if isinstance(right, Call) and right.function == "age":
                raise QueryError("adding or subtracting age() is not supported", line=line)
            kind = TIMESTAMP if a == "date" else left.type
            return call("plus_interval" if op == "+" else "minus_interval", kind, left, right)
        case ("date" | "timestamp" | "timestamptz", "-", "date" | "timestamp" | "timestamptz"):
            common = common_type([left.type, right.type])
            assert common is not None
            return call("timestamp_difference", INTERVAL, convert(left, common), convert(right, common))
        case ("interval", _, _) | (_, _, "interval"):
            return _interval_arithmetic(op, left, right, line)
        case _:
            raise no_operator(op, left, right, line)


def _interval_arithmetic(op: str, left: Expression, right: Expression, line: int | None) -> Expression:
    if left.type != INTERVAL and op == "*":
        left, right = right, left
    if not isinstance(left, Literal) or left.value is None:
        raise QueryError("arithmetic with an interval that is not a constant is not supported", line=line)
    first = parse_interval(str(left.value))
    if isinstance(right, Literal) and right.value is not None:
        if right.type == INTERVAL and op in "+-":
            second = parse_interval(str(right.value))
            return Literal((first + (second if op == "+" else -second)).text(), INTERVAL)
        if right.type.is_numeric and op in "*/":
            factor = Fraction(str(right.value))
            if op == "/" and factor == 0:
                raise QueryError("division by zero", line=line)
            return Literal(first.times(factor if op == "*" else 1 / factor).text(), INTERVAL)
    if op == "*" and right.type.is_integer:
        return call("interval_times", INTERVAL, left, right)
    raise no_operator(op, left, right, line)


def comparison(op: str, left: Expression, right: Expression, line: int | None) -> Expression:
    """`left op right` for = <> < <= > >= and the two IS [NOT] DISTINCT FROM."""
    left, right = comparable(op, left, right, line)
    if op in ("is_distinct_from", "is_not_distinct_from"):
        return Call(op, (left, right), BOOLEAN, nullable=False)
    return call(op, BOOLEAN, left, right)


def comparable(op: str, left: Expression, right: Expression, line: int | None) -> tuple[Expression, Expression]:
    """Both operands in the one type in which they are compared."""
    if is_unknown_text(left) and not is_unknown_text(right):
        left = constant_beside(left, right.type, line)
    elif is_unknown_text(right) and not is_unknown_text(left):
        right = constant_beside(right, left.type, line)
    left, right = _exact_constants(left, right)
    common = common_type([left.type, right.type])
    if common is None:
        raise no_operator(op, left, right, line)
    if common.name == "json":
        raise QueryError("comparing json values is not supported", line=line, hint="Compare a ->> text instead.")
    left, right = convert(left, common, line=line), convert(right, common, line=line)
    if common == INTERVAL:
        return call("interval_span", INT64, left), call("interval_span", INT64, right)
    return left, right


def _exact_constants(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """A numeric constant takes the type of the column beside it where that loses nothing: the column stays bare."""
    if isinstance(left, Literal) and not isinstance(right, Literal):
        return _as_type_of(left, right), right
    if isinstance(right, Literal) and not isinstance(left, Literal):
        return left, _as_type_of(right, left)
    return left, right


def _as_type_of(literal: Literal, other: Expression) -> Expression:
    if literal.value is None or literal.type.name not in _EXACT or other.type.name not in _EXACT:
        return literal
    target = as_decimal(other.type)
    exact = exact_decimal(str(literal.value), target)
    if exact is None:
        return literal_as_decimal(literal) if other.type.name == "decimal" else literal
    if other.type.name == "decimal":
        return exact
    converted = convert(literal, other.type) if literal.type.is_integer else Literal(int(str(exact.value)), other.type)
    return literal if isinstance(converted, Cast) else converted


def row_comparison(op: str, left: Sequence[Expression], right: Sequence[Expression], line: int | None) -> Expression:
    """Comparison of two rows, column by column as PostgreSQL defines it (documentation 9.25.5)."""
    if len(left) != len(right):
        raise QueryError("unequal number of entries in row expressions", line=line)
    pairs = list(zip(left, right, strict=True))
    if op in ("=", "is_not_distinct_from"):
        return _required(conjunction([comparison(op, a, b, line) for a, b in pairs]))
    if op in ("<>", "is_distinct_from"):
        return _required(disjunction([comparison(op, a, b, line) for a, b in pairs]))
    strict, result = op[0], comparison(op, *pairs[-1], line)
    for a, b in reversed(pairs[:-1]):
        same = comparison("=", a, b, line)
        later = _required(conjunction([same, result]))
        result = _required(disjunction([comparison(strict, a, b, line), later]))
    return result


def _required(expression: Expression | None) -> Expression:
    if expression is None:
        raise QueryError("an empty row cannot be compared")
    return expression


def in_list(value: Expression, items: Sequence[Expression], line: int | None) -> Expression:
    """`value IN (items)`."""
    if is_unknown_text(value):
        typed = next((item for item in items if not is_unknown_text(item)), None)
        value = convert(value, VARCHAR) if typed is None else constant_beside(value, typed.type, line)
    pairs = [comparable("=", value, item, line) for item in items]
    if len(pairs) == 1:
        return equals(*pairs[0])
    if all(left == pairs[0][0] for left, _ in pairs):
        args = (pairs[0][0], *(right for _, right in pairs))
        return Call("in", args, BOOLEAN, any(arg.nullable for arg in args))
    return _required(disjunction([equals(left, right) for left, right in pairs]))


def concatenation(left: Expression, right: Expression, line: int | None) -> Expression:
    """`left || right` for texts, a text and anything, arrays and elements."""
    for array, other, order in ((left, right, "append"), (right, left, "prepend")):
        if array.type.element is None:
            continue
        if other.type.element is not None or is_unknown_text(other):
            kind = common_type([left.type, right.type]) or array.type
            return call("array_cat", kind, convert(left, kind), convert(right, kind))
        element = convert(other, array.type.element)
        if order == "append":
            return Call("array_append", (array, element), array.type, nullable=False)
        return Call("array_cat", (Call("array", (element,), array.type, False), array), array.type, array.nullable)
    textual = [e for e in (left, right) if e.type == VARCHAR or is_unknown_text(e)]
    if not textual:
        raise no_operator("||", left, right, line)
    from pgtrickle_assets.query.casts import to_text

    return call("||", VARCHAR, to_text(left, line), to_text(right, line))


def no_operator(op: str, left: Expression, right: Expression, line: int | None) -> QueryError:
    """The error for operands without a common operator."""
    return QueryError(
        f"operator does not exist: {postgres_name(left.type)} {op} {postgres_name(right.type)}",
        line=line,
        hint="Add explicit type casts.",
    )


def unify(expressions: Sequence[Expression], what: str, line: int | None) -> tuple[ColumnType, list[Expression]]:
    """Expressions in their common type, as CASE, COALESCE, UNION and VALUES need it."""
    parts = list(expressions)
    if any(part.type.name == "decimal" or part.type.is_float for part in parts):
        parts = [literal_as_decimal_or_self(part) for part in parts]
    kind = common_type([part.type for part in parts])
    if kind is None:
        names = " and ".join(dict.fromkeys(postgres_name(part.type) for part in parts if part.type != UNKNOWN))
        raise QueryError(f"{what} types {names} cannot be matched", line=line)
    return kind, [convert(part, kind, line=line) for part in parts]
