"""Builders of scalar expressions that the delta rules share.

Function names are the canonical ones of the function registry (`pgtrickle_assets.query.functions`).
"""

from __future__ import annotations

from collections.abc import Iterable

from pgtrickle_assets.query.plan import Call, Case, Cast, Column, ColumnRef, Expression, Literal
from pgtrickle_assets.query.rewrite import NULL_SAFE_EQUALITY, ref
from pgtrickle_assets.query.types import BOOLEAN, INT64, ColumnType


def integer(value: int) -> Literal:
    """A BIGINT constant."""
    return Literal(value, INT64)


def null_of(column_type: ColumnType) -> Literal:
    """A NULL of the given type."""
    return Literal(None, column_type)


def _predicate(function: str, *args: Expression) -> Call:
    return Call(function, args, BOOLEAN, any(argument.nullable for argument in args))


def same(left: Expression, right: Expression) -> Call:
    """`left IS NOT DISTINCT FROM right`."""
    return Call(NULL_SAFE_EQUALITY, (left, right), BOOLEAN, nullable=False)


def differs(left: Expression, right: Expression) -> Call:
    """`left IS DISTINCT FROM right`."""
    return Call("is_distinct_from", (left, right), BOOLEAN, nullable=False)


def greater(left: Expression, right: Expression) -> Call:
    """`left > right`."""
    return _predicate(">", left, right)


def less(left: Expression, right: Expression) -> Call:
    """`left < right`."""
    return _predicate("<", left, right)


def at_most(left: Expression, right: Expression) -> Call:
    """`left <= right`."""
    return _predicate("<=", left, right)


def unequal(left: Expression, right: Expression) -> Call:
    """`left <> right`."""
    return _predicate("<>", left, right)


def add(left: Expression, right: Expression) -> Call:
    """`left + right` in the type of `left`."""
    return Call("+", (left, right), left.type, left.nullable or right.nullable)


def subtract(left: Expression, right: Expression) -> Call:
    """`left - right` in the type of `left`."""
    return Call("-", (left, right), left.type, left.nullable or right.nullable)


def multiply(left: Expression, right: Expression, result: ColumnType) -> Call:
    """`left * right`, of type `result`."""
    return Call("*", (left, right), result, left.nullable or right.nullable)


def choose(condition: Expression, then: Expression, otherwise: Expression | None = None) -> Case:
    """`CASE WHEN condition THEN then ELSE otherwise END`."""
    nullable = then.nullable or otherwise is None or otherwise.nullable
    return Case(((condition, then),), otherwise, then.type, nullable)


def zero(column_type: ColumnType) -> Expression:
    """The number zero of a numeric type."""
    return integer(0) if column_type == INT64 else Cast(integer(0), column_type)


def or_zero(argument: Expression) -> Expression:
    """`argument`, or zero of its type where it is NULL."""
    condition = Call("is_null", (argument,), BOOLEAN, nullable=False)
    return Case(((condition, zero(argument.type)),), argument, argument.type, nullable=False)


def refs(columns: Iterable[Column]) -> tuple[ColumnRef, ...]:
    """The values of some columns."""
    return tuple(ref(column) for column in columns)
