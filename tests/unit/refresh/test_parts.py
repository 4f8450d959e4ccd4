"""How the partitions of a refresh are put together by their frontiers."""

from __future__ import annotations

from datetime import UTC, datetime

from pgtrickle_assets.control.frontier import EVERY_PARTITION, Frontier
from pgtrickle_assets.refresh.parts import Part, parts_of


def _frontier(key: str, snapshot: int) -> Frontier:
    return Frontier(1, key, {"raw.t": snapshot}, snapshot, snapshot + 1, None, datetime(2024, 1, 1, tzinfo=UTC))


def test_a_table_with_one_frontier_is_one_part() -> None:
    whole = _frontier(EVERY_PARTITION, 3)
    assert parts_of({EVERY_PARTITION: whole}, None) == (Part((), others=True, frontier=whole),)


def test_partitions_with_own_frontiers_come_before_the_rest() -> None:
    stored = {key: _frontier(key, at) for key, at in ((EVERY_PARTITION, 3), ("a", 5), ("b", 7), ("c", 5))}
    assert parts_of(stored, None) == (
        Part(("a", "c"), others=False, frontier=stored["a"]),
        Part(("b",), others=False, frontier=stored["b"]),
        Part(("a", "b", "c"), others=True, frontier=stored[EVERY_PARTITION]),
    )


def test_partitions_that_are_asked_for_start_from_their_own_frontier_or_that_of_all() -> None:
    stored = {EVERY_PARTITION: _frontier(EVERY_PARTITION, 3), "a": _frontier("a", 5)}
    assert parts_of(stored, ["a", "z"]) == (
        Part(("a",), others=False, frontier=stored["a"]),
        Part(("z",), others=False, frontier=stored[EVERY_PARTITION]),
    )


def test_what_was_never_filled_has_no_frontier() -> None:
    assert parts_of({}, None) == (Part((), others=True, frontier=None),)
    assert parts_of({"a": _frontier("a", 5)}, ["b"]) == (Part(("b",), others=False, frontier=None),)
