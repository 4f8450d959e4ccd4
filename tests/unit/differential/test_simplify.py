"""What is left of a plan when some of its relations are empty."""

from __future__ import annotations

import pytest

from pgtrickle_assets.differential.simplify import simplify
from pgtrickle_assets.query.plan import (
    Column,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Literal,
    Node,
    Project,
    Scan,
    SetOperation,
    UnionAll,
    Values,
)
from pgtrickle_assets.query.rewrite import FALSE, TRUE, scans, walk
from pgtrickle_assets.query.types import INT32, INT64
from tests.unit.differential.trees import count_by, equal, scan

LEFT, RIGHT = scan("l", "a"), scan("r", "b")


def _without(node: Node, *empty: str) -> Node | None:
    return simplify(node, lambda found: found.relation in empty)


def _join(kind: JoinKind) -> Join:
    return Join(kind, LEFT, RIGHT, equal(LEFT.columns[0], RIGHT.columns[0]))


@pytest.mark.parametrize("kind", ["inner", "semi", "left", "anti"])
def test_join_without_left_rows_is_empty(kind: JoinKind) -> None:
    assert _without(_join(kind), "l") is None


@pytest.mark.parametrize("kind", ["inner", "semi", "right"])
def test_join_without_right_rows_is_empty(kind: JoinKind) -> None:
    assert _without(_join(kind), "r") is None


def test_anti_join_without_right_rows_is_its_left_side() -> None:
    assert _without(_join("anti"), "r") == LEFT


@pytest.mark.parametrize("kind", ["left", "full"])
def test_outer_join_without_right_rows_extends_the_left_by_nulls(kind: JoinKind) -> None:
    found = _without(_join(kind), "r")
    assert isinstance(found, Project)
    assert [column.id for column, _ in found.items] == ["l.a", "r.b"]
    assert found.items[1][1] == Literal(None, INT32)


def test_union_keeps_the_branches_that_may_have_rows() -> None:
    both = UnionAll((LEFT, RIGHT), (Column("u", INT32),))
    found = _without(both, "r")
    assert found is not None
    assert [part.relation for part in scans(found)] == ["l"]
    assert [column.id for column in found.output] == ["u"]
    assert _without(both, "l", "r") is None


def test_grouping_of_nothing_is_empty_but_a_total_has_its_row() -> None:
    assert _without(count_by(LEFT, "a"), "l") is None
    assert _without(count_by(LEFT), "l") == Values((Column("n", INT64, False, "n"),), ((Literal(0, INT64),),))


def test_except_without_right_rows_is_the_left_side_made_distinct() -> None:
    node = SetOperation("except", False, LEFT, RIGHT, (Column("u", INT32),))
    found = _without(node, "r")
    assert found is not None
    assert any(isinstance(part, Distinct) for part in walk(found))
    assert _without(SetOperation("intersect", True, LEFT, RIGHT, node.columns), "r") is None


def test_filter_that_is_never_true_is_empty() -> None:
    assert _without(Filter(LEFT, FALSE)) is None
    assert isinstance(_without(Filter(LEFT, TRUE)), Filter)


def test_nothing_changes_when_nothing_is_empty() -> None:
    node = _join("full")
    assert _without(node) == node
    assert isinstance(_without(LEFT), Scan)
