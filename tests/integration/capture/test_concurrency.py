"""Writers that never stop, batches that never miss or repeat."""

import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from support import Follower, execute, table
from writers import SCHEMA, TABLES

from pgtrickle_assets.capture.postgres import PostgresSource
from pgtrickle_assets.errors import SourceBusyError

NAMES = [table(name) for name in TABLES]
SCRIPT = Path(__file__).with_name("writers.py")


class Writers:
    """Application processes that write until the block ends."""

    def __init__(self, dsn, seeds):
        self.dsn, self.seeds, self.running, self.killed = dsn, seeds, [], []

    def start(self, seed):
        command = [sys.executable, str(SCRIPT), self.dsn, str(seed)]
        self.running.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))

    def kill_one(self, rng):
        victim = self.running.pop(rng.randrange(len(self.running)))
        victim.kill()
        victim.communicate()

    def __enter__(self):
        for seed in self.seeds:
            self.start(seed)
        return self

    def __exit__(self, *_):
        for writer in self.running:
            writer.terminate()
        errors = [writer.communicate(timeout=60)[1] for writer in self.running]
        assert {w.returncode for w in self.running} <= {0, -signal.SIGTERM}, errors


def follow(follower, steps, pause=0.0):
    """Take batches, each checked against the source; the steps are bounded in time on a busy machine."""
    end = time.monotonic() + 60
    wanted = follower.steps + steps
    while follower.steps < wanted and time.monotonic() < end:
        try:
            follower.step(check=follower.position is not None)
        except SourceBusyError:
            continue
        if follower.steps % 3 == 0:
            follower.trim()
        time.sleep(pause)


@pytest.mark.parametrize("seed", [1, 2])
def test_copy_plus_batches_equal_the_source_at_every_snapshot(database, seed):
    execute(database, SCHEMA)
    source = PostgresSource("s", database)
    with Writers(database, range(seed * 100, seed * 100 + 4)):
        time.sleep(1)
        source.install(NAMES)
        follower = Follower(source, database, NAMES)
        follow(follower, 15, pause=0.1)
    follower.step()
    follower.trim()
    assert follower.checks > 20
    assert sum(source.pending(follower.position).values()) == 0
    assert not source.has_changes(follower.position)


def test_killed_writers_and_late_commits_are_neither_lost_nor_doubled(database):
    execute(database, SCHEMA)
    source = PostgresSource("s", database)
    source.install(NAMES)
    follower = Follower(source, database, NAMES)
    rng = random.Random(7)
    late = table("late")
    execute(database, "CREATE TABLE late (id int)")
    source.install([late])
    follower.tables.append(late)
    with psycopg.connect(database) as early, Writers(database, [900, 901, 902]) as writers:
        early.execute("INSERT INTO late SELECT generate_series(1, 100)")
        for round_ in range(6):
            follow(follower, 2)
            writers.kill_one(rng)
            writers.start(950 + round_)
        assert follower.content[late] == {}
        early.commit()
        follow(follower, 2)
    follower.step()
    assert follower.content[late].total() == 100


def test_two_consumers_follow_the_same_tables_at_their_own_pace(database):
    execute(database, SCHEMA)
    fast, slow = PostgresSource("a", database, consumer="fast"), PostgresSource("b", database, consumer="slow")
    fast.install(NAMES)
    slow.install(NAMES[:2])
    followers = Follower(fast, database, NAMES), Follower(slow, database, NAMES[:2])
    with Writers(database, [41, 42]), ThreadPoolExecutor() as pool:
        runs = [pool.submit(follow, f, n, p) for f, n, p in zip(followers, (9, 4), (0.0, 0.5), strict=True)]
    for run in runs:
        run.result()
    for follower in followers:
        follower.step()
        follower.trim()
    assert sum(fast.pending(followers[0].position).values()) == 0


def test_a_batch_that_is_read_again_is_the_same_batch_or_a_later_one(database):
    execute(database, SCHEMA)
    source = PostgresSource("s", database)
    source.install(NAMES)
    follower = Follower(source, database, NAMES)
    follower.step()
    execute(database, "INSERT INTO entry VALUES (1, 1, 'x'), (1, 1, 'x')")
    first = source.read_batch(follower.position, NAMES)
    again = source.read_batch(follower.position, NAMES)
    assert first.changes[NAMES[1]].to_pylist() == again.changes[NAMES[1]].to_pylist()
    assert first.changes[NAMES[1]].to_pylist()[0]["__pgt_weight"] == 2
