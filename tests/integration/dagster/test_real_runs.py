"""The whole path through Dagster: real PostgreSQL, real Spark, real lake."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import psycopg
import pytest

from pgtrickle_assets import Project, StreamTable, build_definitions
from pgtrickle_assets.assets.keys import SPARK
from pgtrickle_assets.settings import Settings

MATERIALIZATION_METADATA = {
    "strategy", "reason", "reason_code", "delta_rows_in", "delta_rows_out", "rows_inserted", "rows_deleted",
    "bytes_written", "files_written", "seconds_by_phase", "snapshot", "cut", "frontier", "delta_sql",
    "recent_refreshes", "dagster/row_count", "dagster/column_schema", "dagster/column_lineage",
}  # fmt: skip
"""What the contract names; the link to the file is there for stream tables that come from one."""

DAY, ITEMS = dg.AssetKey(["gold", "by_day"]), dg.AssetKey(["silver", "items"])


class FixtureSpark:
    """The session of the test run in place of the project's own."""

    def __init__(self, session):
        self.spark_session = session


@pytest.fixture
def source(postgres_server, database) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, d date, amount numeric(10, 2) NOT NULL)")
        connection.execute(
            "INSERT INTO orders VALUES (1, '2024-07-01', 1.5), (2, '2024-07-01', 2), (3, '2024-07-02', 4), (4, NULL, 8)"
        )
        yield connection


@pytest.fixture
def lake_database(postgres_server, request) -> Iterator[str]:
    name = f"lake_{abs(hash(request.node.nodeid))}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture
def definitions(source, database, lake_database, spark, tmp_path, monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PGTRICKLE_{name.upper()}", raising=False)
    project = Project(
        [
            StreamTable(name="silver.items", query="SELECT id, d, amount FROM orders WHERE amount > 0"),
            StreamTable(
                name="gold.by_day",
                query="SELECT d, COUNT(*) AS n, SUM(amount) AS total FROM silver.items GROUP BY d",
                partition_by="day(d)",
                partition_start="2024-07-01",
                partition_end="2024-07-04",
            ),
        ],
        sources={"shop": {"dsn": database}},
        lake={"catalog": lake_database, "data_path": str(tmp_path / "lake")},
        name="dagster-test",
        home=tmp_path / "home",
    )
    return build_definitions(project, resources={SPARK: FixtureSpark(spark)})


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def refresh(definitions, instance):
    result = definitions.resolve_job_def("refresh").execute_in_process(instance=instance)
    assert result.success
    return result


def test_refreshes_touch_what_changed_and_checks_agree(definitions, instance, source):
    refresh(definitions, instance)
    assert instance.get_materialized_partitions(DAY) == {"2024-07-01", "2024-07-02", "__null__"}
    first = instance.get_latest_materialization_event(DAY).asset_materialization.metadata
    assert first["strategy"].value == "full"
    assert set(first) >= MATERIALIZATION_METADATA
    lineage = first["dagster/column_lineage"].value.deps_by_column
    assert [(dep.asset_key, dep.column_name) for dep in lineage["total"]] == [(ITEMS, "amount")]
    assert [column.name for column in first["dagster/column_schema"].value.columns] == ["d", "n", "total"]

    source.execute("UPDATE orders SET amount = 5 WHERE id = 3")
    result = refresh(definitions, instance)
    events = [
        event.step_materialization_data.materialization
        for event in result.all_events
        if event.is_step_materialization and event.step_materialization_data.materialization.asset_key == DAY
    ]
    assert [event.partition for event in events] == ["2024-07-02"]
    assert events[0].metadata["strategy"].value == "differential"
    assert events[0].metadata["rows_inserted"].value == events[0].metadata["rows_deleted"].value == 1

    verified = definitions.resolve_job_def("verify").execute_in_process(instance=instance)
    outcomes = {(e.asset_key, e.check_name): e.passed for e in verified.get_asset_check_evaluations()}
    names = ("differential_equals_full", "agrees_with_duckdb", "delivered", "fresh")
    assert outcomes == {(key, name): True for key in (DAY, ITEMS) for name in names}


def test_a_refresh_without_changes_materializes_nothing(definitions, instance):
    refresh(definitions, instance)
    result = refresh(definitions, instance)
    assert not [event for event in result.all_events if event.is_step_materialization]


def test_assets_materialize_through_the_same_path(definitions, instance, source):
    arguments = {"instance": instance, "resources": definitions.resources}
    mirror = dg.AssetKey(["raw", "orders"])
    assert dg.materialize(definitions.assets, selection=[mirror, ITEMS], partition_key="all", **arguments).success
    assert dg.materialize(definitions.assets, selection=[DAY], partition_key="2024-07-01", **arguments).success
    event = instance.get_latest_materialization_event(DAY).asset_materialization
    assert event.partition == "2024-07-01"
    assert event.metadata["rows_inserted"].value == 1
    verified = definitions.resolve_job_def("verify").execute_in_process(instance=instance, raise_on_error=False)
    outcomes = {(e.asset_key, e.check_name): e.passed for e in verified.get_asset_check_evaluations()}
    assert outcomes[ITEMS, "differential_equals_full"]
    assert outcomes[ITEMS, "agrees_with_duckdb"]


def test_the_sensor_sees_changes_and_then_none(definitions, instance, source):
    def tick():
        with dg.build_sensor_context(
            instance=instance, definitions=definitions, resources=definitions.resources
        ) as context:
            return definitions.resolve_sensor_def("source_changes").evaluate_tick(context).run_requests

    refresh(definitions, instance)
    assert tick() == []
    source.execute("DELETE FROM orders WHERE id = 1")
    assert len(tick()) == 1
    refresh(definitions, instance)
    assert tick() == []
