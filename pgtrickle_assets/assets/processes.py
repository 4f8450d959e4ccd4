"""Which process a run lives in, so that a run whose process was killed does not count as running for ever.

Dagster's default launcher has no health check: after a kill -9 a run stays STARTED and would hold back every later one.
"""

from __future__ import annotations

from typing import Final

import dagster as dg

from pgtrickle_assets.control.owner import is_certainly_dead, this_process

PROCESS_TAG: Final = "pgtrickle/process"

_UNFINISHED: Final = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_RUNS_LOOKED_AT: Final = 500


def mark_process(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> None:
    """Records this process on the run, once."""
    mark = this_process()
    if context.run.tags.get(PROCESS_TAG) != mark:
        context.instance.add_run_tags(context.run.run_id, {PROCESS_TAG: mark})


def running_runs(instance: dg.DagsterInstance, job_names: set[str]) -> list[dg.DagsterRun]:
    """Runs of these jobs that wait or run; a run whose process is gone is reported as failed and left out."""
    alive: list[dg.DagsterRun] = []
    for name in sorted(job_names):
        for run in instance.get_runs(dg.RunsFilter(job_name=name, statuses=_UNFINISHED)):
            if not _close_if_dead(instance, run):
                alive.append(run)
    return alive


def close_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Reports our runs whose process is gone as failed, whatever job they are of; their ids."""
    runs = instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED), limit=_RUNS_LOOKED_AT)
    return [run.run_id for run in runs if _close_if_dead(instance, run)]


def _close_if_dead(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    mark = run.tags.get(PROCESS_TAG)
    if mark is None or not is_certainly_dead(mark):
        return False
    instance.report_run_failed(run, "The process of this run is gone.")
    return True
