"""Which rows of the state relations belong to a partition of the result.

A refresh of some partitions leaves the others at an older point. That is sound where every state row belongs to one
partition, by one of its columns, and rows of one partition never come from state rows of another: the column is then
followed from the result down to the state relations, through operators that keep it as it is and through the keys by
which a state is grouped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pgtrickle_assets.differential.aggregate import AggregateState
from pgtrickle_assets.differential.derive import MaintenancePlan
from pgtrickle_assets.differential.recompute import RecomputedGroups
from pgtrickle_assets.differential.state import State
from pgtrickle_assets.differential.steps import RESULT, Step
from pgtrickle_assets.differential.topk import TopKState
from pgtrickle_assets.differential.window import WindowState
from pgtrickle_assets.query import pushdown
from pgtrickle_assets.query.plan import (
    Call,
    Column,
    ColumnRef,
    Expression,
    Filter,
    Generate,
    Join,
    Node,
    Project,
    Scan,
    UnionAll,
)
from pgtrickle_assets.query.rewrite import conjuncts, output_ids, scans


def partition_columns(maintenance: MaintenancePlan, column: str) -> Mapping[str, str] | None:
    """The stored column that tells the partition, for the result and each state relation.

    Args:
        maintenance: How the stream table is maintained.
        column: Name of the result's column by which it is partitioned.

    Returns:
        Stored column names by step target; None when some state row may belong to several partitions, or the plan has
        no states because it is not differential.
    """
    lowered = maintenance.lowered
    if lowered is None:
        return None
    search = _Search({state.relation.name: state for state in lowered.states}, {RESULT: column})
    if lowered.is_result:
        result = lowered.states[-1]
        stored = next(own for own, name in result.relation.columns if name == column)
        return search.found if search.below(result, stored) else None
    position = [output.name for output in maintenance.plan.output].index(column)
    return search.found if search.keeps(lowered.root, lowered.root.output[position]) else None


def restricted(
    steps: Iterable[Step], columns: Mapping[str, str], condition: Callable[[Column], Expression]
) -> tuple[Step, ...]:
    """The steps with the output of each stored relation restricted to the rows of some partitions.

    Args:
        steps: Full or delta steps.
        columns: Partition column by target, from `partition_columns`.
        condition: The rows that stay, as a condition on the partition column.
    """
    return tuple(
        _restricted(step, columns[step.target], condition) if step.target in columns else step for step in steps
    )


def _restricted(step: Step, column: str, condition: Callable[[Column], Expression]) -> Step:
    position = [stored.name for stored in step.columns].index(column)
    return replace(step, picked=None, query=pushdown.restricted(step.query, condition(step.query.output[position])))


class _Search:
    """Follows the partition column down; `found` holds the columns of the state relations met so far."""

    def __init__(self, states: Mapping[str, State], found: dict[str, str]) -> None:
        self._states = states
        self.found = found

    def keeps(self, node: Node, column: Column) -> bool:
        """Whether rows of `node` with a value in `column` come from state rows with that value only."""
        if not self._has_states(node):
            return True
        match node:
            case Scan():
                return self._scan(node, column)
            case Filter() | Generate() if column.id in output_ids(node.child):
                return self.keeps(node.child, column)
            case Project():
                item = next(item for own, item in node.items if own.id == column.id)
                return isinstance(item, ColumnRef) and self.keeps(node.child, _column(node.child, item.id))
            case UnionAll():
                position = [own.id for own in node.columns].index(column.id)
                return all(self.keeps(child, child.output[position]) for child in node.children)
            case Join():
                return self._join(node, column)
            case _:
                return False

    def below(self, state: State, column: Column) -> bool:
        """Whether state rows with a value in `column` come from state rows below with that value only."""
        match state:
            case AggregateState() | RecomputedGroups():
                sources = {stored.id: source for source, stored in state.keys}
            case WindowState() | TopKState():
                parts = {part.id for part in state.partition}
                sources = {stored.id: source for source, stored in state.inputs if source.id in parts}
            case _:
                return False
        source = sources.get(column.id)
        return source is not None and self.keeps(state.child, source)

    def _scan(self, node: Scan, column: Column) -> bool:
        state = self._states[node.relation]
        position = [own.id for own in node.columns].index(column.id)
        name = node.source_columns[position]
        if self.found.setdefault(node.relation, name) != name:
            return False
        stored = next(own for own, stored_name in state.relation.columns if stored_name == name)
        return self.below(state, stored)

    def _join(self, node: Join, column: Column) -> bool:
        is_left = column.id in output_ids(node.left)
        preserved = {"inner": (True, True), "left": (True, False), "right": (False, True)}
        kept_left, kept_right = preserved.get(node.kind, (node.kind in ("semi", "anti"), False))
        # A row that an outer join makes up for the other side depends on all of its rows.
        if not (kept_left if is_left else kept_right):
            return False
        mine, other = (node.left, node.right) if is_left else (node.right, node.left)
        if not self.keeps(mine, _column(mine, column.id)):
            return False
        if not self._has_states(other):
            return True
        partner = _partner(node.condition, column.id, other)
        return partner is not None and self.keeps(other, partner)

    def _has_states(self, node: Node) -> bool:
        return any(scan.relation in self._states for scan in scans(node))


def _partner(condition: Expression | None, column_id: str, other: Node) -> Column | None:
    """The column of the other side that must be equal for rows to match."""
    ids = output_ids(other)
    for part in conjuncts(condition):
        if not isinstance(part, Call) or part.function not in ("=", "is_not_distinct_from"):
            continue
        sides = [side.id for side in part.args if isinstance(side, ColumnRef)]
        if column_id in sides:
            found = next((side for side in sides if side in ids), None)
            if found is not None:
                return _column(other, found)
    return None


def _column(node: Node, column_id: str) -> Column:
    return next(column for column in node.output if column.id == column_id)
