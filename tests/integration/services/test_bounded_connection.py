"""A server that stops without closing its connections does not hold us."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtrickle_assets.errors import LakeUnavailableError
from pgtrickle_assets.lake.catalog import Lake
from pgtrickle_assets.lake.connections import Connections
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.services.bounded_connection import BoundedConnection


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedConnection, "silence_seconds", 1.0)


def read_from_stopped(connections: Connections, work: Callable[[psycopg.Connection], object]) -> None:
    """Stop the process of a kept connection, and read through it."""
    with connections.checkout() as connection:
        backend = connection.info.backend_pid
    os.kill(backend, signal.SIGSTOP)
    try:
        connections.read(work)
    finally:
        os.kill(backend, signal.SIGCONT)


@pytest.mark.usefixtures("impatient")
def test_a_stopped_server_process_is_given_up_and_a_new_one_asked(database: str) -> None:
    connections = Connections(database)
    started = time.monotonic()
    seen: list[object] = []
    read_from_stopped(connections, lambda connection: seen.append(connection.execute("SELECT 1").fetchone()))
    assert seen[-1] == (1,)
    assert time.monotonic() - started < 30
    connections.close()


@pytest.mark.usefixtures("impatient")
def test_a_write_to_a_stopped_server_process_is_an_error(database: str) -> None:
    connections = Connections(database)
    with connections.checkout() as connection:
        backend = connection.info.backend_pid
    os.kill(backend, signal.SIGSTOP)
    try:
        with (
            pytest.raises(LakeUnavailableError, match="the server said nothing for 1 s"),
            connections.checkout() as connection,
        ):
            connection.execute("CREATE TABLE t (i int)")
        assert connection.closed
    finally:
        os.kill(backend, signal.SIGCONT)
    connections.close()


@pytest.mark.usefixtures("impatient")
def test_statements_that_answer_in_time_are_left_alone(database: str) -> None:
    with BoundedConnection.connect(database) as connection:
        for _ in range(3):
            connection.execute("SELECT pg_sleep(0.5)")
        with connection.pipeline():
            found = [connection.execute("SELECT %s::int", (n,)) for n in range(3)]
            assert [cursor.fetchone() for cursor in found] == [(0,), (1,), (2,)]
        with connection.cursor().copy("COPY (SELECT generate_series(1, 100000)) TO STDOUT") as copy:
            assert sum(1 for _ in copy.rows()) == 100_000


def test_the_lake_s_sessions_end_statements_before_that(database: str, tmp_path: Path) -> None:
    lake = Lake.bootstrap(LakeLocation(database, "main", str(tmp_path)))
    query = "SELECT setting::int / 1000 FROM pg_settings WHERE name = 'statement_timeout'"
    with lake.connection() as connection:
        (limit,) = connection.execute(query).fetchone() or (0,)
    assert 0 < limit < BoundedConnection.silence_seconds
