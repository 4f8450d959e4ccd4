"""Rules of planning that need no engine."""

from __future__ import annotations

import pytest

from pgtrickle_assets.errors import QueryError, UnsupportedTypeError
from pgtrickle_assets.query.plan import Aggregate, Filter, Generate, Join, Opaque, Project, TopK
from pgtrickle_assets.query.properties import at_most_one_row
from pgtrickle_assets.query.rewrite import all_ids, free_columns, walk
from pgtrickle_assets.query.set_functions import SUPPORTED
from pgtrickle_assets.query.types import DATE, FLOAT64, INT32, INT64, TIMESTAMP, TIMESTAMPTZ, VARCHAR, decimal
from tests.integration.query.engines import planned, rendered


def kinds(sql: str) -> list[str]:
    return [str(column.type) for column in planned(sql).output]


def names(sql: str) -> list[str]:
    return [column.name for column in planned(sql).output]


def nodes(sql: str, kind: type) -> list[object]:
    return [node for node in walk(planned(sql).root) if isinstance(node, kind)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a + c", INT32),
        ("a + b", INT64),
        ("a / 2", INT32),
        ("n + m", decimal(13, 4)),
        ("n * m", decimal(22, 6)),
        ("n * 2", decimal(11, 2)),
        ("a + f", FLOAT64),
        ("sum(a)", INT64),
        ("sum(b)", decimal(38, 0)),
        ("sum(n)", decimal(38, 2)),
        ("avg(a)", decimal(30, 20)),
        ("avg(f)", FLOAT64),
        ("count(*)", INT64),
        ("round(avg(n), 2)", decimal(11, 2)),
        ("max(d) - min(d)", INT32),
        ("max(d) + interval '1 day'", TIMESTAMP),
        ("date_trunc('month', max(d))", TIMESTAMPTZ),
        ("max(d) + 1", DATE),
        ("extract(year from max(d))", decimal(10, 0)),
        ("'x'", VARCHAR),
        ("null", VARCHAR),
        ("sqrt(4)", FLOAT64),
    ],
)
def test_result_types_are_those_of_postgres(expression: str, expected: object) -> None:
    assert planned(f"SELECT {expression} AS x FROM t").output[0].type == expected


def test_default_names_are_those_of_postgres() -> None:
    items = "count(*), sum(a), CASE WHEN true THEN 1 END, coalesce(1), 'x'::text, a.k"
    assert names(f"SELECT {items} FROM t a GROUP BY a.k") == ["count", "sum", "case", "coalesce", "text", "k"]


