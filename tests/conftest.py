"""Services that tests share: one embedded PostgreSQL and one Spark session per test run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from pgtrickle_assets.services.postgres import EmbeddedPostgres
from pgtrickle_assets.services.spark import spark_session
from pgtrickle_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_names = itertools.count(1)

# How fast a machine is must not decide whether a test passes.
settings.register_profile("any_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("any_machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long the tests last that run for minutes."""
    parser.addoption("--soak-seconds", type=float, default=120.0, help="for how long (default: 2 minutes)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark a test by the services it asks for, so that `-m "not spark"` needs no care from its author."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures:
            item.add_marker(pytest.mark.spark)
        if "postgres_server" in fixtures:
            item.add_marker(pytest.mark.postgres)


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """What a test, or a command in it, sets for processes that it starts is not there for the next test."""
    before = _environment()
    yield
    for name in _environment().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("PGTRICKLE_", "DAGSTER_"))}


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL 18 that is not durable, hence quick; stopped and removed at the end."""
    unsafe = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}
    server = EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), options=unsafe)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def database(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """DSN of a new empty database, dropped after the test."""
    name = f"test_{os.getpid()}_{next(_names)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark session with two cores, configured as in production for small tables."""
    settings = Settings(
        spark_master="local[2]",
        spark_driver_memory="2g",
        spark_compiler="quick",
        spark_scratch_dir=tmp_path_factory.mktemp("spark"),
    )
    session = spark_session(settings, name="pgtrickle-tests")
    yield session
    session.stop()
