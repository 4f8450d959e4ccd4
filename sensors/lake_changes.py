"""`lake_changes`: another writer changed a lake table that a stream table reads, so start a refresh.

What changed is asked of the catalog, from the frontier on: inserts, updates and deletes, in files or inlined, another
table under the name, and a frontier whose snapshot has been expired. Compaction changes no rows and starts nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg

from pgtrickle_assets.assets.automation import (
    CALM,
    behind_by_lake,
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


def lake_changes_sensor(project: Project, job: dg.JobDefinition) -> dg.SensorDefinition:
    """Requests one run for the stream tables that lake tables have moved past, and for what reads them."""
    names = frozenset(following_changes(project))

    @dg.sensor(
        name="lake_changes",
        job=job,
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={ENGINE},
        description="Starts a refresh when another writer has changed a lake table.",
    )
    def lake_changes(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        session: EngineSession = getattr(context.resources, ENGINE)
        if not project.lake_tables:
            return skip("no stream table reads a lake table that another writer keeps")
        wait = reason_to_wait(context.instance, datetime.now(UTC))
        if wait is not None:
            return skip(wait)
        try:
            engine = session.engine
            moved = behind_by_lake(project, engine.lags())
            reached = [n for n in project.order if n in names and set(project.closure([n])).intersection(moved)]
            if not reached:
                return skip("no lake table has changed")
            lines = engine.status()
        except PgTrickleError as error:
            return tolerate(context.cursor, error)
        free = without_held(project, reached, lines)
        if not free:
            return skip(held_reason(lines))
        tables = sorted({table for name in project.closure(free) for table in moved.get(name, ())})
        verb = "has" if len(tables) == 1 else "have"
        request = refresh_request(project, free, f"{', '.join(tables)} {verb} changed")
        return dg.SensorResult(run_requests=[request], cursor=CALM)

    return lake_changes
