"""Faults at every point of a delivery: the right content in the end, nothing twice, in bounded time.

They come from outside: proxies before PostgreSQL and before S3, signals, a clock that is moved, a file system that is
made read-only. The points are found in the traffic: the upload's request and response, the first write of the commit's
transaction, the statement COMMIT and its answer. Each cell prints `fault | point | what happened | seconds`. The whole
matrix is nightly; the default run has one row of each kind. Runs that are killed are in `test_killed_runs.py`, full
disks in `test_full_disk.py`. Deadlocks and serialization failures need a transaction that holds something, so they have
one point.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count, product
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from pgtrickle_assets.errors import PgTrickleError
from pgtrickle_assets.lake.bootstrap import lock_key
from pgtrickle_assets.lake.lint import lint
from pgtrickle_assets.services.postgres import EmbeddedPostgres
from tests.e2e.lakehouse import Lakehouse, lakehouse
from tests.fault_proxy import FaultProxy, Show, Trap, Verdict
from tests.s3_server import S3Server
from tests.shifted_clock import ShiftedClock

BOUND_SECONDS = 90.0
AWAY_SECONDS = 2.0
JUMP_SECONDS = 30 * 3600
# A killed server loses nothing that it gave to the system, so that nothing needs to be forced to disk.
OPTIONS = {"deadlock_timeout": "200ms", "fsync": "off", "full_page_writes": "off"}
SETUP = (
    "CREATE TABLE shops (id int PRIMARY KEY, city text)",
    "CREATE TABLE sales (id int PRIMARY KEY, shop int, amount numeric(12,2))",
    "INSERT INTO shops SELECT i, 'city ' || i % 4 FROM generate_series(1, 12) i",
    "INSERT INTO sales SELECT i, i % 12 + 1, i FROM generate_series(1, 300) i",
)
NAME, ANSWER = "st.lines", "SELECT s.id, p.city, s.amount FROM sales s JOIN shops p ON p.id = s.shop"

UPLOAD = re.compile(rb"^(PUT|POST) ")
# The answer to an upload is empty; its request is out of sight by then, because the body is sent apart.
UPLOADED = re.compile(rb"(?s)^HTTP/1\.1 200 .*\r\nContent-Length: 0\r\n")
ANY_REQUEST = re.compile(rb"^(PUT|POST|GET|HEAD) ")
COMMIT = re.compile(rb"COMMIT\0")
# The first of the commit's writes: by then it holds the catalog lock.
SNAPSHOT_WRITTEN = re.compile(rb"(?s).*INSERT INTO \S+ducklake_snapshot\b")


@dataclass
class Rig:
    """A system whose PostgreSQL and S3 are behind proxies, and whose PostgreSQL has a clock that can be moved."""

    folder: Path
    server: EmbeddedPostgres
    clock: ShiftedClock | None
    postgres: FaultProxy
    s3: FaultProxy
    storage: dict[str, str]
    system: Lakehouse = field(init=False)
    _helpers: list[Thread] = field(default_factory=list)
    _databases: Iterator[int] = field(default_factory=count)

    def new_database(self) -> str:
        """A new empty database, behind the proxy."""
        parts = urlsplit(self.server.create_database(f"faults_{next(self._databases)}"))
        address = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self.postgres.port}"
        return urlunsplit(parts._replace(netloc=address))

    def start_server(self) -> None:
        if self.clock is None:
            self.server.start()
            return
        with self.clock.for_children():
            self.server.start()

    def meanwhile(self, work: Callable[[], object]) -> Thread:
        """Do something beside the delivery; `clear` waits for it."""
        helper = Thread(target=work)
        helper.start()
        self._helpers.append(helper)
        return helper

    def clear(self) -> None:
        """End the fault."""
        self.postgres.traps.clear()
        self.s3.traps.clear()
        while self._helpers:
            self._helpers.pop().join()


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Iterator[Rig]:
    """One system for all cells; each leaves it right, or fails."""
    folder = tmp_path_factory.mktemp("faults")
    with ExitStack() as stack:
        server = EmbeddedPostgres(folder / "postgres", options=OPTIONS)
        clock = ShiftedClock(folder / "clock") if ShiftedClock.is_possible() else None
        with clock.for_children() if clock else ExitStack():
            server.start()
        stack.callback(server.stop)
        storage = stack.enter_context(S3Server(folder / "buckets"))
        postgres, s3 = FaultProxy("127.0.0.1", server.port()), FaultProxy("127.0.0.1", storage.port)
        stack.callback(postgres.close)
        stack.callback(s3.close)
        limits = {"connect_timeout": "2", "request_timeout": "2", "max_attempts": "3"}
        options = {**storage.storage_options, "endpoint": f"http://127.0.0.1:{s3.port}", **limits}
        made = Rig(folder, server, clock, postgres, s3, options)
        opened = lakehouse(
            made.new_database, folder, spark, {NAME: ANSWER}, SETUP, data_path="s3://lake/faults", storage=options
        )
        made.system = stack.enter_context(opened)
        made.system.refresh()
        yield made


# Faults. Each is set off at a point; what it returns happens to the data in which the point was seen.


def _cut(rig: Rig) -> Verdict:
    rig.postgres.cut_all()
    return "forward"


def _restart(rig: Rig) -> Verdict:
    rig.server.stop()
    return _back_later(rig)


def _kill_postgres(rig: Rig) -> Verdict:
    running = rig.server.running()
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    return _back_later(rig)


def _back_later(rig: Rig) -> Verdict:
    def start() -> None:
        time.sleep(AWAY_SECONDS)
        rig.start_server()

    rig.meanwhile(start)
    return "forward"


def _refuse(status: bytes) -> Callable[[Rig], Verdict]:
    """The next two requests to S3 are answered with a status."""
    return lambda rig: _next_requests(rig, _answer(status))


def _answer(status: bytes) -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def _next_requests(rig: Rig, verdict: Verdict, hits: int = 2) -> Verdict:
    rig.s3.traps.append(Trap("request", ANY_REQUEST, lambda: verdict, hits=hits))
    return verdict


def _deny(rig: Rig) -> Verdict:
    return _next_requests(rig, _answer(b"403 Forbidden"), hits=1000)


def _jump(seconds: int) -> Callable[[Rig], Verdict]:
    """The database's clock jumps and stays there; then someone looks for what dead processes left, as sensors do."""

    def jump(rig: Rig) -> Verdict:
        assert rig.clock is not None
        rig.clock.move(seconds)
        # It may have to wait for the commit that it meets.
        rig.meanwhile(rig.system.engine.recover).join(timeout=1.0)
        return "forward"

    return jump


