"""Faults at every point of a delivery: the right content in the end, nothing twice, in bounded time.

They come from outside: proxies before PostgreSQL and before S3, and signals. The points are found in the traffic: the
upload's request and response, the statement COMMIT and its answer. Killed runs are in `test_killed_runs.py`, writers
that collide in `test_foreign_writers.py`. The whole matrix is nightly; the default run has one row of each kind.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from pgtrickle_assets.errors import PgTrickleError, TransientError
from pgtrickle_assets.lake.bootstrap import lock_key
from pgtrickle_assets.services.postgres import EmbeddedPostgres
from tests.e2e.lakehouse import Lakehouse, lakehouse
from tests.fault_proxy import FaultProxy, Trap, Verdict
from tests.s3_server import S3Server

BOUND_SECONDS = 150.0
SETUP = (
    "CREATE TABLE shops (id int PRIMARY KEY, city text)",
    "CREATE TABLE sales (id int PRIMARY KEY, shop int, amount numeric(12,2))",
    "INSERT INTO shops SELECT i, 'city ' || i % 4 FROM generate_series(1, 12) i",
    "INSERT INTO sales SELECT i, i % 12 + 1, i FROM generate_series(1, 300) i",
)
NAME, ANSWER = "st.lines", "SELECT s.id, p.city, s.amount FROM sales s JOIN shops p ON p.id = s.shop"

UPLOAD = re.compile(rb"^(PUT|POST) ")
ANSWERED = re.compile(rb"^HTTP/1\.1 200")
ANY_REQUEST = re.compile(rb"^(PUT|POST|GET|HEAD) ")
COMMIT = re.compile(rb"COMMIT")


@dataclass
class Rig:
    """A system whose PostgreSQL and S3 are behind proxies."""

    system: Lakehouse
    server: EmbeddedPostgres
    postgres: FaultProxy
    s3: FaultProxy

    def clear(self) -> None:
        self.postgres.traps.clear()
        self.s3.traps.clear()


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Iterator[Rig]:
    """One system for all cells; each leaves it right, or fails."""
    folder = tmp_path_factory.mktemp("faults")
    with ExitStack() as stack:
        server = EmbeddedPostgres(folder / "postgres", options={"deadlock_timeout": "200ms"})
        server.start()
        stack.callback(server.stop)
        storage = stack.enter_context(S3Server(folder / "buckets"))
        postgres, s3 = FaultProxy("127.0.0.1", server.port()), FaultProxy("127.0.0.1", storage.port)
        stack.callback(postgres.close)
        stack.callback(s3.close)
        names = iter(("source", "catalog"))

        def new_database() -> str:
            name = next(names)
            dsn = server.create_database(name)
            if name == "source":
                return dsn
            parts = urlsplit(dsn)
            return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{postgres.port}"))

        options = {
            **storage.storage_options,
            "endpoint": f"http://127.0.0.1:{s3.port}",
            "connect_timeout": "2",
            "request_timeout": "2",
            "max_attempts": "3",
        }
        opened = lakehouse(
            new_database, folder, spark, {NAME: ANSWER}, SETUP, data_path="s3://lake/faults", storage=options
        )
        system = stack.enter_context(opened)
        system.refresh()
        yield Rig(system, server, postgres, s3)


# Faults. Each is set off at a point; what it returns happens to the data in which the point was seen.


def _cut(rig: Rig) -> Verdict:
    rig.postgres.cut_all()
    return "forward"


def _restart(rig: Rig) -> Verdict:
    rig.server.stop()
    rig.server.start()
    return "forward"


def _kill_postgres(rig: Rig) -> Verdict:
    running = rig.server.running()
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    rig.server.start()
    return "forward"


def _refuse(status: bytes) -> Callable[[Rig], Verdict]:
    """The next two requests to S3 are answered with a status."""
    answer = b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    return lambda rig: _next_requests(rig, answer)


def _next_requests(rig: Rig, verdict: Verdict) -> Verdict:
    rig.s3.traps.append(Trap("request", ANY_REQUEST, lambda: verdict, hits=2))
    return verdict


def _deny(rig: Rig) -> Verdict:
    answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    rig.s3.traps.append(Trap("request", ANY_REQUEST, lambda: answer, hits=1000))
    return answer


FAULTS: dict[str, Callable[[Rig], Verdict]] = {
    "connection cut": _cut,
    "PostgreSQL restarts": _restart,
    "PostgreSQL is killed": _kill_postgres,
    "S3 answers 500": _refuse(b"500 Internal Server Error"),
    "S3 answers 503": _refuse(b"503 Slow Down"),
    "S3 resets": lambda rig: _next_requests(rig, "cut"),
    "S3 is silent": lambda rig: _next_requests(rig, "swallow"),
    "S3 denies": _deny,
}


# Points. Each gets the fault and lays it in the way of the delivery.


def _before_upload(rig: Rig, fault: Callable[[], Verdict]) -> None:
    fault()


def _during_upload(rig: Rig, fault: Callable[[], Verdict]) -> None:
    rig.s3.traps.append(Trap("request", UPLOAD, fault))


def _after_upload(rig: Rig, fault: Callable[[], Verdict]) -> None:
    rig.s3.traps.append(Trap("response", ANSWERED, lambda: _then(fault), after=UPLOAD))


def _during_commit(rig: Rig, fault: Callable[[], Verdict]) -> None:
    rig.postgres.traps.append(Trap("request", COMMIT, lambda: _then(fault)))


def _answer_lost(rig: Rig, fault: Callable[[], Verdict]) -> None:
    rig.postgres.traps.append(Trap("response", COMMIT, lambda: _then(fault, "cut")))


def _after_commit(rig: Rig, fault: Callable[[], Verdict]) -> None:
    rig.postgres.traps.append(Trap("response", COMMIT, lambda: _then(fault)))


def _then(fault: Callable[[], Verdict], verdict: Verdict = "forward") -> Verdict:
    """The fault happens; the data in which the point was seen is not its business."""
    fault()
    return verdict


POINTS = {
    "before upload": _before_upload,
    "during upload": _during_upload,
    "after upload": _after_upload,
    "during commit": _during_commit,
    "answer to commit lost": _answer_lost,
    "after commit": _after_commit,
}
DEFAULT = {
    ("connection cut", "during commit"),
    ("connection cut", "answer to commit lost"),
    ("PostgreSQL restarts", "after upload"),
    ("PostgreSQL is killed", "during commit"),
    ("S3 answers 503", "during upload"),
    ("S3 resets", "during upload"),
    ("S3 denies", "before upload"),
}
CELLS = [
    pytest.param(fault, point, id=f"{fault}, {point}", marks=[] if (fault, point) in DEFAULT else pytest.mark.nightly)
    for fault, point in product(FAULTS, POINTS)
]


def change(rig: Rig) -> None:
    """Something to insert, to update and to delete, other rows each time."""
    rig.system.execute(
        "UPDATE sales SET amount = amount + 1 WHERE id % 50 = (SELECT count(*) % 50 FROM sales)",
        "DELETE FROM sales WHERE id = (SELECT min(id) FROM sales)",
        "INSERT INTO sales SELECT max(id) + 1, 1, 7 FROM sales",
        "INSERT INTO sales SELECT max(id) + 1, 2, 8 FROM sales",
    )


def deliver(rig: Rig, lay: Callable[[], None]) -> tuple[str, float]:
    """Capture and compute in peace, deliver with the fault; what came out of it, and how long it took."""
    change(rig)
    cut = rig.system.engine.capture("test").cut
    prepared = rig.system.engine.prepare(NAME, cut=cut)
    lay()
    started = time.monotonic()
    try:
        result = rig.system.engine.deliver(prepared)
        outcome = f"delivered as snapshot {result.snapshot}"
    except PgTrickleError as error:
        outcome = f"{type(error).__name__}: {error.message}"
    finally:
        rig.clear()
    return outcome, time.monotonic() - started


def expect_right(rig: Rig) -> None:
    """After a plain refresh all is right, what was delivered was delivered once, and no id was left out."""
    system = rig.system
    system.refresh()
    assert system.lake_rows(NAME) == system.postgres_rows(ANSWER)
    system.check()
    with psycopg.connect(system.location.catalog_dsn) as connection:
        ids = [row[0] for row in connection.execute("SELECT snapshot_id FROM main.ducklake_snapshot ORDER BY 1")]
        open_ = connection.execute(
            "SELECT status FROM pgtrickle.pgt_ducklake_sink_delivery"
            " WHERE status NOT IN ('DELIVERED', 'FAILED_PERMANENT')"
        ).fetchall()
        twice = connection.execute(
            "SELECT commit_extra_info::jsonb ->> 'delivery_id' FROM main.ducklake_snapshot_changes"
            " WHERE commit_extra_info IS NOT NULL GROUP BY 1 HAVING count(*) > 1"
        ).fetchall()
    assert ids == list(range(len(ids)))
    assert open_ == []
    assert [row for row in twice if row[0] is not None] == []
    head = system.engine.head()
    assert {result.strategy.value for result in system.refresh().values()} == {"no_change"}
    assert system.engine.head() == head


@pytest.mark.parametrize(("fault", "point"), CELLS)
def test_a_fault_ends_in_the_right_content_once(
    fault: str, point: str, rig: Rig, record_property: Callable[[str, object], None]
) -> None:
    outcome, seconds = deliver(rig, lambda: POINTS[point](rig, lambda: FAULTS[fault](rig)))
    record_property("outcome", outcome)
    record_property("seconds", round(seconds, 1))
    sys.stdout.write(f"{fault} | {point} | {outcome} | {seconds:.1f} s\n")
    assert seconds < BOUND_SECONDS
    if fault == "S3 denies" and point in ("before upload", "during upload", "after upload"):
        assert "denied" in outcome, "no retry helps, and it says what to mend"
    else:
        assert outcome.startswith("delivered"), outcome
    expect_right(rig)


def test_a_deadlock_with_another_session_is_sat_out(rig: Rig) -> None:
    dsn = rig.system.location.catalog_dsn
    with psycopg.connect(dsn) as other:
        # It is the commit that finds the deadlock and is the victim.
        other.execute("SET deadlock_timeout = '30s'")
        other.execute("SELECT 1 FROM pgtrickle.pgt_frontiers FOR UPDATE")

        def meet() -> Verdict:
            # By then the commit holds the catalog lock and is about to want our rows.
            other.pgconn.send_query(b"SELECT pg_advisory_xact_lock(%d, %d)" % lock_key("main"))
            return "forward"

        outcome, seconds = deliver(
            rig, lambda: rig.postgres.traps.append(Trap("request", re.compile(rb"ducklake_snapshot_changes"), meet))
        )
        other.pgconn.finish()
    assert outcome.startswith("delivered"), outcome
    assert seconds < BOUND_SECONDS
    expect_right(rig)


def test_a_serialization_failure_is_tried_again(rig: Rig) -> None:
    """The database makes every transaction serializable, and DuckDB commits between our lock and our writes."""
    dsn = rig.system.location.catalog_dsn
    name = urlsplit(dsn).path.lstrip("/")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    try:
        rig.system.engine._workspace.lake.connections.close()
        with rig.system.duckdb() as duckdb:
            duckdb.execute("CREATE TABLE IF NOT EXISTS lake.main.other (i INTEGER)")

            def collide() -> Verdict:
                duckdb.execute("INSERT INTO lake.main.other VALUES (1)")
                return "forward"

            written = re.compile(rb"INSERT INTO \S+ducklake_snapshot\b")
            outcome, _ = deliver(rig, lambda: rig.postgres.traps.append(Trap("request", written, collide)))
        assert outcome.startswith("delivered"), outcome
        expect_right(rig)
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} RESET default_transaction_isolation")
        rig.system.engine._workspace.lake.connections.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_is_told_and_the_next_refresh_delivers(
    new_database: Callable[[], str], tmp_path: Path, spark: object
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if os.system(f"mount -t tmpfs -o size=2m pgtrickle-test {small} 2>/dev/null"):
        pytest.skip("may not mount")
    try:
        with lakehouse(new_database, tmp_path, spark, {NAME: ANSWER}, SETUP, data_path=str(small / "lake")) as system:
            system.refresh()
            system.execute("UPDATE sales SET amount = amount + 1")
            cut = system.engine.capture("test").cut
            prepared = system.engine.prepare(NAME, cut=cut)
            filler = small / "filler"
            with pytest.raises(OSError, match="No space"):
                filler.write_bytes(bytes(4 << 20))
            with pytest.raises(PgTrickleError, match="no space is left") as caught:
                system.engine.deliver(prepared)
            assert not isinstance(caught.value, TransientError)
            head = system.engine.head()
            filler.unlink()
            system.refresh()
            assert system.engine.head() == head + 1
            assert system.lake_rows(NAME) == system.postgres_rows(ANSWER)
            system.check()
    finally:
        os.system(f"umount -l {small}")
