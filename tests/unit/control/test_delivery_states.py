from pgtrickle_assets.control.delivery import OPEN, TRANSITIONS, sources_of
from pgtrickle_assets.control.statuses import DeliveryStatus as S


def test_every_status_has_its_transitions():
    assert set(TRANSITIONS) == set(S)


def test_finished_deliveries_never_move_again():
    assert TRANSITIONS[S.DELIVERED] == frozenset()
    assert TRANSITIONS[S.FAILED_PERMANENT] == frozenset()


def test_only_writing_becomes_delivered():
    assert sources_of(S.DELIVERED) == {S.WRITING}


def test_every_status_but_pending_can_be_reached():
    reachable = {S.PENDING}
    while True:
        more = {after for before in reachable for after in TRANSITIONS[before]} | reachable
        if more == reachable:
            break
        reachable = more
    assert reachable == set(S)


def test_work_in_progress_can_always_fail():
    for status in OPEN:
        assert {S.FAILED_RETRYABLE, S.FAILED_PERMANENT} <= TRANSITIONS[status]