FAULTS: dict[str, Callable[[Rig], Verdict]] = {
    "connection cut": _cut,
    "PostgreSQL restarts": _restart,
    "PostgreSQL is killed": _kill_postgres,
    "S3 answers 500": _refuse(b"500 Internal Server Error"),
    "S3 answers 503": _refuse(b"503 Slow Down"),
    "S3 resets": lambda rig: _next_requests(rig, "cut"),
    "S3 is silent": lambda rig: _next_requests(rig, "swallow"),
    "S3 denies": _deny,
    "clock jumps ahead": _jump(JUMP_SECONDS),
    "clock jumps back": _jump(-JUMP_SECONDS),
}


# Points. Each gets the fault and lays it in the way of the delivery; what comes back says whether it was reached.


def _before_upload(rig: Rig, fault: Callable[[], Verdict]) -> Trap | None:
    fault()
    return None


def _during_upload(rig: Rig, fault: Callable[[], Verdict]) -> Trap:
    return _laid(rig.s3, Trap("request", UPLOAD, fault))


def _after_upload(rig: Rig, fault: Callable[[], Verdict]) -> Trap:
    return _laid(rig.s3, Trap("response", UPLOADED, lambda: _then(fault)))


def _in_transaction(rig: Rig, fault: Callable[[], Verdict]) -> Trap:
    return _laid(rig.postgres, Trap("response", re.compile(b""), lambda: _then(fault), after=SNAPSHOT_WRITTEN))


