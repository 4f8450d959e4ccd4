"""Stream tables as assets: what the graph shows and what a materialization asks of the engine."""

from __future__ import annotations

import warnings

import dagster as dg
import pytest

from pgtrickle_assets.errors import ConfigurationError, LakeConflictError
from pgtrickle_assets.partitions import NULL_KEY

DAY, REGION, ITEMS = (
    dg.AssetKey(["gold", "by_day"]),
    dg.AssetKey(["gold", "by_region"]),
    dg.AssetKey(["silver", "items"]),
)
MIRROR, SOURCE = dg.AssetKey(["raw", "orders"]), dg.AssetKey(["postgres", "public", "orders"])


def materialize(definitions, instance, *keys, **arguments):
    return dg.materialize(
        definitions.assets,
        selection=list(keys),
        instance=instance,
        resources=definitions.resources,
        **arguments,
    )


def test_the_graph_has_source_mirror_and_stream_tables_with_their_groups(definitions):
    graph = definitions.resolve_asset_graph()
    groups = {key: graph.get(key).group_name for key in graph.get_all_asset_keys()}
    assert groups == {SOURCE: "sources", MIRROR: "raw", ITEMS: "silver", DAY: "gold", REGION: "gold"}
    assert graph.get(DAY).parent_keys == {ITEMS}
    assert graph.get(MIRROR).parent_keys == {SOURCE}
    assert not graph.get(SOURCE).is_executable


def test_every_stream_table_is_partitioned(definitions):
    graph = definitions.resolve_asset_graph()
    assert graph.get(ITEMS).partitions_def.get_partition_keys() == ["all"]
    assert graph.get(DAY).partitions_def.get_partition_keys() == ["2024-07-01", "2024-07-02", "2024-07-03"]
    assert graph.get(REGION).partitions_def.get_partition_keys() == ["EU", "US", NULL_KEY]


def test_definitions_are_loadable(definitions):
    dg.Definitions.validate_loadable(definitions)


def test_neither_loading_nor_a_run_meets_a_warning_of_dagster(rebuild_project, instance):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, definitions = rebuild_project()
        assert materialize(definitions, instance, ITEMS, MIRROR, partition_key="all").success
        assert definitions.resolve_job_def("refresh").execute_in_process(instance=instance).success
    assert [str(w.message) for w in caught if "pgtrickle" in w.filename or issubclass(w.category, dg.BetaWarning)] == []


def test_a_partition_is_refreshed_and_delivered_through_the_io_manager(definitions, instance, engine):
    assert materialize(definitions, instance, DAY, partition_key="2024-07-02").success
    assert engine.asked("prepare") == [("gold.by_day", ("2024-07-02",), None, False, "MANUAL")]
    assert engine.asked("deliver") == [("gold.by_day",)]
    event = instance.get_latest_materialization_event(DAY).asset_materialization
    assert event.partition == "2024-07-02"
    shown = {key: value.value for key, value in event.metadata.items()}
    assert (shown["strategy"], shown["snapshot"], shown["rows_inserted"]) == ("differential", 11, 2)
    assert shown["dagster/partition_row_count"] == 5
    assert "SELECT 1" in shown["delta_sql"]
    assert "full" in shown["recent_refreshes"]


def test_a_range_is_one_refresh(definitions, instance, engine):
    tags = {"dagster/asset_partition_range_start": "2024-07-01", "dagster/asset_partition_range_end": "2024-07-02"}
    assert materialize(definitions, instance, DAY, tags=tags).success
    assert [call[1] for call in engine.asked("prepare")] == [("2024-07-01", "2024-07-02")]
    assert instance.get_materialized_partitions(DAY) == {"2024-07-01", "2024-07-02"}


def test_a_range_over_all_partitions_refreshes_the_whole_stream_table(definitions, instance, engine):
    tags = {"dagster/asset_partition_range_start": "2024-07-01", "dagster/asset_partition_range_end": "2024-07-03"}
    assert materialize(definitions, instance, DAY, tags=tags).success
    assert [call[1] for call in engine.asked("prepare")] == [None]


def test_the_only_partition_is_the_whole_stream_table(definitions, instance, engine):
    assert materialize(definitions, instance, ITEMS, partition_key="all").success
    assert [call[1] for call in engine.asked("prepare")] == [None]


def test_a_full_refresh_is_asked_for_by_configuration(definitions, instance, engine):
    config = {"ops": {"gold__by_day": {"config": {"full": True}}}}
    assert materialize(definitions, instance, DAY, partition_key="2024-07-02", run_config=config).success
    assert engine.asked("prepare")[0][3] is True


def test_mirrors_move_in_one_batch_that_pins_the_cut(definitions, instance, engine):
    assert materialize(definitions, instance, MIRROR, ITEMS, partition_key="all").success
    assert len(engine.asked("capture")) == len(engine.asked("sync")) == 1
    assert engine.asked("prepare")[0][2] == engine.snapshot


def test_an_error_that_may_pass_is_tried_again_from_the_plan(definitions, instance, engine, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    engine.errors[("deliver", "gold.by_day")] = [LakeConflictError("moved on")]
    real = engine.deliver

    def once(prepared):
        try:
            return real(prepared)
        finally:
            engine.errors.clear()

    engine.deliver = once
    assert materialize(definitions, instance, DAY, partition_key="2024-07-02").success
    assert len(engine.asked("prepare")) == len(engine.asked("deliver")) == 2


def test_an_error_that_no_retry_mends_stops_at_once(definitions, instance, engine):
    engine.errors[("prepare", "gold.by_day")] = ConfigurationError("wrong", hint="Mend it.")
    result = materialize(definitions, instance, DAY, partition_key="2024-07-02", raise_on_error=False)
    assert not result.success
    assert len(engine.asked("prepare")) == 1
    assert "wrong. Mend it." in result.get_step_failure_events()[0].step_failure_data.user_failure_data.description


def test_a_users_asset_reads_a_stream_table_as_a_data_frame(definitions, instance, engine):
    @dg.asset(ins={"regions": dg.AssetIn(REGION, input_manager_key="ducklake_io_manager")}, io_manager_key="mem")
    def report(regions):
        return regions

    resources = {**definitions.resources, "mem": dg.mem_io_manager}
    result = dg.materialize([*definitions.assets, report], selection=[report], instance=instance, resources=resources)
    assert result.output_for_node("report") == "frame of gold.by_region"


def test_an_option_that_dagster_refuses_names_the_file(rebuild_project):
    with pytest.raises(ConfigurationError, match=r"gold\.by_day:1: .*tag"):
        rebuild_project(**{"gold.by_day": {"tags": {"not allowed": "x"}}})


def test_layout_of_the_query_does_not_change_the_code_version(rebuild_project):
    from pgtrickle_assets import StreamTable
    from pgtrickle_assets.assets.metadata import code_version

    one = StreamTable(name="a.b", query="select a,b from t -- all")
    two = StreamTable(name="a.b", query="SELECT a, b\nFROM t")
    assert code_version(one) == code_version(two)
    assert code_version(one) != code_version(StreamTable(name="a.b", query="SELECT a, c FROM t"))
    assert code_version(one) != code_version(StreamTable(name="a.b", query="SELECT a, b FROM t", partition_by="day(a)"))
