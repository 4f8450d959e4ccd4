"""Taking renaming projections out of a plan before it is written.

Rules put a projection around whatever they move. An engine removes them too, but only after it has resolved every name
of every one of them, which for a small query costs more than running it.
"""

from __future__ import annotations

from dataclasses import replace

from pgtrickle_assets.query.plan import Column, ColumnRef, Expression, Literal, Node, Project, Scan
from pgtrickle_assets.query.rewrite import map_nodes, substitute


def collapse_projections(node: Node) -> Node:
    """The same relation with each projection merged into a projection or scan right below it, where that is free."""
    return map_nodes(node, _merged)


def _merged(node: Node) -> Node:
    if not isinstance(node, Project):
        return node
    child = node.child
    if isinstance(child, Project) and all(isinstance(value, (ColumnRef, Literal)) for _, value in child.items):
        inner: dict[str, Expression] = {column.id: value for column, value in child.items}
        return _merged(Project(child.child, tuple((column, substitute(value, inner)) for column, value in node.items)))
    if isinstance(child, Scan):
        return _renamed_scan(node, child) or node
    return node


def _renamed_scan(node: Project, scan: Scan) -> Scan | None:
    """The scan under the projection's names, if the projection does nothing but rename."""
    stored = {column.id: name for column, name in zip(scan.columns, scan.source_columns, strict=True)}
    columns: list[Column] = []
    sources: list[str] = []
    weight: Column | None = None
    for column, value in node.items:
        if not isinstance(value, ColumnRef):
            return None
        if scan.weight is not None and value.id == scan.weight.id:
            if weight is not None:
                return None
            weight = column
        else:
            columns.append(column)
            sources.append(stored[value.id])
    if scan.weight is not None and weight is None:
        return None
    # A scan puts its weight last.
    if weight is not None and node.items[-1][0].id != weight.id:
        return None
    return replace(scan, columns=tuple(columns), source_columns=tuple(sources), weight=weight)
