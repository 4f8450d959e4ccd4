"""TPC-H, all 22 queries, maintained through refresh sets that insert, delete and move keys, dates and prices."""

from __future__ import annotations

from functools import partial

import pytest

from tests.differential.workload import Outcome, Workload, expect_right
from tests.workloads import tpch

SCALE = 0.005
CHURN = 0.03
CYCLES = 3


@pytest.fixture(scope="module")
def outcomes() -> dict[int, Outcome]:
    """What became of each query; all share the tables and cycles."""
    return Workload(
        tpch.TABLES,
        tpch.generate(SCALE),
        tpch.resolve,
        {number: tpch.query(number) for number in tpch.NUMBERS},
        [partial(tpch.refresh_set, cycle, CHURN, SCALE) for cycle in range(CYCLES)],
    ).outcomes()


@pytest.mark.parametrize("number", tpch.NUMBERS)
def test_tpch_query_is_maintained_exactly(outcomes: dict[int, Outcome], number: int) -> None:
    expect_right(outcomes[number])
