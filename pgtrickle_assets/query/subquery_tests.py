"""Subqueries inside expressions: scalar values, EXISTS, IN, ANY and ALL.

An expression gets a column that stands for the value; `unnesting` later joins the subquery in. Meaning and three-valued
logic: PostgreSQL 18 documentation 9.24 (subquery expressions) and 9.25 (row and array comparisons).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.array_calls import over_array
from pgtrickle_assets.query.coercion import convert
from pgtrickle_assets.query.context import PlannedQuery
from pgtrickle_assets.query.operators import (
    NEGATED_COMPARISON,
    comparison,
    row_comparison,
)
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Call, Column, Expression, Literal
from pgtrickle_assets.query.rewrite import negation, ref
from pgtrickle_assets.query.types import BOOLEAN, VARCHAR

if TYPE_CHECKING:
    from pgtrickle_assets.query.expressions import Analyzer


def _inner(node: Any) -> Any:
    while isinstance(node, exp.Paren) or (isinstance(node, exp.Subquery) and _is_bare(node)):
        node = node.this
    return node


def _is_bare(node: exp.Subquery) -> bool:
    return not any(node.args.get(key) for key in ("with_", "order", "limit", "offset", "alias"))


def _planned(analyzer: Analyzer, node: Any) -> PlannedQuery:
    return analyzer.plan_subquery(node, analyzer.scope)


def _add(
    analyzer: Analyzer, kind: str, column: Column, planned: PlannedQuery, predicate: Expression | None
) -> Expression:
    from pgtrickle_assets.query.expressions import PendingSubquery

    analyzer.pending[column.id] = PendingSubquery(kind, column, planned.node, predicate)
    return ref(column)


def scalar(analyzer: Analyzer, node: Any) -> Expression:
    """A subquery used as a value: its only column of its only row, or NULL."""
    planned = _planned(analyzer, _inner(node))
    if len(planned.columns) != 1:
        raise QueryError("subquery must return only one column", line=line_of(node))
    source = planned.columns[0].column
    column = analyzer.context.ids.column(source.type, name=planned.columns[0].name)
    value = _add(analyzer, "scalar", column, planned, None)
    return convert(value, VARCHAR) if source.type.name == "unknown" else value


def exists(analyzer: Analyzer, node: exp.Exists) -> Expression:
    """EXISTS (subquery)."""
    planned = _planned(analyzer, _inner(node.this))
    return _add(analyzer, "any", analyzer.context.ids.column(BOOLEAN, nullable=False), planned, None)


def in_subquery(analyzer: Analyzer, node: exp.In) -> Expression:
    """`value IN (subquery)`, also for rows."""
    left = analyzer.row(node.this) or [analyzer.analyze(node.this)]
    return _any(analyzer, "=", left, _inner(node.args["query"]), line_of(node))


def quantified(analyzer: Analyzer, op: str, node: Any) -> Expression | None:
    """`value op ANY (...)` or `value op ALL (...)`; None when the right side is neither."""
    right = node.expression
    if isinstance(right, exp.Anonymous) and str(right.this).lower() in ("all", "any", "some"):
        return _over_array(analyzer, op, node.this, right.expressions[0], all_=str(right.this).lower() == "all")
    if not isinstance(right, (exp.Any, exp.All)):
        return None
    all_ = isinstance(right, exp.All)
    inner = _inner(right.this)
    if not isinstance(inner, exp.Query):
        return _over_array(analyzer, op, node.this, inner, all_=all_)
    left = analyzer.row(node.this) or [analyzer.analyze(node.this)]
    if all_:
        # x op ALL (S) is NOT (x negated-op ANY (S)), in three-valued logic too
        if len(left) > 1:
            raise QueryError("row comparison with ALL is not supported", line=line_of(node))
        return negation(_any(analyzer, NEGATED_COMPARISON[op], left, inner, line_of(node)))
    return _any(analyzer, op, left, inner, line_of(node))


def row_subquery(analyzer: Analyzer, op: str, left: Sequence[Expression], node: exp.Subquery) -> Expression:
    """`(a, b) = (subquery)`: refused, since nobody writes it and NULL rules differ from IN."""
    raise QueryError("comparing a row with a subquery is not supported", line=line_of(node), hint="Use IN or EXISTS.")


def _any(analyzer: Analyzer, op: str, left: Sequence[Expression], query: Any, line: int | None) -> Expression:
    planned = _planned(analyzer, query)
    right: list[Expression] = [ref(item.column) for item in planned.columns]
    if len(left) != len(right):
        raise QueryError(f"subquery has {len(right)} columns, {len(left)} expected", line=line)
    predicate = row_comparison(op, left, right, line) if len(left) > 1 else comparison(op, left[0], right[0], line)
    return _add(analyzer, "any", analyzer.context.ids.column(BOOLEAN), planned, predicate)


def _over_array(analyzer: Analyzer, op: str, left_node: Any, node: Any, *, all_: bool) -> Expression:
    """`value op ANY/ALL (array)`; a written-out array becomes single comparisons."""
    line = line_of(node)
    left = analyzer.analyze(left_node)
    inner = node.this if isinstance(node, exp.Paren) else node
    items = _array_items(analyzer, inner)
    if items is not None:
        tests = tuple(comparison(op, left, item, line) for item in items)
        if not tests:
            return Literal(all_, BOOLEAN)
        return Call("and" if all_ else "or", tests, BOOLEAN)
    return over_array(op, left, analyzer.analyze(inner), all_=all_, line=line)


def _array_items(analyzer: Analyzer, node: Any) -> list[Expression] | None:
    """The elements of a written array: ARRAY[...] or '{...}'::type[]."""
    if isinstance(node, exp.Array):
        return [analyzer.analyze(item) for item in node.expressions]
    if not isinstance(node, exp.Cast):
        return None
    if isinstance(node.this, exp.Literal):
        array = analyzer.analyze(node)
        return list(array.args) if isinstance(array, Call) and array.function == "array" else None
    return _array_items(analyzer, node.this) if isinstance(node.this, exp.Array) else None
