"""Between what snapshots a delete was committed, by the history of its table."""

from __future__ import annotations

import pytest

from pgtrickle_assets.lake.delete_dating import DeleteHistory, DeletingSnapshot


def theirs(id_: int, next_file_id: int = 0) -> DeletingSnapshot:
    return DeletingSnapshot(id_, next_file_id, is_flush=False, in_files=True, is_inlined=False, is_ours=False)


def ours(id_: int) -> DeletingSnapshot:
    return DeletingSnapshot(id_, 0, is_flush=False, in_files=True, is_inlined=False, is_ours=True)


def inlined(id_: int) -> DeletingSnapshot:
    return DeletingSnapshot(id_, 0, is_flush=False, in_files=False, is_inlined=True, is_ours=False)


@pytest.mark.parametrize(
    ("snapshots", "at", "found"),
    [
        ([theirs(10)], 15, True),
        ([theirs(12)], 11, False),
        ([theirs(12)], 12, True),
        ([theirs(10), theirs(20)], 15, None),
        ([ours(10)], 15, True),
        ([ours(10), ours(20)], 15, True),
        ([ours(10), theirs(20)], 15, None),
        ([theirs(12), ours(20)], 15, True),
        ([ours(12), theirs(20)], 15, False),
        ([inlined(10)], 15, True),
        ([inlined(10), inlined(20)], 15, True),
        ([inlined(10), theirs(20)], 15, None),
        ([theirs(9), theirs(12), theirs(31)], 11, False),
    ],
)
def test_deletes_noted_for_a_snapshot_were_committed_by_one_that_lists_deletes(
    snapshots: list[DeletingSnapshot], at: int, found: bool | None
) -> None:
    assert DeleteHistory(1, snapshots, ()).is_before(at, 10, (10, 30)) is found


@pytest.mark.parametrize(("snapshots", "found"), [([], True), ([theirs(20)], None), ([ours(20)], True)])
def test_an_expired_snapshot_may_have_committed_them(snapshots: list[DeletingSnapshot], found: bool | None) -> None:
    assert DeleteHistory(12, snapshots, ()).is_before(15, 10, (10, 30)) is found


def test_the_id_of_a_delete_file_tells_its_commit() -> None:
    history = DeleteHistory(1, [theirs(10, 5), theirs(20, 9)], ((4, "a"), (6, "b"), (8, "c"), (9, "d")))
    assert [history.made(file_id) for file_id in (4, 5, 8, 9)] == [
        *history.snapshots[:1],
        *[history.snapshots[1]] * 2,
        None,
    ]
    assert history.made_between(11, 30) == [(8, "c"), (6, "b")]
    assert history.made_between(5, 15) == [(4, "a")]
