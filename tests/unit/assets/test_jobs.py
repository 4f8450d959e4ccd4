"""The jobs: one run for everything, events only for what changed, failures that stop only their readers."""

from __future__ import annotations

import dagster as dg
import pytest

from pgtrickle_assets import Project, StreamTable
from pgtrickle_assets.errors import ConfigurationError

DAY, REGION, ITEMS = (
    dg.AssetKey(["gold", "by_day"]),
    dg.AssetKey(["gold", "by_region"]),
    dg.AssetKey(["silver", "items"]),
)


def run(definitions, instance, job="refresh", raise_on_error=True, **config):
    return definitions.resolve_job_def(job).execute_in_process(
        instance=instance,
        run_config={"ops": {"capture": {"config": config}}} if config else None,
        raise_on_error=raise_on_error,
    )


def materialized(instance, key):
    return sorted(instance.get_materialized_partitions(key))


def test_a_refresh_is_one_run_at_one_cut_in_dependency_order(definitions, instance, engine):
    assert run(definitions, instance).success
    prepared = engine.asked("prepare")
    assert prepared[0][0] == "silver.items"
    assert {call[0] for call in prepared} == {"silver.items", "gold.by_day", "gold.by_region"}
    assert {call[2] for call in prepared} == {engine.snapshot}
    assert len(engine.asked("capture")) == 1


def test_only_touched_partitions_get_a_materialization(definitions, instance, engine):
    engine.touched = {"silver.items": ["all"], "gold.by_day": ["2024-07-02", "1999-01-01", "__null__"]}
    assert run(definitions, instance).success
    assert materialized(instance, DAY) == ["1999-01-01", "2024-07-02", "__null__"]
    assert materialized(instance, ITEMS) == ["all"]
    assert materialized(instance, REGION) == []
    records = instance.fetch_materializations(DAY, limit=10).records
    rows = {r.asset_materialization.partition: r.asset_materialization.metadata for r in records}
    assert rows["2024-07-02"]["dagster/partition_row_count"].value == 5
    assert rows["2024-07-02"]["strategy"].value == "differential"


def test_changed_mirrors_get_a_materialization(definitions, instance):
    assert run(definitions, instance).success
    event = instance.get_latest_materialization_event(dg.AssetKey(["raw", "orders"])).asset_materialization
    assert event.metadata["rows_inserted"].value == 3
    assert instance.get_latest_materialization_event(dg.AssetKey(["raw", "still"])) is None


def test_what_is_upstream_of_a_named_stream_table_comes_along(definitions, instance, engine):
    assert run(definitions, instance, stream_tables=["gold.by_day"]).success
    assert [call[0] for call in engine.asked("prepare")] == ["silver.items", "gold.by_day"]


def test_partitions_hold_for_the_named_stream_table(definitions, instance, engine):
    assert run(definitions, instance, stream_tables=["gold.by_day"], partitions=["2024-07-02"]).success
    assert [call[:2] for call in engine.asked("prepare")] == [("silver.items", None), ("gold.by_day", ("2024-07-02",))]


def test_partitions_of_many_stream_tables_are_refused(definitions, instance, engine):
    result = run(definitions, instance, raise_on_error=False, partitions=["2024-07-02"])
    assert not result.success
    assert engine.calls == []


@pytest.mark.parametrize(("key", "arrives"), [("2024-7-2", ("2024-07-02",)), ("nonsense", None)])
def test_a_partition_reaches_the_engine_as_it_is_stored_or_not_at_all(definitions, instance, engine, key, arrives):
    result = run(definitions, instance, raise_on_error=False, stream_tables=["gold.by_day"], partitions=[key])
    assert result.success is (arrives is not None)
    assert [call[1] for call in engine.asked("prepare") if call[0] == "gold.by_day"] == ([arrives] if arrives else [])


def test_a_failed_step_stops_its_readers_and_nothing_else(definitions, instance, engine):
    engine.errors[("prepare", "gold.by_day")] = ConfigurationError("wrong")
    result = run(definitions, instance, raise_on_error=False)
    assert not result.success
    assert ("gold.by_region",) in engine.asked("deliver")

    engine.calls.clear()
    engine.errors = {("prepare", "silver.items"): ConfigurationError("wrong")}
    result = run(definitions, instance, raise_on_error=False)
    assert engine.asked("deliver") == []


def test_a_rebuild_recomputes_in_full(definitions, instance, engine):
    assert run(definitions, instance, job="rebuild").success
    assert all(call[3] for call in engine.asked("prepare"))


def test_a_rebuild_of_one_refreshes_what_is_upstream_as_usual(definitions, instance, engine):
    assert run(definitions, instance, job="refresh", stream_tables=["gold.by_day"], full=True).success
    assert {call[0]: call[3] for call in engine.asked("prepare")} == {"silver.items": False, "gold.by_day": True}


def test_verify_runs_every_check_of_each_stream_table(definitions, instance, engine):
    result = run(definitions, instance, job="verify")
    evaluations = result.get_asset_check_evaluations()
    assert {(e.asset_key, e.check_name, e.passed) for e in evaluations} == {
        (key, name, True)
        for key in (DAY, REGION, ITEMS)
        for name in ("differential_equals_full", "agrees_with_duckdb", "delivered", "fresh")
    }


