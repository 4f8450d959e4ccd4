import subprocess
import sys

import pytest

from pgtrickle_assets.control import delivery, history
from pgtrickle_assets.control.statuses import DeliveryStatus, InitiatedBy
from pgtrickle_assets.errors import ControlError, DeliveryOwnerLostError, TransientError


@pytest.fixture
def refresh_id(catalog, pgt_id):
    return history.start(catalog, pgt_id, initiated_by=InitiatedBy.MANUAL)


@pytest.fixture
def pending(catalog, pgt_id, refresh_id):
    return delivery.create(catalog, pgt_id, refresh_id=refresh_id, partitions=None).delivery_id


def status(catalog, delivery_id):
    return delivery.get(catalog, delivery_id).status


def land(catalog, delivery_id):
    delivery.deliver(catalog, delivery_id, snapshot_id=5, bytes_written=100, rows_written=7)


def fail(catalog, delivery_id, *, retryable=True, max_retries=3, **more):
    return delivery.fail(catalog, delivery_id, "503 Slow Down", retryable=retryable, max_retries=max_retries, **more)


def test_a_delivery_goes_from_pending_over_writing_to_delivered(catalog, pending):
    assert status(catalog, pending) is DeliveryStatus.PENDING
    assert delivery.begin_attempt(catalog, pending) == 1
    assert status(catalog, pending) is DeliveryStatus.WRITING
    land(catalog, pending)
    row = delivery.get(catalog, pending)
    assert (row.status, row.attempt_count, row.bytes_written, row.rows_written) == (DeliveryStatus.DELIVERED, 1, 100, 7)
    assert row.finished_at is not None
    assert row.ducklake_snapshot_id == 5


def test_a_failed_attempt_is_tried_again_until_the_retries_are_used(catalog, pending):
    for attempt in (1, 2, 3):
        assert delivery.begin_attempt(catalog, pending) == attempt
        assert fail(catalog, pending, max_retries=2) is (
            DeliveryStatus.FAILED_RETRYABLE if attempt < 3 else DeliveryStatus.FAILED_PERMANENT
        )
    row = delivery.get(catalog, pending)
    assert (row.status, row.attempt_count, row.last_error) == (DeliveryStatus.FAILED_PERMANENT, 3, "503 Slow Down")
    assert row.finished_at is not None


def test_a_failure_that_no_retry_mends_is_permanent_at_once(catalog, pending):
    delivery.begin_attempt(catalog, pending)
    assert fail(catalog, pending, retryable=False) is DeliveryStatus.FAILED_PERMANENT


def test_a_delivery_may_fail_before_it_writes(catalog, pending):
    assert fail(catalog, pending) is DeliveryStatus.FAILED_RETRYABLE


@pytest.mark.parametrize("finish", ["deliver", "permanent"])
def test_a_finished_delivery_takes_no_step(catalog, pending, finish):
    delivery.begin_attempt(catalog, pending)
    if finish == "deliver":
        land(catalog, pending)
    else:
        fail(catalog, pending, retryable=False)
    before = delivery.get(catalog, pending)
    for step in (
        lambda: delivery.begin_attempt(catalog, pending),
        lambda: land(catalog, pending),
        lambda: fail(catalog, pending),
    ):
        with pytest.raises(ControlError, match="cannot go from"):
            step()
    assert not delivery.heartbeat(catalog, pending)
    assert delivery.get(catalog, pending) == before


def test_what_is_not_being_written_cannot_be_delivered(catalog, pending):
    with pytest.raises(ControlError, match="cannot go from PENDING to DELIVERED"):
        land(catalog, pending)


def test_the_next_run_takes_up_a_retryable_delivery_and_counts_on(catalog, pgt_id, pending):
    delivery.begin_attempt(catalog, pending)
    fail(catalog, pending)
    refresh_id = history.start(catalog, pgt_id, initiated_by=InitiatedBy.RETRY)
    taken = delivery.create(catalog, pgt_id, refresh_id=refresh_id, partitions=None)
    assert (taken.delivery_id, taken.refresh_id, taken.attempt_count) == (pending, refresh_id, 1)
    assert (taken.status, taken.retry_at) == (DeliveryStatus.PENDING, None)
    assert delivery.begin_attempt(catalog, pending) == 2


