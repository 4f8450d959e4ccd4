"""Each rule broken on purpose is caught by a worked example or a small scenario."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest

from pgtrickle_assets.differential import (
    aggregate,
    join,
    linear,
    outer_join,
    recompute,
    semi_join,
    state,
    topk,
    window,
)
from pgtrickle_assets.differential.view import Relation, View
from pgtrickle_assets.query.plan import Aggregate, AggregateCall, Filter, Node, Project, Scan, Version
from pgtrickle_assets.query.rewrite import FALSE, TRUE, IdGenerator, ref
from pgtrickle_assets.query.types import decimal
from tests.differential.case_runner import maintain
from tests.differential.cases import load
from tests.differential.plan_generator import WIDE, Scenario
from tests.differential.scenario import run

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutation:
    """A rule, how it is broken, and what must notice: a worked example by id, or a scenario below."""

    name: str
    by: str
    patch: Patch


def _set(module: Any, name: str, value: Any) -> Patch:
    return lambda patch: patch.setattr(module, name, value)


def _wrap(module: Any, name: str, change: Callable[[Any], Any]) -> Patch:
    return lambda patch: patch.setattr(module, name, change(getattr(module, name)))


def _only_inserted(original: Callable[..., Any]) -> Callable[..., Any]:
    """Affected keys from new rows alone."""

    def broken(derivation: Any, changed: View, keys: Any, rule: str) -> Any:
        assert changed.weight is not None
        inserted = changed.with_node(Filter(changed.node, aggregate.greater(ref(changed.weight), aggregate.integer(0))))
        return original(derivation, inserted, keys, rule)

    return broken


def _only_inserted_rows(derivation: Any, changed: Relation) -> Relation:
    view = changed.scan(derivation.ids)
    assert view.weight is not None
    inserted = view.with_node(Filter(view.node, aggregate.greater(ref(view.weight), aggregate.integer(0))))
    return derivation.materialize(inserted, changed.plan_columns, "broken")


def _null_unsafe(original: Callable[..., Any]) -> Callable[..., Any]:
    def broken(view: View, pairs: Any, keys: Any, ids: Any) -> View:
        return original(view, [(mine, key, False) for mine, key, _ in pairs], keys, ids)

    return broken


def _sign_of_weight(original: Callable[..., Any]) -> Callable[..., Any]:
    """Projection that forgets how often a row came."""

    def broken(derivation: Any, node: Any) -> View | None:
        view = original(derivation, node)
        if view is None:
            return None
        assert view.weight is not None
        one = aggregate.choose(
            aggregate.greater(ref(view.weight), aggregate.integer(0)), aggregate.integer(1), aggregate.integer(-1)
        )
        items = [(column, view.ref(column)) for column in node.output]
        return linear.project(view, items, derivation.ids, weight=one)

    return broken


def _nothing_flips(_derivation: Any, counted: View, _keys: Any) -> View:
    return replace(counted.with_node(Filter(counted.node, FALSE)), weight=counted.columns["matches_change"])


def _any_change_flips(_derivation: Any, counted: View, _keys: Any) -> View:
    return replace(counted, weight=counted.columns["matches_change"])


def _old_partners(derivation: Any, match: Any, changed: Relation) -> View:
    return derivation.old(match.right)


def _only_matches(match: Any, kind: Any, left: View, right: View) -> View:
    found = semi_join.matched(match, kind, left, right)
    return found.with_node(Filter(found.node, FALSE)) if kind == "anti" else found


def _without_weight_copies(view: View, _ids: Any) -> View:
    return view


MUTATIONS = (
    Mutation("cross term twice", "J2", _set(join, "partner_version", lambda *_: Version.NEW)),
    Mutation("cross term never", "J2", _set(join, "partner_version", lambda *_: Version.OLD)),
    Mutation("weights lost in a projection", "twins projected", lambda patch: _patch_project(patch)),
    Mutation("changed rows meet the old right side", "A1", _set(semi_join, "partners", _old_partners)),
    Mutation("no flips", "A1", _set(semi_join, "_signed", _nothing_flips)),
    Mutation("every change flips", "O5", _set(semi_join, "_signed", _any_change_flips)),
    Mutation("flips of an outer join not turned", "O1", _set(outer_join, "negated", lambda view, *_: view)),
    Mutation("changed rows without a match left out", "O3", _set(outer_join, "matched", _only_matches)),
    Mutation("extremum never rescanned", "G3", _set(aggregate, "_spoiled", lambda *_: FALSE)),
    Mutation("wide sums ignore copies", "twins summed", _set(aggregate, "with_unit_weights", _without_weight_copies)),
    Mutation("NULL keys don't match", "G10", _wrap(state, "restrict", _null_unsafe)),
    Mutation("groups found by new rows only", "G6", _wrap(recompute, "affected_keys", _only_inserted)),
    Mutation("partitions found by new rows only", "W1", _set(window, "reached_by", _only_inserted_rows)),
    Mutation("top rows found by new rows only", "T1", _set(topk, "reached_by", _only_inserted_rows)),
    Mutation("groups never die", "S1", _set(aggregate, "_alive", lambda *_: TRUE)),
)
CASES = {case.id: case for case in load()}


def _patch_project(patch: pytest.MonkeyPatch) -> None:
    from pgtrickle_assets.differential import derive

    rules = dict(derive.DELTA_RULES)
    rules[linear.Project] = _sign_of_weight(rules[linear.Project])
    patch.setattr(derive, "DELTA_RULES", rules)


def _twins(root: Node) -> Scenario:
    row = (1, "a", 2, Decimal("1.50"), 1.5, True, Decimal("0.000000000000000001"))
    return Scenario(root, {"t1": []}, [[("t1", row, 2)], [("t1", row, -1)]])


def _scenarios() -> dict[str, Scenario]:
    """Equal rows that come and go with a weight of two: projected, and summed in a type without room for a weight."""
    ids = IdGenerator()
    wide = ids.column(WIDE, name="w")
    scan = Scan("t1", (wide,), ("w",))
    total = ids.column(decimal(38, 18), name="s")
    summed = Aggregate(scan, (), ((total, AggregateCall("sum", (ref(wide),), decimal(38, 18))),))
    return {
        "twins projected": _twins(Project(scan, ((ids.column(WIDE, name="p"), ref(wide)),))),
        "twins summed": _twins(summed),
    }


def _look_for_a_mismatch(by: str) -> None:
    if by in CASES:
        maintain(CASES[by], "batch")
    else:
        run(_scenarios()[by])


@pytest.mark.parametrize("by", sorted({mutation.by for mutation in MUTATIONS}))
def test_unbroken_rules_pass_what_catches_the_broken_ones(by: str) -> None:
    _look_for_a_mismatch(by)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_broken_rule_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.patch(monkeypatch)
    with pytest.raises(AssertionError):
        _look_for_a_mismatch(mutation.by)