@pytest.mark.parametrize("name", ["differential_equals_full", "agrees_with_duckdb"])
def test_a_failed_check_fails_the_run_and_shows_the_rows(definitions, instance, engine, name):
    engine.passed = False
    result = run(definitions, instance, job="verify", raise_on_error=False)
    assert not result.success
    evaluation = next(e for e in result.get_asset_check_evaluations() if e.check_name == name)
    records = [record.data for record in evaluation.metadata["differing_rows"].records]
    assert records == [{"difference": 1, "a": "1", "b": None}, {"difference": -1, "a": "2", "b": "x"}]


def test_content_that_is_too_old_is_a_warning_with_its_age(definitions, instance, engine):
    engine.fresh = False
    result = run(definitions, instance, job="verify")
    assert result.success
    evaluation = next(e for e in result.get_asset_check_evaluations() if e.check_name == "fresh")
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert evaluation.metadata["age_seconds"].value == 900.0


def test_maintain_runs(definitions, instance, engine):
    assert run(definitions, instance, job="maintain").success
    assert engine.asked("maintain") == [(False,)]


def test_maintenance_starts_by_itself_as_often_as_the_setting_says(rebuild_project, monkeypatch):
    _, definitions = rebuild_project()
    schedule = definitions.resolve_schedule_def("maintenance")
    assert (schedule.cron_schedule, schedule.job_name) == ("23 * * * *", "maintain")
    assert schedule.default_status.value == "RUNNING"
    monkeypatch.setenv("PGTRICKLE_MAINTENANCE_SCHEDULE", "")
    _, definitions = rebuild_project()
    assert not definitions.schedules


def test_keys_of_a_dynamic_value_partition_appear_as_they_come(rebuild_project, instance, engine):
    _, definitions = rebuild_project(**{"gold.by_region": {"partition_by": "value(r)"}})
    engine.touched = {"gold.by_region": ["EU", "__null__"]}
    assert run(definitions, instance).success
    assert sorted(instance.get_dynamic_partitions("pgtrickle/gold.by_region")) == ["EU", "__null__"]


def test_days_found_in_the_data_become_the_calendar(rebuild_project, instance, engine):
    open_ended = {"gold.by_day": {"partition_start": None, "partition_end": None}}
    _, definitions = rebuild_project(**open_ended)
    engine.touched = {"gold.by_day": ["2030-01-05", "2013-01-03", "__null__"]}
    assert run(definitions, instance).success
    _, definitions = rebuild_project(**open_ended)
    keys = definitions.resolve_asset_graph().get(DAY).partitions_def.get_partition_keys()
    assert (keys[0], keys[-1]) == ("2013-01-03", "2030-01-05")


def test_a_run_records_its_process(definitions, instance):
    from pgtrickle_assets.assets.processes import PROCESS_TAG
    from pgtrickle_assets.control.owner import this_process

    run(definitions, instance)
    assert instance.get_runs()[0].tags[PROCESS_TAG] == this_process()


@pytest.mark.parametrize("name", ["refresh", "rebuild", "verify", "maintain"])
def test_jobs_share_one_process(definitions, name):
    assert definitions.resolve_job_def(name).executor_def.name == "in_process"


def test_what_is_paused_and_what_reads_it_is_left_out_of_a_run_for_all(definitions, instance, engine):
    engine.statuses = {"gold.by_day": "PAUSED"}
    assert run(definitions, instance).success
    assert {call[0] for call in engine.asked("prepare")} == {"silver.items", "gold.by_region"}
    engine.calls.clear()
    engine.statuses = {"silver.items": "PAUSED"}
    assert run(definitions, instance).success
    assert engine.asked("prepare") == []


def test_a_named_stream_table_that_is_paused_or_reads_a_paused_one_fails_the_run(definitions, instance, engine):
    engine.statuses = {"silver.items": "PAUSED"}
    for name in ("silver.items", "gold.by_day"):
        result = run(definitions, instance, raise_on_error=False, stream_tables=[name])
        assert not result.success
        failure = next(event for event in result.all_events if event.is_step_failure)
        assert "pgtrickle resume silver.items" in failure.step_failure_data.user_failure_data.description
    assert engine.asked("prepare") == []


def test_what_sql_made_since_the_code_was_loaded_is_refreshed_too(definitions, instance, engine, project):
    made = [
        StreamTable(name="gold.late", query="SELECT r FROM gold.later", from_sql=True),
        StreamTable(name="gold.later", query="SELECT r FROM gold.by_region", from_sql=True),
    ]
    engine.project = project.with_stream_tables([*project.stream_tables, *made])
    engine.touched = {"gold.late": ["all"]}
    assert run(definitions, instance).success
    assert [call[0] for call in engine.asked("prepare")][-2:] == ["gold.later", "gold.late"]
    assert materialized(instance, dg.AssetKey(["gold", "late"])) == ["all"]

    engine.calls.clear()
    assert run(definitions, instance, stream_tables=["gold.later"]).success
    assert [call[0] for call in engine.asked("prepare")] == ["silver.items", "gold.by_region", "gold.later"]
    assert {call[2] for call in engine.asked("prepare")} == {engine.snapshot}


def test_a_project_without_stream_tables_can_refresh_what_sql_makes(instance, engine, serve, tmp_path):
    empty = Project([], home=tmp_path / "home")
    definitions = serve(empty)
    engine.project = empty.with_stream_tables([StreamTable(name="gold.a", query="SELECT 1 AS x", from_sql=True)])
    assert run(definitions, instance).success
    assert [call[0] for call in engine.asked("prepare")] == ["gold.a"]
