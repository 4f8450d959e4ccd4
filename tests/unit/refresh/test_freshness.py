"""How far content may be behind, by schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pgtrickle_assets.refresh.freshness import GRACE, judge
from pgtrickle_assets.schedules import Calculated, Cron, Every, Manual

NOW = datetime(2024, 7, 3, 10, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "behind", "fresh"),
    [
        (Every(3600), timedelta(minutes=59), True),
        (Every(3600), timedelta(minutes=64), True),
        (Every(3600), timedelta(minutes=66), False),
        (Calculated(), GRACE, True),
        (Calculated(), GRACE + timedelta(seconds=1), False),
        (Manual(), timedelta(days=400), True),
        # Came up after the run of ten o'clock: due at eleven.
        (Cron("0 * * * *"), timedelta(minutes=19), True),
        (Cron("0 * * * *"), timedelta(minutes=21), False),
        # The time that has just come is given its grace.
        (Cron("18 * * * *"), timedelta(minutes=30), True),
        (Cron("0 0 1 * *"), timedelta(days=2), True),
        (Cron("0 0 1 * *"), timedelta(days=3), False),
    ],
)
def test_content_may_be_as_old_as_its_schedule_says(schedule, behind, fresh):
    found = judge(schedule, NOW - behind, NOW, 7)
    assert found.fresh is fresh
    assert found.age_seconds == behind.total_seconds()
    assert found.cut == 7


def test_a_clock_that_went_back_makes_no_negative_age():
    assert judge(Calculated(), NOW + timedelta(seconds=9), NOW, 7).age_seconds == 0.0
