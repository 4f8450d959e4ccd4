"""Each rule broken on purpose is caught by the random scenarios: a suite that cannot fail proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

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
from pgtrickle_assets.query.plan import Filter, Version
from pgtrickle_assets.query.rewrite import FALSE, TRUE, ref
from tests.differential.plan_generator import Scenario, scenarios
from tests.differential.scenario import run

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutation:
    """A rule, how it is broken, and the operators to look for a failing scenario with."""

    name: str
    top: str
    operators: tuple[str, ...]
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


JOINS = ("inner", "filter")
MUTATIONS = (
    Mutation("cross term twice", "inner", JOINS, _set(join, "partner_version", lambda *_: Version.NEW)),
    Mutation("cross term never", "inner", JOINS, _set(join, "partner_version", lambda *_: Version.OLD)),
    Mutation("weights lost in a projection", "project", ("project",), lambda p: _patch_project(p)),
    Mutation(
        "changed rows meet the old right side",
        "semi",
        ("semi",),
        _set(semi_join, "partners", _old_partners),
    ),
    Mutation("no flips", "anti", ("anti",), _set(semi_join, "_signed", _nothing_flips)),
    Mutation("every change flips", "semi", ("semi",), _set(semi_join, "_signed", _any_change_flips)),
    Mutation(
        "flips of an outer join not turned", "left", ("left",), _set(outer_join, "negated", lambda view, *_: view)
    ),
    Mutation(
        "NULL-extended rows of changed rows left out",
        "full",
        ("full",),
        _set(outer_join, "matched", _only_matches),
    ),
    Mutation("extremum never rescanned", "aggregate", ("aggregate",), _set(aggregate, "_spoiled", lambda *_: FALSE)),
    Mutation(
        "wide sums ignore copies",
        "aggregate",
        ("aggregate",),
        _set(aggregate, "with_unit_weights", _without_weight_copies),
    ),
    Mutation("NULL keys don't match", "distinct", ("distinct",), _wrap(state, "restrict", _null_unsafe)),
    Mutation(
        "groups found by new rows only", "aggregate", ("aggregate",), _wrap(recompute, "affected_keys", _only_inserted)
    ),
    Mutation(
        "partitions found by new rows only", "window", ("window",), _set(window, "reached_by", _only_inserted_rows)
    ),
    Mutation(
        "top partitions found by new rows only", "top_k", ("top_k",), _set(topk, "reached_by", _only_inserted_rows)
    ),
    Mutation("groups never die", "distinct", ("distinct",), _set(aggregate, "_alive", lambda *_: TRUE)),
)


def _patch_project(patch: pytest.MonkeyPatch) -> None:
    from pgtrickle_assets.differential import derive

    rules = dict(derive.DELTA_RULES)
    rules[linear.Project] = _sign_of_weight(rules[linear.Project])
    patch.setattr(derive, "DELTA_RULES", rules)


def _is_caught(mutation: Mutation, cases: int) -> bool:
    @seed(1)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
        report_multiple_bugs=False,
    )
    @given(scenarios(operators=mutation.operators, depth=2, top=mutation.top))
    def try_one(scenario: Scenario) -> None:
        run(scenario)

    try:
        try_one()
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_broken_rule_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.patch(monkeypatch)
    assert _is_caught(mutation, 400)
