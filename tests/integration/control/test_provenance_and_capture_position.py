from dataclasses import replace

import pytest

from pgtrickle_assets.control import capture_position, history, provenance
from pgtrickle_assets.control.capture_position import MirrorRow
from pgtrickle_assets.control.statuses import InitiatedBy
from pgtrickle_assets.errors import StaleFrontierError
from pgtrickle_assets.query.types import TableName

ORDERS = MirrorRow("shop", "public", "orders", "raw", "orders", [{"name": "id", "type": "int64"}])


def test_a_snapshot_can_be_traced_to_its_refresh(catalog, pgt_id):
    refresh_id = history.start(catalog, pgt_id, initiated_by=InitiatedBy.MANUAL)
    for snapshot in (4, 9):
        provenance.record(
            catalog, pgt_id=pgt_id, name="silver.orders", snapshot_id=snapshot, refresh_id=refresh_id, delta_row_count=2
        )
    found = provenance.recent(catalog, pgt_id)
    assert [row.ducklake_snapshot_id for row in found] == [9, 4]
    assert (found[0].stream_table_oid, found[0].stream_table_name, found[0].refresh_id) == (
        pgt_id,
        "silver.orders",
        refresh_id,
    )


def test_a_refresh_does_not_fail_for_its_provenance(catalog, pgt_id):
    unknown = pgt_id + 1
    with catalog.transaction():
        refresh_id = history.start(catalog, pgt_id, initiated_by=InitiatedBy.MANUAL)
        assert not provenance.record(
            catalog, pgt_id=unknown, name="silver.orders", snapshot_id=4, refresh_id=refresh_id, delta_row_count=2
        )
    assert history.get(catalog, refresh_id) is not None
    assert provenance.recent(catalog, unknown) == []


def test_provenance_outlives_the_history(catalog, pgt_id):
    refresh_id = history.start(catalog, pgt_id, initiated_by=InitiatedBy.MANUAL)
    provenance.record(
        catalog, pgt_id=pgt_id, name="silver.orders", snapshot_id=4, refresh_id=refresh_id, delta_row_count=2
    )
    catalog.execute("DELETE FROM pgtrickle.pgt_refresh_history")
    assert provenance.recent(catalog, pgt_id)[0].refresh_id is None


def test_a_position_moves_from_where_the_batch_was_read(catalog):
    assert capture_position.position(catalog, "shop") is None
    capture_position.advance(catalog, "shop", expect=None, position="10:10:", snapshot_id=3)
    capture_position.advance(catalog, "shop", expect="10:10:", position="12:15:13", snapshot_id=None)
    stored = capture_position.position(catalog, "shop")
    assert stored is not None
    assert (stored.position, stored.ducklake_snapshot_id) == ("12:15:13", 3)


@pytest.mark.parametrize("expect", [None, "9:9:"])
def test_a_position_that_moved_meanwhile_is_left_alone(catalog, expect):
    capture_position.advance(catalog, "shop", expect=None, position="10:10:", snapshot_id=3)
    with pytest.raises(StaleFrontierError, match="shop"):
        capture_position.advance(catalog, "shop", expect=expect, position="20:20:", snapshot_id=4)
    assert capture_position.position(catalog, "shop").position == "10:10:"


def test_sources_have_positions_of_their_own(catalog):
    capture_position.advance(catalog, "shop", expect=None, position="1:1:", snapshot_id=3)
    capture_position.advance(catalog, "crm", expect=None, position="2:2:", snapshot_id=3)
    assert {name: row.position for name, row in capture_position.positions(catalog).items()} == {
        "shop": "1:1:",
        "crm": "2:2:",
    }


def test_mirrors_are_registered_changed_and_forgotten(catalog):
    capture_position.put_mirror(catalog, ORDERS)
    assert capture_position.mirrors(catalog) == [ORDERS]
    assert (ORDERS.source, ORDERS.mirror) == (TableName("public", "orders"), TableName("raw", "orders"))
    copied = replace(ORDERS, ducklake_snapshot_id=5)
    capture_position.put_mirror(catalog, copied)
    assert capture_position.mirrors(catalog, "shop") == [copied]
    assert capture_position.mirrors(catalog, "crm") == []
    assert capture_position.remove_mirror(catalog, "shop", ORDERS.source)
    assert not capture_position.remove_mirror(catalog, "shop", ORDERS.source)
