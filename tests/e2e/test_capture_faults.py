"""Faults while changes are read out of PostgreSQL: every change is in the mirror once, in bounded time.

They come from outside: proxies before the source and before the catalog, signals, and other sessions' locks. The points
are found in the traffic, from the snapshot over the answer with the rows to the deletion of what was read. A capture
that ends with an error has moved nothing, and the next one reads the same again. Each cell prints `fault | point | what
happened | seconds`; all but one of each kind are nightly. Faults of the commit itself are in `test_faults.py`.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from pgtrickle_assets.errors import TransientError
from pgtrickle_assets.lake.lint import lint
from pgtrickle_assets.services.postgres import EmbeddedPostgres
from tests.e2e.lakehouse import Lakehouse
from tests.e2e.processes import Runs, wait_until
from tests.fault_proxy import FaultProxy, Show, Trap, Verdict

BOUND_SECONDS = 90.0
AWAY_SECONDS = 2.0
NAME, ANSWER = "st.lines", "SELECT id, shop, amount, note FROM sales WHERE amount > 3"
SETUP = (
    "CREATE TABLE sales (id int PRIMARY KEY, shop int, amount numeric(12,2), note text)",
    # Wide enough for an answer that the network carries in many pieces.
    "INSERT INTO sales SELECT i, i % 12, i, repeat(md5(i::text), 10) FROM generate_series(1, 2000) i",
)
CHANGE = (
    "UPDATE sales SET amount = amount + 1 WHERE id % 3 = 0",
    "DELETE FROM sales WHERE id IN (SELECT id FROM sales ORDER BY id LIMIT 5)",
    "INSERT INTO sales SELECT max(id) + 1, 1, 7, 'new' FROM sales",
)
LOSE_A_CHANGE = (
    "DO $$ DECLARE t name; BEGIN"
    " FOR t IN SELECT tgname FROM pg_trigger WHERE tgrelid = 'sales'::regclass AND NOT tgisinternal LOOP"
    " EXECUTE format('ALTER TABLE sales DISABLE TRIGGER %I', t); UPDATE sales SET amount = amount + 1 WHERE id % 5 = 0;"
    " EXECUTE format('ALTER TABLE sales ENABLE ALWAYS TRIGGER %I', t); END LOOP; END $$",
)
"""A change that no trigger saw, so that the table has to be copied."""

NO_SPARK = "sc://127.0.0.1:1"
"""Captures of this size need none."""

Fault = Callable[["Rig", FaultProxy], Verdict]


@dataclass
class Rig:
    """A project whose source and catalog are behind proxies of their own."""

    server: EmbeddedPostgres
    source: FaultProxy
    catalog: FaultProxy
    runs: Runs
    system: Lakehouse = field(init=False)
    _helpers: list[threading.Thread] = field(default_factory=list)
    _breaking: threading.Lock = field(default_factory=threading.Lock)

    def break_with(self, fault: Fault, proxy: FaultProxy) -> Verdict:
        """Set a fault off; who it meets may know of it before it is over."""
        with self._breaking:
            return fault(self, proxy)

    def back_later(self) -> None:
        """Start the server after some seconds; `clear` waits for it."""

        def start() -> None:
            time.sleep(AWAY_SECONDS)
            self.server.start()

        helper = threading.Thread(target=start)
        helper.start()
        self._helpers.append(helper)

    def clear(self) -> None:
        """End the fault."""
        self.source.traps.clear()
        self.catalog.traps.clear()
        with self._breaking:
            helpers, self._helpers = self._helpers, []
        for helper in helpers:
            helper.join(BOUND_SECONDS)

    def execute(self, statement: str) -> None:
        """Run a statement on the source, outside of a transaction."""
        with psycopg.connect(self.system.source, autocommit=True) as connection:
            connection.execute(statement)


def _behind(proxy: FaultProxy, dsn: str) -> str:
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{proxy.port}"))


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Iterator[Rig]:
    """One project for all cells; each leaves it right, or fails."""
    folder = tmp_path_factory.mktemp("capture_faults")
    with ExitStack() as stack:
        # A killed server loses nothing that it gave to the system, so that nothing needs to be forced to disk.
        server = EmbeddedPostgres(folder / "postgres", options={"fsync": "off", "full_page_writes": "off"})
        server.start()
        stack.callback(server.stop)
        source, catalog = (FaultProxy("127.0.0.1", server.port()) for _ in range(2))
        stack.callback(source.close)
        stack.callback(catalog.close)
        config = {
            "source": _behind(source, server.create_database("source")),
            "catalog": _behind(catalog, server.create_database("catalog")),
            "data_path": str(folder / "lake"),
            "home": str(folder),
            "stream_tables": [{"name": NAME, "query": ANSWER}],
        }
        made = Rig(server, source, catalog, Runs(config, NO_SPARK))
        with psycopg.connect(config["source"]) as connection:
            for statement in SETUP:
                connection.execute(statement)
        made.system = stack.enter_context(made.runs.open(spark))
        made.system.refresh()
        yield made


def _cut(_: Rig, proxy: FaultProxy) -> Verdict:
    proxy.cut_all()
    return "forward"


def _restart(rig: Rig, _: FaultProxy) -> Verdict:
    rig.server.stop()
    rig.back_later()
    return "forward"


def _kill_postgres(rig: Rig, _: FaultProxy) -> Verdict:
    running = rig.server.running()
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    rig.back_later()
    return "forward"


FAULTS: dict[str, Fault] = {
    "connection cut": _cut,
    "PostgreSQL restarts": _restart,
    "PostgreSQL is killed": _kill_postgres,
}

COPY = re.compile(rb"(?s).*COPY")
POINTS: dict[str, tuple[str, Callable[[Callable[[], Verdict]], Trap]]] = {
    "when the snapshot is taken": (
        "source",
        lambda fault: Trap("request", re.compile(rb"pg_export_snapshot"), fault),
    ),
    "in the middle of the rows": (
        "source",
        lambda fault: Trap("response", re.compile(rb"PGCOPY\n"), lambda: _in_the_middle(fault), after=COPY),
    ),
    "when the receipt is written": (
        "source",
        lambda fault: Trap("request", re.compile(rb"INSERT INTO pgtrickle_changes\.receipts"), fault),
    ),
    "answer to the receipt lost": (
        "source",
        lambda fault: Trap(
            "response",
            re.compile(rb"INSERT 0 1"),
            lambda: _lost(fault),
            after=re.compile(rb"(?s).*pgtrickle_changes\.receipts"),
        ),
    ),
    "when the mirrors are committed": ("catalog", lambda fault: Trap("request", re.compile(rb"COMMIT\0"), fault)),
    "answer to the commit lost": (
        "catalog",
        lambda fault: Trap("response", re.compile(rb"COMMIT\0"), lambda: _lost(fault)),
    ),
    "when the buffers are trimmed": (
        "source",
        lambda fault: Trap("request", re.compile(rb'DELETE FROM "pgtrickle_changes"'), fault),
    ),
}
MOVED = {"when the mirrors are committed", "answer to the commit lost", "when the buffers are trimmed"}
"""Points at which everything has been read, so that the capture comes through."""

IN_CI = {("PostgreSQL is killed", "in the middle of the rows"), ("process killed", "answer to the commit lost")}


def _in_the_middle(fault: Callable[[], Verdict]) -> Verdict:
    """What was seen is the beginning of the rows; the rest is lost."""
    fault()
    return "cut after"


def _lost(fault: Callable[[], Verdict]) -> Verdict:
    fault()
    return "cut"


def _cells(faults: list[str]) -> list[object]:
    return [
        pytest.param(fault, point, id=f"{fault}, {point}", marks=() if (fault, point) in IN_CI else pytest.mark.nightly)
        for fault, point in product(faults, POINTS)
    ]


def _proxy(rig: Rig, point: str) -> FaultProxy:
    return rig.source if POINTS[point][0] == "source" else rig.catalog


def _capture(rig: Rig, lay: Callable[[], Trap]) -> tuple[str, float]:
    """Capture with a fault in the way; what came of it, and how long it took."""
    # New connections send COMMIT as text; old ones name a prepared statement, in which no trap finds it.
    rig.system.engine._workspace.lake.connections.close()
    trap = lay()
    try:
        outcome, seconds = _captured(rig)
    finally:
        rig.clear()
    assert trap.sprung, f"the point was not reached: {outcome}"
    return outcome, seconds


def _laid(proxy: FaultProxy, trap: Trap) -> Trap:
    proxy.traps.append(trap)
    return trap


def expect_right(system: Lakehouse) -> None:
    """A plain refresh finds every change once, what was read is gone from the buffer, and no id was left out."""
    system.refresh()
    assert system.lake_rows("raw.sales") == system.postgres_rows("SELECT id, shop, amount, note FROM sales")
    assert system.lake_rows(NAME) == system.postgres_rows(ANSWER)
    assert lint(system.engine._workspace.lake) == ()
    with psycopg.connect(system.location.catalog_dsn) as connection:
        ids = [row[0] for row in connection.execute("SELECT snapshot_id FROM main.ducklake_snapshot ORDER BY 1")]
    assert ids == list(range(len(ids)))
    with psycopg.connect(system.source) as connection:
        assert connection.execute(f"SELECT count(*) FROM {_buffer(connection)}").fetchone() == (0,)
    head = system.engine.head()
    assert {result.strategy.value for result in system.refresh().values()} == {"no_change"}
    assert system.engine.head() == head


@pytest.mark.parametrize(("fault", "point"), _cells(list(FAULTS)))
def test_a_fault_while_changes_are_read_loses_none_and_repeats_none(
    fault: str, point: str, rig: Rig, show: Show
) -> None:
    rig.system.execute(*CHANGE)
    proxy = _proxy(rig, point)
    outcome, seconds = _capture(
        rig, lambda: _laid(proxy, POINTS[point][1](lambda: rig.break_with(FAULTS[fault], proxy)))
    )
    show(fault, point, outcome, seconds)
    assert seconds < BOUND_SECONDS
    assert outcome.startswith("captured" if point in MOVED else "SourceUnavailableError")
    expect_right(rig.system)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_while_a_table_is_copied_again_leaves_the_copy_to_the_next_capture(
    fault: str, rig: Rig, show: Show
) -> None:
    rig.system.execute(*LOSE_A_CHANGE)
    point = "in the middle of the rows"
    outcome, seconds = _capture(
        rig, lambda: _laid(rig.source, POINTS[point][1](lambda: rig.break_with(FAULTS[fault], rig.source)))
    )
    show(fault, "in the middle of a copy", outcome, seconds)
    assert seconds < BOUND_SECONDS
    # The catalog is on the same server.
    assert outcome.startswith(("SourceUnavailableError", "LakeUnavailableError"))
    expect_right(rig.system)


@pytest.mark.parametrize(("fault", "point"), _cells(["process killed"]))
def test_a_capture_that_is_killed_is_done_by_the_next_one(fault: str, point: str, rig: Rig, show: Show) -> None:
    rig.system.execute(*CHANGE)
    started = time.monotonic()
    reached = threading.Event()

    def hold() -> Verdict:
        reached.set()
        return "swallow"

    trap = POINTS[point][1](hold)
    # Where the point is an answer, the process waits for it until it is killed.
    trap.act = hold
    _proxy(rig, point).traps.append(trap)
    process = rig.runs.start(only=[])
    try:
        wait_until(reached.is_set, process)
    finally:
        process.kill()
        process.communicate()
        rig.clear()
    show(fault, point, "killed", time.monotonic() - started)
    expect_right(rig.system)


@pytest.mark.nightly
def test_a_buffer_that_another_session_has_locked_is_named_busy_and_read_later(rig: Rig, show: Show) -> None:
    _expect_busy_while_locked(rig, show, "lock held for long")


@pytest.mark.nightly
def test_a_statement_that_the_source_cancels_is_tried_by_the_next_capture(rig: Rig, show: Show) -> None:
    with default_statement_timeout(rig, "300ms"):
        _expect_busy_while_locked(rig, show, "statement timeout")


def _expect_busy_while_locked(rig: Rig, show: Show, fault: str) -> None:
    rig.system.execute(*CHANGE)
    with locked_buffer(rig):
        outcome, seconds = _captured(rig)
    show(fault, "when the buffers are read", outcome, seconds)
    assert outcome.startswith("SourceBusyError")
    assert seconds < BOUND_SECONDS
    expect_right(rig.system)


@pytest.mark.nightly
def test_rows_that_are_read_for_longer_than_a_statement_may_take_are_read_to_the_end(rig: Rig, show: Show) -> None:
    rig.system.execute(*CHANGE)

    def be_slow() -> Verdict:
        time.sleep(2.0)
        return "forward"

    slow = Trap("response", re.compile(rb"PGCOPY\n"), be_slow)
    with default_statement_timeout(rig, "1s"):
        outcome, seconds = _capture(rig, lambda: _laid(rig.source, slow))
    show("statement timeout", "in the middle of the rows", outcome, seconds)
    assert outcome.startswith("captured")
    assert seconds < BOUND_SECONDS
    expect_right(rig.system)


def _captured(rig: Rig) -> tuple[str, float]:
    started = time.monotonic()
    try:
        outcome = f"captured, snapshot {rig.system.engine.capture('test').snapshot}"
    except TransientError as error:
        outcome = f"{type(error).__name__}: {error}"
    return outcome, time.monotonic() - started


@contextmanager
def locked_buffer(rig: Rig) -> Iterator[None]:
    """Another session has the change buffer for itself."""
    with psycopg.connect(rig.system.source) as connection:
        connection.execute(f"LOCK TABLE {_buffer(connection)} IN ACCESS EXCLUSIVE MODE")
        yield


@contextmanager
def default_statement_timeout(rig: Rig, limit: str) -> Iterator[None]:
    """What the source allows each new session."""
    name = urlsplit(rig.system.source).path.lstrip("/")
    rig.execute(f"ALTER DATABASE {name} SET statement_timeout = '{limit}'")
    try:
        yield
    finally:
        rig.execute(f"ALTER DATABASE {name} RESET statement_timeout")


def _buffer(connection: psycopg.Connection[Any]) -> str:
    row = connection.execute(
        "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE nspname = 'pgtrickle_changes' AND relkind = 'r' AND relname LIKE 'changes%'"
    ).fetchone()
    assert row is not None
    return row[0]
