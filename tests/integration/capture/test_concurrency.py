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
SECONDS = 8.0


def start_writer(dsn, seed, seconds=SECONDS):
    script = Path(__file__).with_name("writers.py")
    return subprocess.Popen(
        [sys.executable, str(script), dsn, str(seed), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def follow(follower, until, pause=0.0):
    while time.monotonic() < until:
        try:
            follower.step(check=follower.position is not None)
        except SourceBusyError:
            continue
        if follower.steps % 3 == 0:
            follower.trim()
        time.sleep(pause)


def finish(writers):
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode in (0, -signal.SIGKILL), errors


@pytest.mark.parametrize("seed", [1, 2])
def test_copy_plus_batches_equal_the_source_at_every_snapshot(database, seed):
    execute(database, SCHEMA)
    source = PostgresSource("s", database)
    writers = [start_writer(database, seed * 100 + i) for i in range(4)]
    time.sleep(0.5)
    source.install(NAMES)
    follower = Follower(source, database, NAMES)
    follow(follower, time.monotonic() + SECONDS)
    finish(writers)
    follower.step()
    follower.trim()
    assert follower.steps > 3
    assert sum(source.pending(follower.position).values()) == 0
    assert not source.has_changes(follower.position)


def test_killed_writers_and_late_commits_are_neither_lost_nor_doubled(database):
    execute(database, SCHEMA)
    source = PostgresSource("s", database)
    source.install(NAMES)
    follower = Follower(source, database, NAMES)
    rng = random.Random(7)
    with psycopg.connect(database) as early:
        early.execute("INSERT INTO entry VALUES (-1, 1, 'early')")
        writers = [start_writer(database, 900 + i, 6) for i in range(3)]
        end = time.monotonic() + 5
        while time.monotonic() < end:
            follow(follower, time.monotonic() + 0.5)
            victim = rng.choice(writers)
            victim.kill()
            writers.append(start_writer(database, rng.randrange(10**6), 2))
        early.commit()
    follow(follower, time.monotonic() + 0.5)
    finish(writers)
    follower.step()


def test_two_consumers_follow_the_same_tables_at_their_own_pace(database):
    execute(database, SCHEMA)
    fast, slow = PostgresSource("a", database, consumer="fast"), PostgresSource("b", database, consumer="slow")
    fast.install(NAMES)
    slow.install(NAMES[:2])
    followers = Follower(fast, database, NAMES), Follower(slow, database, NAMES[:2])
    writers = [start_writer(database, 40 + i, 5) for i in range(2)]
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(follow, f, time.monotonic() + 5, p) for f, p in zip(followers, (0.0, 0.7), strict=True)]
    finish(writers)
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
