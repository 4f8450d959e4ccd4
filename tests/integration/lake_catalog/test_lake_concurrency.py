"""Writers at the same time: ours, DuckDB's, dying ones, and connections that break at the worst moment."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from cutting_proxy import CuttingProxy
from lake_pair import Pair, bag
from lake_writers import (
    DAILY,
    EVENTS,
    append,
    bootstrap,
    die_in_commit,
    insert_with_duckdb,
    replace_partition,
)

from pgtrickle_assets.errors import LakeConflictError, LakeError, LakeUnavailableError
from pgtrickle_assets.lake.bootstrap import lock_key
from pgtrickle_assets.lake.catalog import Lake
from pgtrickle_assets.lake.commit import CommitPolicy, commit, find_commit
from pgtrickle_assets.lake.commit_session import CatalogOperation, CommitSession
from pgtrickle_assets.lake.ddl import Comment
from pgtrickle_assets.lake.lint import lint
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.lake.model import TableChange, TableDefinition
from pgtrickle_assets.lake.orphans import delivery_of, remove_orphans
from pgtrickle_assets.query import types as t
from pgtrickle_assets.query.types import ColumnSchema

DEFINITION = TableDefinition(EVENTS, (ColumnSchema("writer", t.INT32), ColumnSchema("n", t.INT32)))
BY_DAY = TableDefinition(
    DAILY,
    (ColumnSchema("day", t.DATE), ColumnSchema("v", t.INT32)),
    partition_by=(("day", "year"), ("day", "month"), ("day", "day")),
)
_SECONDS = 300


def at_once(jobs: Sequence[tuple[Callable[..., None], tuple[Any, ...]]]) -> list[Any]:
    """Run jobs in processes of their own that start together; what each sends back."""
    context = multiprocessing.get_context("spawn")
    running = []
    for target, arguments in jobs:
        start_here, start_there = context.Pipe()
        done_there, done_here = context.Pipe()
        process = context.Process(target=target, args=(*arguments, start_there, done_here))
        process.start()
        running.append((process, start_here, done_there))
    for _, start, _ in running:
        start.send(True)
    results = []
    for process, _, done in running:
        process.join(_SECONDS)
        assert not process.is_alive()
        assert process.exitcode == 0
        results.append(done.recv())
    return results


def test_eight_processes_create_one_lake(location: LakeLocation) -> None:
    assert at_once([(bootstrap, (location,))] * 8) == [0] * 8
    assert lint(Lake.open(location)) == ()


def test_appends_of_many_writers_and_duckdb_all_land_without_a_gap(pair: Pair) -> None:
    pair.create(DEFINITION)
    ours = [(append, (pair.location, writer, 8)) for writer in range(4)]
    theirs = [(insert_with_duckdb, (pair.location, writer, 8)) for writer in (4, 5)]
    results = at_once([*ours, *theirs])
    snapshots = [snapshot for result in results for snapshot in result]
    assert len(set(snapshots)) == 32
    assert pair.lake.head() == 1 + 6 * 8
    pair.check(EVENTS, expected=bag((writer, n) for writer in range(6) for n in range(8)))


def test_writers_of_different_partitions_of_a_table_never_conflict(pair: Pair) -> None:
    pair.create(BY_DAY)
    results = at_once([(replace_partition, (pair.location, day, 5)) for day in range(1, 5)])
    assert results == [0] * 4
    assert pair.lake.head() == 1 + 4 * 5
    pair.check(DAILY)


def test_a_writer_that_dies_in_its_commit_leaves_nothing_and_blocks_nobody(pair: Pair) -> None:
    pair.create(DEFINITION)
    context = multiprocessing.get_context("spawn")
    start_here, start_there = context.Pipe()
    _, done_here = context.Pipe()
    process = context.Process(target=die_in_commit, args=(pair.location, start_there, done_here))
    process.start()
    start_here.send(True)
    process.join(_SECONDS)
    assert process.exitcode == -9
    assert pair.lake.head() == 1
    assert pair.append(EVENTS, [{"writer": 1, "n": 1}]).snapshot_id == 2
    pair.check(EVENTS, expected=bag([(1, 1)]))
    kept = remove_orphans(pair.lake, is_running=lambda name: delivery_of(name) == "dead", minimum_age=timedelta(0))
    assert kept.paths == ()
    assert remove_orphans(pair.lake, is_running=lambda name: False, minimum_age=timedelta(hours=1)).paths == ()
    gone = remove_orphans(pair.lake, is_running=lambda name: False, minimum_age=timedelta(0))
    assert len(gone.paths) == 1
    assert gone.bytes > 0
    pair.check(EVENTS, expected=bag([(1, 1)]))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_connection_lost_at_commit_ends_in_one_commit(pair: Pair, moment: str) -> None:
    pair.create(DEFINITION)
    parts = urlsplit(pair.location.catalog_dsn)
    proxy = CuttingProxy(str(parts.hostname), int(parts.port or 5432))
    credentials = parts.netloc.rpartition("@")[0]
    through = urlunsplit(parts._replace(netloc=f"{credentials}@127.0.0.1:{proxy.port}"))
    lake = Lake.open(LakeLocation(through, pair.location.catalog_schema, pair.location.data_path))
    files = pair.files(pair.table(EVENTS), [{"writer": 1, "n": 1}])
    calls: list[int] = []
    base = lake.head()
    proxy.cut_next = moment  # type: ignore[assignment]
    result = commit(
        lake,
        base=base,
        changes=[TableChange(EVENTS, added_files=files)],
        author="t",
        message="m",
        extra_info={"delivery_id": "d1"},
        within=lambda cursor, snapshot: calls.append(snapshot),
    )
    assert proxy.cuts == 1
    assert (result.snapshot_id, result.repeated) == (2, False)
    assert len(calls) == (1 if moment == "after" else 2)
    assert find_commit(lake, "delivery_id", "d1") == 2
    pair.check(EVENTS, expected=bag([(1, 1)]))
    proxy.close()
    lake.close()


def test_a_delivery_is_committed_once(pair: Pair) -> None:
    pair.create(DEFINITION)
    base = pair.lake.head()
    for repeated in (False, True):
        files = pair.files(pair.table(EVENTS), [{"writer": 1, "n": 1}])
        info = {"delivery_id": "d'1%", "note": "ü"}
        result = pair.commit(TableChange(EVENTS, added_files=files), base=base, extra_info=info)
        assert (result.snapshot_id, result.repeated) == (2, repeated)
    assert find_commit(pair.lake, "delivery_id", "d'1%") == 2
    assert find_commit(pair.lake, "delivery_id", "d'1_") is None


def test_a_snapshot_id_taken_by_a_writer_without_the_lock_is_waited_for(pair: Pair) -> None:
    pair.create(DEFINITION)
    files = pair.files(pair.table(EVENTS), [{"writer": 1, "n": 1}])
    with psycopg.connect(pair.location.catalog_dsn) as other:
        other.execute("INSERT INTO main.ducklake_snapshot SELECT 2, now(), 1, 3, 0")
        other.execute("INSERT INTO main.ducklake_snapshot_changes VALUES (2, 'created_schema:\"x\"', NULL, NULL, NULL)")
        other.execute("INSERT INTO main.ducklake_schema VALUES (2, gen_random_uuid(), 2, NULL, 'x', 'x/', true)")
        results: list[Any] = []
        import threading

        worker = threading.Thread(
            target=lambda: results.append(pair.commit(TableChange(EVENTS, added_files=files), base=1))
        )
        worker.start()
        time.sleep(1.0)
        assert not results
        other.commit()
        worker.join(_SECONDS)
    assert (results[0].snapshot_id, results[0].attempts) == (3, 2)
    pair.check(EVENTS, expected=bag([(1, 1)]))


def test_a_lock_that_is_held_too_long_is_an_error_that_says_so(pair: Pair) -> None:
    pair.create(DEFINITION)
    files = pair.files(pair.table(EVENTS), [{"writer": 1, "n": 1}])
    policy = CommitPolicy(max_attempts=2, lock_seconds=0.3, first_pause=0.01)
    with psycopg.connect(pair.location.catalog_dsn) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s, %s)", lock_key("main"))
        with pytest.raises(LakeUnavailableError, match="LockNotAvailable"):
            pair.commit(TableChange(EVENTS, added_files=files), policy=policy)
    assert pair.commit(TableChange(EVENTS, added_files=files), policy=policy).attempts == 1


def test_a_lock_that_is_never_granted_ends_the_commit_when_its_patience_ends(pair: Pair) -> None:
    pair.create(DEFINITION)
    files = pair.files(pair.table(EVENTS), [{"writer": 1, "n": 1}])
    policy = CommitPolicy(lock_seconds=0.3, patience_seconds=0.5, first_pause=0.01)
    with psycopg.connect(pair.location.catalog_dsn) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s, %s)", lock_key("main"))
        with pytest.raises(LakeUnavailableError, match="lost 2 times"):
            pair.commit(TableChange(EVENTS, added_files=files), policy=policy)


class CommitInBetween(CatalogOperation):
    """Lets others commit after our files are written and before we get the lock."""

    def __init__(self, pair: Pair, rounds: int) -> None:
        self._pair = pair
        self.left = rounds

    def prepare(self) -> None:
        if self.left:
            self.left -= 1
            self._pair.alter(Comment(DAILY, f"{self.left}"))

    def read(self, session: CommitSession) -> None:
        pass

    def stage(self, session: CommitSession) -> None:
        pass


@pytest.mark.parametrize("rounds", [1, 5])
def test_cumulative_deletes_carry_the_snapshot_that_they_got(pair: Pair, rounds: int) -> None:
    pair.create(DEFINITION, [{"writer": 0, "n": n} for n in range(10)])
    pair.create(BY_DAY)
    pair.delete(EVENTS, n=1)
    pair.check(EVENTS)
    deletes = pair.positions(pair.table(EVENTS), n=2)
    others = CommitInBetween(pair, rounds)
    result = pair.commit(TableChange(EVENTS, deletes=deletes), operations=[others])
    assert result.snapshot_id == 3 + min(rounds, 3) + 1 + max(0, min(rounds - 3, 1))
    active = pair.lake.scan(pair.table(EVENTS)).files[0].deletes
    assert active is not None
    assert set(pair.lake.row_facts.deletes(active.id, active.path)[1].tolist()) == {3, result.snapshot_id}
    pair.check(EVENTS)
    assert remove_orphans(pair.lake, is_running=lambda name: False, minimum_age=timedelta(0)).paths == ()


def test_an_error_of_the_caller_undoes_everything(pair: Pair) -> None:
    pair.create(DEFINITION, [{"writer": 0, "n": n} for n in range(3)])
    deletes = pair.positions(pair.table(EVENTS), n=2)

    def fail(cursor: psycopg.Cursor[Any], snapshot: int) -> None:
        cursor.execute("CREATE TABLE public.mine (snapshot BIGINT)")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        pair.commit(TableChange(EVENTS, deletes=deletes), within=fail)
    with pytest.raises(LakeError, match="duplicate key"):
        pair.commit(
            TableChange(EVENTS, deletes=deletes),
            within=lambda cursor, snapshot: cursor.execute(
                "CREATE TABLE public.mine (x INT PRIMARY KEY); INSERT INTO public.mine VALUES (1), (1)"
            ),
        )
    assert pair.lake.head() == 1
    assert remove_orphans(pair.lake, is_running=lambda name: False, minimum_age=timedelta(0)).paths == ()
    pair.commit(
        TableChange(EVENTS, deletes=deletes),
        within=lambda cursor, snapshot: cursor.execute("CREATE TABLE public.mine AS SELECT %s AS x", (snapshot,)),
    )
    with psycopg.connect(pair.location.catalog_dsn) as connection:
        assert connection.execute("SELECT x FROM public.mine").fetchall() == [(2,)]
    pair.check(EVENTS)


def test_another_writer_s_changes_conflict_as_the_rules_say(pair: Pair) -> None:
    """Each of our changes, planned before each change of DuckDB's: does it still go through?"""
    theirs = {
        "nothing": "",
        "insert": "INSERT INTO {t} SELECT 9, 9 FROM range(20)",
        "delete of another file": "DELETE FROM {t} WHERE n = 100",
        "delete of the same file": "DELETE FROM {t} WHERE n = 0",
        "alter": "ALTER TABLE {t} ADD COLUMN z INTEGER",
        "drop": "DROP TABLE {t}",
        "merge": "CALL ducklake_merge_adjacent_files('lake', '{name}', schema => 'gold')",
        "other table": "CREATE TABLE gold.other_{name} (x INTEGER)",
    }
    conflicts = {
        "append": {"delete of another file", "delete of the same file", "alter", "drop"},
        "delete": {"insert", "delete of the same file", "alter", "drop", "merge"},
        "overwrite": {"insert", "delete of another file", "delete of the same file", "alter", "drop", "merge"},
    }
    seen: dict[str, set[str]] = {ours: set() for ours in conflicts}
    for ours in conflicts:
        for number, (change, statement) in enumerate(theirs.items()):
            name = t.TableName("gold", f"{ours}{number}")
            pair.create(TableDefinition(name, DEFINITION.columns), [{"writer": 0, "n": n} for n in range(5)])
            pair.append(name, [{"writer": 0, "n": n} for n in (100, 101)])
            base = pair.lake.head()
            planned = _planned(pair, ours, name)
            if statement:
                pair.duckdb(statement.format(t=f"gold.{name.name}", name=name.name))
            try:
                pair.commit(planned, base=base)
            except LakeConflictError:
                seen[ours].add(change)
    assert seen == conflicts
    assert lint(pair.lake) == ()


