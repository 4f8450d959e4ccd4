"""`delivery_retries`: a delivery failed for a reason that can pass, and its pause is over.

What is due stands in the catalog, so a restarted daemon goes on where the last one stopped. A delivery is tried at most
`ducklake_sink_max_retries` times over all runs; then it is FAILED_PERMANENT and not due any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from pgtrickle_assets.assets.automation import (
    CALM,
    busy_reason,
    held_reason,
    retry_requests,
    skip,
    tolerate,
    without_held,
)
from pgtrickle_assets.assets.keys import ENGINE
from pgtrickle_assets.errors import PgTrickleError

if TYPE_CHECKING:
    from pgtrickle_assets.assets.engine import EngineSession
    from pgtrickle_assets.project import Project

_INTERVAL_SECONDS = 15


def delivery_retries_sensor(project: Project, job: dg.JobDefinition) -> dg.SensorDefinition:
    """Requests a run for each failed delivery that is due, unless a refresh is queued or running already."""

    @dg.sensor(
        name="delivery_retries",
        job=job,
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={ENGINE},
        description="Tries failed deliveries again, also those that a killed run left behind.",
    )
    def delivery_retries(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        session: EngineSession = getattr(context.resources, ENGINE)
        busy = busy_reason(context.instance)
        if busy is not None:
            return skip(busy)
        try:
            due = session.engine.due_retries()
            if not due:
                return skip("no delivery waits for a retry")
            lines = session.engine.status()
        except PgTrickleError as error:
            return tolerate(context.cursor, error)
        free = without_held(project, [retry.stream_table for retry in due], lines)
        if not free:
            return skip(held_reason(lines))
        return dg.SensorResult(run_requests=retry_requests([r for r in due if r.stream_table in free]), cursor=CALM)

    return delivery_retries
