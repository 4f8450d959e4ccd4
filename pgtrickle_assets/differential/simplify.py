"""Dropping what an empty relation makes empty.

The executor learns while it runs that a delta or a step's output has no rows. The terms that read it are then taken
out of later steps before they are rendered, so they cost no job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pgtrickle_assets.differential.expressions import integer, null_of
from pgtrickle_assets.query.collapse import collapse_projections
from pgtrickle_assets.query.plan import (
    Aggregate,
    Column,
    Distinct,
    Expression,
    Filter,
    Generate,
    Join,
    Node,
    Opaque,
    Project,
    Scan,
    SetOperation,
    TopK,
    UnionAll,
    Values,
    Window,
)
from pgtrickle_assets.query.rewrite import FALSE, ref


def simplify(node: Node, is_empty: Callable[[Scan], bool]) -> Node | None:
    """The same relation without parts that are known to be empty and without needless projections.

    Args:
        node: A plan.
        is_empty: Whether the relation of a scan has no rows in the scan's version.

    Returns:
        The plan to run, or None when nothing can be left.
    """
    left = _without_empty(node, is_empty)
    return None if left is None else collapse_projections(left)


def _without_empty(node: Node, is_empty: Callable[[Scan], bool]) -> Node | None:  # noqa: C901 - one case per operator
    match node:
        case Scan():
            return None if is_empty(node) else node
        case Values():
            return node if node.rows else None
        case Filter():
            child = _without_empty(node.child, is_empty)
            return None if child is None or node.predicate == FALSE else replace(node, child=child)
        case Project() | Distinct() | Window() | TopK() | Generate():
            child = _without_empty(node.child, is_empty)
            return None if child is None else replace(node, child=child)
        case Aggregate():
            child = _without_empty(node.child, is_empty)
            if child is not None:
                return replace(node, child=child)
            return None if node.keys else _aggregate_of_nothing(node)
        case Join():
            return _join(node, _without_empty(node.left, is_empty), _without_empty(node.right, is_empty))
        case UnionAll():
            parts = [part for part in (_without_empty(child, is_empty) for child in node.children) if part is not None]
            return _union(node, parts)
        case SetOperation():
            return _set_operation(node, _without_empty(node.left, is_empty), _without_empty(node.right, is_empty))
        case Opaque():
            return node


def _aggregate_of_nothing(node: Aggregate) -> Values:
    counting = ("count", "regr_count")
    values: list[Expression] = [
        integer(0) if call.function in counting else null_of(column.type) for column, call in node.aggregates
    ]
    return Values(tuple(column for column, _ in node.aggregates), (tuple(values),))


def _join(node: Join, left: Node | None, right: Node | None) -> Node | None:
    if left is not None and right is not None:
        return replace(node, left=left, right=right)
    if left is None and right is None:
        return None
    if left is not None and node.kind in ("left", "full"):
        return _extended(left, node.output)
    if right is not None and node.kind in ("right", "full"):
        return _extended(right, node.output)
    if left is not None and node.kind == "anti":
        return left
    return None


def _extended(side: Node, output: tuple[Column, ...]) -> Node:
    present = {column.id for column in side.output}
    items: list[tuple[Column, Expression]] = []
    for column in output:
        items.append((column, ref(column) if column.id in present else null_of(column.type)))
    return Project(side, tuple(items))


def _renamed(side: Node, output: tuple[Column, ...]) -> Node:
    pairs = zip(output, side.output, strict=True)
    return Project(side, tuple((column, ref(source)) for column, source in pairs))


def _union(node: UnionAll, parts: list[Node]) -> Node | None:
    if not parts:
        return None
    return _renamed(parts[0], node.columns) if len(parts) == 1 else replace(node, children=tuple(parts))


def _set_operation(node: SetOperation, left: Node | None, right: Node | None) -> Node | None:
    if left is None:
        return None
    if right is not None:
        return replace(node, left=left, right=right)
    if node.kind == "intersect":
        return None
    kept = left if node.all else Distinct(left)
    return _renamed(kept, node.columns)
