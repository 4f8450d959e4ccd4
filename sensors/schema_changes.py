"""`schema_changes`: columns of a source or lake table are no longer those that stream tables were built on.

The change is shown on the table's asset, with what follows from it. Where every reader's query still works, a refresh
is started, which adapts mirrors and stream tables. Where one does not, nothing is started: the tick says which query
has to be changed, and why.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from pgtrickle_assets.assets.automation import (
    held_reason,
    reason_to_wait,
    refresh_request,
    skip,
    starts_by_itself,
    tolerate,
    without_held,
)
from pgtrickle_assets.assets.keys import ENGINE, lake_key, source_key
from pgtrickle_assets.errors import PgTrickleError

if TYPE_CHECKING:
    from pgtrickle_assets.assets.engine import EngineSession
    from pgtrickle_assets.project import Project
    from pgtrickle_assets.refresh.model import SchemaChange

_INTERVAL_SECONDS = 60


def schema_changes_sensor(project: Project, job: dg.JobDefinition) -> dg.SensorDefinition:
    """Shows changed columns, and requests one run for the stream tables that can follow."""

    @dg.sensor(
        name="schema_changes",
        job=job,
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={ENGINE},
        description="Shows changed columns of sources and lake tables, and lets stream tables follow where they can.",
    )
    def schema_changes(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        session: EngineSession = getattr(context.resources, ENGINE)
        try:
            changes = session.engine.schema_changes()
            lines = session.engine.status() if changes else ()
        except PgTrickleError as error:
            return tolerate(context.cursor, error)
        if not changes:
            return skip("all columns are as they were")
        # The cursor only keeps the same observation from being made again; lost, it is made once more.
        mark = _fingerprint(changes)
        events = [] if mark in (context.cursor or "") else [_observation(change) for change in changes]
        cursor = json.dumps({"version": 1, "failures": 0, "shown": mark})
        broken = [error for change in changes for error in change.broken]
        wait = reason_to_wait(context.instance, datetime.now(UTC))
        readers = {name for change in changes for name in change.readers}
        names = [name for name in project.order if name in readers and starts_by_itself(project, name)]
        free = without_held(project, names, lines)
        if broken:
            name, error = broken[0]
            shown = error if name in error else f"{name}: {error}"
            reason = f"nothing is refreshed until this is mended: {shown}"
        elif wait is not None:
            reason = wait
        elif not free:
            reason = held_reason(lines) if names else f"{_summary(changes[0])}; its readers are refreshed by hand"
        else:
            request = refresh_request(project, free, f"{_summary(changes[0])}")
            return dg.SensorResult(run_requests=[request], asset_events=events, cursor=cursor)
        return dg.SensorResult(skip_reason=dg.SkipReason(reason), asset_events=events, cursor=cursor)

    return schema_changes


def _observation(change: SchemaChange) -> dg.AssetObservation:
    key = source_key(change.source, change.table) if change.source else lake_key(change.lake_table)
    metadata: dict[str, Any] = {
        "added": ", ".join(change.added) or "-",
        "dropped": ", ".join(change.dropped) or "-",
        "retyped": ", ".join(f"{name} from {old} to {new}" for name, old, new in change.retyped) or "-",
        "read_by": ", ".join(change.readers) or "-",
        "what_follows": _consequence(change),
    }
    return dg.AssetObservation(key, description=_summary(change), metadata=metadata)


def _summary(change: SchemaChange) -> str:
    parts = [f"{', '.join(change.added)} added"] if change.added else []
    parts += [f"{', '.join(change.dropped)} dropped"] if change.dropped else []
    parts += [f"{', '.join(name for name, _, _ in change.retyped)} retyped"] if change.retyped else []
    of = f"{change.source}.{change.table}" if change.source else str(change.table)
    return f"columns of {of} changed: {'; '.join(parts)}" if parts else f"{of} cannot be read any more"


def _consequence(change: SchemaChange) -> str:
    if change.broken:
        return "; ".join(f"{name} is not refreshed: {error}" for name, error in change.broken)
    if change.source:
        return "The next refresh copies the mirror again and recomputes its readers in full."
    return "The next refresh goes on; readers whose own columns change by it are made anew and recomputed in full."


def _fingerprint(changes: Sequence[SchemaChange]) -> str:
    return hashlib.sha256(repr(sorted(map(repr, changes))).encode()).hexdigest()[:16]
