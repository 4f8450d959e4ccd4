import subprocess
import sys
from datetime import UTC, datetime

import pytest

from pgtrickle_assets.control import delivery, history, registry
from pgtrickle_assets.control.history import RefreshOutcome
from pgtrickle_assets.control.statuses import InitiatedBy, StrategyName, StreamTableStatus
from pgtrickle_assets.errors import ControlError, DeliveryOwnerLostError
from pgtrickle_assets.query.types import TableName

ORDERS = TableName("silver", "orders")


def outcome(strategy=StrategyName.DIFFERENTIAL, **facts):
    return RefreshOutcome(strategy, "delta_small", "3 of 100 rows changed", 7, {"raw.orders": 7}, **facts)


def start(catalog, pgt_id, **facts):
    return history.start(catalog, pgt_id, initiated_by=InitiatedBy.MANUAL, **facts)


@pytest.mark.parametrize("initiated_by", list(InitiatedBy))
def test_a_refresh_is_visible_while_it_runs(catalog, pgt_id, initiated_by):
    refresh_id = history.start(catalog, pgt_id, initiated_by=initiated_by, partitions=["a", "b"], run_id="r1")
    row = history.get(catalog, refresh_id)
    assert row is not None
    assert (row.status, row.end_time, row.partitions, row.run_id) == ("RUNNING", None, ["a", "b"], "r1")
    assert row.stream_table == "silver.orders"


@pytest.mark.parametrize(
    ("strategy", "action"),
    [(StrategyName.NO_CHANGE, "NO_DATA"), (StrategyName.DIFFERENTIAL, "DIFFERENTIAL"), (StrategyName.FULL, "FULL")],
)
def test_a_completed_refresh_records_what_it_did(catalog, pgt_id, strategy, action):
    refresh_id = start(catalog, pgt_id)
    facts = outcome(strategy, snapshot_id=8, delta_row_count=3, rows_inserted=2, phase_seconds={"total": 1.5})
    history.complete(catalog, refresh_id, facts)
    history.add_phases(catalog, refresh_id, {"commit": 0.2})
    row = history.get(catalog, refresh_id)
    assert (row.status, row.strategy, row.action) == ("COMPLETED", strategy, action)
    assert (row.cut, row.frontier, row.ducklake_snapshot_id) == (7, {"raw.orders": 7}, 8)
    assert (row.refresh_reason, row.delta_row_count, row.rows_inserted) == ("delta_small", 3, 2)
    assert row.phase_seconds == {"total": 1.5, "commit": 0.2}


def test_completion_brings_the_stream_table_up_to_date(catalog, pgt_id):
    when = datetime(2024, 5, 1, tzinfo=UTC)
    history.complete(catalog, start(catalog, pgt_id), outcome(data_timestamp=when))
    row = registry.find(catalog, ORDERS)
    assert (row.status, row.is_populated, row.needs_reinit) == (StreamTableStatus.ACTIVE, True, False)
    assert row.data_timestamp == when
    assert row.last_refresh_at is not None


def test_the_chosen_strategy_shows_although_the_refresh_failed(catalog, pgt_id):
    refresh_id = start(catalog, pgt_id)
    history.note_choice(catalog, refresh_id, StrategyName.FULL, "large_delta", "half", {"full_seconds": 2.5})
    history.fail(catalog, refresh_id, "disk full", permanent=False)
    row = history.get(catalog, refresh_id)
    assert (row.status, row.strategy, row.estimates) == ("FAILED", "full", {"full_seconds": 2.5})
    assert row.error_message == "disk full"


def test_failures_in_a_row_suspend_a_stream_table(catalog, pgt_id):
    for expected in (StreamTableStatus.INITIALIZING, StreamTableStatus.INITIALIZING, StreamTableStatus.SUSPENDED):
        history.fail(catalog, start(catalog, pgt_id), "boom", permanent=False, max_consecutive_errors=3)
        assert registry.find(catalog, ORDERS).status is expected
    assert registry.find(catalog, ORDERS).consecutive_errors == 3


def test_a_success_ends_a_suspension(catalog, pgt_id):
    for _ in range(3):
        history.fail(catalog, start(catalog, pgt_id), "boom", permanent=False, max_consecutive_errors=3)
    history.complete(catalog, start(catalog, pgt_id), outcome(StrategyName.NO_CHANGE))
    row = registry.find(catalog, ORDERS)
    assert (row.status, row.consecutive_errors) == (StreamTableStatus.ACTIVE, 0)
    assert (row.last_error_message, row.last_error_at) == (None, None)


def test_a_success_does_not_undo_a_pause(catalog, pgt_id):
    registry.pause(catalog, pgt_id)
    history.complete(catalog, start(catalog, pgt_id), outcome())
    assert registry.find(catalog, ORDERS).status is StreamTableStatus.PAUSED


def test_a_success_starts_the_count_anew(catalog, pgt_id):
    history.fail(catalog, start(catalog, pgt_id), "boom", permanent=False)
    history.complete(catalog, start(catalog, pgt_id), outcome())
    row = registry.find(catalog, ORDERS)
    assert (row.consecutive_errors, row.last_error_message) == (0, None)


def test_a_permanent_failure_is_an_error_at_once(catalog, pgt_id):
    history.fail(catalog, start(catalog, pgt_id), "no such column", permanent=True)
    assert registry.find(catalog, ORDERS).status is StreamTableStatus.ERROR


