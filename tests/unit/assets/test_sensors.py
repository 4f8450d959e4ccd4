"""Sensors: a tick without changes starts nothing, no run is asked for twice, and failures are waited out."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import dagster as dg
import pytest

from pgtrickle_assets.assets.automation import CALM, due_tables
from pgtrickle_assets.assets.processes import PROCESS_TAG
from pgtrickle_assets.control.owner import process, this_process
from pgtrickle_assets.control.sql_definitions import SqlRequests
from pgtrickle_assets.errors import SourceError


def tick(definitions, instance, name="source_changes", cursor=None):
    context = dg.build_sensor_context(
        instance=instance, cursor=cursor, definitions=definitions, resources=definitions.resources
    )
    with context:
        return definitions.resolve_sensor_def(name).evaluate_tick(context)


def add_run(instance, definitions, status, **tags):
    job = definitions.resolve_job_def("refresh")
    return instance.create_run_for_job(job, status=status, tags=tags)


def test_a_tick_without_changes_starts_nothing(definitions, instance):
    result = tick(definitions, instance)
    assert result.run_requests == []
    assert "No source has changed" in result.skip_message


def test_a_change_starts_one_run_for_all_that_follow_changes(definitions, instance, engine):
    engine.changed = True
    (request,) = tick(definitions, instance).run_requests
    assert request.job_name in (None, "refresh")
    assert request.run_key is None
    assert request.run_config == {"ops": {"capture": {"config": {"initiated_by": "SCHEDULER"}}}}


def test_a_tick_does_not_sync_or_start_spark(definitions, instance, engine):
    engine.changed = True
    tick(definitions, instance)
    assert {call[0] for call in engine.calls} <= {"has_source_changes", "lags"}


def test_a_stream_table_that_is_behind_the_lake_starts_a_run(definitions, instance, engine):
    engine.behind_tables = frozenset({"gold.by_day"})
    assert len(tick(definitions, instance).run_requests) == 1


@pytest.mark.parametrize(
    "status", [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
)
def test_no_second_run_while_one_waits_or_runs(definitions, instance, engine, status):
    engine.changed = True
    add_run(instance, definitions, status, **{PROCESS_TAG: this_process()})
    assert tick(definitions, instance).run_requests == []


def test_a_run_whose_process_was_killed_does_not_count(definitions, instance, engine):
    engine.changed = True
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    mark = process(child.pid)
    run = add_run(instance, definitions, dg.DagsterRunStatus.STARTED, **{PROCESS_TAG: mark})
    assert tick(definitions, instance).run_requests == []
    child.kill()
    child.wait()
    assert "failed" in tick(definitions, instance).skip_message
    assert instance.get_run_by_id(run.run_id).status == dg.DagsterRunStatus.FAILURE


@pytest.mark.parametrize("name", ["source_changes", "due_refreshes"])
@pytest.mark.parametrize("status", ["SUSPENDED", "PAUSED"])
def test_a_sensor_leaves_a_held_stream_table_alone_and_refreshes_the_others(
    rebuild_project, instance, engine, name, status
):
    _, definitions = rebuild_project(
        **{table: {"schedule": "1m"} for table in ("gold.by_day", "gold.by_region") if name == "due_refreshes"}
    )
    engine.changed, engine.statuses = True, {"gold.by_day": status}
    (request,) = tick(definitions, instance, name).run_requests
    assert request.run_config["ops"]["capture"]["config"]["stream_tables"] in (
        ["silver.items", "gold.by_region"],
        ["gold.by_region"],
    )


def test_a_tick_says_how_to_resume_when_all_that_could_move_is_suspended(definitions, instance, engine):
    engine.behind_tables = frozenset({"gold.by_day"})
    engine.statuses = {"silver.items": "SUSPENDED"}
    result = tick(definitions, instance)
    assert result.run_requests == []
    assert (
        "Run `pgtrickle resume silver.items` or `pgtrickle refresh silver.items` after mending the cause."
        in result.skip_message
    )


def test_a_failure_is_waited_out(definitions, instance, engine):
    engine.changed = True
    run = add_run(instance, definitions, dg.DagsterRunStatus.STARTED)
    instance.report_run_failed(run, "broken")
    assert "the last 1 refresh runs failed" in tick(definitions, instance).skip_message.lower()


def test_an_unreachable_source_is_skipped_a_few_times_and_then_raised(definitions, instance, engine):
    engine.errors[("has_source_changes",)] = SourceError("Source shop cannot be reached.")
    cursor = None
    for _ in range(5):
        result = tick(definitions, instance, cursor=cursor)
        assert "cannot be reached" in result.skip_message
        cursor = result.cursor
    with pytest.raises(SourceError):
        tick(definitions, instance, cursor=cursor)
    engine.errors.clear()
    assert tick(definitions, instance, cursor=cursor).cursor == CALM


def test_a_lost_or_foreign_cursor_does_no_harm(definitions, instance, engine):
    engine.errors[("has_source_changes",)] = SourceError("down")
    assert tick(definitions, instance, cursor="[]").skip_message
    assert tick(definitions, instance, cursor="not json").skip_message


def test_a_scheduled_stream_table_is_refreshed_when_due_and_not_by_changes(rebuild_project, instance, engine, now):
    overrides = {"gold.by_day": {"schedule": "1h"}, "gold.by_region": {"schedule": "manual"}}
    _, definitions = rebuild_project(**overrides)
    engine.changed = True
    assert "no stream table follows changes" in tick(definitions, instance).skip_message.lower()
    (request,) = tick(definitions, instance, "due_refreshes").run_requests
    assert request.run_config["ops"]["capture"]["config"]["stream_tables"] == ["silver.items", "gold.by_day"]

    engine.last_refresh = {"silver.items": now, "gold.by_day": now - timedelta(minutes=59)}
    assert tick(definitions, instance, "due_refreshes").run_requests == []


def test_what_is_due_but_has_nothing_to_do_starts_nothing(rebuild_project, instance, engine):
    _, definitions = rebuild_project(**{"gold.by_day": {"schedule": "1h"}})
    assert tick(definitions, instance, "due_refreshes").run_requests == []
    engine.behind_tables = frozenset({"silver.items"})
    assert len(tick(definitions, instance, "due_refreshes").run_requests) == 1


def test_due_tables_follow_cron(rebuild_project, now):
    project, _ = rebuild_project(**{"gold.by_day": {"schedule": "@hourly"}})
    recent = dict.fromkeys(project.order, now)
    assert due_tables(project, recent, frozenset(), now, sources_changed=True) == ()
    assert due_tables(project, {}, frozenset(), now, sources_changed=True) == ("gold.by_day",)


def test_sensors_run_by_themselves(definitions):
    for name in ("source_changes", "due_refreshes"):
        assert definitions.resolve_sensor_def(name).default_status == dg.DefaultSensorStatus.RUNNING


def test_a_tick_takes_up_what_sql_has_asked_for(definitions, instance, engine):
    assert tick(definitions, instance, "sql_requests").run_requests == []
    engine.sql_requests = SqlRequests(("gold.by_day",), ("gold.late",), {})
    (request,) = tick(definitions, instance, "sql_requests").run_requests
    config = {"initiated_by": "MANUAL", "stream_tables": ["gold.by_day"]}
    assert request.run_config == {"ops": {"capture": {"config": config}}}
    # What was made or dropped is taken up by a run that refreshes nothing.
    engine.sql_requests = SqlRequests((), ("gold.late",), {})
    (request,) = tick(definitions, instance, "sql_requests").run_requests
    assert request.run_config["ops"]["capture"]["config"]["stream_tables"] == []
    add_run(instance, definitions, dg.DagsterRunStatus.STARTED, **{PROCESS_TAG: this_process()})
    assert tick(definitions, instance, "sql_requests").run_requests == []


def test_a_run_for_no_stream_table_registers_and_refreshes_nothing(definitions, instance, engine):
    config = {"ops": {"capture": {"config": {"stream_tables": []}}}}
    assert definitions.resolve_job_def("refresh").execute_in_process(instance=instance, run_config=config).success
    assert engine.asked("sync") == [()]
    assert engine.asked("prepare") == []