def test_only_a_delivery_of_the_same_partitions_is_taken_up(catalog, pgt_id, refresh_id):
    first = delivery.create(catalog, pgt_id, refresh_id=refresh_id, partitions=["b", "a"])
    fail(catalog, first.delivery_id)
    other = delivery.create(catalog, pgt_id, refresh_id=refresh_id, partitions=["a"])
    same = delivery.create(catalog, pgt_id, refresh_id=refresh_id, partitions=["a", "b"])
    assert other.delivery_id != first.delivery_id
    assert same.delivery_id == first.delivery_id


@pytest.mark.parametrize(
    ("new", "closed"), [(None, {"a", "b"}), (["a"], {"a"}), (["a", "b", "c"], {"a", "b"}), (["c"], set())]
)
def test_a_later_delivery_closes_the_failed_ones_that_it_covers(catalog, pgt_id, refresh_id, new, closed):
    old = {}
    for key in ("a", "b"):
        old[key] = delivery.create(catalog, pgt_id, refresh_id=refresh_id, partitions=[key]).delivery_id
        fail(catalog, old[key])
    # A delivery of one of the same partitions would be taken up; make it look like another one's.
    made = delivery.create(catalog, pgt_id, refresh_id=refresh_id, partitions=["z"]).delivery_id
    catalog.execute(
        "UPDATE pgtrickle.pgt_ducklake_sink_delivery SET partitions = %s WHERE delivery_id = %s", (new, made)
    )
    delivery.begin_attempt(catalog, made)
    land(catalog, made)
    for key, delivery_id in old.items():
        row = delivery.get(catalog, delivery_id)
        if key in closed:
            assert (row.status, row.superseded_by) == (DeliveryStatus.FAILED_PERMANENT, made)
        else:
            assert (row.status, row.superseded_by) == (DeliveryStatus.FAILED_RETRYABLE, None)


def dead_owner() -> str:
    code = "from pgtrickle_assets.control.owner import this_process; print(this_process())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def make_due(catalog, **columns):
    values = {"retry_at": "now() - interval '1 second'", **columns}
    text = ", ".join(f"{name} = {value}" for name, value in values.items())
    catalog.execute(f"UPDATE pgtrickle.pgt_ducklake_sink_delivery SET {text}")


def due(catalog):
    return [row.delivery_id for row in delivery.due_retries(catalog, dead_after_seconds=60)]


def test_a_retry_that_its_process_left_is_due_after_its_pause(catalog, pending):
    fail(catalog, pending, retry_after_seconds=60)
    make_due(catalog, retry_at="now() + interval '1 minute'", owner=f"'{dead_owner()}'")
    assert due(catalog) == []
    make_due(catalog)
    assert due(catalog) == [pending]


def test_a_retry_that_a_living_process_waits_for_is_its_own(catalog, pending):
    fail(catalog, pending)
    make_due(catalog)
    assert due(catalog) == []
    make_due(catalog, heartbeat_at="now() - interval '2 minutes'")
    assert due(catalog) == [pending]


@pytest.mark.parametrize("writing", [False, True])
def test_a_delivery_of_a_dead_process_becomes_retryable_after_a_pause(catalog, pending, writing):
    if writing:
        delivery.begin_attempt(catalog, pending)
    catalog.execute("UPDATE pgtrickle.pgt_ducklake_sink_delivery SET owner = %s", (dead_owner(),))
    (row,) = delivery.fail_abandoned(catalog, dead_after_seconds=3600, max_retries=3)
    assert (row.delivery_id, row.status, row.attempt_count) == (pending, DeliveryStatus.FAILED_RETRYABLE, 1)
    assert due(catalog) == []
    make_due(catalog)
    assert due(catalog) == [pending]


