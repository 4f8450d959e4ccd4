"""What `derive` decides: strategy, state tables, steps."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pgtrickle_assets.differential.derive import derive
from pgtrickle_assets.differential.reasons import OBSTACLES, RULES, Obstacle, obstacle, rule
from pgtrickle_assets.differential.steps import RESULT, DeriveOptions, InputChange
from pgtrickle_assets.query.plan import (
    Aggregate,
    AggregateCall,
    Call,
    Column,
    Distinct,
    Filter,
    Join,
    Literal,
    Opaque,
    Project,
    UnionAll,
    Version,
)
from pgtrickle_assets.query.planner import plan_query
from pgtrickle_assets.query.rewrite import ref, scans
from pgtrickle_assets.query.types import BOOLEAN, FLOAT64, INT64, ColumnSchema, TableName, TableSchema
from tests.unit.differential.trees import column, count_by, plan, scan

BOTH = InputChange()


def _sum_of_floats() -> Aggregate:
    child = scan("l", "a")
    child = replace(child, columns=(replace(child.columns[0], type=FLOAT64),))
    total = Column("s", FLOAT64, name="s")
    return Aggregate(child, (), ((total, AggregateCall("sum", (ref(child.columns[0]),), FLOAT64)),))


def test_opaque_part_makes_the_plan_full_with_its_reason() -> None:
    part = Opaque("recursive_cte", "WITH RECURSIVE t", (scan("l", "a"),), (), (Column("x", INT64, name="x"),))
    found = derive(plan(part))
    assert not found.differential
    assert [reason.code for reason in found.reasons] == ["recursive_cte"]
    assert found.state_tables == ()
    assert [step.role for step in found.full_steps()] == ["result"]
    with pytest.raises(ValueError, match="no delta steps"):
        found.delta_steps({"l": BOTH})


def test_stable_function_makes_the_plan_full() -> None:
    found = derive(replace(plan(scan("l", "a")), stable_functions=("now()", "current_date")))
    assert [(reason.code, reason.detail) for reason in found.reasons] == [
        ("stable_function", "now() moves with time"),
        ("stable_function", "current_date moves with time"),
    ]


def test_the_content_of_states_is_told_apart_whatever_is_known_about_nulls() -> None:
    def content(where: str, *, nullable: bool = True, label: str = "n") -> str:
        columns = (ColumnSchema("a", INT64, nullable), ColumnSchema("b", INT64))
        table = TableSchema(TableName("raw", "l"), columns)
        query = f"SELECT a, avg(b) AS {label} FROM l {where} GROUP BY a HAVING count(*) > 1"
        return derive(plan_query(query, resolve=lambda _: table)).state_content

    assert content("") == content("", nullable=False, label="m")
    assert content("") != content("WHERE b > 1")
    assert content("WHERE b > 1") != content("WHERE b > 2")
    assert derive(plan(Filter(scan("l", "a"), Literal(True, BOOLEAN)))).state_content == ""


@pytest.mark.parametrize(
    ("where", "roles"),
    [
        ("", ["result"]),
        ("WHERE l.b > 1 AND l.a <> l.b", ["result"]),
        ("WHERE l.b IN (1, 2) OR l.b IS NULL", ["result"]),
        ("WHERE l.b % 2 = 1", ["intermediate", "result"]),
        ("JOIN l m ON l.a = m.b", ["intermediate", "result"]),
    ],
)
def test_affected_groups_are_a_step_only_where_the_changed_rows_do_not_tell_them(where: str, roles: list[str]) -> None:
    table = TableSchema(TableName("raw", "l"), (ColumnSchema("a", INT64), ColumnSchema("b", INT64)))
    found = derive(plan_query(f"SELECT l.a, count(*) AS n FROM l {where} GROUP BY l.a", resolve=lambda _: table))
    assert [step.role for step in found.delta_steps({"raw.l": BOTH})] == roles


def test_linear_plan_needs_no_state() -> None:
    found = derive(plan(Filter(scan("l", "a"), Call("is_null", (ref(scan("l", "a").columns[0]),), BOOLEAN))))
    assert found.state_tables == ()
    (step,) = found.delta_steps({"l": BOTH})
    assert step.target == RESULT
    assert step.weighted


def test_result_that_carries_its_state_has_no_second_table() -> None:
    found = derive(plan(count_by(scan("l", "a"), "a")))
    assert found.state_tables == ()
    steps = found.delta_steps({"l": BOTH})
    assert [step.role for step in steps] == ["result"]
    reads = [(part.relation, part.version) for part in scans(steps[-1].query)]
    assert (RESULT, Version.OLD) in reads


def test_hidden_count_needs_a_state_table() -> None:
    child = scan("l", "a")
    found = derive(plan(Distinct(child)))
    (state,) = found.state_tables
    assert [c.name for c in state.columns] == ["a_1", "rows_2"]
    assert state.key == ("a_1",)


def test_having_keeps_the_state_of_hidden_groups() -> None:
    grouped = count_by(scan("l", "a"), "a")
    visible = Filter(grouped, Call(">", (ref(column(grouped, "n")), Literal(1, INT64)), BOOLEAN))
    (state,) = derive(plan(visible)).state_tables
    assert state.rule == "group_by"


def test_equal_subplans_share_one_state_table() -> None:
    first, second = count_by(scan("l", "a"), "a"), count_by(scan("l", "a"), "a")
    renamed = Project(second, tuple((Column(f"z{i}", c.type), ref(c)) for i, c in enumerate(second.output)))
    both = UnionAll((first, renamed), tuple(Column(f"u{i}", c.type, name=f"u{i}") for i, c in enumerate(first.output)))
    assert len(derive(plan(both)).state_tables) == 1


def test_float_sums_are_recomputed_unless_the_user_opts_in() -> None:
    (state,) = derive(plan(_with_filter(_sum_of_floats()))).states
    assert state.rule == "recompute_groups"
    (state,) = derive(plan(_with_filter(_sum_of_floats())), DeriveOptions(algebraic_floats=True)).states
    assert state.rule == "aggregate_all"


def _with_filter(node: Aggregate) -> Filter:
    return Filter(node, Call("is_not_null", (ref(node.output[0]),), BOOLEAN))


def test_insert_only_delta_never_rescans_an_extremum() -> None:
    child = scan("l", "a", "b")
    low = Column("m", child.columns[0].type, name="m")
    root = Aggregate(child, (child.columns[1],), ((low, AggregateCall("min", (ref(child.columns[0]),), low.type)),))
    maintenance = derive(plan(root))

    def reads_what_is_left(change: InputChange) -> bool:
        steps = maintenance.delta_steps({"l": change})
        return any(part.version is Version.NEW for step in steps for part in scans(step.query))

    assert not reads_what_is_left(InputChange(deletes=False))
    assert reads_what_is_left(BOTH)


def test_exists_without_correlation_becomes_a_count() -> None:
    node = Join("semi", scan("l", "a"), scan("r", "b"), None)
    assert [state.rule for state in derive(plan(node)).states] == ["aggregate_all"]


def test_steps_are_the_same_every_time() -> None:
    node = count_by(Join("left", scan("l", "a"), scan("r", "b"), None), "a")
    first, second = derive(plan(node)), derive(plan(node))
    assert first.delta_steps({"l": BOTH, "r": BOTH}) == second.delta_steps({"l": BOTH, "r": BOTH})
    assert first.delta_steps({"l": BOTH}) == first.delta_steps({"l": BOTH})


def test_every_step_names_a_rule_of_the_table() -> None:
    node = Distinct(count_by(Join("full", scan("l", "a"), scan("r", "b"), None), "a"))
    steps = derive(plan(node)).delta_steps({"l": BOTH, "r": BOTH})
    assert {step.rule for step in steps} <= {found.name for found in RULES}
    assert rule("semi_join").source


@pytest.mark.parametrize("found", OBSTACLES, ids=lambda found: found.code)
def test_every_obstacle_is_one_that_a_query_can_meet_and_names_functions_that_exist(found: Obstacle) -> None:
    queries = {
        "recursive_cte": "WITH RECURSIVE r AS (SELECT a FROM t UNION ALL SELECT a + 1 FROM r) SELECT a FROM r",
        "volatile_function": "SELECT random(), clock_timestamp(), gen_random_uuid() AS u FROM t",
        "stable_function": "SELECT now(), current_date AS d, localtimestamp AS l FROM t",
        "tablesample": "SELECT a FROM t TABLESAMPLE BERNOULLI (10)",
    }
    table = TableSchema(TableName("raw", "t"), (ColumnSchema("a", INT64),))
    reasons = derive(plan_query(queries[found.code], resolve=lambda _: table)).reasons
    assert {reason.code for reason in reasons} == {found.code}
    named = re.findall(r"\w+\(\)|current_date|localtimestamp", found.construct)
    assert set(named) <= {reason.detail.split()[0] for reason in reasons}
    assert obstacle(found.code).advice
