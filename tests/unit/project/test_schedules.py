"""Schedules: forms, when they are due, and what `calculated` means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.schedules import Calculated, Cron, Every, Manual, effective_schedules, is_due, parse_schedule

NOW = datetime(2024, 7, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", Every(30)),
        ("5m", Every(300)),
        ("1h30m", Every(5400)),
        ("2d", Every(172_800)),
        ("1w", Every(604_800)),
        (" 1M ", Every(60)),
        ("calculated", Calculated()),
        ("manual", Manual()),
        ("0 6 * * 1-5", Cron("0 6 * * 1-5")),
        ("@hourly", Cron("@hourly")),
    ],
)
def test_forms(text, expected):
    assert parse_schedule(text) == expected


@pytest.mark.parametrize(
    "text", ["", "5", "m5", "5 m", "0s", "1y", "* * * *", "* * * * * *", "61 * * * *", "@often", "soon"]
)
def test_anything_else_is_an_error_that_shows_the_forms(text):
    with pytest.raises(ConfigurationError, match="1h30m"):
        parse_schedule(text)


def test_a_duration_is_due_when_the_last_refresh_is_that_old():
    assert is_due(Every(60), None, NOW)
    assert not is_due(Every(60), NOW - timedelta(seconds=59), NOW)
    assert is_due(Every(60), NOW - timedelta(seconds=60), NOW)


def test_a_cron_schedule_is_due_once_for_each_of_its_times():
    noon = Cron("0 12 * * *")
    assert is_due(noon, None, NOW)
    assert is_due(noon, NOW - timedelta(hours=1), NOW)
    assert not is_due(noon, NOW, NOW)
    assert not is_due(noon, NOW - timedelta(hours=1), NOW - timedelta(seconds=1))


def test_calculated_and_manual_are_never_due_by_time():
    assert not is_due(Calculated(), None, NOW)
    assert not is_due(Manual(), None, NOW)


def test_calculated_takes_the_shortest_duration_of_its_readers_at_any_distance():
    schedules = {"a": Calculated(), "b": Calculated(), "c": Every(300), "d": Every(60), "e": Cron("@daily")}
    readers = {"a": ["b", "e"], "b": ["c", "d"]}
    resolved = effective_schedules(schedules, readers)
    assert resolved["a"] == resolved["b"] == Every(60)


def test_calculated_follows_changes_when_a_reader_does_or_nobody_is_timed():
    schedules = {"a": Calculated(), "b": Calculated(), "c": Every(300), "m": Calculated(), "n": Manual()}
    resolved = effective_schedules(schedules, {"a": ["b", "c"], "m": ["n"]})
    assert resolved["a"] == resolved["b"] == resolved["m"] == Calculated()
