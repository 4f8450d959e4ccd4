"""GROUP BY with algebraic aggregates: group state plus delta.

The state holds, per group, the number of rows and the components of every aggregate, for all groups, also those that
HAVING hides. A group's new state is its old one plus the sums over its delta. A group goes when its row count reaches
0; the aggregate without GROUP BY keeps its one row. An extremum is compared with what came and what went; only groups
that lost a value at or beyond the candidate are rescanned, in the new state of the child, restricted to those groups.

Source: Mumick, Quass and Mumick, Maintenance of Data Cubes and Summary Tables in a Warehouse, SIGMOD 1997 (summary-
delta tables); Palpanas et al., Incremental Maintenance for Non-Distributive Aggregate Functions, VLDB 2002 (MIN/MAX).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgtrickle_assets.differential.algebra import Component
from pgtrickle_assets.differential.derivation import Derivation, read_current
from pgtrickle_assets.differential.expressions import (
    add,
    at_most,
    choose,
    differs,
    greater,
    integer,
    less,
    or_zero,
    same,
)
from pgtrickle_assets.differential.state import TOUCHED, State, of_affected
from pgtrickle_assets.differential.view import Rows, View, grouped, joined, project, selection
from pgtrickle_assets.query.plan import (
    AggregateCall,
    Call,
    Case,
    Column,
    Expression,
    Filter,
    Generate,
    Values,
)
from pgtrickle_assets.query.rewrite import (
    FALSE,
    TRUE,
    IdGenerator,
    conjunction,
    disjunction,
    is_not_null,
    is_null,
    ref,
)
from pgtrickle_assets.query.types import INT64

Items = list[tuple[Column, Expression]]


@dataclass(frozen=True, slots=True)
class AggregateState(State):
    """Groups with algebraic components.

    `keys` pairs each grouping column of the child with its state column; `components` starts with the row count.
    """

    keys: tuple[tuple[Column, Column], ...]
    components: tuple[Component, ...]

    @property
    def rule(self) -> str:
        """See `State.rule`."""
        return "group_by" if self.keys else "aggregate_all"

    @property
    def rows(self) -> Component:
        """The row count."""
        return self.components[0]

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The state's key columns."""
        return tuple(stored for _, stored in self.keys)

    @property
    def extrema(self) -> tuple[Component, ...]:
        """Components that a deletion can spoil."""
        return tuple(component for component in self.components if component.kind != "sum")

    def full(self, ids: IdGenerator) -> View:
        """See `State.full`."""
        child = read_current(self.child, ids)
        totals = self._grouped(child, ids)
        items: Items = [(key, totals.ref(key)) for key in self.key_columns]
        for component in self.components:
            value = totals.ref(component.column)
            items.append((component.column, or_zero(value) if component.kind == "sum" else value))
        return project(totals, items, ids)

    def keyed(self, child: View, extra: Sequence[tuple[Column, Expression]], ids: IdGenerator) -> View:
        """The child under the state's key columns, with more columns beside them, as a bag."""
        items: Items = [(stored, child.ref(key)) for key, stored in self.keys]
        bag = View(child.node, child.columns)
        return project(bag, [*items, *extra], ids)

    def _grouped(self, child: View, ids: IdGenerator) -> View:
        arguments = [(c.column, child.expression(c.argument)) for c in self.components]
        rows = self.keyed(child, arguments, ids)
        calls = [(c.column, AggregateCall(c.kind, (rows.ref(c.column),), c.column.type)) for c in self.components]
        return grouped(rows, self.key_columns, calls, ids)

    def change(self, derivation: Derivation) -> View | None:
        """See `State.change`."""
        delta = derivation.delta(self.child)
        if delta is None:
            return None
        ids = derivation.ids
        change = _Change.of(self, derivation, delta)
        partial, stored = change.partial(delta), self.stored(derivation)
        if self.relation.name not in derivation.small:
            own = [(key, delta.ref(column)) for column, key in self.keys]
            affected: Rows | None = selection(project(delta, own, ids), self.key_columns)
            if affected is None:
                columns = (*self.key_columns, *change.added.values(), *change.lost.values())
                affected = derivation.materialize(partial, columns, self.rule)
                partial = affected.scan(ids)
            if self.keys:
                stored = of_affected(derivation, stored, [(key, key) for key in self.key_columns], affected)
        groups = change.groups(partial, stored)
        if change.losses:
            groups = change.rescanned(groups)
        return change.signed(groups)


