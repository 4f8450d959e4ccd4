"""`recovery`: closes what dead processes left open, so that the next refresh does not wait for it.

A killed run stays STARTED in Dagster, its refresh RUNNING in the history and its delivery WRITING. Each of them names
its process; one that is gone for certain is closed. Two daemons that look at once close it once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from pgtrickle_assets.assets.automation import skip, tolerate
from pgtrickle_assets.assets.keys import ENGINE
from pgtrickle_assets.assets.processes import close_dead_runs
from pgtrickle_assets.errors import PgTrickleError

if TYPE_CHECKING:
    from pgtrickle_assets.assets.engine import EngineSession
    from pgtrickle_assets.project import Project

_INTERVAL_SECONDS = 30


def recovery_sensor(_project: Project, job: dg.JobDefinition) -> dg.SensorDefinition:
    """Starts no run: what is left to do is for the other sensors to see."""

    @dg.sensor(
        name="recovery",
        job=job,
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={ENGINE},
        description="Closes runs, refreshes and deliveries whose process is gone.",
    )
    def recovery(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        session: EngineSession = getattr(context.resources, ENGINE)
        runs = close_dead_runs(context.instance)
        try:
            found = session.engine.recover()
        except PgTrickleError as error:
            return tolerate(context.cursor, error)
        counts = {"runs": len(runs), "refreshes": len(found.refreshes), "deliveries": len(found.deliveries)}
        closed = [f"{count} {what}" for what, count in counts.items() if count]
        if not closed:
            return skip("no process has left anything open")
        text = f"closed {', '.join(closed)} of dead processes"
        context.log.warning(text)
        return skip(text)

    return recovery
