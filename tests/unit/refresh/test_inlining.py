"""A step is read as a part of its readers only where that saves a job and changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgtrickle_assets.differential.steps import Step
from pgtrickle_assets.query.plan import Aggregate, AggregateCall, Column, Join, Node, Scan, SortKey, TopK
from pgtrickle_assets.query.rewrite import ref
from pgtrickle_assets.query.types import FLOAT64, INT32
from pgtrickle_assets.refresh.inlining import inlined
from tests.unit.differential.trees import column, count_by, equal, scan


def _step(target: str, query: Node, role: str = "intermediate") -> Step:
    return Step(target, query, (), role, weighted=False, rule="")  # type: ignore[arg-type]


def _is_large(read: Scan) -> bool:
    return read.relation == "large"


def _copy(read: Scan) -> Scan:
    return replace(read, columns=tuple(replace(c, id=f"{c.id}'") for c in read.columns))


def _twice(read: Scan) -> Node:
    other = _copy(read)
    return Join("inner", read, other, equal(read.columns[0], other.columns[0]))


def test_a_step_that_is_read_once_is_a_part_of_its_reader() -> None:
    steps = [_step("a", scan("l", "x")), _step("result", count_by(scan("a", "x"), "x"), "result")]
    assert inlined(steps, _is_large) == {"a"}


def test_results_and_states_are_run_by_themselves() -> None:
    steps = [_step("state", scan("l", "x"), "state"), _step("result", scan("state", "x"), "result")]
    assert inlined(steps, _is_large) == frozenset()


def test_a_step_nobody_reads_any_more_is_not_a_part_of_anything() -> None:
    assert inlined([_step("a", scan("l", "x"))], _is_large) == frozenset()


@pytest.mark.parametrize("kind", ["semi", "inner", "left"])
def test_a_step_whose_rows_say_what_is_read_of_a_large_table_is_run_first(kind: str) -> None:
    large, keys = scan("large", "x"), scan("a", "x")
    join = Join(kind, large, keys, equal(large.columns[0], keys.columns[0]))  # type: ignore[arg-type]
    assert inlined([_step("a", scan("l", "x")), _step("result", join, "result")], _is_large) == frozenset()


def test_a_step_that_says_whether_a_large_table_is_read_at_all_is_run_first() -> None:
    join = Join("semi", scan("large", "x"), scan("a", "x"))
    assert inlined([_step("a", scan("l", "x")), _step("result", join, "result")], _is_large) == frozenset()


def test_an_exact_step_may_be_computed_twice() -> None:
    steps = [_step("a", count_by(scan("l", "x"), "x")), _step("result", _twice(scan("a", "x")), "result")]
    assert inlined(steps, _is_large) == {"a"}


def test_the_top_rows_are_computed_once_because_ties_may_fall_either_way() -> None:
    rows = scan("l", "x")
    top = TopK(rows, (SortKey(ref(rows.columns[0]), descending=False, nulls_first=False),), 3)
    assert inlined([_step("a", top), _step("result", _twice(scan("a", "x")), "result")], _is_large) == frozenset()
    assert inlined([_step("a", top), _step("result", scan("a", "x"), "result")], _is_large) == {"a"}


def test_a_part_of_what_is_computed_twice_is_itself_computed_twice() -> None:
    rows = scan("l", "x")
    top = TopK(rows, (SortKey(ref(rows.columns[0]), descending=False, nulls_first=False),), 3)
    steps = [
        _step("top", top),
        _step("a", count_by(scan("top", "x"), "x")),
        _step("result", _twice(scan("a", "x")), "result"),
    ]
    assert inlined(steps, _is_large) == {"a"}


def test_sums_of_floats_are_computed_once() -> None:
    rows = scan("l", "x")
    call = AggregateCall("sum", (ref(Column("l.f", FLOAT64)),), FLOAT64)
    total = Aggregate(rows, (column(rows, "x"),), ((Column("f", FLOAT64, name="f"), call),))
    assert inlined([_step("a", total), _step("result", _twice(scan("a", "x")), "result")], _is_large) == frozenset()


def test_a_step_of_many_scans_is_not_planned_many_times() -> None:
    rows: Node = scan("l", "x")
    for number in range(8):
        other = scan(f"t{number}", "x")
        rows = Join("inner", rows, other, equal(rows.output[0], other.columns[0]))
    steps = [_step("a", count_by(rows, "l.x")), _step("result", _twice(scan("a", "x")), "result")]
    assert rows.output[0].type == INT32
    assert inlined(steps, _is_large) == frozenset()
