"""Aggregates that are not algebraic: recompute of the affected groups.

The state holds the values as they were delivered. For groups that the delta reaches, keys taken from old and new
rows, the old values are read back and the new ones computed from the child's new state, restricted to those groups.

Source: Palpanas et al., Incremental Maintenance for Non-Distributive Aggregate Functions, VLDB 2002.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgtrickle_assets.differential.derivation import Derivation, read_current
from pgtrickle_assets.differential.state import (
    State,
    affected_keys,
    difference,
    net_change,
    of_affected,
    when_touched,
)
from pgtrickle_assets.differential.view import View, grouped, project
from pgtrickle_assets.query.plan import AggregateCall, Column
from pgtrickle_assets.query.rewrite import IdGenerator, columns_of, map_aggregate


@dataclass(frozen=True, slots=True)
class RecomputedGroups(State):
    """Groups with the values of their aggregates."""

    keys: tuple[tuple[Column, Column], ...]
    calls: tuple[tuple[Column, AggregateCall], ...]

    @property
    def rule(self) -> str:
        """See `State.rule`."""
        return "recompute_groups"

    def full(self, ids: IdGenerator) -> View:
        """See `State.full`."""
        return self._values(read_current(self.child, ids), ids)

    def _values(self, child: View, ids: IdGenerator) -> View:
        calls = [(column, map_aggregate(call, child.expression)) for column, call in self.calls]
        totals = grouped(child, [key for key, _ in self.keys], calls, ids)
        items = [(stored, totals.ref(key)) for key, stored in self.keys]
        items += [(column, totals.ref(column)) for column, _ in self.calls]
        return project(totals, items, ids)

    def change(self, derivation: Derivation) -> View | None:
        """See `State.change`."""
        used = frozenset(i for _, call in self.calls for i in _columns_of_call(call))
        net = net_change(derivation, self.child, used | {key.id for key, _ in self.keys})
        if net is None:
            return None
        changed, _ = net
        affected = affected_keys(derivation, changed, [key for key, _ in self.keys], self.rule)
        ids = derivation.ids
        child = derivation.new(self.child)
        if self.keys:
            child = of_affected(derivation, child, [(key, key) for key, _ in self.keys], affected)
        new = self._values(child, ids)
        if not self.keys:
            new = when_touched(derivation, new, affected)
        pairs = [(stored, key) for key, stored in self.keys]
        old = of_affected(derivation, self.stored(derivation), pairs, affected)
        return difference(derivation, new, old, self.relation.plan_columns)


def _columns_of_call(call: AggregateCall) -> frozenset[str]:
    parts = [*call.args, *(key.expression for key in call.order_by)]
    if call.filter is not None:
        parts.append(call.filter)
    return frozenset(i for part in parts for i in columns_of(part))
