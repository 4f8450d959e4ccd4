"""Operators and functions of arrays that need more than an overload.

Source: PostgreSQL 18 documentation 9.19 (array functions and operators) and 9.25 (ANY and ALL). Arrays have one
dimension here, and begin at 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.coercion import common_type, convert, is_unknown_text, postgres_name
from pgtrickle_assets.query.functions.numbers import as_decimal
from pgtrickle_assets.query.operators import NEGATED_COMPARISON, call, constant_beside
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Call, Case, Expression, Literal
from pgtrickle_assets.query.rewrite import negation
from pgtrickle_assets.query.types import BOOLEAN, INT32, VARCHAR, ColumnType, list_of

if TYPE_CHECKING:
    from pgtrickle_assets.query.expressions import Analyzer


def over_array(op: str, left: Expression, array: Expression, *, all_: bool, line: int | None) -> Expression:
    """`left op ANY (array)` or `left op ALL (array)` for an array that is computed."""
    element = array.type.element
    if element is None:
        raise QueryError("op ANY/ALL (array) requires an array on the right side", line=line)
    value = constant_beside(left, element, line) if is_unknown_text(left) else left
    common = common_type([value.type, element])
    if common is None or not _widens(element, common) or not _widens(value.type, common):
        raise QueryError(
            f"{postgres_name(value.type)} {op} ANY ({postgres_name(array.type)}) is not supported",
            line=line,
            hint="The value must have the type of the elements.",
        )
    array, value = convert(array, list_of(common), line=line), convert(value, common, line=line)
    if all_:
        # x op ALL (a) is NOT (x negated-op ANY (a)), in three-valued logic too.
        return negation(_any(NEGATED_COMPARISON[op], array, value))
    return _any(op, array, value)


def _any(op: str, array: Expression, value: Expression) -> Expression:
    if op == "=":
        return Call("array_has", (array, value), BOOLEAN)
    return Call("array_any", (array, value, Literal(op, VARCHAR)), BOOLEAN)


def _widens(kind: ColumnType, common: ColumnType) -> bool:
    """Whether every engine converts the values of one type to the other without a change, also inside an array."""
    if kind == common or (kind.is_integer and common.is_integer):
        return True
    if common.name != "decimal" or not (kind.is_integer or kind.name == "decimal"):
        return False
    (digits, scale), (common_digits, common_scale) = _digits(as_decimal(kind)), _digits(common)
    return scale <= common_scale and digits - scale <= common_digits - common_scale


def _digits(kind: ColumnType) -> tuple[int, int]:
    return kind.precision or 0, kind.scale or 0


def _same_arrays(left: Expression, right: Expression, op: str, line: int | None) -> tuple[Expression, Expression]:
    if is_unknown_text(left):
        left = convert(left, right.type, line=line)
    if is_unknown_text(right):
        right = convert(right, left.type, line=line)
    kind = left.type.element
    if kind is None or left.type != right.type or kind.is_float:
        raise QueryError(
            f"operator {postgres_name(left.type)} {op} {postgres_name(right.type)} is not supported",
            line=line,
            hint="Both sides must be arrays of the same type, not of floating point.",
        )
    return left, right


def _set_operator(function: str, op: str, *, swapped: bool = False) -> Callable[[Analyzer, Any], Expression]:
    def handle(analyzer: Analyzer, node: Any) -> Expression:
        left, right = analyzer.analyze(node.this), analyzer.analyze(node.expression)
        left, right = _same_arrays(left, right, op, line_of(node))
        return call(function, BOOLEAN, right, left) if swapped else call(function, BOOLEAN, left, right)

    return handle


def _element(_: Analyzer, name: str, args: list[Expression], line: int | None) -> Expression | None:
    """array_append, array_prepend and functions of an array and elements."""
    place = 1 if name == "array_prepend" else 0
    if len(args) != (3 if name == "array_replace" else 2):
        return None
    array, element = args[place], args[place].type.element
    if element is None:
        return None
    items = [convert(arg, element, line=line) for i, arg in enumerate(args) if i != place]
    if any(item.type != element for item in items):
        return None
    match name:
        case "array_position":
            return Call("array_position", (array, *items), INT32)
        case "array_prepend":
            return Call("array_cat", (Call("array", tuple(items), array.type, False), array), array.type)
        case _:
            return Call(name, (array, *items), array.type, nullable=name == "array_append" or array.nullable)


def _bound(_: Analyzer, name: str, args: list[Expression], line: int | None) -> Expression | None:
    """array_length, array_upper, array_lower: NULL for an empty array and for other dimensions than the first."""
    if len(args) != 2 or args[0].type.element is None:
        return None
    dimension = convert(args[1], INT32, line=line)
    if not isinstance(dimension, Literal):
        raise QueryError(f"the dimension of {name} must be a constant", line=line)
    if dimension.value != 1:
        return Literal(None, INT32)
    length = Call("array_length", (args[0],), INT32)
    if name != "array_lower":
        return length
    return Case(((Call("is_not_null", (length,), BOOLEAN, nullable=False), Literal(1, INT32)),), None, INT32)


FUNCTIONS: dict[str, Callable[[Analyzer, str, list[Expression], int | None], Expression | None]] = {
    **dict.fromkeys(("array_append", "array_prepend", "array_position", "array_remove", "array_replace"), _element),
    **dict.fromkeys(("array_length", "array_upper", "array_lower"), _bound),
}
HANDLERS: dict[type, Callable[[Any, Any], Expression]] = {
    exp.ArrayContainsAll: _set_operator("array_contains_all", "@>"),
    exp.ArrayContainedBy: _set_operator("array_contains_all", "<@", swapped=True),
    exp.ArrayOverlaps: _set_operator("array_overlaps", "&&"),
}