def _during_commit(rig: Rig, fault: Callable[[], Verdict]) -> Trap:
    return _laid(rig.postgres, Trap("request", COMMIT, lambda: _then(fault)))


def _answer_lost(rig: Rig, fault: Callable[[], Verdict]) -> Trap:
    return _laid(rig.postgres, Trap("response", COMMIT, lambda: _then(fault, "cut")))


def _after_commit(rig: Rig, fault: Callable[[], Verdict]) -> Trap:
    return _laid(rig.postgres, Trap("response", COMMIT, lambda: _then(fault)))


def _laid(proxy: FaultProxy, trap: Trap) -> Trap:
    proxy.traps.append(trap)
    return trap


def _then(fault: Callable[[], Verdict], verdict: Verdict = "forward") -> Verdict:
    """The fault happens; the data in which the point was seen is not its business."""
    fault()
    return verdict


POINTS: dict[str, Callable[[Rig, Callable[[], Verdict]], Trap | None]] = {
    "before upload": _before_upload,
    "during upload": _during_upload,
    "after upload": _after_upload,
    "in the transaction": _in_transaction,
    "during commit": _during_commit,
    "answer to commit lost": _answer_lost,
    "after commit": _after_commit,
}
DEFAULT = {
    ("connection cut", "answer to commit lost"),
    ("PostgreSQL is killed", "during commit"),
    ("S3 answers 503", "during upload"),
    ("clock jumps ahead", "during upload"),
}
CELLS = [
    pytest.param(fault, point, id=f"{fault}, {point}", marks=[] if (fault, point) in DEFAULT else pytest.mark.nightly)
    for fault, point in product(FAULTS, POINTS)
]
NOT_DELIVERED = {
    **dict.fromkeys(product(["S3 denies"], ["before upload", "during upload", "after upload"]), "denied"),
    **dict.fromkeys(
        product(["clock jumps ahead"], ["before upload", "during upload", "after upload", "in the transaction"]),
        "DeliveryOwnerLostError",
    ),
}
"""Cells whose delivery fails, with what it says: no retry helps, or another process was told to do it."""


def change_rows(system: Lakehouse) -> None:
    """Something to insert, to update and to delete, other rows each time."""
    system.execute(
        "UPDATE sales SET amount = amount + 1 WHERE id % 50 = (SELECT count(*) % 50 FROM sales)",
        "DELETE FROM sales WHERE id = (SELECT min(id) FROM sales)",
        "INSERT INTO sales SELECT max(id) + 1, 1, 7 FROM sales",
        "INSERT INTO sales SELECT max(id) + 1, 2, 8 FROM sales",
    )


def change_nothing(system: Lakehouse) -> None:
    """A row that joins with none."""
    system.execute("INSERT INTO shops SELECT max(id) + 1, 'nowhere' FROM shops")


def deliver(
    rig: Rig,
    lay: Callable[[], Trap | None],
    system: Lakehouse | None = None,
    change: Callable[[Lakehouse], None] = change_rows,
) -> tuple[str, float]:
    """Capture and compute in peace, deliver with the fault; what came out of it, and how long it took."""
    system = system or rig.system
    # New connections send COMMIT as text; old ones name a prepared statement, in which no trap finds it.
    system.engine._workspace.lake.connections.close()
    change(system)
    cut = system.engine.capture("test").cut
    prepared = system.engine.prepare(NAME, cut=cut)
    trap = lay()
    started = time.monotonic()
    try:
        system.engine.deliver(prepared)
        outcome = "delivered"
    except PgTrickleError as error:
        outcome = f"{type(error).__name__}: {error}"
    finally:
        seconds = time.monotonic() - started
        rig.clear()
    assert trap is None or trap.sprung, f"the point was not reached: {outcome}"
    assert "\n" not in outcome
    return f"{outcome} ({_tries(system)})", seconds


def _tries(system: Lakehouse) -> str:
    with psycopg.connect(system.location.catalog_dsn) as connection:
        row = connection.execute(
            "SELECT attempt_count FROM pgtrickle.pgt_ducklake_sink_delivery"
            " WHERE refresh_id = (SELECT max(refresh_id) FROM pgtrickle.pgt_refresh_history)"
        ).fetchone()
    assert row is not None
    return "first try" if row[0] == 1 else f"{row[0]} tries"


