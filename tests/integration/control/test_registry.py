from dataclasses import replace

import psycopg
import pytest

from pgtrickle_assets.control import frontier, history, registry
from pgtrickle_assets.control.registry import Dependency, StreamTableDefinition
from pgtrickle_assets.control.registry_sync import sync
from pgtrickle_assets.control.statuses import InitiatedBy, Origin, SourceType, StreamTableStatus
from pgtrickle_assets.errors import ControlError
from pgtrickle_assets.query.types import TableName

SILVER, GOLD = TableName("silver", "orders"), TableName("gold", 'naïve "x".y')
orders = StreamTableDefinition(
    SILVER,
    Origin.FILE,
    "SELECT * FROM orders",
    "SELECT id FROM public.orders",
    origin_path="stream_tables/silver/orders.sql",
    dependencies=(Dependency(SourceType.TABLE, "raw.orders", "shop", ("id", "day"), "f1"),),
    tags={"tier": "hot"},
    owners=("team:x",),
    mode_reasons=({"code": "volatile", "detail": "now()"},),
    state_tables=("pgtrickle_state.s1",),
    options={"partition_start": "2024-01-01", "n": 1},
)
revenue = StreamTableDefinition(
    GOLD, Origin.FILE, "SELECT 1", "SELECT 1", dependencies=(Dependency(SourceType.STREAM_TABLE, "silver.orders"),)
)


def test_a_project_is_registered_with_its_dependencies_whatever_the_order(catalog):
    result = sync(catalog, "p", [revenue, orders])
    assert set(result.inserted) == {SILVER, GOLD}
    row = registry.find(catalog, SILVER)
    assert row is not None
    assert row.status is StreamTableStatus.INITIALIZING
    assert (row.name, row.tags, list(row.owners)) == (SILVER, {"tier": "hot"}, ["team:x"])
    assert row.defining_query_hash == orders.query_hash
    reads = registry.dependencies(catalog)
    assert reads[result.ids[SILVER]] == orders.dependencies
    assert reads[result.ids[GOLD]] == revenue.dependencies
    assert [reader.name for reader in registry.readers(catalog, result.ids[SILVER])] == [GOLD]


def test_a_second_synchronization_changes_nothing(catalog):
    first = sync(catalog, "p", [orders, revenue])
    before = registry.stored(catalog)
    second = sync(catalog, "p", [revenue, orders])
    assert not second.changed
    assert second.ids == first.ids
    assert registry.stored(catalog) == before


def test_state_tables_that_are_to_hold_something_else_are_computed_anew(catalog):
    before = replace(orders, state_content="all groups")
    sync(catalog, "p", [before])
    assert not sync(catalog, "p", [before]).changed
    assert sync(catalog, "p", [replace(orders, state_content="some groups")]).redefined == (SILVER,)


def test_a_change_of_options_keeps_the_content(catalog):
    ids = sync(catalog, "p", [orders]).ids
    result = sync(catalog, "p", [replace(orders, schedule="5m", description="x")])
    assert (result.altered, result.redefined) == ((SILVER,), ())
    assert result.ids == ids
    row = registry.find(catalog, SILVER)
    assert (row.schedule, row.needs_reinit) == ("5m", False)


@pytest.mark.parametrize("changed", [{"defining_query": "SELECT 2"}, {"partition_by": "day(d)"}, {"dialect": "spark"}])
def test_a_change_of_what_decides_the_content_asks_for_a_rebuild(catalog, changed):
    ids = sync(catalog, "p", [orders]).ids
    catalog.execute("UPDATE pgtrickle.pgt_stream_tables SET is_populated = true, status = 'SUSPENDED'")
    result = sync(catalog, "p", [replace(orders, **changed)])
    assert result.redefined == (SILVER,)
    assert result.ids == ids
    row = registry.find(catalog, SILVER)
    assert row.needs_reinit
    assert row.status is StreamTableStatus.INITIALIZING


