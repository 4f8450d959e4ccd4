"""Nexmark, queries 0 to 9, maintained while events arrive, are dropped and are corrected."""

from __future__ import annotations

from functools import partial

import pytest

from tests.differential.workload import Outcome, Workload, expect_right
from tests.workloads import nexmark

EVENTS = 5_000
CHURN = 0.03
CYCLES = 3


@pytest.fixture(scope="module")
def outcomes() -> dict[int, Outcome]:
    """What became of each query; all share the tables and cycles."""
    return Workload(
        nexmark.TABLES,
        nexmark.generate(EVENTS),
        nexmark.resolve,
        {number: nexmark.query(number) for number in nexmark.NUMBERS},
        [partial(nexmark.refresh_set, cycle, CHURN, EVENTS) for cycle in range(CYCLES)],
    ).outcomes()


@pytest.mark.parametrize("number", nexmark.NUMBERS)
def test_nexmark_query_is_maintained_exactly(outcomes: dict[int, Outcome], number: int) -> None:
    expect_right(outcomes[number])