def test_permanent_failures_in_a_row_suspend_too(catalog, pgt_id):
    for expected in (StreamTableStatus.ERROR, StreamTableStatus.ERROR, StreamTableStatus.SUSPENDED):
        history.fail(catalog, start(catalog, pgt_id), "no such column", permanent=True, max_consecutive_errors=3)
        assert registry.find(catalog, ORDERS).status is expected


def test_a_failure_does_not_undo_a_pause(catalog, pgt_id):
    registry.pause(catalog, pgt_id)
    history.fail(catalog, start(catalog, pgt_id), "boom", permanent=True)
    assert registry.find(catalog, ORDERS).status is StreamTableStatus.PAUSED


def test_stored_errors_hold_no_secrets_and_are_never_empty(catalog, pgt_id):
    first, second = start(catalog, pgt_id), start(catalog, pgt_id)
    history.fail(catalog, first, "cannot reach postgresql://u:hunter2@h/d\0", permanent=False)
    history.fail(catalog, second, "", permanent=False)
    assert "hunter2" not in history.get(catalog, first).error_message
    assert history.get(catalog, second).error_message == "unknown error"


def test_a_skipped_refresh_says_why(catalog, pgt_id):
    refresh_id = start(catalog, pgt_id)
    history.skip(catalog, refresh_id, "upstream_failed", "silver.x failed")
    row = history.get(catalog, refresh_id)
    assert (row.status, row.action, row.refresh_reason) == ("SKIPPED", "SKIP", "upstream_failed")


def test_a_finished_refresh_cannot_complete_again(catalog, pgt_id):
    refresh_id = start(catalog, pgt_id)
    history.fail(catalog, refresh_id, "boom", permanent=False)
    with pytest.raises(DeliveryOwnerLostError, match="is FAILED"):
        history.complete(catalog, refresh_id, outcome())
    with pytest.raises(ControlError, match="not in the history"):
        history.complete(catalog, 4711, outcome())


def test_failing_twice_counts_once(catalog, pgt_id):
    refresh_id = start(catalog, pgt_id)
    history.fail(catalog, refresh_id, "boom", permanent=False)
    history.fail(catalog, refresh_id, "again", permanent=False)
    assert registry.find(catalog, ORDERS).consecutive_errors == 1


def test_a_refresh_of_a_dead_process_is_marked_failed(catalog, pgt_id):
    code = "from pgtrickle_assets.control.owner import this_process; print(this_process())"
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    mine, other = start(catalog, pgt_id), start(catalog, pgt_id)
    catalog.execute("UPDATE pgtrickle.pgt_refresh_history SET owner = %s WHERE refresh_id = %s", (dead, other))
    assert history.fail_abandoned(catalog, dead_after_seconds=60) == [other]
    assert history.get(catalog, mine).status == "RUNNING"
    assert history.get(catalog, other).error_message == history.ABANDONED


def test_a_silent_process_elsewhere_counts_as_dead_by_its_delivery(catalog, pgt_id):
    refresh_id = start(catalog, pgt_id)
    delivery.create(catalog, pgt_id, refresh_id=refresh_id, partitions=None)
    catalog.execute("UPDATE pgtrickle.pgt_refresh_history SET owner = 'elsewhere/x/1/1'")
    assert history.fail_abandoned(catalog, dead_after_seconds=60) == []
    catalog.execute("UPDATE pgtrickle.pgt_ducklake_sink_delivery SET heartbeat_at = now() - interval '2 minutes'")
    assert history.fail_abandoned(catalog, dead_after_seconds=60) == [refresh_id]


def test_past_costs_leave_out_what_did_nothing(catalog, pgt_id):
    for strategy, seconds in (
        (StrategyName.FULL, 4.0),
        (StrategyName.NO_CHANGE, 0.1),
        (StrategyName.DIFFERENTIAL, 1.0),
    ):
        history.complete(
            catalog, start(catalog, pgt_id), outcome(strategy, delta_row_count=5, phase_seconds={"total": seconds})
        )
    history.fail(catalog, start(catalog, pgt_id), "boom", permanent=False)
    costs = history.past_costs(catalog, pgt_id)
    assert [(cost.strategy, cost.delta_rows, cost.seconds) for cost in costs] == [
        ("differential", 5, 1.0),
        ("full", 5, 4.0),
    ]


def test_old_refreshes_are_pruned_but_for_the_last_and_those_to_retry(catalog, pgt_id):
    ids = [start(catalog, pgt_id) for _ in range(4)]
    kept = delivery.create(catalog, pgt_id, refresh_id=ids[1], partitions=None)
    delivery.fail(catalog, kept.delivery_id, "boom", retryable=True, max_retries=3)
    for refresh_id in ids:
        history.complete(catalog, refresh_id, outcome())
    catalog.execute(
        "UPDATE pgtrickle.pgt_refresh_history SET start_time = now() - interval '40 days', "
        "end_time = now() - interval '40 days'"
    )
    assert history.prune(catalog, retention_days=30) == 2
    assert {row.refresh_id for row in history.recent(catalog)} == {ids[1], ids[3]}


def test_the_latest_come_first(catalog, pgt_id):
    ids = [start(catalog, pgt_id) for _ in range(3)]
    assert [row.refresh_id for row in history.recent(catalog, pgt_id=pgt_id, limit=2)] == [ids[2], ids[1]]