def expect_right(system: Lakehouse) -> None:
    """After a plain refresh all is right, what was delivered was delivered once, and no id was left out."""
    system.refresh()
    assert system.lake_rows(NAME) == system.postgres_rows(ANSWER)
    assert lint(system.engine._workspace.lake) == ()
    with psycopg.connect(system.location.catalog_dsn) as connection:
        ids = [row[0] for row in connection.execute("SELECT snapshot_id FROM main.ducklake_snapshot ORDER BY 1")]
        times = connection.execute("SELECT snapshot_time FROM main.ducklake_snapshot ORDER BY snapshot_id").fetchall()
        open_ = connection.execute(
            "SELECT status FROM pgtrickle.pgt_ducklake_sink_delivery"
            " WHERE status NOT IN ('DELIVERED', 'FAILED_PERMANENT')"
        ).fetchall()
        running = connection.execute(
            "SELECT refresh_id FROM pgtrickle.pgt_refresh_history WHERE status = 'RUNNING'"
        ).fetchall()
        twice = connection.execute(
            "SELECT commit_extra_info::jsonb ->> 'delivery_id' FROM main.ducklake_snapshot_changes"
            " WHERE commit_extra_info IS NOT NULL GROUP BY 1 HAVING count(*) > 1"
        ).fetchall()
    assert ids == list(range(len(ids)))
    assert times == sorted(times)
    assert open_ == []
    assert running == []
    assert [row for row in twice if row[0] is not None] == []
    head = system.engine.head()
    assert {result.strategy.value for result in system.refresh().values()} == {"no_change"}
    assert system.engine.head() == head


@pytest.mark.parametrize(("fault", "point"), CELLS)
def test_a_fault_ends_in_the_right_content_once(fault: str, point: str, rig: Rig, show: Show) -> None:
    if fault.startswith("clock") and rig.clock is None:
        pytest.skip("a movable clock needs a C compiler")
    outcome, seconds = deliver(rig, lambda: POINTS[point](rig, lambda: FAULTS[fault](rig)))
    show(fault, point, outcome, seconds)
    assert seconds < BOUND_SECONDS
    assert NOT_DELIVERED.get((fault, point), "delivered") in outcome
    expect_right(rig.system)


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["during commit", "answer to commit lost"])
@pytest.mark.parametrize("fault", ["connection cut", "PostgreSQL is killed"])
def test_a_refresh_with_nothing_to_write_is_recorded_once(fault: str, point: str, rig: Rig, show: Show) -> None:
    head = rig.system.engine.head()
    outcome, seconds = deliver(rig, lambda: POINTS[point](rig, lambda: FAULTS[fault](rig)), change=change_nothing)
    show(f"{fault}, nothing to write", point, outcome, seconds)
    assert rig.system.engine.head() == head + 1, "the mirror's snapshot alone"
    assert "delivered" in outcome
    assert seconds < BOUND_SECONDS
    expect_right(rig.system)


def test_a_deadlock_with_another_session_is_sat_out(rig: Rig, show: Show) -> None:
    with psycopg.connect(rig.system.location.catalog_dsn) as other:
        # It is the commit that finds the deadlock and is the victim.
        other.execute("SET deadlock_timeout = '30s'")
        other.execute("SELECT 1 FROM pgtrickle.pgt_frontiers FOR UPDATE")

        def meet() -> Verdict:
            other.pgconn.send_query(b"SELECT pg_advisory_xact_lock(%d, %d); COMMIT" % lock_key("main"))
            return "forward"

        outcome, seconds = deliver(rig, lambda: _laid(rig.postgres, Trap("request", SNAPSHOT_WRITTEN, meet)))
        other.pgconn.finish()
    show("deadlock", "during commit", outcome, seconds)
    assert "delivered (first try)" in outcome
    assert seconds < BOUND_SECONDS
    assert "deadlock detected" in rig.server.log_path.read_text(encoding="utf-8")
    expect_right(rig.system)


