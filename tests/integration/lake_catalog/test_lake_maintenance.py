"""Compaction, expiry and clean-up leave every reader's rows and every frontier's delta alone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from lake_pair import Pair, bag, quoted

from pgtrickle_assets.errors import LakeHistoryExpiredError
from pgtrickle_assets.lake.compaction_plan import CompactionPolicy
from pgtrickle_assets.lake.lint import lint
from pgtrickle_assets.lake.maintenance import clean_up, compact, expire_snapshots
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
