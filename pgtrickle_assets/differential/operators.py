"""The operators of a stream table with the rule that maintains each: what `explain` shows.

Read from the lowered plan, that is from what the engine runs: an operator with stored content stands where its state
relation is read, above its input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle_assets.differential.aggregate import AggregateState
from pgtrickle_assets.differential.join import is_join_group
from pgtrickle_assets.differential.recompute import RecomputedGroups
from pgtrickle_assets.differential.topk import TopKState
from pgtrickle_assets.differential.window import WindowState
from pgtrickle_assets.query.describe import Describer
from pgtrickle_assets.query.plan import Join, Node, Opaque, Project, Scan, children

if TYPE_CHECKING:
    from pgtrickle_assets.differential.derive import MaintenancePlan
    from pgtrickle_assets.differential.state import State


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a plan.

    Attributes:
        number: Place in the list, from 0.
        parent: Number of the operator that reads it; None for the root.
        operator: What it is.
        detail: What it does.
        rule: Name of the rule that maintains it, as in `reasons.RULES`.
        state: State relation that holds its content; empty for an operator without.
    """

    number: int
    parent: int | None
    operator: str
    detail: str
    rule: str
    state: str = ""


_STATES: Mapping[str, str] = {
    "group_by": "aggregate",
    "aggregate_all": "aggregate",
    "recompute_groups": "aggregate",
    "window": "window",
    "top_k": "top",
}


def operators(maintenance: MaintenancePlan) -> tuple[Operator, ...]:
    """The operators, each before its inputs; those of the query as written when it is recomputed in full."""
    return tuple(_listing(maintenance).found)


def _listing(maintenance: MaintenancePlan) -> _Listing:
    lowered = maintenance.lowered
    root = maintenance.plan.root if lowered is None else lowered.root
    states: tuple[State, ...] = () if lowered is None else lowered.states
    listing = _Listing(
        states, Describer([root, *(state.child for state in states)]), differential=maintenance.differential
    )
    if lowered is not None and lowered.is_result:
        listing.visit_state(lowered.states[-1], None)
    else:
        listing.visit(root, None)
    return listing


def operator_nodes(maintenance: MaintenancePlan) -> Mapping[int, Node]:
    """Operators without stored content, by number: the parts of the lowered plan whose deltas can be asked for."""
    return {} if maintenance.lowered is None else _listing(maintenance).nodes


def plan_operators(root: Node) -> tuple[Operator, ...]:
    """The operators of a plan as it is written, without rules."""
    listing = _Listing((), Describer([root]), differential=False)
    listing.visit(root, None)
    return tuple(listing.found)


def rule_of(node: Node) -> str:
    """The rule that gives the delta of a node of a lowered plan; the dispatch is `derive.DELTA_RULES`."""
    match node:
        case Scan():
            return "delta"
        case Join() if node.kind in ("semi", "anti"):
            return "semi_join"
        case Join() if node.kind != "inner":
            return "outer_join"
        case _ if is_join_group(node):
            # Filters and projections above an inner join are part of its rule.
            return "inner_join"
        case _:
            return "linear"


class _Listing:
    def __init__(self, states: Sequence[State], describer: Describer, *, differential: bool) -> None:
        self.found: list[Operator] = []
        self.nodes: dict[int, Node] = {}
        self._states = {state.relation.name: state for state in states}
        self._describer = describer
        self._differential = differential
        self._shown: set[str] = set()

    def visit(self, node: Node, parent: int | None) -> None:
        if isinstance(node, Scan) and node.relation in self._states:
            self.visit_state(self._states[node.relation], parent)
            return
        if isinstance(node, Project) and isinstance(node.child, Scan) and node.child.relation in self._states:
            # How a state's columns give the operator's result is of interest to the engine alone.
            self.visit(node.child, parent)
            return
        operator, detail = self._describer.node(node)
        rule = node.reason if isinstance(node, Opaque) else rule_of(node) if self._differential else "full"
        number = self._add(parent, operator, detail, rule)
        self.nodes[number] = node
        for child in children(node):
            self.visit(child, number)

    def visit_state(self, state: State, parent: int | None) -> None:
        name, operator = state.relation.name, _STATES[state.rule]
        if name in self._shown:
            self._add(parent, operator, "the same as above", state.rule, name)
            return
        self._shown.add(name)
        number = self._add(parent, operator, self._content(state), state.rule, name)
        self.visit(state.child, number)

    def _content(self, state: State) -> str:
        """What a state relation holds."""
        words = self._describer
        match state:
            case AggregateState():
                keys = [words.column(key) for key, _ in state.keys]
                values = [f"{part.kind}({words.expression(part.argument)})" for part in state.components[1:]]
                values.insert(0, "count(*)")
            case RecomputedGroups():
                keys = [words.column(key) for key, _ in state.keys]
                values = [words.aggregate(call) for _, call in state.calls]
            case WindowState():
                keys = [words.column(column) for column in state.partition]
                values = [words.window(call) for _, call in state.calls]
            case TopKState():
                keys = [words.column(column) for column in state.partition]
                values = [words.top(state.order_by, state.limit, state.offset)]
            case _:
                keys, values = [], [column for _, column in state.relation.columns]
        return (f"by {', '.join(keys)}: " if keys else "") + ", ".join(values)

    def _add(self, parent: int | None, operator: str, detail: str, rule: str, state: str = "") -> int:
        number = len(self.found)
        self.found.append(Operator(number, parent, operator, detail, rule, state))
        return number
