"""`lake_changes`, `schema_changes`, `recovery`: each sees its own kind of change, and starts nothing twice."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace

import dagster as dg
import pytest

from pgtrickle_assets import Project, StreamTable, build_definitions
from pgtrickle_assets.assets.keys import ENGINE
from pgtrickle_assets.assets.processes import PROCESS_TAG
from pgtrickle_assets.control.owner import process, this_process
from pgtrickle_assets.errors import LakeUnavailableError
from pgtrickle_assets.query.types import INT64, ColumnSchema, TableName, TableSchema
from pgtrickle_assets.refresh.model import Lag, Recovered, SchemaChange
from pgtrickle_assets.schema_cache import KnownSchemas
from resources.engine import engine_resource
from tests.unit.assets.test_sensors import add_run, tick

CLICKS = TableName("main", "clicks")
ORDERS = TableName("public", "orders")


@pytest.fixture
def lake_project(tmp_path, engine):
    """Stream tables over a foreign lake table, over a source, and over the first of them."""

    def build(**options):
        queries = {
            "silver.items": "SELECT id FROM orders",
            "gold.by_day": "SELECT id FROM main.clicks",
            "gold.by_region": "SELECT id FROM gold.by_day",
        }
        tables = [StreamTable(name=name, query=text, **options.get(name, {})) for name, text in queries.items()]
        columns = (ColumnSchema("id", INT64),)
        known = KnownSchemas(
            sources={"shop": {ORDERS: TableSchema(ORDERS, columns, ("id",))}},
            lake={CLICKS: TableSchema(CLICKS, columns)},
        )
        project = Project(tables, sources={"shop": {"dsn": "postgresql://none"}}, home=tmp_path / "home", known=known)
        return build_definitions(project, resources={ENGINE: engine_resource(project, lambda *_: nullcontext(engine))})

    return build


def refreshed(request):
    return request.run_config["ops"]["capture"]["config"].get("stream_tables", "all")


def test_a_moved_lake_table_starts_its_readers_and_theirs_and_says_why(lake_project, instance, engine):
    definitions = lake_project()
    assert "No lake table has changed" in tick(definitions, instance, "lake_changes").skip_message
    engine.moved = {"gold.by_day": Lag(moved=("main.clicks",))}
    (request,) = tick(definitions, instance, "lake_changes").run_requests
    assert refreshed(request) == ["gold.by_day", "gold.by_region"]
    assert request.tags["pgtrickle/reason"] == "main.clicks has changed"
    assert request.run_key is None


def test_a_lake_change_is_the_business_of_one_sensor_alone(lake_project, instance, engine):
    definitions = lake_project()
    engine.moved = {"gold.by_day": Lag(moved=("main.clicks",))}
    assert tick(definitions, instance, "source_changes").run_requests == []
    engine.moved = {"silver.items": Lag(moved=("raw.orders",))}
    assert tick(definitions, instance, "lake_changes").run_requests == []
    assert len(tick(definitions, instance, "source_changes").run_requests) == 1
    engine.moved = {"gold.by_day": Lag(unfilled=True)}
    assert tick(definitions, instance, "lake_changes").run_requests == []
    assert len(tick(definitions, instance, "source_changes").run_requests) == 1


def test_a_held_reader_of_a_lake_table_is_left_alone(lake_project, instance, engine):
    engine.moved, engine.statuses = {"gold.by_day": Lag(moved=("main.clicks",))}, {"gold.by_day": "SUSPENDED"}
    result = tick(lake_project(), instance, "lake_changes")
    assert result.run_requests == []
    assert "pgtrickle refresh gold.by_day" in result.skip_message


@pytest.mark.parametrize("name", ["lake_changes", "schema_changes"])
def test_no_run_is_asked_for_while_one_runs(lake_project, instance, engine, name):
    definitions = lake_project()
    engine.moved = {"gold.by_day": Lag(moved=("main.clicks",))}
    engine.changed_columns = (change(),)
    add_run(instance, definitions, dg.DagsterRunStatus.STARTED, **{PROCESS_TAG: this_process()})
    assert tick(definitions, instance, name).run_requests == []


def test_a_scheduled_or_manual_reader_is_not_started_by_lake_changes(lake_project, instance, engine):
    engine.moved = {"gold.by_day": Lag(moved=("main.clicks",))}
    slow = {"schedule": "1h"}
    definitions = lake_project(**{"gold.by_day": slow, "gold.by_region": {"schedule": "manual"}})
    assert tick(definitions, instance, "lake_changes").run_requests == []


def test_a_project_without_foreign_lake_tables_asks_nothing(definitions, instance, engine):
    assert "no stream table reads a lake table" in tick(definitions, instance, "lake_changes").skip_message.lower()
    assert engine.calls == []


def change(**facts):
    given = SchemaChange(
        source="shop",
        table=ORDERS,
        lake_table=TableName("raw", "orders"),
        added=("note",),
        dropped=(),
        retyped=(("id", "int32", "int64"),),
        readers=("silver.items",),
        broken=(),
    )
    return replace(given, **facts)


def test_changed_columns_are_shown_once_and_their_readers_follow(lake_project, instance, engine):
    definitions = lake_project()
    assert "All columns are as they were" in tick(definitions, instance, "schema_changes").skip_message
    engine.changed_columns = (change(),)
    first = tick(definitions, instance, "schema_changes")
    (request,) = first.run_requests
    assert refreshed(request) == ["silver.items"]
    (event,) = first.asset_events
    assert event.asset_key == dg.AssetKey(["shop", "public", "orders"])
    assert event.metadata["retyped"].value == "id from int32 to int64"
    assert "copies the mirror again" in event.metadata["what_follows"].value
    again = tick(definitions, instance, "schema_changes", cursor=first.cursor)
    assert list(again.asset_events) == []
    assert len(tick(definitions, instance, "schema_changes", cursor="lost").asset_events) == 1
    engine.changed_columns = (change(added=("note", "more")),)
    assert len(tick(definitions, instance, "schema_changes", cursor=first.cursor).asset_events) == 1


def test_a_change_that_breaks_a_query_starts_nothing_and_names_it(lake_project, instance, engine):
    broken = (("silver.items", "silver/items.sql:3: column id does not exist"),)
    engine.changed_columns = (change(added=(), retyped=(), dropped=("id",), broken=broken),)
    result = tick(lake_project(), instance, "schema_changes")
    assert result.run_requests == []
    assert "silver/items.sql:3: column id does not exist" in result.skip_message
    (event,) = result.asset_events
    assert "silver.items is not refreshed" in event.metadata["what_follows"].value


def test_a_foreign_lake_table_is_shown_on_its_own_asset(lake_project, instance, engine):
    engine.changed_columns = (change(source="", table=CLICKS, lake_table=CLICKS, readers=("gold.by_day",)),)
    (event,) = tick(lake_project(), instance, "schema_changes").asset_events
    assert event.asset_key == dg.AssetKey(["main", "clicks"])


def test_readers_that_are_refreshed_by_hand_are_not_started_by_changed_columns(lake_project, instance, engine):
    engine.changed_columns = (change(),)
    definitions = lake_project(**{"silver.items": {"schedule": "manual"}})
    result = tick(definitions, instance, "schema_changes")
    assert result.run_requests == []
    assert "by hand" in result.skip_message
    assert len(result.asset_events) == 1


def test_recovery_closes_runs_of_dead_processes_of_any_job(definitions, instance, engine):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    marks = {PROCESS_TAG: process(child.pid)}
    job = definitions.resolve_job_def("maintain")
    dead = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=marks)
    alive = add_run(instance, definitions, dg.DagsterRunStatus.STARTED, **{PROCESS_TAG: this_process()})
    foreign = add_run(instance, definitions, dg.DagsterRunStatus.STARTED)
    assert "left anything open" in tick(definitions, instance, "recovery").skip_message
    child.kill()
    child.wait()
    assert tick(definitions, instance, "recovery").skip_message == "Closed 1 runs of dead processes."
    statuses = {run.run_id: run.status for run in instance.get_runs()}
    assert statuses[dead.run_id] == dg.DagsterRunStatus.FAILURE
    assert statuses[alive.run_id] == statuses[foreign.run_id] == dg.DagsterRunStatus.STARTED
    assert "left anything open" in tick(definitions, instance, "recovery").skip_message


def test_recovery_says_what_it_closed_and_starts_nothing(definitions, instance, engine):
    engine.recovered = Recovered(("a", "b"), (7,))
    result = tick(definitions, instance, "recovery")
    assert result.skip_message == "Closed 1 refreshes, 2 deliveries of dead processes."
    assert result.run_requests == []
    assert engine.asked("recover") == [()]


@pytest.mark.parametrize(
    ("name", "call"), [("lake_changes", "lags"), ("schema_changes", "schema_changes"), ("recovery", "recover")]
)
def test_an_unreachable_lake_is_skipped_a_few_times_and_then_raised(lake_project, instance, engine, name, call):
    definitions = lake_project()
    engine.errors[call,] = LakeUnavailableError("The catalog cannot be reached.")
    cursor = None
    for _ in range(5):
        result = tick(definitions, instance, name, cursor=cursor)
        assert "cannot be reached" in result.skip_message
        cursor = result.cursor
    with pytest.raises(LakeUnavailableError):
        tick(definitions, instance, name, cursor=cursor)


@pytest.mark.parametrize("name", ["lake_changes", "schema_changes", "recovery"])
def test_sensors_run_by_themselves_and_start_no_spark(lake_project, instance, engine, name):
    definitions = lake_project()
    assert definitions.resolve_sensor_def(name).default_status == dg.DefaultSensorStatus.RUNNING
    tick(definitions, instance, name)
    assert not {"sync", "prepare", "capture", "check", "read"} & {call[0] for call in engine.calls}
