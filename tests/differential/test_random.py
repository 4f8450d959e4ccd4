"""Random plans, random batches: what is maintained always equals a full recompute, state relations included.

`PGTRICKLE_RANDOM_CASES` sets the number of cases, `PGTRICKLE_RANDOM_SEED` the seed; the seed of a run is printed.
"""

from __future__ import annotations

import os
import random
import sys

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.differential.plan_generator import OPERATORS_ALL, OPERATORS_BASIC, Scenario, scenarios
from tests.differential.scenario import run_and_keep

CASES = int(os.environ.get("PGTRICKLE_RANDOM_CASES", "300"))
SEED = int(os.environ.get("PGTRICKLE_RANDOM_SEED", random.SystemRandom().randrange(2**31)))

_SETTINGS = settings(
    max_examples=CASES,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)


@pytest.fixture(autouse=True)
def _print_seed(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        sys.stdout.write(f"[{CASES} cases, PGTRICKLE_RANDOM_SEED={SEED}] ")


@seed(SEED)
@_SETTINGS
@given(scenarios(operators=OPERATORS_BASIC, depth=3))
def test_core_operators_equal_full_recompute(scenario: Scenario) -> None:
    run_and_keep(scenario)


@seed(SEED)
@_SETTINGS
@given(scenarios(operators=OPERATORS_ALL, depth=5))
def test_all_operators_equal_full_recompute(scenario: Scenario) -> None:
    run_and_keep(scenario)
