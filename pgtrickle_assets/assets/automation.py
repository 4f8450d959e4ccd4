"""When sensors start a refresh, and which stream tables it is for. Decisions only: nothing here runs anything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from pgtrickle_assets.assets.jobs import REBUILD, REFRESH, START
from pgtrickle_assets.assets.processes import running_runs
from pgtrickle_assets.control.statuses import StreamTableStatus as Status
from pgtrickle_assets.control.statuses import how_to_resume
from pgtrickle_assets.errors import PgTrickleError
from pgtrickle_assets.schedules import Calculated, Manual, is_due

if TYPE_CHECKING:
    from pgtrickle_assets.project import Project
    from pgtrickle_assets.refresh.model import DueRetry, Lag, StreamTableStatus

CALM: Final = json.dumps({"version": 1, "failures": 0})
"""Cursor of a sensor whose last tick met no error. (An empty one would leave the old one in place.)"""

_TOLERATED_FAILURES: Final = 5
_FIRST_WAIT: Final = timedelta(seconds=15)
_LONGEST_WAIT: Final = timedelta(minutes=10)
_RUNS_LOOKED_AT: Final = 8


def following_changes(project: Project) -> tuple[str, ...]:
    """Stream tables that are refreshed whenever a source changes."""
    return tuple(name for name in project.order if isinstance(project.schedules[name], Calculated))


def starts_by_itself(project: Project, name: str) -> bool:
    """Whether sensors refresh a stream table: its schedule is not manual."""
    return not isinstance(project.schedules[name], Manual)


def behind_by_lake(project: Project, lags: Mapping[str, Lag]) -> dict[str, tuple[str, ...]]:
    """Stream tables that lake tables of other writers have moved past, with those tables.

    What only reads such a stream table is not among them: it comes along when that one is refreshed.
    """
    foreign = {str(table) for table in project.lake_tables}
    moved = {name: tuple(table for table in lag.moved if table in foreign) for name, lag in lags.items()}
    return {name: tables for name, tables in moved.items() if tables}


def behind_by_itself(project: Project, lags: Mapping[str, Lag]) -> frozenset[str]:
    """Stream tables that have something to do besides what other writers did to the lake, and what reads them."""
    foreign = {str(table) for table in project.lake_tables}
    own = {name for name, lag in lags.items() if lag.unfilled or any(table not in foreign for table in lag.moved)}
    return frozenset(name for name in project.order if own.intersection(project.closure([name])))


def due_tables(
    project: Project,
    last_refresh: Mapping[str, datetime | None],
    behind: frozenset[str],
    now: datetime,
    *,
    sources_changed: bool,
) -> tuple[str, ...]:
    """Stream tables whose schedule has come and that have something to do.

    Args:
        project: The project.
        last_refresh: Start of the last refresh of each stream table.
        behind: Stream tables that are behind the lake.
        now: The present.
        sources_changed: Whether changes wait in the buffers of a source.
    """
    due: list[str] = []
    for name in project.order:
        if not is_due(project.schedules[name], last_refresh.get(name), now):
            continue
        plan = project.plan(name)
        moves_with_time = plan is not None and plan.moves_with_time
        if sources_changed or moves_with_time or behind.intersection(project.closure([name])):
            due.append(name)
    return tuple(due)


def without_held(project: Project, names: Sequence[str], lines: Sequence[StreamTableStatus]) -> tuple[str, ...]:
    """The stream tables that sensors may refresh.

    A suspended or paused one is left alone, and so is what reads it: that cannot move while its upstream stands still.

    Args:
        project: The project.
        names: Stream tables that have something to do.
        lines: The state of the project's stream tables.
    """
    held = {str(line.name) for line in lines if Status(line.status).is_held}
    return tuple(name for name in names if not held.intersection(project.closure([name])))


def held_reason(lines: Sequence[StreamTableStatus]) -> str:
    """Why a tick does nothing although something has changed."""
    suspended = [str(line.name) for line in lines if Status(line.status) is Status.SUSPENDED]
    if not suspended:
        return "what has changed is paused"
    return f"{', '.join(suspended)} failed too often in a row. {how_to_resume(suspended[0])}".rstrip(".")


def refresh_request(project: Project, names: Sequence[str], reason: str) -> dg.RunRequest:
    """A run of `refresh` for these stream tables.

    It has no run key: Dagster would never again start a run of the same key, and what is there to do is known from the
    lake alone.
    """
    config: dict[str, Any] = {"initiated_by": "SCHEDULER"}
    if len(names) < len(project.order):
        config["stream_tables"] = list(names)
    return dg.RunRequest(run_config={"ops": {START: {"config": config}}}, tags={"pgtrickle/reason": reason})


def named_request(names: Sequence[str], reason: str) -> dg.RunRequest:
    """A run of `refresh` for the stream tables that a person named; for none it registers the project and captures."""
    config: dict[str, Any] = {"initiated_by": "MANUAL", "stream_tables": list(names)}
    return dg.RunRequest(run_config={"ops": {START: {"config": config}}}, tags={"pgtrickle/reason": reason})


def retry_requests(due: Sequence[DueRetry]) -> list[dg.RunRequest]:
    """Runs of `refresh` that try failed deliveries again: one for all whole stream tables, one per set of partitions.

    A set of partitions is asked for as it was, because that is what finds its delivery and goes on counting attempts.
    """
    whole = list(dict.fromkeys(retry.stream_table for retry in due if retry.partitions is None))
    sets = dict.fromkeys(
        (retry.stream_table, retry.partitions)
        for retry in due
        if retry.partitions is not None and retry.stream_table not in whole
    )
    configs: list[dict[str, Any]] = [{"stream_tables": whole}] if whole else []
    configs += [{"stream_tables": [name], "partitions": list(keys or ())} for name, keys in sets]
    tags = {"pgtrickle/reason": "a delivery is tried again"}
    return [
        dg.RunRequest(run_config={"ops": {START: {"config": {**config, "initiated_by": "RETRY"}}}}, tags=tags)
        for config in configs
    ]


def busy_reason(instance: dg.DagsterInstance) -> str | None:
    """Which refresh is queued or running, if any."""
    running = running_runs(instance, {REFRESH, REBUILD})
    return f"run {running[0].run_id} is {running[0].status.value.lower()}" if running else None


def reason_to_wait(instance: dg.DagsterInstance, now: datetime) -> str | None:
    """Why no refresh may start now: one is queued or running, or the last ones failed a moment ago."""
    busy = busy_reason(instance)
    if busy is not None:
        return busy
    failures, ended = 0, None
    for record in instance.get_run_records(dg.RunsFilter(job_name=REFRESH), limit=_RUNS_LOOKED_AT):
        if record.dagster_run.status != dg.DagsterRunStatus.FAILURE:
            break
        ended = ended or datetime.fromtimestamp(record.end_time or record.update_timestamp.timestamp(), UTC)
        failures += 1
    if ended is not None:
        wait = min(_FIRST_WAIT * 2 ** (failures - 1), _LONGEST_WAIT)
        if now < ended + wait:
            seconds = int((ended + wait - now).total_seconds())
            return f"the last {failures} refresh runs failed; next try in {seconds} s"
    return None


def skip(reason: str) -> dg.SensorResult:
    """A tick that found nothing to do."""
    return dg.SensorResult(skip_reason=dg.SkipReason(f"{reason[0].upper()}{reason[1:]}."), cursor=CALM)


def tolerate(cursor: str | None, error: PgTrickleError) -> dg.SensorResult:
    """A skipped tick for an error that may pass; counts in the cursor how often it came in a row.

    Raises:
        PgTrickleError: The error, when it has come too often to be hidden.
    """
    count = _failures(cursor) + 1
    if count > _TOLERATED_FAILURES:
        raise error
    return dg.SensorResult(skip_reason=dg.SkipReason(str(error)), cursor=json.dumps({"version": 1, "failures": count}))


def _failures(cursor: str | None) -> int:
    try:
        return int(json.loads(cursor or "{}").get("failures", 0))
    except (ValueError, AttributeError, TypeError):
        return 0