@dataclass(frozen=True, slots=True)
class _Change:
    """The columns of one run: per component its change, its old and new value, and for extrema what was lost."""

    state: AggregateState
    derivation: Derivation
    added: dict[str, Column]
    lost: dict[str, Column]
    old: dict[str, Column]
    new: dict[str, Column]
    rescan: Column
    present: Column

    @classmethod
    def of(cls, state: AggregateState, derivation: Derivation, delta: View) -> _Change:
        """Fresh columns for a run; nothing can be lost when the delta only inserts."""
        ids = derivation.ids
        columns = {c.column.id: c.column for c in state.components}
        return cls(
            state,
            derivation,
            added={i: ids.column(c.type, name=f"added_{c.name}") for i, c in columns.items()},
            lost={} if delta.inserts_only else {c.column.id: ids.like(c.column) for c in state.extrema},
            old={i: ids.column(c.type, name=f"old_{c.name}") for i, c in columns.items()},
            new={i: ids.column(c.type, name=f"new_{c.name}") for i, c in columns.items()},
            rescan=ids.column(TRUE.type, name="rescan"),
            present=ids.column(INT64, name="present"),
        )

    @property
    def losses(self) -> bool:
        """Whether an extremum may have gone."""
        return bool(self.lost)

    def partial(self, delta: View) -> View:
        """Per group, what the delta adds to each sum, and the extrema of what came and of what went."""
        state, ids = self.state, self.derivation.ids
        if any(component.needs_unit_weights for component in state.components):
            delta = with_unit_weights(delta, ids)
        assert delta.weight is not None  # noqa: S101 - the delta is a Z-set
        weight = ref(delta.weight)
        items: Items = [(key, delta.ref(source)) for source, key in state.keys]
        calls: list[tuple[Column, str]] = []
        for component in state.components:
            added = self.added[component.column.id]
            moved = _over(component, delta)
            if component.kind == "sum":
                items.append((added, moved.weighted(weight)))
                calls.append((added, "sum"))
                continue
            items.append((added, choose(greater(weight, integer(0)), moved.argument)))
            calls.append((added, component.kind))
            if self.lost:
                lost = self.lost[component.column.id]
                items.append((lost, choose(less(weight, integer(0)), moved.argument)))
                calls.append((lost, component.kind))
        rows = project(View(delta.node, delta.columns), items, ids)
        aggregates = [(c, AggregateCall(function, (rows.ref(c),), c.type)) for c, function in calls]
        return grouped(rows, state.key_columns, aggregates, ids)

    def groups(self, change: View, stored: View) -> View:
        """Per affected group its old and its candidate new components, and whether it must be rescanned.

        Args:
            change: See `partial`.
            stored: The old components of the affected groups, or of all.
        """
        state, ids = self.state, self.derivation.ids
        both = joined("left", change, stored, [same(change.ref(k), stored.ref(k)) for k in state.key_columns])
        before = View(both.node, {c.column.id: both.columns[c.column.id] for c in state.components})
        items: Items = [(key, change.ref(key)) for key in state.key_columns]
        present = choose(is_not_null(before.ref(state.rows.column)), integer(1), integer(0))
        items.append((self.present, present))
        rescan: list[Expression] = []
        for component in state.components:
            i = component.column.id
            old, added = before.ref(i), both.ref(self.added[i])
            items.append((self.old[i], old))
            if component.kind == "sum":
                items.append((self.new[i], add(or_zero(old), or_zero(added))))
                continue
            candidate = _better(component.kind, old, added)
            items.append((self.new[i], candidate))
            if self.lost:
                rescan.append(_spoiled(component.kind, both.ref(self.lost[i]), candidate))
        if self.lost:
            items.append((self.rescan, disjunction(rescan) or FALSE))
        return project(both, items, ids)

    def rescanned(self, groups: View) -> View:
        """The groups with the extrema of those that lost theirs read anew from the child's new state."""
        state, derivation, ids = self.state, self.derivation, self.derivation.ids
        columns = (
            *state.key_columns,
            self.present,
            self.rescan,
            *(column for c in state.components for column in (self.old[c.column.id], self.new[c.column.id])),
        )
        kept = derivation.materialize(groups, columns, state.rule)
        lost = kept.scan(ids)
        alive = greater(lost.ref(self.new[state.rows.column.id]), integer(0))
        lost = lost.with_node(Filter(lost.node, conjunction([lost.ref(self.rescan), alive]) or TRUE))
        items: Items = [(key, lost.ref(key)) for key in state.key_columns] or [(TOUCHED, integer(1))]
        keys = derivation.materialize(project(lost, items, ids), [column for column, _ in items], "min_max_rescan")
        child = derivation.new(state.child)
        child = of_affected(derivation, child, [(source, key) for source, key in state.keys], keys)
        rows = state.keyed(child, [(c.column, child.expression(c.argument)) for c in state.extrema], ids)
        calls = [(c.column, AggregateCall(c.kind, (rows.ref(c.column),), c.column.type)) for c in state.extrema]
        fresh = grouped(rows, state.key_columns, calls, ids)
        again = kept.scan(ids)
        both = joined("left", again, fresh, [same(again.ref(k), fresh.ref(k)) for k in state.key_columns])
        merged = View(both.node, {**both.columns, **again.columns})
        updated: Items = [
            (column, merged.ref(column)) for column in columns if column.id not in _ids(self.new, state.extrema)
        ]
        for component in state.extrema:
            new = self.new[component.column.id]
            updated.append((new, choose(merged.ref(self.rescan), both.ref(component.column), merged.ref(new))))
        return project(merged, updated, ids)

    def signed(self, groups: View) -> View:
        """Each changed group twice: the old content at -1 where there was one, the new one at +1 where it lives."""
        state, ids = self.state, self.derivation.ids
        sign = ids.column(INT64, nullable=False, name="sign")
        signs = View(Values((sign,), ((integer(1),), (integer(-1),))), {sign.id: sign})
        both = joined("inner", groups, signs, [])
        is_new = greater(both.ref(sign), integer(0))
        alive = _alive(both.ref(self.new[state.rows.column.id])) if state.keys else TRUE
        known = greater(both.ref(self.present), integer(0))
        valid = Case(((is_new, alive),), known, TRUE.type, nullable=False)
        changed = [_negation(known)]
        changed += [differs(both.ref(self.old[c.column.id]), both.ref(self.new[c.column.id])) for c in state.components]
        kept = conjunction([valid, disjunction(changed) or TRUE]) or TRUE
        rows = both.with_node(Filter(both.node, kept))
        items: Items = [(key, rows.ref(key)) for key in state.key_columns]
        for component in state.components:
            i = component.column.id
            items.append((component.column, choose(is_new, rows.ref(self.new[i]), rows.ref(self.old[i]))))
        return project(rows, items, ids, weight=rows.ref(sign))


