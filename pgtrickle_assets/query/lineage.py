"""Which source columns an output column is computed from."""

from __future__ import annotations

from collections.abc import Iterable

from pgtrickle_assets.query.plan import (
    Aggregate,
    Column,
    Generate,
    Join,
    Node,
    Opaque,
    Project,
    Scan,
    SetOperation,
    UnionAll,
    Values,
    Window,
)
from pgtrickle_assets.query.rewrite import columns_of

Sources = frozenset[tuple[str, str]]


def column_sources(node: Node) -> dict[str, Sources]:
    """Per output column id the (relation, column) pairs that its value comes from; conditions do not count."""
    match node:
        case Scan():
            pairs = zip(node.columns, node.source_columns, strict=True)
            return {column.id: frozenset({(node.relation, source)}) for column, source in pairs}
        case Values():
            return {column.id: frozenset() for column in node.columns}
        case Project():
            below = column_sources(node.child)
            return {column.id: _union(below, columns_of(item)) for column, item in node.items}
        case Aggregate():
            below = column_sources(node.child)
            found = {key.id: below.get(key.id, frozenset()) for key in node.keys}
            for column, call in node.aggregates:
                ids = frozenset(i for arg in call.args for i in columns_of(arg))
                found[column.id] = _union(below, ids)
            return found
        case Window():
            below = column_sources(node.child)
            for column, call in node.calls:
                parts = (*call.args, *call.partition_by, *(key.expression for key in call.order_by))
                below[column.id] = _union(below, frozenset(i for part in parts for i in columns_of(part)))
            return below
        case Generate():
            below = column_sources(node.child)
            made = _union(below, columns_of(node.generator))
            return {**below, **{column.id: made for column in node.columns}}
        case Join():
            return {**column_sources(node.left), **column_sources(node.right)}
        case UnionAll():
            return _by_position(node.columns, node.children)
        case SetOperation():
            return _by_position(node.columns, (node.left, node.right))
        case Opaque():
            everything = frozenset(pair for scan in node.inputs for pair in _union_all(column_sources(scan)))
            return {column.id: everything for column in node.columns}
        case _:
            return column_sources(node.child)


def _union(below: dict[str, Sources], ids: Iterable[str]) -> Sources:
    return frozenset(pair for i in ids for pair in below.get(i, frozenset()))


def _union_all(below: dict[str, Sources]) -> Sources:
    return _union(below, below)


def _by_position(columns: Iterable[Column], branches: Iterable[Node]) -> dict[str, Sources]:
    found: dict[str, Sources] = {}
    for branch in branches:
        below = column_sources(branch)
        for column, own in zip(columns, branch.output, strict=True):
            found[column.id] = found.get(column.id, frozenset()) | below.get(own.id, frozenset())
    return found
