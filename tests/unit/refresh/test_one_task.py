"""Spark's settings change only between queries of different kinds, and are what they were in the end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pgtrickle_assets.refresh.one_task import TaskPlanning

SETTING = "spark.sql.adaptive.enabled"


class Settings:
    """Settings of a session, and how often one was changed."""

    def __init__(self) -> None:
        self.values = {SETTING: "true"}
        self.changes = 0

    def get(self, name: str, default: str | None) -> str | None:
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.values[name] = value
        self.changes += 1

    def unset(self, name: str) -> None:
        del self.values[name]
        self.changes += 1


@pytest.fixture
def settings() -> Settings:
    return Settings()


def planning(settings: Settings) -> TaskPlanning:
    session: Any = SimpleNamespace(conf=settings)
    return TaskPlanning(session)


def test_queries_of_one_kind_change_nothing_in_between(settings: Settings) -> None:
    with planning(settings) as how:
        how.plan(one_task=False)
        assert settings.changes == 0
        how.plan(one_task=True)
        once = settings.changes
        assert settings.values[SETTING] == "false"
        how.plan(one_task=True)
        assert settings.changes == once


def test_settings_are_as_before_for_usual_queries_and_after_an_error(settings: Settings) -> None:
    how = planning(settings)
    how.plan(one_task=True)
    how.plan(one_task=False)
    assert settings.values == {SETTING: "true"}
    with pytest.raises(ZeroDivisionError):
        _fail_in_one_task(how)
    assert settings.values == {SETTING: "true"}


def _fail_in_one_task(how: TaskPlanning) -> None:
    with how:
        how.plan(one_task=True)
        raise ZeroDivisionError
