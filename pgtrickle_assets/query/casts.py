"""Explicit casts.

Source: PostgreSQL 18 documentation 4.2.9 and chapter 8; pg_cast for which conversions exist.
"""

from __future__ import annotations

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.coercion import convert, is_unknown_text, numeric_constant, postgres_name
from pgtrickle_assets.query.functions.numbers import as_decimal, shows_own_digits
from pgtrickle_assets.query.operators import call, comparison
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Call, Case, Cast, Expression, Literal
from pgtrickle_assets.query.rewrite import is_not_null
from pgtrickle_assets.query.typenames import column_type
from pgtrickle_assets.query.types import (
    BOOLEAN,
    INT32,
    INTERVAL,
    MAX_DECIMAL_PRECISION,
    UNKNOWN,
    VARCHAR,
    ColumnType,
    decimal,
)

BARE_NUMERIC = decimal(MAX_DECIMAL_PRECISION, 18)
"""What `numeric` without precision is where no digits are known: 20 before the point, 18 after it."""

_NUMBERS = ("int16", "int32", "int64", "decimal", "float32", "float64")
_ALLOWED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_NUMBERS, (*_NUMBERS, "varchar")),
    "int32": (*_NUMBERS, "varchar", "boolean"),
    "boolean": ("int32", "varchar"),
    "varchar": (*_NUMBERS, "boolean", "date", "timestamp", "timestamptz", "time", "uuid", "json"),
    "date": ("timestamp", "timestamptz", "varchar"),
    "timestamp": ("date", "timestamptz", "varchar", "time"),
    "timestamptz": ("date", "timestamp", "varchar", "time"),
    "time": ("varchar",),
    "uuid": ("varchar",),
    "json": ("varchar",),
    "blob": (),
    "interval": (),
    "list": (),
}


def cast_to(expression: Expression, written: exp.DataType) -> Expression:
    """`expression::written`."""
    line = line_of(written)
    kind, length = column_type(written)
    if kind is None:
        return _to_bare_numeric(expression, line)
    result = cast_value(expression, kind, line)
    if length is None:
        return result
    return call("substring", VARCHAR, result, Literal(1, INT32), Literal(length, INT32))


def _to_bare_numeric(expression: Expression, line: int | None) -> Expression:
    """A numeric without limits: the digits of the value where they are known."""
    if is_unknown_text(expression) and isinstance(expression, Literal) and expression.value is not None:
        try:
            return numeric_constant(str(expression.value))
        except (ValueError, ArithmeticError) as error:
            raise QueryError(f"invalid input syntax for type numeric: '{expression.value}'", line=line) from error
    if expression.type.is_integer or expression.type.name == "decimal":
        return convert(expression, as_decimal(expression.type))
    return cast_value(expression, BARE_NUMERIC, line)


def cast_value(expression: Expression, kind: ColumnType, line: int | None) -> Expression:
    """An explicit conversion to a type; constants are read at once.

    Raises:
        QueryError: PostgreSQL has no such cast, or Spark cannot give its result.
    """
    source = expression.type
    if source in (kind, UNKNOWN):
        return convert(expression, kind, line=line)
    if kind == INTERVAL or source == INTERVAL:
        raise QueryError("casts from and to interval are not supported", line=line)
    if source.element is not None and kind.element is not None:
        return Cast(expression, kind)
    if kind.name not in _ALLOWED.get(source.name, ()):
        raise QueryError(f"cannot cast type {postgres_name(source)} to {postgres_name(kind)}", line=line)
    if kind == VARCHAR and isinstance(expression, Call) and expression.function == "trim_scale":
        return call("trimmed_text", VARCHAR, expression)
    if kind == VARCHAR:
        _refuse_unknown_digits(expression, line)
    if kind == BOOLEAN and source == INT32:
        return comparison("<>", expression, Literal(0, INT32), line)
    return convert(expression, kind, line=line)


def _refuse_unknown_digits(expression: Expression, line: int | None) -> None:
    """PostgreSQL writes as many digits as each value has; a quotient or a numeric without scale does not say them."""
    if expression.type.name == "decimal" and not isinstance(expression, Literal) and shows_own_digits(expression.type):
        raise QueryError(
            "the text of a numeric without a fixed scale is not supported: how many digits it shows differs by value",
            line=line,
            hint="Cast it to numeric(p,s), or round it, before it becomes text.",
        )


def to_text(expression: Expression, line: int | None) -> Expression:
    """A value as text, as `||` and casts convert it."""
    return cast_value(expression, VARCHAR, line)


def output_text(expression: Expression, line: int | None) -> Expression:
    """A value as text, as concat() and clients see it: booleans are t and f."""
    if expression.type != BOOLEAN:
        return to_text(expression, line)
    yes, no = Literal("t", VARCHAR), Literal("f", VARCHAR)
    known = Case(((expression, yes),), no, VARCHAR, nullable=False)
    return Case(((is_not_null(expression), known),), None, VARCHAR) if expression.nullable else known