def _ids(columns: dict[str, Column], components: Sequence[Component]) -> frozenset[str]:
    return frozenset(columns[component.column.id].id for component in components)


def _alive(rows: Expression) -> Expression:
    """Whether a group of so many rows exists."""
    return greater(rows, integer(0))


def _negation(condition: Expression) -> Expression:
    return Call("not", (condition,), TRUE.type, condition.nullable)


def _over(component: Component, delta: View) -> Component:
    narrow = None if component.narrow is None else delta.expression(component.narrow)
    return Component(component.column, component.kind, delta.expression(component.argument), narrow)


def _better(kind: str, old: Expression, added: Expression) -> Expression:
    """The smaller (min) or larger (max) of two values of which each may be missing."""
    wins = less(added, old) if kind == "min" else greater(added, old)
    return Case(((is_null(old), added), (is_null(added), old), (wins, added)), old, old.type, nullable=True)


def _spoiled(kind: str, lost: Expression, candidate: Expression) -> Expression:
    """Whether a deleted value is at or beyond the candidate, which then may be gone."""
    beyond = at_most(lost, candidate) if kind == "min" else at_most(candidate, lost)
    return Case(((is_null(lost), FALSE), (is_null(candidate), TRUE)), beyond, TRUE.type, nullable=False)


def with_unit_weights(view: View, ids: IdGenerator) -> View:
    """The same Z-set with every row repeated, so that all weights are 1 or -1."""
    assert view.weight is not None  # noqa: S101 - only Z-sets have weights
    weight = ref(view.weight)
    copies = Call("abs", (weight,), INT64, nullable=False)
    number = ids.column(INT64, nullable=False, name="copy")
    series = Call("generate_series", (integer(1), copies), INT64, nullable=False)
    repeated = view.with_node(Generate(view.node, series, (number,)))
    sign = choose(greater(weight, integer(0)), integer(1), integer(-1))
    items = [(Column(i, c.type, c.nullable, c.name), ref(c)) for i, c in view.columns.items()]
    return project(repeated, items, ids, weight=sign)


def as_bag(view: View, ids: IdGenerator) -> View:
    """A Z-set without negative weights as a bag: every row as often as its weight says."""
    units = with_unit_weights(view, ids)
    return View(units.node, units.columns)