def test_a_serialization_failure_is_tried_again(rig: Rig, show: Show) -> None:
    """Every transaction is serializable, and another session writes what the commit is about to lock."""
    dsn = rig.system.location.catalog_dsn
    name = urlsplit(dsn).path.lstrip("/")
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
        try:

            def collide() -> Verdict:
                other.execute("UPDATE pgtrickle.pgt_frontiers SET snapshot_id = snapshot_id")
                return "forward"

            outcome, seconds = deliver(rig, lambda: _laid(rig.postgres, Trap("request", SNAPSHOT_WRITTEN, collide)))
            expect_right(rig.system)
        finally:
            other.execute(f"ALTER DATABASE {name} RESET default_transaction_isolation")
            rig.system.engine._workspace.lake.connections.close()
    show("serialization failure", "during commit", outcome, seconds)
    assert "delivered (first try)" in outcome
    assert "could not serialize access" in rig.server.log_path.read_text(encoding="utf-8")


@pytest.mark.nightly
def test_an_s3_that_stays_away_is_given_up(rig: Rig, show: Show) -> None:
    busy = Trap("request", ANY_REQUEST, lambda: _answer(b"503 Slow Down"), hits=1000)
    outcome, seconds = deliver(rig, lambda: _laid(rig.s3, busy))
    show("S3 answers 503 for good", "before upload", outcome, seconds)
    assert "DeliveryGivenUpError" in outcome
    assert seconds < BOUND_SECONDS
    expect_right(rig.system)


@pytest.mark.nightly
def test_a_connection_that_falls_silent_in_the_transaction_is_left_for_another(rig: Rig, show: Show) -> None:
    silence = Trap("request", SNAPSHOT_WRITTEN, lambda: "swallow")
    outcome, seconds = deliver(rig, lambda: _laid(rig.postgres, silence))
    show("connection silent", "in the transaction", outcome, seconds)
    assert "delivered (first try)" in outcome
    assert seconds < BOUND_SECONDS
    expect_right(rig.system)


@pytest.mark.nightly
def test_a_lock_that_another_session_holds_for_long_is_waited_for(rig: Rig, show: Show) -> None:
    held = psycopg.connect(rig.system.location.catalog_dsn)

    def release_later() -> None:
        time.sleep(35)
        held.close()

    def hold() -> Verdict:
        held.execute("SELECT pg_advisory_xact_lock(%s, %s)", lock_key("main"))
        rig.meanwhile(release_later)
        return "forward"

    outcome, seconds = deliver(rig, lambda: _after_upload(rig, hold))
    show("catalog lock held for 35 s", "after upload", outcome, seconds)
    assert "delivered (first try)" in outcome
    assert seconds < BOUND_SECONDS
    expect_right(rig.system)


@contextmanager
def read_only(folder: Path) -> Iterator[Callable[[], Verdict]]:
    """A folder that can be made read-only, for root too, which needs a file system of its own."""
    folder.mkdir()
    is_root = os.geteuid() == 0
    if is_root and subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("mounting a file system is not allowed here")

    def lock() -> Verdict:
        if is_root:
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        else:
            for path in (folder, *folder.rglob("*")):
                path.chmod(0o500)
        return "forward"

    yield lock
    if is_root:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _make_writable(folder: Path) -> None:
    if os.geteuid() == 0:
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
    else:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o700)


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["before upload", "during commit", "after commit"])
def test_a_disk_that_denies_writing_is_told_and_the_next_refresh_delivers(
    point: str, rig: Rig, tmp_path: Path, spark: object, show: Show
) -> None:
    disk = tmp_path / "disk"
    with (
        read_only(disk) as lock,
        lakehouse(rig.new_database, tmp_path, spark, {NAME: ANSWER}, SETUP, data_path=str(disk / "lake")) as system,
    ):
        system.refresh()
        outcome, seconds = deliver(rig, lambda: POINTS[point](rig, lock), system)
        show("local disk denies", point, outcome, seconds)
        assert ("denied" if point == "before upload" else "delivered") in outcome
        assert seconds < BOUND_SECONDS
        _make_writable(disk)
        expect_right(system)
