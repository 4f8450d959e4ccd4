"""The check `delivered`: did the last refresh of a stream table get into the lake?

A refresh evaluates it by itself, so that a delivery that was given up shows on the asset although
`ducklake_sink_failure_mode: warn` keeps the run green. Run on its own it reads the state of the last delivery.
"""

from collections.abc import Mapping
from typing import Any, Final

import dagster as dg

from pgtrickle_assets.assets.engine import EngineSession
from pgtrickle_assets.assets.failures import step_failures
from pgtrickle_assets.assets.keys import ENGINE, lake_key
from pgtrickle_assets.control.statuses import DeliveryStatus
from pgtrickle_assets.refresh.model import RefreshResult
from pgtrickle_assets.stream_table import StreamTable

DELIVERED: Final = "delivered"


def log_delivered(
    session: EngineSession, context: dg.OpExecutionContext | dg.AssetExecutionContext, table: StreamTable
) -> None:
    """Evaluate the check for what this run has just delivered, if it has."""
    result = session.results.get(table.name)
    if result is not None:
        # It takes evaluations, and its type does not say so.
        context.log_event(evaluation(table, result))  # pyright: ignore[reportArgumentType]


def evaluation(table: StreamTable, result: RefreshResult) -> dg.AssetCheckEvaluation:
    """The check's evaluation for a refresh."""
    metadata = {"status": result.delivery_status, "refresh_id": result.refresh_id, "snapshot": result.snapshot or "-"}
    return dg.AssetCheckEvaluation(
        asset_key=lake_key(table.table),
        check_name=DELIVERED,
        passed=result.error is None,
        description=result.error or "The result is in the lake.",
        metadata=metadata,
    )


def delivered_check(table: StreamTable) -> dg.AssetChecksDefinition:
    """The check `delivered` of a stream table."""

    @dg.asset_check(
        asset=lake_key(table.table),
        name=DELIVERED,
        description="The last delivery of the stream table got into the lake.",
        required_resource_keys={ENGINE},
    )
    def delivered(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        session: EngineSession = getattr(context.resources, ENGINE)
        with step_failures(context):
            lines = session.engine.sink_status()
        return _verdict(next((line for line in lines if line["stream_table_name"] == table.name), {}))

    return delivered


def _verdict(line: Mapping[str, Any]) -> dg.AssetCheckResult:
    status = line.get("last_delivery_status")
    if status == DeliveryStatus.FAILED_PERMANENT:
        severity, text = dg.AssetCheckSeverity.ERROR, f"Given up: {line['last_error']}"
    elif status == DeliveryStatus.FAILED_RETRYABLE:
        severity, text = dg.AssetCheckSeverity.WARN, f"It will be tried again: {line['last_error']}"
    else:
        return dg.AssetCheckResult(passed=True, description=f"The last delivery is {status or 'still to come'}.")
    return dg.AssetCheckResult(
        passed=False, severity=severity, description=text, metadata={"failed_attempts": line["failed_attempts"]}
    )
