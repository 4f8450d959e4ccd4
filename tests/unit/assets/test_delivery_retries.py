"""Failed deliveries: who is tried again and when, and what a delivery that was given up shows."""

from __future__ import annotations

import dagster as dg
import pytest

from pgtrickle_assets.assets.processes import PROCESS_TAG
from pgtrickle_assets.control.owner import this_process
from pgtrickle_assets.errors import LakeUnavailableError
from pgtrickle_assets.refresh.model import DueRetry
from tests.unit.assets.test_sensors import add_run, tick

WHOLE = DueRetry("silver.items", None, 1, "503 Slow Down")
DAY = DueRetry("gold.by_day", ("2024-07-01", "2024-07-02"), 2, "reset")
CHECK = "delivered"


def configs(result):
    return [request.run_config["ops"]["capture"]["config"] for request in result.run_requests]


def test_without_failed_deliveries_nothing_starts(definitions, instance, engine):
    result = tick(definitions, instance, "delivery_retries")
    assert result.run_requests == []
    assert "No delivery waits" in result.skip_message


def test_due_deliveries_are_asked_for_as_they_were(definitions, instance, engine):
    engine.retries = (WHOLE, DAY)
    assert configs(tick(definitions, instance, "delivery_retries")) == [
        {"stream_tables": ["silver.items"], "initiated_by": "RETRY"},
        {"stream_tables": ["gold.by_day"], "partitions": ["2024-07-01", "2024-07-02"], "initiated_by": "RETRY"},
    ]


def test_a_whole_refresh_covers_its_partitions(definitions, instance, engine):
    engine.retries = (DAY, DueRetry("gold.by_day", None, 1, "x"))
    assert configs(tick(definitions, instance, "delivery_retries")) == [
        {"stream_tables": ["gold.by_day"], "initiated_by": "RETRY"}
    ]


def test_a_tick_asks_for_nothing_but_the_catalog(definitions, instance, engine):
    engine.retries = (WHOLE,)
    tick(definitions, instance, "delivery_retries")
    assert engine.calls == [("due_retries",)]


def test_what_is_due_does_not_hang_on_the_cursor(definitions, instance, engine):
    engine.retries = (WHOLE,)
    for cursor in (None, "lost", '{"version": 1, "failures": 2}'):
        assert len(tick(definitions, instance, "delivery_retries", cursor).run_requests) == 1


def test_no_retry_starts_beside_a_refresh(definitions, instance, engine):
    engine.retries = (WHOLE,)
    add_run(instance, definitions, dg.DagsterRunStatus.STARTED, **{PROCESS_TAG: this_process()})
    assert tick(definitions, instance, "delivery_retries").run_requests == []


def test_failed_runs_hold_no_retry_back(definitions, instance, engine):
    engine.retries = (WHOLE,)
    instance.report_run_failed(add_run(instance, definitions, dg.DagsterRunStatus.STARTED), "broken")
    assert len(tick(definitions, instance, "delivery_retries").run_requests) == 1


@pytest.mark.parametrize("status", ["SUSPENDED", "PAUSED"])
def test_held_stream_tables_are_not_retried(definitions, instance, engine, status):
    engine.retries, engine.statuses = (WHOLE,), {"silver.items": status}
    assert tick(definitions, instance, "delivery_retries").run_requests == []


def test_a_catalog_that_is_away_skips_the_tick(definitions, instance, engine):
    engine.errors[("due_retries",)] = LakeUnavailableError("the catalog is away")
    assert "the catalog is away" in tick(definitions, instance, "delivery_retries").skip_message


def evaluations(result):
    found = result.get_asset_check_evaluations()
    return {(one.asset_key.to_user_string(), one.check_name): one for one in found}


def test_a_given_up_delivery_fails_the_check_and_keeps_the_run_green(definitions, instance, engine):
    engine.failed = {"gold.by_day": "The delivery was given up."}
    result = definitions.resolve_job_def("refresh").execute_in_process(instance=instance)
    assert result.success
    found = evaluations(result)
    assert not found["gold/by_day", CHECK].passed
    assert found["gold/by_day", CHECK].description == "The delivery was given up."
    assert found["gold/by_region", CHECK].passed


def test_an_asset_evaluates_the_check_of_its_delivery(definitions, instance, engine):
    engine.failed = {"silver.items": "The delivery was given up."}
    key = dg.AssetKey(["silver", "items"])
    arguments = {"instance": instance, "resources": definitions.resources}
    result = dg.materialize(definitions.assets, selection=[key], partition_key="all", **arguments)
    assert result.success
    assert not evaluations(result)["silver/items", CHECK].passed


@pytest.mark.parametrize(
    ("status", "passed", "severity"),
    [
        (None, True, dg.AssetCheckSeverity.ERROR),
        ("DELIVERED", True, dg.AssetCheckSeverity.ERROR),
        ("FAILED_RETRYABLE", False, dg.AssetCheckSeverity.WARN),
        ("FAILED_PERMANENT", False, dg.AssetCheckSeverity.ERROR),
    ],
)
def test_the_check_alone_reads_the_last_delivery(definitions, instance, engine, status, passed, severity):
    engine.deliveries = {} if status is None else {"silver.items": status}
    selection = dg.AssetSelection.checks(dg.AssetCheckKey(dg.AssetKey(["silver", "items"]), CHECK))
    job = dg.define_asset_job("only", selection)
    only = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
    result = only.resolve_job_def("only").execute_in_process(instance=instance, raise_on_error=False)
    (found,) = result.get_asset_check_evaluations()
    assert (found.passed, found.severity) == (passed, severity)
