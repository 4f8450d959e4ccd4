"""The command `demo`: the bundled example, played from nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from pgtrickle_assets.cli.options import JsonOption
from pgtrickle_assets.cli.output import stderr, stdout

if TYPE_CHECKING:
    from pgtrickle_assets.demo.report import DemoReport


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command()(demo)


def demo(
    batches: Annotated[int, typer.Option(min=1, max=4, help="How many batches of changes to play.")] = 4,
    serve: Annotated[bool, typer.Option("--serve", help="Leave the Dagster UI running; Ctrl-C stops it.")] = False,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Dagster UI with --serve.")] = 3000,
    as_json: JsonOption = False,
) -> None:
    """Play the flights of New York: load, refresh, change, refresh again, compare with PostgreSQL.

    A second run reuses what the first left and goes on with the next days.

    Example: `pgtrickle demo --serve`
    """
    from pgtrickle_assets.bundled_example import example_folder
    from pgtrickle_assets.cli.workspace import warn_of_unknown_variables
    from pgtrickle_assets.demo.run import DemoOptions, run_demo
    from pgtrickle_assets.project import Project

    project = Project.load(example_folder())
    warn_of_unknown_variables(project)
    report = run_demo(DemoOptions(project, batches=batches, progress=_progress()))
    _show(report, as_json=as_json)
    if serve:
        _serve(port)
    if not report.passed:
        raise typer.Exit(1)


def _progress() -> Callable[[str], None]:
    started = time.monotonic()

    def show(text: str) -> None:
        stderr.print(f"{time.monotonic() - started:6.1f} s  {text}", markup=False)

    return show


def _show(report: DemoReport, *, as_json: bool) -> None:
    if as_json:
        print(report.to_json(), flush=True)  # noqa: T201 - this is the command's output
        return
    report.print(stdout)
    stdout.print("PostgreSQL keeps running, so that source and lake can be read.")


def _serve(port: int) -> None:
    from pgtrickle_assets.bundled_example import example_folder
    from pgtrickle_assets.cli.serving import serving, stopped_by_signals
    from pgtrickle_assets.cli.workspace import Workspace
    from pgtrickle_assets.project import Project

    _stop_spark()
    workspace = Workspace(Project.load(example_folder()))
    with stopped_by_signals():
        try:
            with serving(workspace, host="127.0.0.1", port=port, warm_spark=True) as running:
                stderr.print(f"The Dagster UI is at {running.url}. Ctrl-C stops it.", markup=False)
                running.wait()
        except KeyboardInterrupt:
            stderr.print("Stopped.")


def _stop_spark() -> None:
    """Ends the demo's own Spark: the one that serves runs needs its memory."""
    if "pyspark" in sys.modules:
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()
