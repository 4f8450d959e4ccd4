"""Which steps of a maintenance plan need not be run by themselves.

Over little data a Spark job costs more than its work, so a step is read as a part of its readers where that is as good.
It is run by itself where its rows restrict what is read of a stored relation, where many readers would compute it
again, and where computing it again might give something else (ties, sums of floats).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pgtrickle_assets.query.plan import (
    Aggregate,
    Distinct,
    Filter,
    Generate,
    Join,
    Node,
    Project,
    Scan,
    SetOperation,
    UnionAll,
    Values,
)
from pgtrickle_assets.query.rewrite import scans, walk

if TYPE_CHECKING:
    from pgtrickle_assets.differential.steps import Step

_REPEATED_SCANS = 12
"""Scans that may be repeated because readers compute a step again; a larger plan takes longer to plan than to run."""

_REPEATABLE = (Aggregate, Distinct, Filter, Generate, Join, Project, Scan, SetOperation, UnionAll, Values)
_REPEATABLE_AGGREGATES = frozenset({"sum", "count", "min", "max"})


def inlined(steps: Sequence[Step], restricts_reading: Callable[[Scan], bool]) -> frozenset[str]:
    """Targets of the intermediate steps that are read as a part of their readers.

    Args:
        steps: All steps, in order.
        restricts_reading: Whether less of a scan's relation is read when some of its rows are known not to matter.
    """
    needed = {scan.relation for step in steps for scan in _deciding(step.query, restricts_reading)}
    uses: dict[str, int] = {}
    found: set[str] = set()
    for step in reversed(steps):
        own = uses.get(step.target, 0)
        repeated = own * sum(1 for _ in scans(step.query))
        is_free = step.role == "intermediate" and step.target not in needed and own > 0
        if is_free and (own == 1 or (repeated <= _REPEATED_SCANS and is_repeatable(step))):
            found.add(step.target)
        times = own if step.target in found else 1
        for scan in scans(step.query):
            uses[scan.relation] = uses.get(scan.relation, 0) + times
    return frozenset(found)


def _deciding(query: Node, restricts_reading: Callable[[Scan], bool]) -> Iterator[Scan]:
    """Scans whose rows decide what is read of another scan, or whether it is read at all."""
    for node in walk(query):
        if isinstance(node, Join):
            for side, other in ((node.left, node.right), (node.right, node.left)):
                if any(restricts_reading(scan) for scan in scans(other)):
                    yield from scans(side)


def is_repeatable(step: Step) -> bool:
    """Whether the step gives the same rows each time that it is computed, in whatever query."""
    for node in walk(step.query):
        if not isinstance(node, _REPEATABLE):
            return False
        if isinstance(node, Aggregate):
            for column, call in node.aggregates:
                if call.function not in _REPEATABLE_AGGREGATES or column.type.is_float:
                    return False
    return True
