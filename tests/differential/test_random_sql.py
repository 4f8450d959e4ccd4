"""Random SQL, random batches: what is maintained equals a full recompute, and PostgreSQL's answer.

CI takes a few cases of each operator. `PGTRICKLE_RANDOM_CASES` sets the number of cases of the nightly run,
`PGTRICKLE_RANDOM_SEED` the seed (`random`: a new one); the seed of a run is printed. A failing case is shrunk and left
behind as a file that runs it again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.differential.random_seed import chosen_seed
from tests.differential.sql_generator import OPERATORS, SqlScenario, sql_scenarios
from tests.differential.sql_scenario import create, keeping, run, run_against

FEW = 6
CASES = int(os.environ.get("PGTRICKLE_RANDOM_CASES", "20000"))
SEED = chosen_seed(1)


def run_random(cases: int, top: str, check: Callable[[SqlScenario], None]) -> None:
    """Run `cases` random scenarios whose outermost operator is `top`."""

    @seed(SEED)
    @settings(
        max_examples=max(cases, 1),
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(sql_scenarios(depth=5, top=top))
    def holds(scenario: SqlScenario) -> None:
        keeping(scenario, check)

    sys.stdout.write(f"{cases} cases, PGTRICKLE_RANDOM_SEED={SEED}\n")
    holds()


@pytest.fixture(scope="module")
def random_postgres(postgres_server: Any) -> Iterator[Any]:
    """A PostgreSQL with the tables of the generator."""
    dsn = postgres_server.create_database("random_sql")
    with psycopg.connect(dsn, autocommit=True) as connection:
        create(connection)
        yield connection
    postgres_server.drop_database("random_sql")


@pytest.mark.parametrize(
    "cases",
    [pytest.param(FEW, id="few"), pytest.param(CASES // len(OPERATORS), id="many", marks=pytest.mark.nightly)],
)
@pytest.mark.parametrize("top", OPERATORS)
def test_random_query_equals_full_recompute(top: str, cases: int) -> None:
    run_random(cases, top, run)


@pytest.mark.nightly
@pytest.mark.parametrize("top", OPERATORS)
def test_random_query_equals_postgres(random_postgres: Any, top: str) -> None:
    run_random(CASES // len(OPERATORS) // 4, top, lambda scenario: run_against(scenario, random_postgres))


FOUND = {
    "a number of a side without rows is computed with": SqlScenario(
        "SELECT c1, ABS(c5) AS c9, c5 + 1 AS c10, -c5 AS c11 FROM (SELECT g AS c1, v AS c2 FROM t2) l"
        " FULL JOIN (SELECT v AS c4, n AS c5 FROM t3) r ON c4 = c2",
        {"t1": [], "t2": [], "t3": []},
        [[("t2", ("a", 1, None, None, None), 1)]],
    ),
    "text is joined to a side without rows": SqlScenario(
        "SELECT c1, c1 || 'z' AS c9 FROM (SELECT g AS c1, v AS c2 FROM t2) l"
        " FULL JOIN (SELECT v AS c4 FROM t3) r ON c4 = c2",
        {"t1": [], "t2": [], "t3": []},
        [[("t3", (None, None, None, None, None), 1)]],
    ),
}


@pytest.mark.parametrize("what", FOUND)
def test_what_random_runs_found_stays_right(what: str) -> None:
    run(FOUND[what])