def test_processes_that_die_before_an_attempt_come_to_an_end(catalog, pgt_id, refresh_id, pending):
    for attempts in (1, 2, 3):
        catalog.execute("UPDATE pgtrickle.pgt_ducklake_sink_delivery SET owner = %s", (dead_owner(),))
        (row,) = delivery.fail_abandoned(catalog, dead_after_seconds=3600, max_retries=2)
        assert row.attempt_count == attempts
        if attempts < 3:
            delivery.create(catalog, pgt_id, refresh_id=refresh_id, partitions=None)
    assert row.status is DeliveryStatus.FAILED_PERMANENT
    assert due(catalog) == []


def test_a_delivery_that_killed_its_process_too_often_is_given_up(catalog, pending):
    delivery.begin_attempt(catalog, pending)
    catalog.execute("UPDATE pgtrickle.pgt_ducklake_sink_delivery SET owner = %s", (dead_owner(),))
    (row,) = delivery.fail_abandoned(catalog, dead_after_seconds=3600, max_retries=0)
    assert row.status is DeliveryStatus.FAILED_PERMANENT


def test_a_living_process_keeps_its_delivery(catalog, pending):
    assert delivery.fail_abandoned(catalog, dead_after_seconds=3600, max_retries=3) == []
    assert delivery.heartbeat(catalog, pending)


def test_a_process_declared_dead_cannot_commit(catalog, pending):
    delivery.begin_attempt(catalog, pending)
    catalog.execute("UPDATE pgtrickle.pgt_ducklake_sink_delivery SET heartbeat_at = now() - interval '1 hour'")
    delivery.fail_abandoned(catalog, dead_after_seconds=60, max_retries=3)
    assert not delivery.heartbeat(catalog, pending)
    with pytest.raises(DeliveryOwnerLostError) as caught:
        land(catalog, pending)
    assert isinstance(caught.value, TransientError)
    with pytest.raises(DeliveryOwnerLostError):
        fail(catalog, pending)
    assert status(catalog, pending) is DeliveryStatus.FAILED_RETRYABLE


def test_files_of_open_deliveries_are_protected(catalog, pending):
    assert delivery.protected_ids(catalog) == {pending}
    delivery.begin_attempt(catalog, pending)
    land(catalog, pending)
    assert delivery.protected_ids(catalog) == frozenset()


def test_the_sink_status_shows_the_last_delivery_and_what_was_written_last(catalog, pgt_id, pending):
    delivery.begin_attempt(catalog, pending)
    fail(catalog, pending)
    delivery.begin_attempt(catalog, pending)
    land(catalog, pending)
    (row,) = delivery.sink_status(catalog)
    assert (row.stream_table_name, row.last_delivery_status) == ("silver.orders", "DELIVERED")
    assert (row.last_bytes_written, row.last_rows_written, row.failed_attempts) == (100, 7, 1)
    assert row.last_error == "503 Slow Down"
    refresh_id = history.start(catalog, pgt_id, initiated_by=InitiatedBy.MANUAL)
    later = delivery.create(catalog, pgt_id, refresh_id=refresh_id, partitions=["a"]).delivery_id
    delivery.begin_attempt(catalog, later)
    fail(catalog, later, retryable=False)
    (row,) = delivery.sink_status(catalog)
    assert (row.last_delivery_status, row.failed_attempts) == ("FAILED_PERMANENT", 1)
    assert (row.last_bytes_written, row.last_rows_written) == (100, 7)


def test_a_stream_table_that_was_never_delivered_has_an_empty_status(catalog, pgt_id):
    (row,) = delivery.sink_status(catalog)
    assert (row.last_delivery_status, row.failed_attempts, row.last_error) == (None, 0, None)


def test_stored_errors_hold_no_secrets(catalog, pending):
    delivery.fail(catalog, pending, "s3 said: secret_key=hunter2 is wrong", retryable=False, max_retries=3)
    assert "hunter2" not in delivery.get(catalog, pending).last_error


def test_an_unknown_delivery_is_an_error(catalog):
    with pytest.raises(ControlError, match="not recorded"):
        delivery.begin_attempt(catalog, "no-such-id")