@pytest.mark.parametrize(
    ("sql", "line", "message", "hint"),
    [
        ("SELECT id\nFROM tt", 2, 'relation "tt" does not exist', ""),
        ("SELECT id,\n  nmae FROM cu", 2, 'column "nmae" does not exist', '"name"'),
        ("SELECT t.id\nFROM t\nWHERE u.id = 1", 3, 'missing FROM-clause entry for table "u"', ""),
        ("SELECT id FROM t, u", 1, 'column reference "id" is ambiguous', "Qualify"),
        ("SELECT lenght(s) FROM t", 1, "lenght(text) does not exist", '"length"'),
        ("SELECT s + 1 FROM t", 1, "operator does not exist: text + integer", ""),
        ("SELECT id FROM t WHERE a", 1, "must be type boolean", ""),
        ("SELECT k, a FROM t GROUP BY k", 1, '"a" must appear in the GROUP BY clause', ""),
        ("SELECT id FROM t WHERE sum(a) > 1", 1, "aggregate functions are not allowed in WHERE", ""),
        ("SELECT id FROM t WHERE d = 'x'", 1, "invalid input syntax for type date", ""),
        ("SELECT (a\nFROM t", 2, "syntax error", ""),
        ("SELECT id,\n a, FROM t", 2, "missing after the comma", ""),
        ("SELECT id FROM t, WHERE a = 1", 1, "a table is missing after the comma", ""),
        ("SELECT id FROM t WHERE a IN (1, )", 1, "missing after the comma", ""),
        (f"SELECT {'(' * 2000}1{')' * 2000}", None, "nested too deeply", "Split it"),
        (f"SELECT {' || '.join(['s'] * 2000)} FROM t", None, "nested too deeply", "Split it"),
        ("SELECT id, id FROM t", None, 'two output columns are named "id"', "AS"),
        (
            'SELECT id, a AS "ID" FROM t',
            None,
            'output columns "id" and "ID" differ only in case',
            "Give one of them another name with AS.",
        ),
        ("DELETE FROM t", 1, "defined by a SELECT", ""),
        ("SELECT 1; SELECT 2", None, "several statements", ""),
        ("SELECT $1", 1, "parameters", ""),
        ("SELECT a FROM t UNION SELECT s FROM t", 1, "cannot be matched", ""),
        ("SELECT s::char(3) FROM t", 1, "char(n)", "varchar"),
        ("SELECT power(n, 2) FROM t", 1, "not supported", "double precision"),
        ("SELECT (SELECT id, a FROM t) FROM u", 1, "only one column", ""),
        (
            "SELECT\nARRAY(SELECT DISTINCT a FROM t) AS x FROM u",
            2,
            "ARRAY(subquery) is supported for a plain",
            "array_agg",
        ),
        ("SELECT ARRAY[] AS x", None, "cannot determine type of empty array", "Cast it"),
        ("SELECT id FROM j, unest(arr)", 1, "unest(integer[]) in FROM does not exist", "unnest"),
        ("SELECT unnest(arr) FROM j", 1, "unnest is supported in FROM only", ""),
    ],
)
def test_an_error_names_line_and_nearest_name(sql: str, line: int | None, message: str, hint: str) -> None:
    with pytest.raises(QueryError) as caught:
        planned(sql)
    assert caught.value.line == line
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "name", ["json_each", "jsonb_each_text", "jsonb_to_recordset", "regexp_split_to_table", "generate_subscripts"]
)
@pytest.mark.parametrize("query", ["SELECT id FROM j, {}(doc) AS f", "SELECT {}(doc) AS f FROM j"])
def test_a_set_returning_function_that_is_not_supported_says_what_to_write(name: str, query: str) -> None:
    with pytest.raises(QueryError, match=f"set-returning function {name} is not supported") as caught:
        planned(query.format(name))
    assert caught.value.hint


def test_every_set_returning_function_that_is_called_supported_is_planned() -> None:
    arguments = {"unnest": "arr", "generate_series": "1, id", "string_to_table": "doc ->> 'a', ','"}
    for name in SUPPORTED:
        assert nodes(f"SELECT id, x FROM j, {name}({arguments.get(name, 'doc')}) AS f(x)", Generate)


def test_interval_is_refused_as_output() -> None:
    with pytest.raises(UnsupportedTypeError, match="interval"):
        planned("SELECT max(ts) - min(ts) AS span FROM t")


def test_column_ids_are_unique_and_nothing_stays_correlated() -> None:
    for sql in (
        "SELECT id, (SELECT count(*) FROM u WHERE u.v < t.a) AS c FROM t WHERE id NOT IN (SELECT tid FROM u) OR a > 3",
        "WITH q AS (SELECT * FROM t) SELECT x.id, y.a FROM q x JOIN q y ON x.id = y.id",
        "SELECT a, k, count(*) FROM t GROUP BY CUBE (a, k)",
    ):
        plan = planned(sql)
        assert not free_columns(plan.root)
        scans = [node.relation for node in walk(plan.root) if hasattr(node, "relation")]
        assert len(scans) >= 2
        assert all_ids(plan.root)


def test_conditions_become_join_conditions() -> None:
    joins = nodes("SELECT t.id FROM t, u, o WHERE t.id = o.cid AND u.tid = t.id AND u.v > 3", Join)
    assert all(isinstance(join, Join) and join.condition is not None for join in joins)


def test_exists_and_in_are_semi_joins_and_their_negations_anti_joins() -> None:
    for test, kind in (("EXISTS", "semi"), ("NOT EXISTS", "anti")):
        (join,) = nodes(f"SELECT id FROM t WHERE {test} (SELECT 1 FROM u WHERE u.tid = t.id)", Join)
        assert isinstance(join, Join)
        assert join.kind == kind
    (join,) = nodes("SELECT id FROM t WHERE id NOT IN (SELECT id FROM u)", Join)
    assert isinstance(join, Join)
    assert getattr(join.condition, "function", "") == "="


