"""The operators that `explain` shows are those of the plan that runs, each with a rule of the rule table."""

from __future__ import annotations

import pytest

from pgtrickle_assets.differential.derive import DELTA_RULES, derive
from pgtrickle_assets.differential.operators import operators, plan_operators, rule_of
from pgtrickle_assets.differential.reasons import rule
from pgtrickle_assets.query.plan import Filter, Project, Scan
from pgtrickle_assets.query.rewrite import walk
from tests.integration.query.engines import planned

QUERIES = {
    "SELECT a, count(*) AS n, sum(b) AS s FROM t WHERE a > 1 GROUP BY a": ["aggregate", "filter", "scan"],
    "SELECT x.a, y.k FROM t x LEFT JOIN u y ON y.tid = x.id": ["project", "left join", "scan", "scan"],
    "SELECT a FROM t WHERE id IN (SELECT tid FROM u)": ["project", "semi join", "scan", "scan"],
    "SELECT a FROM t UNION SELECT k::int FROM u": ["aggregate", "union all", "project", "scan", "project", "scan"],
    "SELECT a, row_number() OVER (PARTITION BY a ORDER BY id) AS r FROM t": ["project", "window", "scan"],
    "SELECT a FROM t ORDER BY a DESC LIMIT 3": ["top", "project", "scan"],
    "SELECT a, count(DISTINCT b) AS n FROM t GROUP BY a": ["aggregate", "scan"],
}


@pytest.mark.parametrize("sql", QUERIES)
def test_every_operator_has_a_rule_and_stands_before_its_inputs(sql: str) -> None:
    found = operators(derive(planned(sql)))
    kinds = [item.operator for item in found]
    for kind in QUERIES[sql]:
        assert kind in kinds, kinds
    assert [item.number for item in found] == list(range(len(found)))
    assert found[0].parent is None
    for item in found:
        assert rule(item.rule).text
        assert item.parent is None or item.parent < item.number


@pytest.mark.parametrize("sql", QUERIES)
def test_states_stand_where_they_are_read(sql: str) -> None:
    maintenance = derive(planned(sql))
    kept = {item.state: item.rule for item in operators(maintenance) if item.state}
    assert kept == {state.relation.name: state.rule for state in maintenance.states}


def test_operators_use_the_names_of_the_query() -> None:
    found = operators(derive(planned("SELECT x.a, sum(y.v) AS total FROM t x JOIN u y ON y.tid = x.id GROUP BY x.a")))
    details = [item.detail for item in found]
    assert any("by a: count(*)" in detail for detail in details), details
    assert "tid = id" in details


def test_an_operator_read_twice_is_shown_once() -> None:
    sql = "WITH g AS (SELECT a, count(*) AS n FROM t GROUP BY a) SELECT l.n FROM g l JOIN g r ON l.n = r.n"
    found = [item for item in operators(derive(planned(sql))) if item.state]
    assert [item.detail == "the same as above" for item in found] == [False, True]


def test_a_query_that_only_full_evaluates_shows_its_obstacle() -> None:
    sql = "WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r WHERE x < 5) SELECT x FROM r"
    found = operators(derive(planned(sql)))
    assert [item.rule for item in found if item.operator == "full only"] == ["recursive_cte"]
    assert {item.rule for item in found} == {"recursive_cte", "full"}


def test_a_rule_is_named_for_every_node_that_a_delta_can_be_asked_of() -> None:
    seen = set()
    for sql in QUERIES:
        for state in derive(planned(sql)).states:
            for node in walk(state.child):
                seen.add(type(node))
                assert type(node) in DELTA_RULES
                assert rule(rule_of(node))
    assert {Scan, Filter, Project} <= seen


def test_the_plan_has_the_operators_as_written() -> None:
    found = plan_operators(planned("SELECT DISTINCT a FROM t WHERE b IS NULL").root)
    assert [(item.operator, item.detail) for item in found][:1] == [("distinct", "")]
    assert ("filter", "b IS NULL") in [(item.operator, item.detail) for item in found]
