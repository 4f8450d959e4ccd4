"""Commands that run through Dagster: `refresh`, `check`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pgtrickle_assets.cli.options import JsonOption, NamesArgument, ProjectOption, checked_names, checked_partitions
from pgtrickle_assets.cli.output import print_json, print_table, progress, stdout
from pgtrickle_assets.cli.workspace import Workspace, open_workspace

if TYPE_CHECKING:
    import dagster as dg

    from pgtrickle_assets.cli.runs import RunOutcome

_OTHERS_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 0.5


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(refresh)
    app.command()(check)


def refresh(
    names: NamesArgument = None,
    partition: Annotated[
        list[str] | None, typer.Option("--partition", help="Partition to refresh; needs exactly one stream table.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Recompute from scratch; the job `rebuild`.")] = False,
    no_capture: Annotated[
        bool, typer.Option("--no-capture", help="Leave the sources' changes where they are.")
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring the sources' changes into the lake and refresh stream tables, in one Dagster run.

    Everything upstream of a named stream table comes along; --full recomputes the named ones alone.

    Example: `pgtrickle refresh gold.revenue_by_day`
    """
    from pgtrickle_assets.assets.jobs import REBUILD, REFRESH, START

    workspace = open_workspace(project)
    workspace.use_warm_spark()
    chosen = checked_names(workspace.project, names)
    if partition and len(chosen) != 1:
        raise typer.BadParameter("--partition needs exactly one stream table.")
    config: dict[str, Any] = {"full": full, "capture": not no_capture, "initiated_by": "MANUAL"}
    if names:
        config["stream_tables"] = chosen
    if partition:
        config["partitions"] = checked_partitions(workspace.project, chosen[0], partition)
    outcome = run(workspace, REBUILD if full else REFRESH, {"ops": {START: {"config": config}}}, after_others=True)
    rows = refreshes_of(workspace, outcome.run_id)
    if as_json:
        print_json({"run_id": outcome.run_id, "success": outcome.success, "refreshes": rows})
    else:
        _print_refreshes(rows)
    _raise(workspace, outcome, "refresh")
    _raise_undelivered(rows)


