"""How far a restriction to keys moves down, and where it must stay."""

from __future__ import annotations

from pgtrickle_assets.differential.restrict import restrict
from pgtrickle_assets.differential.restrictions import restrictions
from pgtrickle_assets.differential.view import Relation, View
from pgtrickle_assets.query.plan import Column, Filter, Join, Node, Scan, UnionAll
from pgtrickle_assets.query.rewrite import TRUE, IdGenerator, walk
from pgtrickle_assets.query.types import INT32
from tests.unit.differential.trees import column, count_by, equal, scan

KEY, OTHER = Column("key", INT32), Column("other", INT32)
KEYS = Relation("keys", ((KEY, "k1"), (OTHER, "k2")))


def _restricted(node: Node, *pairs: tuple[str, Column]) -> Node:
    view = View(node, {c.id: c for c in node.output})
    found = [(column(node, name), key, True) for name, key in pairs]
    return restrict(view, found, KEYS, IdGenerator()).node


def _is_semi_join_on_scan(node: Node, relation: str) -> bool:
    return (
        isinstance(node, Join)
        and node.kind == "semi"
        and isinstance(node.left, Scan)
        and node.left.relation == relation
    )


def _restricted_scans(node: Node) -> set[str]:
    return {
        part.left.relation
        for part in walk(node)
        if isinstance(part, Join) and part.kind == "semi" and isinstance(part.left, Scan)
    }


def test_key_carried_through_an_equality_restricts_that_side_completely() -> None:
    left, right = scan("l", "a"), scan("r", "b", "c")
    joined = Join("inner", left, right, equal(column(left, "a"), column(right, "b")))
    found = _restricted(joined, ("l.a", KEY), ("r.c", OTHER))
    assert isinstance(found, Join)
    assert found.kind == "inner"


def test_moves_through_a_filter_to_the_scan() -> None:
    found = _restricted(Filter(scan("l", "a"), TRUE), ("l.a", KEY))
    assert isinstance(found, Filter)
    assert _is_semi_join_on_scan(found.child, "l")


def test_equality_of_a_join_carries_it_to_the_other_side() -> None:
    left, right = scan("l", "a"), scan("r", "b")
    found = _restricted(Join("inner", left, right, equal(left.columns[0], right.columns[0])), ("l.a", KEY))
    assert _restricted_scans(found) == {"l", "r"}
    assert isinstance(found, Join)
    assert found.kind == "inner"


def test_keys_from_both_sides_are_checked_again_on_top() -> None:
    left, right = scan("l", "a", "d"), scan("r", "b", "c")
    joined = Join("inner", left, right, equal(column(left, "a"), column(right, "b")))
    found = _restricted(joined, ("l.d", KEY), ("r.c", OTHER))
    assert isinstance(found, Join)
    assert found.kind == "semi"
    assert _restricted_scans(found) == {"l", "r"}


def test_nullable_side_of_a_left_join_is_not_restricted_by_its_own_columns() -> None:
    left, right = scan("l", "a"), scan("r", "b", "c")
    joined = Join("left", left, right, equal(column(left, "a"), column(right, "b")))
    found = _restricted(joined, ("r.c", KEY))
    assert isinstance(found, Join)
    assert found.kind == "semi"
    assert found.left == joined


def test_full_join_is_restricted_on_top_only() -> None:
    left, right = scan("l", "a"), scan("r", "b")
    joined = Join("full", left, right, equal(left.columns[0], right.columns[0]))
    found = _restricted(joined, ("l.a", KEY))
    assert isinstance(found, Join)
    assert found.left == joined


def test_grouping_passes_keys_but_not_aggregates() -> None:
    grouped = count_by(scan("l", "a", "b"), "a")
    assert _restricted_scans(_restricted(grouped, ("l.a", KEY))) == {"l"}
    assert _restricted_scans(_restricted(grouped, ("n", KEY))) == set()


def test_every_branch_of_a_union_is_restricted() -> None:
    left, right = scan("l", "a"), scan("r", "b")
    both = UnionAll((left, right), (Column("u", INT32, name="u"),))
    assert _restricted_scans(_restricted(both, ("u", KEY))) == {"l", "r"}


def test_semi_join_restricts_both_of_its_sides() -> None:
    left, right = scan("l", "a"), scan("r", "b")
    node = Join("semi", left, right, equal(left.columns[0], right.columns[0]))
    found = {(r.scan.relation, p.column, r.by.relation, p.by_column) for r in restrictions(node) for p in r.key}
    assert found == {("l", "a", "r", "b"), ("r", "b", "l", "a")}


def test_preserved_side_of_a_left_join_is_not_restricted() -> None:
    left, right = scan("l", "a"), scan("r", "b")
    node = Join("left", left, right, equal(left.columns[0], right.columns[0]))
    assert {r.scan.relation for r in restrictions(node)} == {"r"}


def test_null_extended_column_restricts_nothing_when_null_is_a_value() -> None:
    left, right, third = scan("l", "a"), scan("r", "b"), scan("s", "c")
    extended = Join("left", left, right, equal(left.columns[0], right.columns[0]))
    node = Join("inner", third, extended, equal(third.columns[0], right.columns[0], "is_not_distinct_from"))
    assert ("s", "r") not in {(r.scan.relation, r.by.relation) for r in restrictions(node)}
