"""LATERAL joins: a right side that reads columns of the left one."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal as TypingLiteral

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.correlation import lift, lift_aggregate
from pgtrickle_assets.query.dependent import evaluate_for
from pgtrickle_assets.query.plan import Distinct, Expression, Generate, Join, Node, Project
from pgtrickle_assets.query.rewrite import (
    IdGenerator,
    conjunction,
    conjuncts,
    filtered,
    free_refs,
    not_distinct,
    output_ids,
    project_columns,
    ref,
    rename_ids,
    substitute,
)


def join_lateral(
    kind: TypingLiteral["inner", "left"], left: Node, right: Node, condition: Expression | None, ids: IdGenerator
) -> Node:
    """`left [LEFT] JOIN LATERAL right ON condition` without correlation.

    A set-returning function over columns of the left side is a Generate. A subquery is lifted or, where it cannot be,
    evaluated once for each different combination of the left values that it reads, and joined back on these.
    """
    if isinstance(right, Generate) and right.child is left:
        if kind == "left" and conjuncts(condition):
            raise QueryError(
                "LEFT JOIN of a set-returning function needs ON true", hint="Put the condition into a subquery."
            )
        return filtered(replace(right, outer=kind == "left"), conjuncts(condition))
    outer = [r for r in free_refs(right) if r.id in output_ids(left)]
    correlated = frozenset(r.id for r in outer)
    if not conjuncts(condition):
        grouped = lift_aggregate(right, correlated, ids)
        if grouped is not None:
            joined = Join("left", left, grouped.node, conjunction(grouped.condition))
            kept = tuple((column, ref(column)) for column in left.output)
            values = tuple((column, grouped.values[column.id]) for column in right.output)
            return Project(joined, (*kept, *values))
    inner, items, lifted_condition = right, None, condition
    if kind == "inner" and isinstance(right, Project):
        # What the subquery computes from left columns can as well be computed after the join.
        inner, items = right.child, right.items
        lifted_condition = None if condition is None else substitute(condition, {c.id: item for c, item in items})
    lifted = lift(inner, correlated, ids, exists=False)
    if lifted is None:
        return _evaluated(kind, left, right, condition, ids)
    joined = Join(kind, left, lifted.node, conjunction([*lifted.condition, *conjuncts(lifted_condition)]))
    if items is None:
        return project_columns(joined, [c for c in joined.output if c.id in output_ids(left) | output_ids(right)])
    return Project(joined, (*((column, ref(column)) for column in left.output), *items))


def _evaluated(
    kind: TypingLiteral["inner", "left"], left: Node, right: Node, condition: Expression | None, ids: IdGenerator
) -> Node:
    outer = [r for r in free_refs(right) if r.id in output_ids(left)]
    copy, renamed = rename_ids(left, ids)
    by_id = {column.id: column for column in copy.output}
    columns = {r.id: by_id[renamed[r.id]] for r in outer}
    domain = Distinct(project_columns(copy, list(columns.values())))
    evaluated = evaluate_for(domain, columns, right, ids)
    tests = [not_distinct(r, ref(evaluated.keys[r.id])) for r in outer]
    joined = Join(kind, left, evaluated.node, conjunction([*tests, *conjuncts(condition)]))
    return project_columns(joined, [c for c in joined.output if c.id in output_ids(left) | output_ids(right)])
