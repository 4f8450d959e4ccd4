"""Left, right and full joins.

A left join is its inner join plus the left rows without a match, extended by NULLs; so its delta is the inner delta
plus the delta of that anti join. A right join mirrors it and a full join has both. The rows that a changed side
reaches are read once and serve the inner term and the flips.

Source: Larson and Zhou, Efficient Maintenance of Materialized Outer-Join Views, ICDE 2007.
"""

from __future__ import annotations

from typing import cast

from pgtrickle_assets.differential.derivation import Derivation
from pgtrickle_assets.differential.expressions import null_of
from pgtrickle_assets.differential.semi_join import (
    Match,
    candidates,
    changed_right,
    flipped_rows,
    matched,
    negated,
    partners,
)
from pgtrickle_assets.differential.view import Rows, View, copy, joined, project, union
from pgtrickle_assets.query.plan import Column, Expression, Join, Node, Scan


def outer_join_delta(derivation: Derivation, node: Node) -> View | None:
    """Inner delta, plus NULL-extended rows whose match appears or vanishes."""
    node = cast(Join, node)
    if node.kind == "right":
        return _left_join(derivation, node, node.right, node.left)
    if node.kind == "left":
        return _left_join(derivation, node, node.left, node.right)
    return _full_join(derivation, node)


def _left_join(derivation: Derivation, node: Join, left: Node, right: Node) -> View | None:
    match = Match.between(left, right, node.condition)
    parts = _changed_left(derivation, node, match, with_matches=True)
    changed = changed_right(derivation, match, match.right.output)
    if changed is not None:
        parts.extend(_changed_right(derivation, node, match, changed))
    return union(parts, node.output, derivation.ids) if parts else None


def _changed_left(derivation: Derivation, node: Join, match: Match, *, with_matches: bool) -> list[View]:
    """The term dL x R1, if asked for, and changed left rows without a match, NULL-extended; R1 is read once."""
    changed = derivation.shared_delta(match.left)
    if changed is None:
        return []
    found = partners(derivation, match, changed)
    if with_matches and not isinstance(found.node, Scan):
        found = derivation.materialize(found, match.right.output, "outer_join").scan(derivation.ids)
    alone = matched(match, "anti", changed.scan(derivation.ids), found)
    parts = [extended(derivation, node, alone)]
    if with_matches:
        parts.append(matched(match, "inner", changed.scan(derivation.ids), copy(found, derivation.ids)))
    return parts


def _changed_right(derivation: Derivation, node: Join, match: Match, changed: Rows) -> list[View]:
    """L0 x dR, and old left rows whose NULL-extended image appears or vanishes."""
    ids = derivation.ids
    reached = candidates(derivation, match, changed)
    left, right = reached.scan(ids), changed.scan(ids)
    both = View(left.node, {**left.columns, **right.columns})
    inner = joined("inner", right, left, [both.expression(part) for part in match.condition])
    flips = negated(flipped_rows(derivation, match, changed, reached), match.left.output, ids)
    return [inner, extended(derivation, node, flips)]


def _full_join(derivation: Derivation, node: Join) -> View | None:
    ids = derivation.ids
    left_match = Match.between(node.left, node.right, node.condition)
    right_match = Match.between(node.right, node.left, node.condition)
    parts = [
        *_changed_left(derivation, node, left_match, with_matches=True),
        *_changed_left(derivation, node, right_match, with_matches=False),
    ]
    changed = changed_right(derivation, left_match, left_match.right.output)
    if changed is not None:
        parts.extend(_changed_right(derivation, node, left_match, changed))
    mirrored = changed_right(derivation, right_match, right_match.right.output)
    if mirrored is not None:
        flips = negated(flipped_rows(derivation, right_match, mirrored, None), node.right.output, ids)
        parts.append(extended(derivation, node, flips))
    return union(parts, node.output, ids) if parts else None


def extended(derivation: Derivation, node: Join, view: View) -> View:
    """The view with NULL for every column of the join that it lacks."""
    items: list[tuple[Column, Expression]] = []
    for column in node.output:
        present = view.columns.get(column.id)
        items.append((column, null_of(column.type) if present is None else view.ref(column)))
    result = project(view, items, derivation.ids)
    return View(result.node, result.columns, result.weight, inserts_only=False)
