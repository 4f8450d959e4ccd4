"""From the plan of a defining query to the steps that keep its result up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgtrickle_assets.differential.computed import computed_of
from pgtrickle_assets.differential.derivation import DeltaRule, Derivation, read_current
from pgtrickle_assets.differential.join import inner_join_delta, is_join_group
from pgtrickle_assets.differential.linear import (
    filter_delta,
    generate_delta,
    project_delta,
    scan_delta,
    union_delta,
    values_delta,
)
from pgtrickle_assets.differential.lower import Lowered, canonical, lower
from pgtrickle_assets.differential.outer_join import outer_join_delta
from pgtrickle_assets.differential.reasons import reasons_against
from pgtrickle_assets.differential.semi_join import semi_join_delta
from pgtrickle_assets.differential.state import State
from pgtrickle_assets.differential.steps import RESULT, DeriveOptions, InputChange, Reason, StateTable, Step
from pgtrickle_assets.differential.view import View, consolidated, project
from pgtrickle_assets.query.plan import (
    Filter,
    Generate,
    Join,
    Node,
    Project,
    QueryPlan,
    Scan,
    UnionAll,
    Values,
)
from pgtrickle_assets.query.rewrite import IdGenerator, all_ids, substitute


def join_delta(derivation: Derivation, node: Node) -> View | None:
    """The rule for the kind of join."""
    assert isinstance(node, Join)  # noqa: S101 - the table below sends joins only
    match node.kind:
        case "inner":
            return inner_join_delta(derivation, node)
        case "semi" | "anti":
            return semi_join_delta(derivation, node)
        case _:
            return outer_join_delta(derivation, node)


def _filter_or_join(derivation: Derivation, node: Node) -> View | None:
    return inner_join_delta(derivation, node) if is_join_group(node) else filter_delta(derivation, node)


def _project_or_join(derivation: Derivation, node: Node) -> View | None:
    return inner_join_delta(derivation, node) if is_join_group(node) else project_delta(derivation, node)


DELTA_RULES: Mapping[type[Node], DeltaRule] = {
    Scan: scan_delta,
    Values: values_delta,
    Filter: _filter_or_join,
    Project: _project_or_join,
    UnionAll: union_delta,
    Generate: generate_delta,
    Join: join_delta,
}
"""The delta rule per operator of a lowered plan."""


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    """How one stream table is maintained.

    Attributes:
        plan: The defining query.
        reasons: Why it is not differential; empty when it is.
    """

    plan: QueryPlan
    reasons: tuple[Reason, ...]
    lowered: Lowered | None

    @property
    def differential(self) -> bool:
        """Whether `delta_steps` can bring the result from frontier to cut."""
        return self.lowered is not None

    @property
    def states(self) -> tuple[State, ...]:
        """Operators with a state relation, in the order of their maintenance."""
        return () if self.lowered is None else self.lowered.states

    @property
    def state_tables(self) -> tuple[StateTable, ...]:
        """The stored relations beside the result."""
        return tuple(state.table for state in self._hidden_states)

    @property
    def state_content(self) -> str:
        """What the stored relations beside the result hold, as a text that is the same for the same content."""
        hidden = self._hidden_states
        return repr(canonical(hidden, nullability=False)) if hidden else ""

    @property
    def _hidden_states(self) -> tuple[State, ...]:
        return self.states[:-1] if self.lowered is not None and self.lowered.is_result else self.states

    def full_steps(self) -> tuple[Step, ...]:
        """Steps that compute state relations and result from the inputs at the cut (`Version.CURRENT`)."""
        root = self.plan.root if self.lowered is None else self.lowered.root
        derivation = Derivation({}, self._ids(), DELTA_RULES)
        for state in self.states:
            _emit_state(derivation, state, state.full(derivation.ids))
        if self.lowered is None or not self.lowered.is_result:
            self._emit_result(derivation, read_current(root, derivation.ids), "full")
        return tuple(derivation.steps)

    def delta_steps(self, changes: Mapping[str, InputChange], small: frozenset[str] = frozenset()) -> tuple[Step, ...]:
        """Steps that compute the Z-set deltas of state relations and result.

        Args:
            changes: What the delta of each input holds, by the keys of `QueryPlan.inputs`; an input that is left out is
                unchanged and read in one version only.
            small: State relations with so few rows that they are better read whole.

        Returns:
            The steps in order; none when no input changed. State relations without a step are unchanged.

        Raises:
            ValueError: The plan is not differential.
        """
        return tuple(self._derivation(changes, small).steps)

    def part_steps(
        self, changes: Mapping[str, InputChange], parts: Sequence[Node], small: frozenset[str] = frozenset()
    ) -> tuple[tuple[Step, ...] | None, ...]:
        """For parts of the lowered plan, steps that compute their deltas, each in a step of role `result`, last.

        They read what the steps of `delta_steps` with the same arguments put out, and what the parts before them did.
        The Z-set of a part is named `part_1` and so on; a part that did not change has None.
        """
        derivation = self._derivation(changes, small)
        found: list[tuple[Step, ...] | None] = []
        for number, part in enumerate(parts, start=1):
            start = len(derivation.steps)
            delta = derivation.delta(part)
            if delta is not None:
                columns = tuple((column, f"c{place}") for place, column in enumerate(part.output, start=1))
                view = consolidated(delta, part.output, derivation.ids)
                derivation.emit(f"part_{number}", view, columns, "result", "delta")
            found.append(None if delta is None else tuple(derivation.steps[start:]))
        return tuple(found)

    def _derivation(self, changes: Mapping[str, InputChange], small: frozenset[str]) -> Derivation:
        if self.lowered is None:
            raise ValueError("a plan with reasons against it has no delta steps")
        derivation = Derivation(dict(changes), self._ids(), DELTA_RULES, small)
        for number, state in enumerate(self.lowered.states, start=1):
            change = state.change(derivation)
            if change is not None:
                readers = [*(later.child for later in self.lowered.states[number:]), self.lowered.root]
                _emit_state(derivation, state, change, readers)
                derivation.changes[state.relation.name] = InputChange()
        result = None if self.lowered.is_result else derivation.delta(self.lowered.root)
        if result is not None:
            columns = self.lowered.root.output
            self._emit_result(derivation, consolidated(result, columns, derivation.ids), "delta")
        return derivation

    def _ids(self) -> IdGenerator:
        taken = set(all_ids(self.plan.root))
        if self.lowered is not None:
            taken |= all_ids(self.lowered.root)
            for state in self.lowered.states:
                taken |= all_ids(state.child)
                taken |= {column.id for column in state.relation.plan_columns}
        return IdGenerator(taken)

    def _emit_result(self, derivation: Derivation, view: View, rule: str) -> None:
        columns = [
            (column, schema.name) for column, schema in zip(self.plan.root.output, self.plan.output, strict=True)
        ]
        derivation.emit(RESULT, view, columns, "result", rule)


def _emit_state(derivation: Derivation, state: State, content: View, readers: Sequence[Node] = ()) -> None:
    """Append the step of a state relation, with what plans that read its changed rows compute of them."""
    relation = state.relation
    role = "result" if relation.name == RESULT else "state"
    found = computed_of(readers, relation.name, derivation.ids)
    if found:
        stored = {name: content.ref(column) for column, name in relation.columns}
        items = [(column, content.ref(column)) for column, _ in relation.columns]
        items += [(column, substitute(part, stored)) for part, (column, _) in found.items()]
        content = project(content, items, derivation.ids)
    derivation.computed[relation.name] = found
    derivation.emit(relation.name, content, relation.columns, role, state.rule, tuple(found.values()))


def derive(plan: QueryPlan, options: DeriveOptions | None = None) -> MaintenancePlan:
    """The maintenance of a defining query.

    A plan that reads volatile or stable functions, or holds a part that only full recompute evaluates, is not
    differential; `reasons` then says why.
    """
    reasons = reasons_against(plan)
    names = [column.name for column in plan.output]
    lowered = None if reasons else lower(plan.root, names, options or DeriveOptions())
    return MaintenancePlan(plan, reasons, lowered)
