"""The parts of a stream table that one refresh moves on, each from a frontier of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle_assets.control.frontier import EVERY_PARTITION, Frontier
from pgtrickle_assets.refresh.partition_filter import Selection

if TYPE_CHECKING:
    from pgtrickle_assets.query.plan import QueryPlan
    from pgtrickle_assets.refresh.definition import Definition


@dataclass(frozen=True, slots=True)
class Part:
    """Partitions with one frontier.

    Attributes:
        keys: Their keys; with `others`, of the partitions that are not meant.
        others: Whether the part is all partitions but those.
        frontier: How far they are built; None when they were never filled.
    """

    keys: tuple[str, ...]
    others: bool
    frontier: Frontier | None


def parts_of(stored: Mapping[str, Frontier], partitions: Sequence[str] | None) -> tuple[Part, ...]:
    """The parts of a refresh, those with an own frontier first.

    Args:
        stored: Frontiers by partition key, as `control.frontier.frontiers` gives them.
        partitions: Partitions asked for; None for the whole table.
    """
    rest = stored.get(EVERY_PARTITION)
    if partitions is not None:
        return _by_frontier({key: stored.get(key) or rest for key in partitions})
    own = {key: frontier for key, frontier in stored.items() if key != EVERY_PARTITION}
    return (*_by_frontier(own), Part(tuple(own), others=True, frontier=rest))


def selection_of(part: Part, definition: Definition) -> Selection | None:
    """The rows of a part of a stream table; None for the whole table."""
    if part.others and not part.keys:
        return None
    by = definition.stream_table.partitioning
    if by is None:
        raise ValueError(f"{definition.name} has no partitions")
    return Selection(by, part.keys, part.others)


def plans_at_frontiers(
    definition: Definition, frontiers: Mapping[str, Frontier]
) -> Iterator[tuple[QueryPlan, Frontier]]:
    """The defining query, restricted to each part that was ever filled, with the frontier that the part is built to."""
    for part in parts_of(frontiers, None):
        if part.frontier is not None:
            selection = selection_of(part, definition)
            yield definition.plan if selection is None else selection.restrict(definition.plan), part.frontier


def _by_frontier(frontiers: Mapping[str, Frontier | None]) -> tuple[Part, ...]:
    groups: dict[tuple[tuple[str, int], ...] | None, list[str]] = {}
    for key, frontier in frontiers.items():
        inputs = None if frontier is None else tuple(sorted(frontier.inputs.items()))
        groups.setdefault(inputs, []).append(key)
    return tuple(Part(tuple(keys), others=False, frontier=frontiers[keys[0]]) for keys in groups.values())
