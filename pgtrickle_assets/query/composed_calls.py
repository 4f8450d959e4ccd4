"""Functions that say in one word what an expression over others says.

Source: PostgreSQL 18 documentation 9.2 (num_nulls), 9.3 (div), 9.4 (bit_length, ^@).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from pgtrickle_assets.query.casts import to_text
from pgtrickle_assets.query.coercion import convert
from pgtrickle_assets.query.functions.numbers import as_decimal
from pgtrickle_assets.query.operators import arithmetic, call
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Call, Case, Expression, Literal
from pgtrickle_assets.query.types import BOOLEAN, INT32, VARCHAR, decimal

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
}
HANDLERS: dict[type, Callable[[Any, Any], Expression]] = {exp.StartsWith: _starts_with}
