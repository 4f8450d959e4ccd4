"""Small rewrites that make plans shorter without changing what they mean."""

from __future__ import annotations

from pgtrickle_assets.query.plan import ColumnRef, Filter, Literal, Node, Project
from pgtrickle_assets.query.rewrite import columns_of, conjuncts, filtered, map_nodes, substitute, walk_expression


def merge_projections(node: Node) -> Node:
    """Fold projections into projections above them and neighbouring filters into one.

    An expression of the lower projection is copied upward only when it is used once or is a plain column, so nothing is
    computed twice.
    """
    return map_nodes(node, _merge)


def _merge(node: Node) -> Node:
    if isinstance(node, Filter) and isinstance(node.child, Filter):
        return filtered(node.child.child, [*conjuncts(node.child.predicate), *conjuncts(node.predicate)])
    if not isinstance(node, Project):
        return node
    if _is_identity(node):
        return node.child
    below = node.child
    if not isinstance(below, Project):
        return node
    uses: dict[str, int] = {}
    for _, item in node.items:
        for part in walk_expression(item):
            if isinstance(part, ColumnRef):
                uses[part.id] = uses.get(part.id, 0) + 1
    items = {column.id: item for column, item in below.items}
    if any(uses.get(i, 0) > 1 and not isinstance(item, (ColumnRef, Literal)) for i, item in items.items()):
        return node
    merged = Project(below.child, tuple((column, substitute(item, items)) for column, item in node.items))
    return merged if all(columns_of(item) <= _ids(below.child) for _, item in merged.items) else node


def _ids(node: Node) -> frozenset[str]:
    return frozenset(column.id for column in node.output)


def _is_identity(node: Project) -> bool:
    output = node.child.output
    return len(output) == len(node.items) and all(
        isinstance(item, ColumnRef) and item.id == column.id == own.id
        for (column, item), own in zip(node.items, output, strict=True)
    )
