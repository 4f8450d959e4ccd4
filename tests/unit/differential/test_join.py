"""Which terms an inner join has, and which states they read."""

from __future__ import annotations

from pgtrickle_assets.differential.derive import derive
from pgtrickle_assets.differential.steps import InputChange
from pgtrickle_assets.query.plan import Call, Join, Scan, Version
from pgtrickle_assets.query.rewrite import scans
from pgtrickle_assets.query.types import BOOLEAN
from tests.unit.differential.trees import column, equal, plan, scan

BOTH = InputChange()


def _versions(changes: dict[str, InputChange], root: Join) -> list[tuple[str, Version]]:
    (step,) = derive(plan(root)).delta_steps(changes)
    return [(found.relation, found.version) for found in scans(step.query)]


def _join() -> Join:
    left, right = scan("l", "a", "b"), scan("r", "a", "c")
    return Join("inner", left, right, equal(column(left, "a"), column(right, "a")))


def test_both_sides_changed_is_new_right_and_old_left() -> None:
    assert _versions({"l": BOTH, "r": BOTH}, _join()) == [
        ("l", Version.DELTA),
        ("r", Version.OLD),
        ("r", Version.DELTA),
        ("l", Version.NEW),
    ]


def test_term_of_an_unchanged_input_is_not_in_the_plan() -> None:
    assert _versions({"l": BOTH}, _join()) == [("l", Version.DELTA), ("r", Version.NEW)]


def test_no_change_means_no_step() -> None:
    assert derive(plan(_join())).delta_steps({}) == ()
    assert derive(plan(_join())).delta_steps({"l": InputChange(inserts=False, deletes=False)}) == ()


def test_chain_reaches_the_next_input_through_an_equality() -> None:
    left, middle, right = scan("l", "a"), scan("s", "x"), scan("r", "a", "x")
    cross = Join("inner", left, middle, None)
    on_a, on_x = equal(column(left, "a"), column(right, "a")), equal(column(middle, "x"), column(right, "x"))
    found = _versions({"l": BOTH}, Join("inner", cross, right, Call("and", (on_a, on_x), BOOLEAN)))
    assert [relation for relation, _ in found] == ["l", "r", "s"]


def test_self_join_reads_each_side_in_its_own_state() -> None:
    left = scan("l", "a")
    other = Scan("l", tuple(type(c)("other", c.type, name="o") for c in left.columns), ("a",))
    found = _versions({"l": BOTH}, Join("inner", left, other, equal(left.columns[0], other.columns[0])))
    assert found == [("l", Version.DELTA), ("l", Version.OLD), ("l", Version.DELTA), ("l", Version.NEW)]
