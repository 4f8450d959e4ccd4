"""Both states of a table come out of one read: each is what reading it at its snapshot and filtering gives."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from zsets import multiset

from pgtrickle_assets.lake.arrow_read import read_table_arrow
from pgtrickle_assets.lake.model import WEIGHT_COLUMN
from pgtrickle_assets.query.plan import Column, Scan, Version
from pgtrickle_assets.query.types import INT64
from pgtrickle_assets.refresh.key_filter import KeyFilter, RangeFilter, ScanFilter, wanted_rows
from pgtrickle_assets.refresh.relations import Relations, StoredRelation

COLUMNS = ["a", "b", "s"]
MADE = (
    "CALL lake.set_option('parquet_row_group_size', 2048)",
    "CREATE TABLE t (a BIGINT, b INTEGER, s VARCHAR, unread INTEGER)",
    "INSERT INTO t SELECT i, i % 50, CASE WHEN i % 11 > 0 THEN 's' || i % 20 END, 0 FROM range(6000) r(i)",
    "INSERT INTO t SELECT NULL, 3, 's1', 0 FROM range(4) r(i)",
)
CHANGED = (
    "DELETE FROM t WHERE a % 97 = 1",
    "UPDATE t SET b = b + 1 WHERE a % 89 = 2",
    "UPDATE t SET unread = 1 WHERE a % 83 = 3",
    "INSERT INTO t SELECT i, i % 50, 'new', 0 FROM range(5990, 6100) r(i)",
    "INSERT INTO t SELECT NULL, 3, 's1', 0 FROM range(2) r(i)",
)


def _scan(version: Version) -> Scan:
    return Scan("t", tuple(Column(f"t.{name}", INT64) for name in COLUMNS), tuple(COLUMNS), version)


def _relations(lake: Any, limit: int = 100_000) -> tuple[Relations, StoredRelation]:
    lake.sql(*MADE)
    old = lake.table("t")
    lake.sql(*CHANGED)
    stored = StoredRelation(old, lake.table("t"))
    # Nothing here is large enough to need the session.
    return Relations(None, lake.lake, {"t": stored}, {"t": frozenset(COLUMNS)}, limit), stored  # type: ignore[arg-type]


def _filters(pick: random.Random) -> tuple[ScanFilter, ...]:
    rows = pick.randrange(1, 60)
    a = [pick.choice([None, *range(6200)]) for _ in range(rows)]
    b = [value % 50 if value is not None and pick.random() < 0.8 else pick.choice([None, 3]) for value in a]
    s = [pick.choice(["s1", "s7", "new", None]) for _ in range(rows)]
    choices: list[dict[str, Any]] = [
        {"a": pa.array(a, pa.int64())},
        {"b": pa.array(b, pa.int32())},
        {"a": pa.array(a, pa.int64()), "b": pa.array(b, pa.int64())},
        {"b": pa.array(b, pa.int32()), "s": pa.array(s)},
    ]
    keys: list[ScanFilter] = [_distinct(pa.table(keys)) for keys in pick.sample(choices, pick.randrange(3))]
    least = pick.randrange(6000)
    ranges = [
        RangeFilter("a", least, least + 900),
        RangeFilter("b", None, pick.randrange(50)),
        RangeFilter("s", "s1", pick.choice(["s1", "s19", None])),
    ]
    return (*keys, *pick.sample(ranges, pick.randrange(0 if keys else 1, 3)))


def _distinct(keys: pa.Table) -> KeyFilter:
    return KeyFilter(keys.group_by(keys.column_names).aggregate([]))


def _expected(lake: Any, stored: StoredRelation, version: Version, filters: tuple[ScanFilter, ...]) -> pa.Table:
    table = stored.old if version is Version.OLD else stored.new
    assert table is not None
    rows = wanted_rows(table, filters).only(read_table_arrow(lake.lake.scan(table), COLUMNS)).to_pylist()
    for own in filters:
        if isinstance(own, RangeFilter):
            low, high = own.minimum, own.maximum
            values = [(row, row[own.column]) for row in rows]
            values = [(row, value) for row, value in values if value is not None]
            rows = [row for row, v in values if (low is None or v >= low) and (high is None or v <= high)]
    return pa.Table.from_pylist(rows, pa.schema([("a", pa.int64()), ("b", pa.int32()), ("s", pa.string())]))


@pytest.mark.parametrize("is_delta_known", [True, False])
def test_each_state_holds_the_rows_that_the_keys_ask_for(lake: Any, is_delta_known: bool) -> None:
    relations, stored = _relations(lake)
    if is_delta_known:
        relations.rows("t")
    pick = random.Random(7)
    asked = [_filters(pick) for _ in range(25)]
    # Keys that are among others that were asked for before are answered from what those found.
    asked += [
        tuple(KeyFilter(f.keys.slice(0, 1 + f.keys.num_rows // 2)) if isinstance(f, KeyFilter) else f for f in filters)
        for filters in reversed(asked)
    ]
    asked.append(())
    for filters in asked:
        for version in pick.sample([Version.OLD, Version.NEW], 2):
            expected = _expected(lake, stored, version, filters)
            found = relations.local_rows(_scan(version), filters)
            assert found is not None
            assert multiset(found) == multiset(expected)
            reached = relations.reached(_scan(version), filters)
            assert reached is not None
            assert set(multiset(expected)) <= set(multiset(reached))


def test_a_state_that_a_step_changed_is_what_is_stored_and_the_change(lake: Any) -> None:
    relations, stored = _relations(lake)
    relations = Relations(
        None,  # type: ignore[arg-type]
        lake.lake,
        {"t": StoredRelation(stored.new, stored.new)},
        {"t": frozenset(COLUMNS)},
        100_000,
    )
    keys = (_distinct(pa.table({"a": pa.array([10, 11, 7000], pa.int64())})),)
    before = relations.local_rows(_scan(Version.OLD), keys)
    change = {"a": [10, 7000, 8000], "b": [10, 1, 1], "s": ["s10", "x", "y"], WEIGHT_COLUMN: [-1, 2, 1]}
    types = {"a": pa.int64(), "b": pa.int32(), "s": pa.string(), WEIGHT_COLUMN: pa.int64()}
    relations.add("t", pa.table({name: pa.array(values, types[name]) for name, values in change.items()}))
    after = relations.local_rows(_scan(Version.NEW), keys)
    assert before is not None
    assert after is not None
    assert set(multiset(before)) == {(10, 10, "s10"), (11, 11, None)}
    assert dict(multiset(after)) == {(11, 11, None): 1, (7000, 1, "x"): 2}
    assert multiset(relations.local_rows(_scan(Version.OLD), keys)) == multiset(before)


def test_too_many_rows_are_left_to_spark(lake: Any) -> None:
    relations, _ = _relations(lake, limit=50)
    every = (_distinct(pa.table({"b": pa.array(range(50), pa.int32())})),)
    assert relations.local_rows(_scan(Version.NEW), every) is None
    assert relations.reached(_scan(Version.NEW), every) is None


def test_a_delta_within_a_range_is_those_of_its_rows(lake: Any) -> None:
    relations, _ = _relations(lake)
    every = relations.rows("t")
    scan = _scan(Version.DELTA)
    within = relations.local_rows(scan, (RangeFilter("a", 5995, None),))
    assert isinstance(every, pa.Table)
    assert within is not None
    expected = [row for row in every.to_pylist() if row["a"] is not None and row["a"] >= 5995]
    assert 0 < len(expected) < every.num_rows
    assert within.to_pylist() == expected
    assert relations.local_rows(scan, (RangeFilter("a", 5995, None),)) is within
    assert relations.local_rows(scan, (RangeFilter("s", None, "zz"),)) is not every
    assert relations.local_rows(scan) is every


def test_states_that_do_not_differ_are_one_table(lake: Any) -> None:
    relations, _ = _relations(lake)
    relations.rows("t")
    unchanged = (_distinct(pa.table({"a": pa.array([10, 11], pa.int64())})),)
    assert relations.local_rows(_scan(Version.OLD), unchanged) is relations.local_rows(_scan(Version.NEW), unchanged)
