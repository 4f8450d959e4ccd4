from threading import Thread

import psycopg
import pytest

from pgtrickle_assets.control import frontier
from pgtrickle_assets.control.frontier import EVERY_PARTITION, advance
from pgtrickle_assets.errors import StaleFrontierError, TransientError

FIRST = {"raw.orders": 3, 'raw."x".y': 3}


def move(handle, pgt_id, expect, inputs, *, key=EVERY_PARTITION, cut=9):
    advance(handle, pgt_id, key, expect=expect, inputs=inputs, cut=cut, snapshot_id=cut + 1, refresh_id=None)


def test_there_is_no_frontier_before_the_first_fill(catalog, pgt_id):
    assert frontier.frontiers(catalog, pgt_id) == {}
    assert frontier.frontier(catalog, pgt_id) is None
    assert frontier.oldest_needed_snapshot(catalog) is None


def test_a_frontier_is_stored_with_its_cut_and_snapshot(catalog, pgt_id):
    move(catalog, pgt_id, None, FIRST)
    stored = frontier.frontier(catalog, pgt_id)
    assert stored is not None
    assert (dict(stored.inputs), stored.cut, stored.ducklake_snapshot_id) == (FIRST, 9, 10)


def test_a_frontier_moves_from_where_the_plan_saw_it(catalog, pgt_id):
    move(catalog, pgt_id, None, FIRST)
    move(catalog, pgt_id, FIRST, {"raw.orders": 5, "raw.new": 1})
    assert dict(frontier.frontier(catalog, pgt_id).inputs) == {"raw.orders": 5, "raw.new": 1}


@pytest.mark.parametrize("expect", [None, {"raw.orders": 3}, {**FIRST, "raw.orders": 2}, {}])
def test_a_frontier_that_moved_meanwhile_is_left_alone(catalog, pgt_id, expect):
    move(catalog, pgt_id, None, FIRST)
    with pytest.raises(StaleFrontierError, match=r"silver\.orders") as caught:
        move(catalog, pgt_id, expect, {"raw.orders": 99})
    assert isinstance(caught.value, TransientError)
    assert dict(frontier.frontier(catalog, pgt_id).inputs) == FIRST


def test_an_expected_frontier_that_is_missing_is_stale(catalog, pgt_id):
    with pytest.raises(StaleFrontierError):
        move(catalog, pgt_id, FIRST, {"raw.orders": 4})


def test_a_query_without_inputs_has_an_empty_frontier(catalog, pgt_id):
    move(catalog, pgt_id, None, {})
    assert dict(frontier.frontier(catalog, pgt_id).inputs) == {}
    move(catalog, pgt_id, {}, {})


def test_partitions_have_frontiers_of_their_own(catalog, pgt_id):
    move(catalog, pgt_id, None, FIRST)
    move(catalog, pgt_id, None, {"raw.orders": 7}, key="2024-01-01", cut=11)
    assert frontier.frontier(catalog, pgt_id, "2024-01-01").cut == 11
    assert frontier.frontier(catalog, pgt_id, "2024-01-02").cut == 9
    assert frontier.forget(catalog, pgt_id, keep=EVERY_PARTITION) == 1
    assert frontier.frontier(catalog, pgt_id, "2024-01-01").cut == 9
    assert frontier.forget(catalog, pgt_id) == 1
    assert frontier.frontiers(catalog, pgt_id) == {}


def test_the_oldest_snapshot_of_all_inputs_is_needed(catalog, pgt_id):
    move(catalog, pgt_id, None, {"raw.orders": 8, "raw.lines": 4})
    move(catalog, pgt_id, None, {"raw.orders": 6}, key="a")
    assert frontier.oldest_needed_snapshot(catalog) == 4


def test_a_rolled_back_move_leaves_the_frontier(catalog, pgt_id):
    move(catalog, pgt_id, None, FIRST)
    with catalog.transaction(force_rollback=True):
        move(catalog, pgt_id, FIRST, {"raw.orders": 4})
    assert dict(frontier.frontier(catalog, pgt_id).inputs) == FIRST


@pytest.mark.parametrize("expect", [None, FIRST])
def test_of_two_refreshes_at_once_one_moves_the_frontier(catalog, control_dsn, pgt_id, expect):
    if expect is not None:
        move(catalog, pgt_id, None, FIRST)
    outcomes = []

    def second():
        with psycopg.connect(control_dsn) as connection:
            try:
                move(connection, pgt_id, expect, {"raw.orders": 20})
                outcomes.append("moved")
            except StaleFrontierError:
                outcomes.append("stale")

    other = Thread(target=second)
    with catalog.transaction():
        move(catalog, pgt_id, expect, {"raw.orders": 10})
        other.start()
        other.join(0.3)
        assert other.is_alive()
    other.join(20)
    assert outcomes == ["stale"]
    assert dict(frontier.frontier(catalog, pgt_id).inputs) == {"raw.orders": 10}


def test_an_open_cursor_of_any_kind_can_be_used(catalog, pgt_id):
    from psycopg.rows import dict_row

    with catalog.cursor(row_factory=dict_row) as cursor:
        move(cursor, pgt_id, None, FIRST)
        assert frontier.frontier(cursor, pgt_id).cut == 9