def _planned(pair: Pair, kind: str, name: t.TableName) -> TableChange:
    table = pair.table(name)
    rows = [{"writer": 1, "n": 1}]
    if kind == "append":
        return TableChange(name, added_files=pair.files(table, rows))
    if kind == "delete":
        return TableChange(name, deletes=pair.positions(table, n=1))
    return TableChange(name, added_files=pair.files(table, rows), removed_files=pair.lake.scan(table).files)


def test_duckdb_notices_that_we_deleted_what_it_updates(pair: Pair) -> None:
    pair.create(DEFINITION, [{"writer": 0, "n": n} for n in range(5)])
    pair.duckdb("BEGIN", "UPDATE gold.events SET writer = 7 WHERE n = 1")
    pair.delete(EVENTS, n=2)
    with pytest.raises(Exception, match=r"(?i)conflict"):
        pair.duckdb("COMMIT")
    pair.check(EVENTS)


def test_we_notice_that_duckdb_deleted_from_a_file_that_had_deletes(pair: Pair) -> None:
    """The delete file that replaces another begins at the snapshot of the first, which tells nothing."""
    pair.create(DEFINITION, [{"writer": 0, "n": n} for n in range(5)])
    pair.duckdb("DELETE FROM gold.events WHERE n = 0")
    base = pair.lake.head()
    planned = _planned(pair, "delete", EVENTS)
    pair.duckdb("DELETE FROM gold.events WHERE n = 2")
    with pytest.raises(LakeConflictError):
        pair.commit(planned, base=base)
    pair.check(EVENTS)
    assert lint(pair.lake) == ()
