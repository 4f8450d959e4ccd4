"""`source_changes`: PostgreSQL has changes that are not in the lake, so start a refresh.

So does a stream table that is behind its own mirrors, or was never filled: what a failed run left is taken up again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg

from pgtrickle_assets.assets.automation import (
    CALM,
    behind_by_itself,
    following_changes,
    held_reason,
    reason_to_wait,
    refresh_request,
    skip,
    tolerate,
    without_held,
)
from pgtrickle_assets.assets.keys import ENGINE
from pgtrickle_assets.errors import PgTrickleError

if TYPE_CHECKING:
    from pgtrickle_assets.assets.engine import EngineSession
    from pgtrickle_assets.project import Project

_INTERVAL_SECONDS = 10


def source_changes_sensor(project: Project, job: dg.JobDefinition) -> dg.SensorDefinition:
    """Requests one run for all stream tables that follow changes, unless one is queued or running already."""
    names = following_changes(project)

    @dg.sensor(
        name="source_changes",
        job=job,
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={ENGINE},
        description="Starts a refresh when a source has changed.",
    )
    def source_changes(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        session: EngineSession = getattr(context.resources, ENGINE)
        if not names:
            return skip("no stream table follows changes; due_refreshes starts those with a schedule")
        wait = reason_to_wait(context.instance, datetime.now(UTC))
        if wait is not None:
            return skip(wait)
        try:
            engine = session.engine
            changed = engine.has_source_changes()
            behind = names if changed else tuple(behind_by_itself(project, engine.lags()).intersection(names))
            if not behind:
                return skip("no source has changed")
            lines = engine.status()
        except PgTrickleError as error:
            return tolerate(context.cursor, error)
        if not without_held(project, behind, lines):
            return skip(held_reason(lines))
        free = without_held(project, names, lines)
        return dg.SensorResult(run_requests=[refresh_request(project, free, "a source has changed")], cursor=CALM)

    return source_changes
