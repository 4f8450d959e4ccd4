"""Commands that keep a lake healthy and show that it is: `maintain`, `metrics`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgtrickle_assets.cli.options import JsonOption, ProjectOption
from pgtrickle_assets.cli.output import print_json, print_table, stderr, stdout
from pgtrickle_assets.cli.workspace import Workspace, open_workspace
from pgtrickle_assets.errors import ServiceError

if TYPE_CHECKING:
    import dagster as dg
    from prometheus_client import CollectorRegistry


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(maintain)
    app.command()(metrics)


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


def metrics(
    serve: Annotated[
        int | None,
        typer.Option("--serve", metavar="PORT", min=1, max=65535, help="Serve them at /metrics until Ctrl-C."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print them once; this is the default.")] = False,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the metrics of the deliveries, as Prometheus reads them.

    Example: `pgtrickle metrics --serve 9187`
    """
    from prometheus_client import generate_latest

    from pgtrickle_assets.exporter import registry

    if serve is not None and (once or as_json):
        raise typer.BadParameter("--serve goes with neither --once nor --json.")
    workspace = open_workspace(project)
    with workspace.session() as session:
        read = session.engine.sink_counts
        if serve is None:
            if as_json:
                print_json([asdict(row) for row in read()])
            else:
                typer.echo(generate_latest(registry(read)).decode(), nl=False)
            return
        _serve(registry(read), host, serve)


def _serve(metrics: CollectorRegistry, host: str, port: int) -> None:
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, host, metrics)
    except OSError as error:
        raise ServiceError(
            f"The metrics cannot be served on {host}:{port}: {error.strerror}.", hint="Choose another port."
        ) from error
    stderr.print(f"Metrics at http://{host}:{port}/metrics; Ctrl-C ends it.", markup=False)
    try:
        thread.join()
    finally:
        server.shutdown()
        server.server_close()


def _look(workspace: Workspace) -> dict[str, Any]:
    with workspace.session() as session:
        return session.engine.maintain(dry_run=True).as_dict()


def _run(workspace: Workspace) -> dict[str, Any]:
    from pgtrickle_assets.assets.jobs import MAINTAIN
    from pgtrickle_assets.cli.refreshing import run
    from pgtrickle_assets.cli.runs import raise_failures

    outcome = run(workspace, MAINTAIN, None)
    raise_failures(outcome, "maintain")
    with workspace.instance() as instance:
        return _report_of(instance, outcome.run_id)


def _report_of(instance: dg.DagsterInstance, run_id: str) -> dict[str, Any]:
    """What the run's only step has put out."""
    import dagster as dg

    events = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_OUTPUT)
    metadata = next(
        entry.dagster_event.step_output_data.metadata for entry in events if entry.dagster_event is not None
    )
    return {name: value.value for name, value in metadata.items()}
