"""`due_refreshes`: the schedule of a stream table has come and it has something to do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg

from pgtrickle_assets.assets.automation import (
    CALM,
    due_tables,
    held_reason,
    reason_to_wait,
    refresh_request,
    skip,
    tolerate,
    without_held,
)
from pgtrickle_assets.assets.keys import ENGINE
from pgtrickle_assets.errors import PgTrickleError
from pgtrickle_assets.schedules import Cron, Every

if TYPE_CHECKING:
    from pgtrickle_assets.assets.engine import EngineSession
    from pgtrickle_assets.project import Project

_INTERVAL_SECONDS = 10


def due_refreshes_sensor(project: Project, job: dg.JobDefinition) -> dg.SensorDefinition:
    """Requests one run for all stream tables that are due, unless one is queued or running already."""
    scheduled = tuple(name for name in project.order if isinstance(project.schedules[name], Every | Cron))

    @dg.sensor(
        name="due_refreshes",
        job=job,
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={ENGINE},
        description="Starts a refresh of the stream tables whose schedule has come.",
    )
    def due_refreshes(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        session: EngineSession = getattr(context.resources, ENGINE)
        now = datetime.now(UTC)
        if not scheduled:
            return skip("no stream table has a schedule")
        wait = reason_to_wait(context.instance, now)
        if wait is not None:
            return skip(wait)
        try:
            engine = session.engine
            lines = engine.status()
            names = due_tables(
                project,
                {str(line.name): _moment(line.last_refresh_at) for line in lines},
                engine.behind(),
                now,
                sources_changed=engine.has_source_changes(),
            )
        except PgTrickleError as error:
            return tolerate(context.cursor, error)
        if not names:
            return skip("nothing is due, or nothing has changed")
        free = without_held(project, names, lines)
        if not free:
            return skip(held_reason(lines))
        return dg.SensorResult(run_requests=[refresh_request(project, free, "due by schedule")], cursor=CALM)

    return due_refreshes


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
