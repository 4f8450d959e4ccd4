"""PostgreSQL decides: a query, planned, gives the same rows, names and types on DuckDB."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from pgtrickle_assets.query.planner import plan_query
from tests.integration.query.engines import CORPUS, corpus, multiset, planned, postgres_answer, rendered
from tests.workloads import tpch

NAMES = sorted(path.stem for path in CORPUS.glob("*.sql"))
CASES = [pytest.param(sql, id=f"{name}-{i}") for name in NAMES for i, sql in enumerate(corpus(name), 1)]
TPCH = sorted(path.stem for path in tpch.QUERIES.glob("*.sql"))
ERRORS = [
    "SELECT id, (SELECT v FROM u WHERE u.k = t.k) AS v FROM t",
    "SELECT (SELECT v FROM u) AS v",
    "SELECT a + 1 AS x FROM t",
    "SELECT b + 1 AS x FROM t",
    "SELECT a / c AS x FROM t",
    "SELECT n / 0 AS x FROM t",
    "SELECT m % 0 AS x FROM t",
    "SELECT a::int2 AS x FROM t",
    "SELECT n::numeric(3,2) AS x FROM t",
    "SELECT s::int AS x FROM t",
    "SELECT substring(s, 2, c) AS x FROM t",
    "SELECT sqrt(-1.0::float8 * id) AS x FROM t",
    "SELECT ln(0.0::float8 * id) AS x FROM t",
    "SELECT exp(1000.0::float8 * id) AS x FROM t",
    "SELECT power(-1.0::float8 * id, 0.5) AS x FROM t",
    "SELECT acos(2.0::float8 * id) AS x FROM t",
    "SELECT (id || '.5')::int AS x FROM t",
    "SELECT ('maybe' || id)::bool AS x FROM t",
    "SELECT chr(0 * id) AS x FROM t",
    "SELECT gcd('-2147483648'::int + 0 * id, 0) AS x FROM t",
    "SELECT gcd('-9223372036854775808'::int8 + 0 * id, '-9223372036854775808'::int8) AS x FROM t",
    "SELECT lcm(2147483647, 2 * id) AS x FROM t",
    "SELECT lcm(9223372036854775807, 2 * id) AS x FROM t",
    "SELECT width_bucket(n, 0, 1, 0 * id) AS x FROM t",
    "SELECT width_bucket(n, 1, id, 3) AS x FROM t",
    "SELECT width_bucket(f, 0, 1, 3) AS x FROM t",
    "SELECT width_bucket(1::float8, 0, 'infinity'::float8 * id, 3) AS x FROM t",
    "SELECT width_bucket(20.0 * id, 0, 1, 2147483647) AS x FROM t",
    "SELECT factorial(-id) AS x FROM t",
    "SELECT json_object_agg(k, id) AS x FROM t",
    "SELECT ('1e308'::float8 * id) + '1e308'::float8 AS x FROM t",
    "SELECT ('1e308'::float8 + 0 * id) / '1e-10'::float8 AS x FROM t",
    "SELECT '1e-300'::float8 / id * '1e-300'::float8 AS x FROM t",
    "SELECT '1e-300'::float8 / id / '1e300'::float8 AS x FROM t",
    "SELECT ('1e300'::float8 * id)::float4 AS x FROM t",
    "SELECT sum('1e308'::float8 + 0 * id) AS x FROM t",
    "SELECT avg('1e308'::float8 + 0 * id) AS x FROM t",
    "SELECT stddev('1e200'::float8 * id) AS x FROM t",
    "SELECT jsonb_object_agg(k, id) AS x FROM t",
]


@pytest.mark.parametrize("sql", CASES)
def test_duckdb_gives_what_postgres_gives(sample_postgres: Any, sample_duckdb: Any, sql: str) -> None:
    plan = planned(sql)
    expected = postgres_answer(sample_postgres, sql, plan)
    actual = multiset(sample_duckdb.execute(rendered(plan, "duckdb")).fetchall(), plan)
    assert actual == expected


@pytest.mark.parametrize("sql", ERRORS)
def test_what_is_an_error_in_postgres_is_one_in_the_plan(sample_postgres: Any, sample_duckdb: Any, sql: str) -> None:
    import psycopg

    with pytest.raises(psycopg.Error):
        sample_postgres.execute(sql)
    with pytest.raises(duckdb.Error):
        sample_duckdb.execute(rendered(planned(sql), "duckdb")).fetchall()


@pytest.mark.parametrize("name", TPCH)
def test_tpch_gives_what_postgres_gives(tpch_engines: tuple[Any, Any], name: str) -> None:
    postgres, duck = tpch_engines
    sql = (tpch.QUERIES / f"{name}.sql").read_text()
    plan = plan_query(sql, resolve=tpch.resolve)
    expected = postgres_answer(postgres, sql, plan)
    assert expected
    assert multiset(duck.execute(rendered(plan, "duckdb")).fetchall(), plan) == expected
