"""Commands that keep a lake healthy: `maintain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgtrickle_assets.cli.options import JsonOption, ProjectOption
from pgtrickle_assets.cli.output import print_json, print_table, stderr, stdout
from pgtrickle_assets.cli.workspace import Workspace, open_workspace

if TYPE_CHECKING:
    import dagster as dg


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(maintain)


def maintain(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Merge small files, expire old snapshots, and remove files and history that nobody needs, in one Dagster run.

    Example: `pgtrickle maintain --dry-run`
    """
    workspace = open_workspace(project)
    report = _look(workspace) if dry_run else _run(workspace)
    if as_json:
        print_json(report)
        return
    if report["skipped"]:
        stdout.print(f"Nothing was done: {report['skipped']}.", markup=False)
        return
    counts = {
        "small files merged": report["merged_files"],
        "files with deletes rewritten": report["rewritten_files"],
        "snapshots expired": report["expired_snapshots"],
        "replaced files deleted": report["deleted_files"],
        "orphaned files deleted": report["orphaned_files"],
        "history rows removed": report["history_rows"],
    }
    print_table(("what", "would be" if dry_run else "done"), list(counts.items()), empty="")
    for table, why in report["left_alone"].items():
        stdout.print(f"{table} was left for the next time: {why}", markup=False)
    if report["held_back_by"]:
        names = ", ".join(report["held_back_by"])
        stdout.print(f"Older snapshots stay because of the frontier of {names}; refresh it.", markup=False)


def _look(workspace: Workspace) -> dict[str, Any]:
    with workspace.session() as session:
        return session.engine.maintain(dry_run=True).as_dict()


def _run(workspace: Workspace) -> dict[str, Any]:
    from pgtrickle_assets.assets.jobs import MAINTAIN
    from pgtrickle_assets.cli.runs import raise_failures, run_job

    with stderr.status("Loading Dagster ...") as status, workspace.instance() as instance:
        definition = workspace.definitions.resolve_job_def(MAINTAIN)
        outcome = run_job(
            instance,
            definition,
            tags={"pgtrickle/reason": "command line"},
            on_step=lambda _: status.update("maintain ..."),
        )
        raise_failures(outcome, "maintain")
        return _report_of(instance, outcome.run_id)


def _report_of(instance: dg.DagsterInstance, run_id: str) -> dict[str, Any]:
    """What the run's only step has put out."""
    import dagster as dg

    events = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_OUTPUT)
    metadata = next(
        entry.dagster_event.step_output_data.metadata for entry in events if entry.dagster_event is not None
    )
    return {name: value.value for name, value in metadata.items()}
