"""Semi and anti joins (EXISTS, IN, NOT EXISTS, NOT IN).

With m0 and m1 telling whether a left row has a match in the old and in the new right side, the output goes from L0 m0
to L1 m1. Since L1 = L0 + dL, the difference is dL m1 + L0 (m1 - m0): changed left rows against the new right side,
and old left rows whose match flips. This equals the other usual split (inserted left rows against R1, deleted ones
against R0, flips of left rows present in both states), reads R1 only for changed left rows and never visits a deleted
left row twice.

Whether a match flips is decided by counts: n1 = n0 + (weights of the matching changed right rows), so the right side
is read once, restricted to the keys that changed, and not at all where the weights of a key add up to zero.

A match means that the condition is true. NOT IN arrives here with a condition that is also true where the comparison
is NULL, so three-valued logic needs no rule of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from pgtrickle_assets.differential.derivation import Derivation
from pgtrickle_assets.differential.expressions import (
    add,
    choose,
    greater,
    integer,
    or_zero,
    same,
    subtract,
    unequal,
)
from pgtrickle_assets.differential.join import is_simple, key_pairs
from pgtrickle_assets.differential.restrict import restrict
from pgtrickle_assets.differential.view import (
    Rows,
    View,
    consolidated,
    grouped,
    joined,
    project,
    select,
    selection,
    total_weight,
    union,
)
from pgtrickle_assets.query.plan import (
    AggregateCall,
    Call,
    Column,
    Distinct,
    Expression,
    Filter,
    Join,
    JoinKind,
    Node,
    Scan,
)
from pgtrickle_assets.query.rewrite import (
    EQUALITY,
    NULL_SAFE_EQUALITY,
    IdGenerator,
    columns_of,
    conjuncts,
    is_not_null,
    output_ids,
    ref,
)
from pgtrickle_assets.query.rewrite import filtered as filter_node
from pgtrickle_assets.query.types import BOOLEAN, INT64

KeyEquality = tuple[Expression, Expression, bool]
"""Left value, right value, whether NULL equals NULL."""


@dataclass(frozen=True, slots=True)
class Match:
    """One side being looked up in another: a row of `left` has a match when the condition holds with a row of `right`.

    `right` is filtered by the conditions that read it alone. `able` is `left` filtered by those that read only the left
    side: no other left row ever matches. `condition` is what remains, between the sides.
    """

    left: Node
    right: Node
    able: Node
    left_conditions: tuple[Expression, ...]
    condition: tuple[Expression, ...]

    @classmethod
    def between(cls, left: Node, right: Node, condition: Expression | None) -> Match:
        """The match that a join condition between two nodes describes."""
        left_ids, right_ids = output_ids(left), output_ids(right)
        parts = conjuncts(condition)
        right_only = [part for part in parts if columns_of(part) and columns_of(part) <= right_ids]
        left_only = [part for part in parts if columns_of(part) <= left_ids]
        between = tuple(part for part in parts if part not in right_only and part not in left_only)
        return cls(left, filter_node(right, right_only), filter_node(left, left_only), tuple(left_only), between)

    @property
    def left_columns(self) -> tuple[Column, ...]:
        """Columns of the left side that decide whether a row matches."""
        used = frozenset(i for part in self.condition for i in columns_of(part))
        return tuple(column for column in self.left.output if column.id in used)

    @property
    def right_columns(self) -> tuple[Column, ...]:
        """Columns of the right side that the condition reads, at least one."""
        used = frozenset(i for part in self.condition for i in columns_of(part))
        return tuple(column for column in self.right.output if column.id in used) or self.right.output[:1]

    def equalities(self) -> tuple[KeyEquality, ...] | None:
        """The condition as equalities between the sides, or None when it is more than that."""
        left, right = output_ids(self.left), output_ids(self.right)
        found: list[KeyEquality] = []
        for part in self.condition:
            if not isinstance(part, Call) or part.function not in (EQUALITY, NULL_SAFE_EQUALITY):
                return None
            first, second = part.args
            if columns_of(first) <= right and columns_of(second) <= left:
                first, second = second, first
            if not (columns_of(first) <= left and columns_of(second) <= right):
                return None
            found.append((first, second, part.function == NULL_SAFE_EQUALITY))
        return tuple(found)


def semi_join_delta(derivation: Derivation, node: Node) -> View | None:
    """DL against the new right side, plus old left rows whose match flips."""
    node = cast(Join, node)
    match = Match.between(node.left, node.right, node.condition)
    parts: list[View] = []
    changed = derivation.delta(node.left)
    if changed is not None:
        parts.append(changed_rows_matched(derivation, match, node.kind, changed))
    flips = _flips(derivation, match)
    if flips is not None:
        parts.append(flips if node.kind == "semi" else negated(flips, node.left.output, derivation.ids))
    return union(parts, node.output, derivation.ids) if parts else None


def _flips(derivation: Derivation, match: Match) -> View | None:
    pairs = match.equalities()
    if pairs is not None:
        delta = derivation.delta(match.right)
        return None if delta is None else _flips_by_key(derivation, match, pairs, delta, None)
    right = changed_right(derivation, match, match.right_columns)
    return None if right is None else flipped_rows(derivation, match, right, None)


def negated(view: View, columns: Sequence[Column], ids: IdGenerator) -> View:
    """The Z-set with all weights turned round."""
    assert view.weight is not None  # noqa: S101 - only Z-sets are negated
    items = [(column, view.ref(column)) for column in columns]
    result = project(view, items, ids, weight=subtract(integer(0), ref(view.weight)))
    return View(result.node, result.columns, result.weight)


def changed_rows_matched(derivation: Derivation, match: Match, kind: JoinKind, changed: View) -> View:
    """Changed left rows that have (semi) or lack (anti) a match in the new right side."""
    if key_pairs(match.condition, output_ids(match.left), output_ids(match.right)):
        if not isinstance(changed.node, Scan):
            # Where a value changed that all rows are compared with, most rows go and come: those need no look-up.
            changed = consolidated(changed, match.left.output, derivation.ids)
        keys = derivation.materialize(changed, match.left.output, "semi_join")
        return matched(match, kind, keys.scan(derivation.ids), partners(derivation, match, keys))
    return matched(match, kind, changed, derivation.new(match.right))


def partners(derivation: Derivation, match: Match, changed: Rows) -> View:
    """The new right side, restricted to the keys of changed left rows as far as the condition has equalities.

    A semi or anti join has its right side looked up by hash, so the right side must be the small one.
    """
    right = derivation.new(match.right)
    pairs = key_pairs(match.condition, output_ids(match.left), output_ids(match.right))
    return restrict(right, pairs, changed, derivation.ids) if pairs else right


def matched(match: Match, kind: JoinKind, left: View, right: View) -> View:
    """The join of two readings on the whole condition of the match."""
    both = View(left.node, {**left.columns, **right.columns})
    return joined(kind, left, right, [both.expression(p) for p in (*match.left_conditions, *match.condition)])


def changed_right(derivation: Derivation, match: Match, columns: Sequence[Column]) -> Rows | None:
    """The delta of the right side on some of its columns, as a relation; None when unchanged."""
    delta = derivation.delta(match.right)
    if delta is None:
        return None
    return derivation.materialize(consolidated(delta, columns, derivation.ids), columns, "semi_join")


def candidates(derivation: Derivation, match: Match, right: Rows) -> Rows:
    """Old left rows that match some changed right row, as a relation."""
    left = derivation.old(match.able)
    pairs = key_pairs(match.condition, output_ids(match.right), output_ids(match.left))
    if pairs:
        left = restrict(left, pairs, right, derivation.ids)
    if len(pairs) < len(match.condition) or not pairs:
        changed = right.scan(derivation.ids)
        both = View(left.node, {**left.columns, **changed.columns})
        left = joined("semi", left, changed, [both.expression(part) for part in match.condition])
    return derivation.materialize(left, match.left.output, "semi_join")


def flipped_rows(derivation: Derivation, match: Match, right: Rows, left: Rows | None) -> View:
    """Old left rows whose match appears (weight +1) or vanishes (weight -1).

    Args:
        derivation: The run.
        match: Which rows look up what.
        right: The changed right rows, see `changed_right`.
        left: The old left rows that match changed right rows, when they have been read already.
    """
    pairs = match.equalities()
    if pairs is not None:
        return _flips_by_key(derivation, match, pairs, right.scan(derivation.ids), left)
    return _flips_by_row(derivation, match, right, left or candidates(derivation, match, right))


_BEFORE = Column("matches_before", INT64)
_CHANGE = Column("matches_change", INT64)


def _flips_by_key(
    derivation: Derivation, match: Match, pairs: Sequence[KeyEquality], right: View, left: Rows | None
) -> View:
    ids = derivation.ids
    keys = tuple(ids.column(value.type, name=f"key_{n}") for n, (_, value, _) in enumerate(pairs, start=1))
    change, changed = _change_per_key(derivation, pairs, keys, right)
    before = _matches_before(derivation, match, pairs, keys, changed)
    counted = joined("left", change, before, [same(change.ref(key), before.ref(key)) for key in keys])
    # The join names the keys after its right side, where they are NULL without a match; the left side has them all.
    counted = View(counted.node, {**counted.columns, **change.columns})
    flips = derivation.materialize(_signed(derivation, counted, keys), (*keys, _CHANGE), "semi_join")
    flip = flips.scan(ids)
    rows = _left_rows(derivation, match, pairs, keys, flips, left)
    on = [
        Call(NULL_SAFE_EQUALITY if null_safe else EQUALITY, (rows.expression(mine), flip.ref(key)), BOOLEAN)
        for (mine, _, null_safe), key in zip(pairs, keys, strict=True)
    ]
    return joined("inner", flip, rows, on)


def _change_per_key(
    derivation: Derivation, pairs: Sequence[KeyEquality], keys: Sequence[Column], right: View
) -> tuple[View, Rows]:
    """Net change of the number of right rows per key, without keys whose changes cancel; and rows with these keys."""
    ids = derivation.ids
    items = [(key, right.expression(value)) for key, (_, value, _) in zip(keys, pairs, strict=True)]
    view = project(right, items, ids)
    for key, (_, _, null_safe) in zip(keys, pairs, strict=True):
        if not null_safe:
            view = view.with_node(Filter(view.node, is_not_null(view.ref(key))))
    assert view.weight is not None  # noqa: S101 - the delta is a Z-set
    sums = grouped(view, keys, [(_CHANGE, total_weight(ref(view.weight)))], ids)
    net = sums.with_node(Filter(sums.node, unequal(sums.ref(_CHANGE), integer(0))))
    changed = selection(view, keys)
    if changed is not None:
        return net, changed
    changed = derivation.materialize(net, (*keys, _CHANGE), "semi_join")
    return changed.scan(ids), changed


def _matches_before(
    derivation: Derivation, match: Match, pairs: Sequence[KeyEquality], keys: Sequence[Column], changed: Rows
) -> View:
    ids = derivation.ids
    old = derivation.old(match.right)
    rows = project(old, [(key, old.expression(value)) for key, (_, value, _) in zip(keys, pairs, strict=True)], ids)
    on = [(key, key, null_safe) for key, (_, _, null_safe) in zip(keys, pairs, strict=True)]
    rows = restrict(rows, on, changed, ids)
    return grouped(rows, keys, [(_BEFORE, AggregateCall("count", (), INT64, nullable=False))], ids)


def _left_rows(
    derivation: Derivation,
    match: Match,
    pairs: Sequence[KeyEquality],
    keys: Sequence[Column],
    flips: Rows,
    left: Rows | None,
) -> View:
    """Old left rows, restricted to the keys that flip unless the join with them does that by itself."""
    if left is not None:
        return left.scan(derivation.ids)
    ids = derivation.ids
    old = derivation.old(match.able)
    if is_simple(match.able) or not pairs:
        return old
    own = [(ids.column(mine.type), mine) for mine, _, _ in pairs]
    items = [(column, old.ref(column)) for column in match.left.output]
    items += [(column, old.expression(mine)) for column, mine in own]
    on = [(column, key, null_safe) for (column, _), key, (_, _, null_safe) in zip(own, keys, pairs, strict=True)]
    rows = restrict(project(old, items, ids), on, flips, ids)
    return select(rows, match.left.output, ids)


def _flips_by_row(derivation: Derivation, match: Match, right: Rows, left: Rows) -> View:
    """Flips for any condition: matches are counted for each distinct combination of the deciding left columns."""
    ids = derivation.ids
    keys = match.left_columns
    probes = select(left.scan(ids), keys, ids)
    distinct = derivation.materialize(probes.with_node(Distinct(probes.node)), keys, "semi_join")
    old = derivation.old(match.right)
    pairs = key_pairs(match.condition, output_ids(match.left), output_ids(match.right))
    if pairs and not is_simple(match.right):
        old = restrict(old, [(mine, key, null_safe) for mine, key, null_safe in pairs], distinct, ids)
    before = _matching(match, distinct, old, ids)
    change = _matching(match, distinct, right.scan(ids), ids)
    assert change.weight is not None  # noqa: S101 - the delta is a Z-set
    own = [(key, before.ref(key)) for key in keys]
    parts = [project(before, [*own, (_BEFORE, integer(1)), (_CHANGE, integer(0))], ids)]
    own = [(key, change.ref(key)) for key in keys]
    bag = View(change.node, change.columns)
    parts.append(project(bag, [*own, (_BEFORE, integer(0)), (_CHANGE, ref(change.weight))], ids))
    rows = union(parts, (*keys, _BEFORE, _CHANGE), ids)
    totals = [(column, total_weight(rows.ref(column))) for column in (_BEFORE, _CHANGE)]
    sums = grouped(rows, keys, totals, ids)
    flips = derivation.materialize(_signed(derivation, sums, keys), (*keys, _CHANGE), "semi_join")
    flip, lefts = flips.scan(ids), left.scan(ids)
    on = [same(lefts.ref(key), flip.ref(key)) for key in keys]
    return joined("inner", flip, lefts, on)


def _matching(match: Match, probes: Rows, right: View, ids: IdGenerator) -> View:
    probe = probes.scan(ids)
    both = View(probe.node, {**probe.columns, **right.columns})
    return joined("inner", probe, right, [both.expression(part) for part in match.condition])


def _signed(derivation: Derivation, counted: View, keys: Sequence[Column]) -> View:
    """Keys whose match flips, as a Z-set: +1 where the first match appears, -1 where the last one vanishes."""
    before = or_zero(counted.ref(_BEFORE))
    after = add(before, counted.ref(_CHANGE))
    gained = choose(greater(after, integer(0)), integer(1), integer(0))
    had = choose(greater(before, integer(0)), integer(1), integer(0))
    items = [(column, counted.ref(column)) for column in (*keys, _CHANGE)]
    signed = project(counted, items, derivation.ids, weight=subtract(gained, had))
    assert signed.weight is not None  # noqa: S101 - a weight was just given
    return signed.with_node(Filter(signed.node, unequal(ref(signed.weight), integer(0))))
