"""Everything under this folder runs the whole path and takes its time."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgtrickle_assets.services.postgres import EmbeddedPostgres
from tests.fault_proxy import Show

_names = itertools.count(1)
_FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _FOLDER in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture
def new_database(postgres_server: EmbeddedPostgres) -> Iterator[Callable[[], str]]:
    """Makes empty databases, dropped after the test."""
    made: list[str] = []

    def make() -> str:
        name = f"e2e_{os.getpid()}_{next(_names)}"
        made.append(name)
        return postgres_server.create_database(name)

    yield make
    for name in made:
        postgres_server.drop_database(name)


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """Prints one line of a fault matrix."""

    def print_line(fault: str, point: str, outcome: str, seconds: float) -> None:
        with capsys.disabled():
            print(f"\n{fault} | {point} | {outcome} | {seconds:.1f} s")  # noqa: T201

    return print_line
