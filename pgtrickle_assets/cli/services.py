"""Commands on the machine: `up`, `down`, `doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from pgtrickle_assets.cli.options import JsonOption, ProjectOption
from pgtrickle_assets.cli.output import print_json, progress, stderr, stdout
from pgtrickle_assets.cli.workspace import open_workspace
from pgtrickle_assets.errors import ServiceError, with_hint

_SHOWN_SESSIONS = 3


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(up)
    app.command()(down)
    app.command()(doctor)


def up(
    host: Annotated[str, typer.Option(help="Address of the Dagster UI.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Dagster UI.")] = 3000,
    warm_spark: Annotated[bool, typer.Option("--warm-spark/--no-warm-spark", help="Keep a Spark for all runs.")] = True,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run everything: embedded PostgreSQL, a warm Spark, the Dagster UI and its daemon. Ctrl-C stops all of it.

    Example: `pgtrickle up --port 3001`
    """
    from pgtrickle_assets.cli.serving import serving, stopped_by_signals

    workspace = open_workspace(project)
    with stopped_by_signals(), progress("Starting ...") as shown:
        try:
            with serving(workspace, host=host, port=port, warm_spark=warm_spark, report=shown.update) as running:
                shown.stop()
                if as_json:
                    print_json({"url": running.url, "logs": str(running.logs)})
                else:
                    stdout.print(f"{workspace.project.name} is at {running.url}. Ctrl-C stops it.", markup=False)
                running.wait()
        except KeyboardInterrupt:
            stderr.print("Stopped.")


def down(
    force: Annotated[bool, typer.Option("--force", help="Also when somebody is connected.")] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop the project's embedded PostgreSQL. The next command that needs it starts it again.

    What runs under `pgtrickle up` is stopped by Ctrl-C there.

    Example: `pgtrickle down`
    """
    workspace = open_workspace(project)
    server = workspace.connections.embedded
    running = server.running() is not None
    if running and not force and (sessions := server.sessions()):
        more = f" and {len(sessions) - _SHOWN_SESSIONS} more" if len(sessions) > _SHOWN_SESSIONS else ""
        raise ServiceError(
            f"The embedded PostgreSQL of {workspace.project.name} is in use by "
            f"{', '.join(sessions[:_SHOWN_SESSIONS])}{more}.",
            hint="Let them end (Ctrl-C ends `pgtrickle up`), or add --force; what they have not committed is lost.",
        )
    # Also one that does not answer any more.
    server.stop()
    if as_json:
        print_json({"stopped": running})
    elif running:
        stdout.print(f"Stopped the embedded PostgreSQL of {workspace.project.name}.", markup=False)
    else:
        stdout.print(f"No embedded PostgreSQL of {workspace.project.name} was running.", markup=False)


def doctor(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Check this machine, the project and its databases; each line says what to do.

    It reads only. An embedded PostgreSQL is started, with an empty database where there is none yet.

    Example: `pgtrickle doctor`
    """
    from pgtrickle_assets.cli.diagnosis import diagnose

    findings = []
    for finding in diagnose(project):
        findings.append(finding)
        if not as_json:
            mark = {"ok": "ok  ", "warning": "warn", "failed": "FAIL"}[finding.result]
            stdout.print(f"{mark}  {finding.subject}: {with_hint(finding.detail, finding.hint)}", markup=False)
    failed = any(finding.result == "failed" for finding in findings)
    if as_json:
        print_json({"ok": not failed, "checks": findings})
    if failed:
        raise typer.Exit(1)