def check(
    names: NamesArgument = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Run this check alone, such as agrees_with_duckdb; may be repeated."),
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare stream tables with their queries run in full on Spark and on DuckDB, in one Dagster run.

    Example: `pgtrickle check gold.revenue_by_day`
    """
    import dagster as dg

    from pgtrickle_assets.assets.checks import check_names
    from pgtrickle_assets.assets.jobs import VERIFY
    from pgtrickle_assets.assets.keys import lake_key

    workspace = open_workspace(project)
    workspace.use_warm_spark()
    chosen = checked_names(workspace.project, names)
    if not chosen:
        stdout.print(f"{workspace.project.name} has no stream tables.", markup=False)
        return
    unknown = sorted(set(only or ()).difference(check_names()))
    if unknown:
        raise typer.BadParameter(f"There is no check {unknown[0]}. There are {', '.join(check_names())}.")
    keys = {
        dg.AssetCheckKey(lake_key(workspace.project.stream_table(name).table), check_name)
        for name in chosen
        for check_name in only or check_names()
    }
    outcome = run(workspace, VERIFY, None, checks=keys)
    rows = [
        {
            "stream_table": ".".join(evaluation.asset_key.path),
            "check": evaluation.check_name,
            "passed": evaluation.passed,
            "description": evaluation.description,
            **{
                name: value.value for name, value in evaluation.metadata.items() if isinstance(value.value, int | float)
            },
        }
        for evaluation in outcome.evaluations
    ]
    order = check_names()
    rows.sort(key=lambda row: (row["stream_table"], order.index(row["check"])))
    if as_json:
        print_json({"run_id": outcome.run_id, "success": outcome.success, "checks": rows})
    else:
        print_table(
            ("stream table", "check", "result", "what was found"),
            [(r["stream_table"], r["check"], "passed" if r["passed"] else "FAILED", r["description"]) for r in rows],
            empty="No check was evaluated.",
        )
    failed = [f"{row['stream_table']} ({row['check']})" for row in rows if not row["passed"]]
    if failed:
        from pgtrickle_assets.cli.runs import RunFailedError

        raise RunFailedError(
            f"Failed checks: {', '.join(failed)}.",
            hint=f"Run {outcome.run_id} in the Dagster UI shows the rows; `pgtrickle refresh --full` recomputes.",
        )
    _raise(workspace, outcome, "check")


def run(
    workspace: Workspace,
    job: str,
    config: dict[str, Any] | None,
    checks: set[Any] | None = None,
    *,
    after_others: bool = False,
) -> RunOutcome:
    """Runs a job of the project here, showing the step it is at.

    Args:
        workspace: The project.
        job: Name of the job.
        config: Run configuration.
        checks: The asset checks to evaluate; all of the job by default.
        after_others: Let refreshes that run now end first. They would do the same work, and the slower one in vain.
    """
    from pgtrickle_assets.cli.runs import run_job, step_names

    shown = step_names(workspace.project.order)
    with progress("Loading Dagster ...") as status, workspace.instance() as instance:
        definition = workspace.definitions.resolve_job_def(job)
        if checks is not None:
            definition = definition.get_subset(asset_check_selection=checks)
        if after_others:
            _wait_for_refreshes(instance, status.update)
        return run_job(
            instance,
            definition,
            config=config,
            tags={"pgtrickle/reason": "command line"},
            on_step=lambda step: status.update(f"{job}: {shown.get(step, step)} ..."),
        )


def _wait_for_refreshes(instance: dg.DagsterInstance, report: Callable[[str], None]) -> None:
    """Wait until no refresh runs; after a while go on beside it, which costs time and harms nothing."""
    from pgtrickle_assets.assets.jobs import REBUILD, REFRESH
    from pgtrickle_assets.assets.processes import PROCESS_TAG, running_runs

    deadline = time.monotonic() + _OTHERS_SECONDS
    while time.monotonic() < deadline:
        # One that no process has marked as its own may never start, or have died before.
        runs = [run.run_id for run in running_runs(instance, {REFRESH, REBUILD}) if PROCESS_TAG in run.tags]
        if not runs:
            return
        report(f"Waiting for run {runs[0]} ...")
        time.sleep(_POLL_SECONDS)


def refreshes_of(workspace: Workspace, run_id: str) -> list[dict[str, Any]]:
    """What a run refreshed, in the order in which it did."""
    with workspace.session() as session:
        latest = session.engine.history(None, 10 * max(1, len(workspace.project.order)))
    shown = {
        "stream_table": "stream_table",
        "status": "status",
        "strategy": "strategy",
        "reason": "refresh_reason_detail",
        "reason_code": "refresh_reason",
        "delta_in": "delta_row_count",
        "delta_out": "delta_rows_out",
        "rows_inserted": "rows_inserted",
        "rows_deleted": "rows_deleted",
        "seconds": "seconds",
        "spark_jobs": "spark_jobs",
        "cut": "cut",
        "snapshot": "ducklake_snapshot_id",
        "error": "error_message",
    }
    own = [row for row in latest if row["run_id"] == run_id]
    return [{name: row[column] for name, column in shown.items()} for row in reversed(own)]


def _print_refreshes(rows: list[dict[str, Any]]) -> None:
    columns = ("stream_table", "strategy", "reason", "delta_in", "delta_out", "seconds", "snapshot")
    print_table(
        [column.replace("_", " ") for column in columns],
        [[row[column] for column in columns] for row in rows],
        empty="Nothing was refreshed.",
    )


def _raise_undelivered(rows: list[dict[str, Any]]) -> None:
    """A delivery that was given up leaves the run green where `ducklake_sink_failure_mode` says so; here it is told."""
    last = {row["stream_table"]: row for row in rows}
    failed = [row for row in last.values() if row["status"] == "FAILED"]
    if failed:
        from pgtrickle_assets.cli.runs import RunFailedError

        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise RunFailedError(f"{failed[0]['stream_table']} was not delivered: {failed[0]['error']}{more}")


def _raise(workspace: Workspace, outcome: RunOutcome, what: str) -> None:
    from pgtrickle_assets.cli.runs import raise_failures, step_names

    raise_failures(outcome, what, step_names=step_names(workspace.project.order))
