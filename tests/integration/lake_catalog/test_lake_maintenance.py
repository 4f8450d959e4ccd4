"""Compaction, expiry and clean-up leave every reader's rows and every frontier's delta alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from lake_pair import Pair, attached, bag, quoted

from pgtrickle_assets.errors import LakeHistoryExpiredError
from pgtrickle_assets.lake.compaction_plan import CompactionPolicy
from pgtrickle_assets.lake.kept_statistics import has_unmended
from pgtrickle_assets.lake.lint import lint
from pgtrickle_assets.lake.maintenance import (
    clean_up,
    compact,
    expire_snapshots,
    only_maintainer,
    plan_compaction,
    recover_compactions,
)
from pgtrickle_assets.lake.model import TableDefinition
from pgtrickle_assets.lake.orphans import delivery_of, remove_orphans
from pgtrickle_assets.query import types as t
from pgtrickle_assets.query.types import ColumnSchema, TableName

NAME = TableName("gold", 'it"s')
DEFINITION = TableDefinition(NAME, (ColumnSchema("x", t.INT32), ColumnSchema("y", t.VARCHAR)))
NOW = timedelta(0)


def rows(*numbers: int) -> list[dict[str, object]]:
    return [{"x": number, "y": f"y{number}"} for number in numbers]


def test_a_table_is_compacted_expired_and_cleaned_and_nothing_that_is_needed_goes(pair: Pair) -> None:
    pair.create(DEFINITION, rows(*range(10)))
    for number in range(10, 15):
        pair.append(NAME, rows(number))
    pair.delete(NAME, x=1)
    pair.delete(NAME, x=2)
    pair.delete(NAME, x=3)
    pair.check(NAME)
    frontier = pair.lake.head()
    assert compact(pair.lake, policy=CompactionPolicy(min_files=100, delete_ratio=0.9)) == ()
    done = compact(pair.lake, policy=CompactionPolicy(min_files=2, delete_ratio=0.2))
    assert [(c.table, c.skipped) for c in done] == [(NAME, "")]
    assert done[0].merged_files >= 5
    assert done[0].rewritten_files == 1
    assert len(pair.lake.scan(pair.table(NAME)).files) <= 2
    pair.check(NAME)
    assert pair.lake.delta(pair.table(NAME), frontier).is_empty

    assert expire_snapshots(pair.lake, older_than=timedelta(hours=1), keep_from=lambda: None) == ()
    wanted = expire_snapshots(pair.lake, older_than=NOW, keep_from=lambda: frontier, dry_run=True)
    assert wanted == tuple(range(frontier))
    assert expire_snapshots(pair.lake, older_than=NOW, keep_from=lambda: frontier) == wanted
    pair.history = {NAME: {s: r for s, r in pair.history[NAME].items() if s >= frontier}}
    pair.check(NAME)
    with pytest.raises(LakeHistoryExpiredError):
        pair.lake.delta(pair.table(NAME), frontier - 1)

    assert clean_up(pair.lake, older_than=timedelta(hours=1)) == 0
    assert clean_up(pair.lake, older_than=NOW) > 0
    assert (
        remove_orphans(pair.lake, is_running=lambda name: False, minimum_age=NOW, foreign_minimum_age=NOW).paths == ()
    )
    pair.check(NAME, expected=bag((n, f"y{n}") for n in (0, *range(4, 15))))
    files = {path.name for path in Path(pair.lake.data_path).rglob("*.parquet")}
    scan = pair.lake.scan(pair.table(NAME))
    assert {Path(file.path).name for file in scan.files} <= files
    assert lint(pair.lake) == ()


def test_a_table_that_is_compacted_between_plan_and_commit_is_a_conflict_not_a_loss(pair: Pair) -> None:
    pair.create(DEFINITION, rows(*range(10)))
    pair.append(NAME, rows(10))
    frontier = pair.lake.head()
    pair.append(NAME, rows(11))
    compact(pair.lake, policy=CompactionPolicy(min_files=2))
    delta = pair.lake.delta(pair.table(NAME), frontier)
    assert (delta.inserted_rows, delta.deleted_rows) == (1, 0)
    pair.check(NAME)


def test_the_delivery_is_in_the_file_name(pair: Pair) -> None:
    pair.create(DEFINITION, rows(1, 2))
    table = pair.table(NAME)
    file = pair.files(table, rows(3))[0]
    assert delivery_of(file.path) == "t"
    pair.delete(NAME, x=1)
    assert delivery_of("ducklake-01a21f69-25e3-794f-8770-06041f2a015d.parquet") is None
    listed = remove_orphans(pair.lake, is_running=lambda name: False, minimum_age=NOW, dry_run=True)
    assert [Path(path).name for path in listed.paths] == [file.path]


def test_bounds_enclose_older_snapshots_and_later_inserts_after_files_were_rewritten(pair: Pair) -> None:
    pair.create(DEFINITION, rows(1, 50, 99))
    before = pair.lake.head()
    pair.append(NAME, [{"x": None, "y": None}])
    pair.delete(NAME, x=99)
    pair.delete(NAME, x=1)
    done = compact(pair.lake, policy=CompactionPolicy(min_files=100, delete_ratio=0.2))
    assert [(c.rewritten_files, c.skipped) for c in done] == [(1, "")]
    assert lint(pair.lake) == ()
    table = quoted(NAME)
    assert pair.duckdb(f"SELECT x FROM {table} AT (VERSION => {before}) WHERE x > 60") == [(99,)]
    pair.duckdb(f"INSERT INTO {table} VALUES (7, 'seven')")
    assert pair.duckdb(f"SELECT min(x), max(x) FROM {table} AT (VERSION => {before})") == [(1, 99)]
    pair.check(NAME)


def test_small_files_with_a_few_deletes_each_become_one_file(pair: Pair) -> None:
    pair.create(DEFINITION, rows(*range(10)))
    for start in range(100, 200, 10):
        pair.append(NAME, rows(*range(start, start + 10)))
        pair.delete(NAME, x=start)
    policy = CompactionPolicy(min_files=4, delete_ratio=0.5)
    frontier = pair.lake.head()
    compact(pair.lake, policy=policy)
    assert len(pair.lake.scan(pair.table(NAME)).files) <= 2
    assert pair.lake.delta(pair.table(NAME), frontier).is_empty
    assert plan_compaction(pair.lake, policy) == {}, "doing it again finds nothing to do"
    pair.check(NAME)


def test_only_one_process_maintains_a_lake(pair: Pair) -> None:
    with only_maintainer(pair.lake) as first, only_maintainer(pair.lake) as second:
        assert (first, second) == (True, False)
    with only_maintainer(pair.lake) as third:
        assert third


def test_a_file_of_somebody_else_below_the_data_path_stays(pair: Pair) -> None:
    pair.create(DEFINITION, rows(1))
    for name in ("mine.parquet", "ducklake-0.parquet", "pgt-x.parquet"):
        (Path(pair.lake.data_path) / name).write_bytes(b"x")
    removed = remove_orphans(pair.lake, is_running=lambda _: False, minimum_age=NOW, foreign_minimum_age=NOW)
    assert {Path(path).name for path in removed.paths} == {"ducklake-0.parquet", "pgt-x.parquet"}


_KILLED = """
import json, os, signal, sys
from pgtrickle_assets.lake.catalog import Lake
from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.lake.kept_statistics import kept_statistics
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.services.duckdb import connect
dsn, schema, path, *name = json.loads(sys.argv[1])
location = LakeLocation(dsn, schema, path)
lake, duckdb = Lake.open(location), connect()
attach(duckdb, location)
with kept_statistics(lake, lake.table(TableName(*name))):
    call = "CALL ducklake_rewrite_data_files('lake', ?, schema => ?, delete_threshold => 0.1)"
    duckdb.execute(call, name[::-1])
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_bounds_are_mended_after_a_compaction_was_killed_behind_its_commit(pair: Pair) -> None:
    pair.create(DEFINITION, rows(1, 50, 99))
    before = pair.lake.head()
    pair.delete(NAME, x=99)
    pair.delete(NAME, x=1)
    where = pair.location
    place = json.dumps([where.catalog_dsn, where.catalog_schema, where.data_path, NAME.schema, NAME.name])
    killed = subprocess.run([sys.executable, "-c", _KILLED, place], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    query = f"SELECT x FROM {quoted(NAME)} AT (VERSION => {before}) WHERE x > 60"
    with attached(where) as narrowed:
        assert narrowed.execute(query).fetchall() == [], "without narrowed bounds this test shows nothing"
    assert has_unmended(pair.lake)
    assert recover_compactions(pair.lake) == 1
    with attached(where) as mended:
        assert mended.execute(query).fetchall() == [(99,)]
    pair.check(NAME)
