"""Column pruning: read and compute nothing that the result does not need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pgtrickle_assets.query.plan import (
    Aggregate,
    Distinct,
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
from pgtrickle_assets.query.rewrite import columns_of, node_expressions, output_ids, project_columns


def prune_columns(node: Node, needed: Iterable[str]) -> Node:
    """The same plan without columns that neither `needed` (ids) nor an operator uses.

    The result puts out at least the needed columns, in the old order. DISTINCT, INTERSECT and EXCEPT keep all their
    columns, since each of them takes part in the comparison of rows. A weight column is never dropped.
    """
    return _prune(node, frozenset(needed))


def _used(node: Node) -> frozenset[str]:
    return frozenset(i for expression in node_expressions(node) for i in columns_of(expression))


def _prune(node: Node, needed: frozenset[str]) -> Node:
    match node:
        case Scan():
            keep = [i for i, column in enumerate(node.columns) if column.id in needed]
            return replace(
                node,
                columns=tuple(node.columns[i] for i in keep),
                source_columns=tuple(node.source_columns[i] for i in keep),
            )
        case Values():
            keep = [i for i, column in enumerate(node.columns) if column.id in needed]
            return replace(
                node,
                columns=tuple(node.columns[i] for i in keep),
                rows=tuple(tuple(row[i] for i in keep) for row in node.rows),
            )
        case Project():
            node = replace(node, items=tuple(item for item in node.items if item[0].id in needed))
            return replace(node, child=_prune(node.child, _used(node)))
        case Aggregate():
            aggregates = tuple(item for item in node.aggregates if item[0].id in needed)
            node = replace(node, aggregates=aggregates)
            return replace(node, child=_prune(node.child, _used(node)))
        case Window():
            calls = tuple(item for item in node.calls if item[0].id in needed)
            if not calls:
                return _prune(node.child, needed)
            node = replace(node, calls=calls)
            return replace(node, child=_prune(node.child, needed | _used(node)))
        case Join():
            needed = needed | _used(node)
            return replace(node, left=_prune(node.left, needed), right=_prune(node.right, needed))
        case UnionAll():
            return _prune_union(node, needed)
        case SetOperation():
            left, right = _prune(node.left, output_ids(node.left)), _prune(node.right, output_ids(node.right))
            return replace(node, left=left, right=right)
        case Distinct():
            return replace(node, child=_prune(node.child, output_ids(node.child)))
        case Filter() | TopK() | Generate():
            return replace(node, child=_prune(node.child, needed | _used(node)))
        case Opaque():
            return node


def _prune_union(node: UnionAll, needed: frozenset[str]) -> Node:
    keep = [i for i, column in enumerate(node.columns) if column.id in needed]
    branches: list[Node] = []
    for child in node.children:
        # The children of a union match by position, so each is cut to exactly the kept columns.
        columns = [child.output[i] for i in keep]
        pruned = _prune(child, frozenset(column.id for column in columns))
        branches.append(_exactly(pruned, [column.id for column in columns]))
    return replace(node, children=tuple(branches), columns=tuple(node.columns[i] for i in keep))


def _exactly(node: Node, wanted: list[str]) -> Node:
    if [column.id for column in node.output] == wanted:
        return node
    by_id = {column.id: column for column in node.output}
    return project_columns(node, [by_id[i] for i in wanted])
