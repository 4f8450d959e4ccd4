"""A lake that is refreshed every minute stays small: files, what is read in vain, and history are bounded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from upkeep import chart, simulate, summary

from pgtrickle_assets.settings import Settings

LEFT_BY_MAINTENANCE = 16
"""Live files of a partition after maintenance: fewer than 8 small ones, 4 with few deletes, and large ones."""


@pytest.mark.parametrize(
    ("refreshes", "every"), [(30, 10), pytest.param(1440, 60, marks=pytest.mark.nightly)], ids=["part", "day"]
)
def test_files_and_read_amplification_stay_bounded_over_a_day_of_one_minute_refreshes(
    refreshes: int, every: int, new_database: Callable[[], str], tmp_path: Path, spark: object
) -> None:
    day, problems = simulate(new_database(), new_database(), tmp_path, spark, refreshes, maintain_every=every)
    assert problems == []
    assert {name: set(taken) for name, taken in day.strategies.items()} == {
        "silver.orders": {"differential"},
        "gold.by_customer": {"differential"},
    }
    assert set(day.after_maintenance) == {"no_change"}, "a compaction makes no stream table recompute"
    assert len(day.maintenances) == refreshes // every
    assert sum(row["expired_snapshots"] for row in day.maintenances) > 0
    for name, samples in day.samples.items():
        # The sample after a maintenance holds the files of one more refresh.
        after = [samples[step] for step in range(every, len(samples), every)]
        assert max(sample.files_per_partition for sample in samples) <= LEFT_BY_MAINTENANCE + every, name
        assert all(sample.files_per_partition <= LEFT_BY_MAINTENANCE for sample in after), name
        assert all(sample.amplification < 2 * (1 / (1 - Settings().compaction_delete_threshold)) for sample in after)
    chart(day, tmp_path / "day.svg")
    assert "<polyline" in (tmp_path / "day.svg").read_text()
    assert summary(day, problems)["equal"]