def test_scalar_aggregate_of_equal_keys_is_one_grouped_left_join() -> None:
    sql = "SELECT id, (SELECT max(v) FROM u WHERE u.tid = t.id) AS mx FROM t"
    (join,) = nodes(sql, Join)
    (aggregate,) = nodes(sql, Aggregate)
    assert isinstance(join, Join)
    assert isinstance(aggregate, Aggregate)
    assert join.kind == "left"
    assert len(aggregate.keys) == 1


def test_a_unique_key_needs_no_row_check() -> None:
    assert "raise" not in repr(planned("SELECT id, (SELECT name FROM cu WHERE cu.id = t.id) AS n FROM t").root)
    assert "raise" in repr(planned("SELECT id, (SELECT name FROM cu WHERE cu.city = t.k) AS n FROM t").root)


def test_top_n_per_parent_is_a_partitioned_top() -> None:
    lateral = "LATERAL (SELECT id FROM o WHERE cid = cu.id ORDER BY day LIMIT 2) l"
    (top,) = nodes(f"SELECT cu.id, l.id AS oid FROM cu, {lateral}", TopK)
    assert isinstance(top, TopK)
    assert top.limit == 2
    assert len(top.partition_by) == 1


def test_unnest_is_a_generate() -> None:
    assert len(nodes("SELECT j.id, x FROM j, unnest(arr) x", Generate)) == 1


def test_recursion_and_sampling_are_opaque_with_a_reason() -> None:
    recursion = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r"
    (node,) = nodes(recursion, Opaque)
    assert getattr(node, "reason", "") == "recursive_cte"
    (node,) = nodes("SELECT id FROM t TABLESAMPLE BERNOULLI (10)", Opaque)
    assert getattr(node, "reason", "") == "tablesample"


def test_only_needed_columns_are_read() -> None:
    plan = planned("SELECT k FROM t WHERE a > 1")
    assert plan.inputs["public.t"].columns == ("a", "k")


def test_functions_that_move_are_told_by_overload() -> None:
    assert planned("SELECT id FROM t WHERE tz < now()").stable_functions == ("now()",)
    assert planned("SELECT random() AS r FROM t").volatile_functions == ("random()",)
    plan = planned("SELECT date_trunc('day', tz) AS x, d::timestamptz AS y FROM t")
    assert not plan.stable_functions


def test_order_by_alone_is_noted_once() -> None:
    plan = planned("SELECT id FROM (SELECT id FROM t ORDER BY a) q ORDER BY id")
    assert len(plan.notes) == 1


def test_lineage_leads_to_source_columns() -> None:
    plan = planned("SELECT t.k, sum(u.p * t.n) AS x FROM t JOIN u ON u.tid = t.id GROUP BY t.k")
    assert plan.lineage == {"k": (("public.t", "k"),), "x": (("public.t", "n"), ("public.u", "p"))}


def test_shared_conditions_leave_an_or() -> None:
    sql = "SELECT t.id FROM t, u WHERE (t.id = u.tid AND u.v = 5) OR (t.id = u.tid AND u.v = 7)"
    (join,) = nodes(sql, Join)
    assert isinstance(join, Join)
    assert getattr(join.condition, "function", "") == "="
    assert nodes(sql, Filter)


def test_at_most_one_row_sees_through_filters_on_a_key() -> None:
    plan = planned("SELECT id FROM cu WHERE id = 3")
    assert at_most_one_row(plan.root, frozenset(), {"public.cu": ("id",)})


def test_spark_text_escapes_quotes_backslashes_and_variables() -> None:
    text = rendered(planned(r"SELECT 'it''s \ ${x}' AS x"), "spark")
    assert r"'it\'s \\ \u0024{x}'" in text


def test_odd_names_survive() -> None:
    plan = planned('SELECT id AS "a""b `c` é", k AS "Sp ace" FROM t')
    assert names('SELECT id AS "a""b `c` é" FROM t') == ['a"b `c` é']
    assert '"a""b `c` é"' in rendered(plan, "duckdb")
    assert '`a"b ``c`` é`' in rendered(plan, "spark")


def test_projections_on_top_of_each_other_are_one() -> None:
    sql = "SELECT x + 1 AS y FROM (SELECT a AS x FROM (SELECT a FROM t) p) q"
    assert len(nodes(sql, Project)) == 1
