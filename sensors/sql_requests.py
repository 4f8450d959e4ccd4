"""`sql_requests`: somebody made, changed or dropped a stream table from SQL, or asked there for a refresh."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg

from pgtrickle_assets.assets.automation import CALM, named_request, reason_to_wait, skip, tolerate
from pgtrickle_assets.assets.keys import ENGINE
from pgtrickle_assets.errors import PgTrickleError

if TYPE_CHECKING:
    from pgtrickle_assets.assets.engine import EngineSession
    from pgtrickle_assets.project import Project

_INTERVAL_SECONDS = 10


def sql_requests_sensor(_: Project, job: dg.JobDefinition) -> dg.SensorDefinition:
    """Requests one run for everything that SQL has asked for, unless one is queued or running already."""

    @dg.sensor(
        name="sql_requests",
        job=job,
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={ENGINE},
        description="Takes up what was asked for from SQL.",
    )
    def sql_requests(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        session: EngineSession = getattr(context.resources, ENGINE)
        wait = reason_to_wait(context.instance, datetime.now(UTC))
        if wait is not None:
            return skip(wait)
        try:
            asked = session.engine.requests()
        except PgTrickleError as error:
            return tolerate(context.cursor, error)
        if not asked.refreshes and not asked.definitions:
            return skip("SQL has asked for nothing")
        return dg.SensorResult(run_requests=[named_request(asked.refreshes, "asked for from SQL")], cursor=CALM)

    return sql_requests
