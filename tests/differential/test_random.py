"""Random plans, random batches: what is maintained always equals a full recompute, state relations included.

`PGTRICKLE_RANDOM_CASES` sets the number of cases, `PGTRICKLE_RANDOM_SEED` the seed (`random`: a new one); the
seed of a run is printed.
"""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.differential.plan_generator import OPERATORS_ALL, OPERATORS_BASIC, Scenario, scenarios
from tests.differential.random_seed import chosen_seed
from tests.differential.scenario import run_and_keep

CASES = int(os.environ.get("PGTRICKLE_RANDOM_CASES", "300"))
SEED = chosen_seed(2)

BASIC_TOPS = tuple(dict.fromkeys(OPERATORS_BASIC))
ALL_TOPS = tuple(dict.fromkeys(OPERATORS_ALL))


def run_random(cases: int, operators: tuple[str, ...], depth: int, top: str) -> None:
    """Run `cases` random scenarios whose root is `top`."""

    @seed(SEED)
    @settings(
        max_examples=max(cases, 1),
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(scenarios(operators=operators, depth=depth, top=top))
    def maintained_equals_recomputed(scenario: Scenario) -> None:
        run_and_keep(scenario)

    sys.stdout.write(f"{cases} cases, PGTRICKLE_RANDOM_SEED={SEED}\n")
    maintained_equals_recomputed()


@pytest.mark.parametrize("top", BASIC_TOPS)
def test_core_operators_equal_full_recompute(top: str) -> None:
    run_random(CASES // len(BASIC_TOPS), OPERATORS_BASIC, 3, top)


@pytest.mark.parametrize("top", ALL_TOPS)
def test_all_operators_equal_full_recompute(top: str) -> None:
    run_random(2 * CASES // len(ALL_TOPS), OPERATORS_ALL, 5, top)
