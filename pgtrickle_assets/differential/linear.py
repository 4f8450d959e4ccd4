"""Linear operators: their delta is the operator applied to the delta of their input.

Source: bag relational algebra over Z-sets (Budiu et al., DBSP, 2023, section 4: linear operators are their own
incremental version).
"""

from __future__ import annotations

from typing import cast

from pgtrickle_assets.differential.derivation import Derivation
from pgtrickle_assets.differential.view import Relation, View, filtered, project, union
from pgtrickle_assets.query.plan import Call, Filter, Generate, Node, Project, Scan, UnionAll, Version


def scan_delta(derivation: Derivation, node: Node) -> View | None:
    """The delta relation of the scanned relation."""
    scan = cast(Scan, node)
    change = derivation.change_of(scan)
    if change is None:
        return None
    stored = tuple(zip(scan.columns, scan.source_columns, strict=True))
    relation = Relation(scan.relation, stored, True, Version.DELTA, inserts_only=not change.deletes)
    return relation.scan(derivation.ids)


def values_delta(_derivation: Derivation, _node: Node) -> View | None:
    """Constants don't change."""
    return None


def filter_delta(derivation: Derivation, node: Node) -> View | None:
    """Changed rows that pass the filter."""
    node = cast(Filter, node)
    delta = derivation.delta(node.child)
    return None if delta is None else filtered(delta, node.predicate)


def project_delta(derivation: Derivation, node: Node) -> View | None:
    """The projection of changed rows, weights kept: equal results stay separate rows."""
    node = cast(Project, node)
    delta = derivation.delta(node.child)
    if delta is None:
        return None
    items = [(column, delta.expression(expression)) for column, expression in node.items]
    return project(delta, items, derivation.ids)


def union_delta(derivation: Derivation, node: Node) -> View | None:
    """The sum of the branches' deltas."""
    node = cast(UnionAll, node)
    parts: list[View] = []
    for child in node.children:
        delta = derivation.delta(child)
        if delta is not None:
            columns = {
                column.id: delta.columns[source.id] for column, source in zip(node.columns, child.output, strict=True)
            }
            parts.append(View(delta.node, columns, delta.weight, delta.inserts_only))
    return union(parts, node.columns, derivation.ids) if parts else None


def generate_delta(derivation: Derivation, node: Node) -> View | None:
    """The elements of changed rows; an outer row without elements is part of the row's own image."""
    node = cast(Generate, node)
    delta = derivation.delta(node.child)
    if delta is None:
        return None
    generator = cast(Call, delta.expression(node.generator))
    fresh = tuple(derivation.ids.like(column) for column in node.columns)
    elements = {column.id: new for column, new in zip(node.columns, fresh, strict=True)}
    generated = Generate(delta.node, generator, fresh, node.outer)
    return View(generated, {**delta.columns, **elements}, delta.weight, delta.inserts_only)
