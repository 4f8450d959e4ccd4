"""How long a delivery waits for what went away, and how it spreads its tries."""

from __future__ import annotations

import pytest

from pgtrickle_assets.errors import LakeConflictError, LakeError, LakeUnavailableError, StorageUnavailableError
from pgtrickle_assets.refresh.delivery import LONGEST_PAUSE_SECONDS, patiently, pause_seconds


def failing(times: int, error: Exception):
    calls = []

    def work() -> str:
        calls.append(1)
        if len(calls) <= times:
            raise error
        return "done"

    return work, calls


def test_a_catalog_that_comes_back_is_waited_for():
    work, calls = failing(2, LakeUnavailableError("away"))
    assert patiently(work) == "done"
    assert len(calls) == 3


def test_a_catalog_that_stays_away_is_told_in_the_end():
    work, calls = failing(1000, LakeUnavailableError("away"))
    with pytest.raises(LakeUnavailableError):
        patiently(work, seconds=0.3)
    assert 2 <= len(calls) < 10


@pytest.mark.parametrize("error", [LakeError("refused"), StorageUnavailableError("503"), ValueError()])
def test_only_for_an_unreachable_catalog(error):
    work, calls = failing(1, error)
    with pytest.raises(type(error)):
        patiently(work)
    assert len(calls) == 1


def test_pauses_double_up_to_a_limit_and_are_short_after_a_lost_race():
    away, lost = StorageUnavailableError("503"), LakeConflictError("moved")
    for attempt in range(1, 12):
        for error, first in ((away, 1.0), (lost, 0.1)):
            longest = min(first * 2**attempt, LONGEST_PAUSE_SECONDS)
            pauses = {pause_seconds(attempt, error) for _ in range(20)}
            assert all(longest / 2 <= pause <= longest for pause in pauses)
            assert len(pauses) > 1, "jitter"