def test_a_paused_stream_table_stays_paused_when_its_query_changes(catalog):
    ids = sync(catalog, "p", [orders]).ids
    registry.pause(catalog, ids[SILVER])
    sync(catalog, "p", [replace(orders, defining_query="SELECT 2")])
    assert registry.find(catalog, SILVER).status is StreamTableStatus.PAUSED


def test_a_removed_stream_table_takes_everything_of_its_own_along(catalog):
    ids = sync(catalog, "p", [orders, revenue]).ids
    refresh = history.start(catalog, ids[GOLD], initiated_by=InitiatedBy.MANUAL)
    frontier.advance(
        catalog, ids[GOLD], "*", expect=None, inputs={"silver.orders": 1}, cut=1, snapshot_id=2, refresh_id=refresh
    )
    result = sync(catalog, "p", [orders])
    assert result.removed == ((GOLD, ids[GOLD], ()),)
    for table in ("pgt_refresh_history", "pgt_frontiers", "pgt_partition_cuts"):
        assert catalog.execute(f"SELECT count(*) FROM pgtrickle.{table}").fetchone() == (0,)


def test_an_upstream_and_its_reader_can_go_together(catalog):
    sync(catalog, "p", [orders, revenue])
    with catalog.transaction():
        result = sync(catalog, "p", [])
    assert {name for name, _, _ in result.removed} == {SILVER, GOLD}
    assert next(states for name, _, states in result.removed if name == SILVER) == ("pgtrickle_state.s1",)


def test_a_reader_may_stop_reading_what_goes(catalog):
    sync(catalog, "p", [orders, revenue])
    with catalog.transaction():
        sync(catalog, "p", [replace(revenue, defining_query="SELECT 2", dependencies=())])
    assert registry.find(catalog, SILVER) is None


def test_what_another_project_reads_cannot_go(catalog):
    with catalog.transaction():
        sync(catalog, "p", [orders])
        sync(catalog, "q", [revenue])
    with pytest.raises(ControlError, match=r"silver\.orders.*project 'q'"), catalog.transaction():
        sync(catalog, "p", [])
    assert registry.find(catalog, SILVER) is not None


def test_a_stream_table_that_is_read_cannot_be_deleted_by_hand(catalog):
    sync(catalog, "p", [orders, revenue])
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        catalog.execute("DELETE FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'orders'")


def test_a_name_of_another_project_is_refused(catalog):
    sync(catalog, "p", [orders])
    with pytest.raises(ControlError, match="belongs to project 'p'"):
        sync(catalog, "q", [orders])


def test_a_stream_table_may_move_between_sql_and_a_file(catalog):
    ids = sync(catalog, "p", [replace(orders, origin=Origin.SQL, origin_path=None)]).ids
    result = sync(catalog, "p", [orders])
    assert (result.ids, result.altered) == (ids, (SILVER,))
    assert registry.find(catalog, SILVER).origin == "file"


def test_an_unregistered_upstream_is_an_error_and_nothing_is_kept(catalog):
    with pytest.raises(ControlError, match=r"silver\.orders, which is not registered"), catalog.transaction():
        sync(catalog, "p", [revenue])
    assert registry.stored(catalog) == []


def test_resume_forgets_errors_and_knows_whether_there_is_content(catalog):
    pgt_id = sync(catalog, "p", [orders]).ids[SILVER]
    catalog.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED', consecutive_errors = 3")
    assert registry.resume(catalog, pgt_id) is StreamTableStatus.INITIALIZING
    catalog.execute("UPDATE pgtrickle.pgt_stream_tables SET status = 'ERROR', is_populated = true")
    assert registry.resume(catalog, pgt_id) is StreamTableStatus.ACTIVE
    assert registry.find(catalog, SILVER).consecutive_errors == 0


def test_changing_the_status_of_nothing_is_an_error(catalog):
    with pytest.raises(ControlError, match="4711"):
        registry.pause(catalog, 4711)
