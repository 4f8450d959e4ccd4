"""Commands that only look: `status`, `explain`, `history`, `sink-status`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from pgtrickle_assets.cli.options import JsonOption, NameArgument, ProjectOption, checked_names
from pgtrickle_assets.cli.output import print_json, print_table, stdout
from pgtrickle_assets.cli.workspace import open_workspace
from pgtrickle_assets.control.statuses import StreamTableStatus as Status
from pgtrickle_assets.control.statuses import how_to_resume


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(status)
    app.command()(explain)
    app.command()(history)
    app.command("sink-status")(sink_status)


def status(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Show the state of each stream table.

    Example: `pgtrickle status`
    """
    workspace = open_workspace(project)
    with workspace.session() as session:
        lines = session.engine.status()
        behind = session.engine.behind()
        waiting = session.engine.has_source_changes()
    rows = [
        {
            "stream_table": str(line.name),
            "status": line.status,
            # Nobody means a paused or suspended one to follow; whether it is behind is not looked at.
            "up_to_date": None if Status(line.status).is_held else str(line.name) not in behind and not waiting,
            "refresh_mode": line.refresh_mode,
            "effective_mode": line.effective_mode,
            "reasons": [{"code": code, "detail": detail} for code, detail in line.reasons],
            "cut": line.cut,
            "row_count": line.row_count,
            "last_strategy": line.last_strategy,
            "last_refresh_at": line.last_refresh_at,
            "last_error": line.last_error,
        }
        for line in lines
    ]
    if as_json:
        print_json({"source_changes_waiting": waiting, "stream_tables": rows})
        return
    columns = (
        "stream_table",
        "status",
        "up_to_date",
        "effective_mode",
        "row_count",
        "last_strategy",
        "last_refresh_at",
    )
    print_table(
        [column.replace("_", " ") for column in columns],
        [[_yes_no(row[column]) for column in columns] for row in rows],
        empty="No stream table is registered; run `pgtrickle apply`.",
    )
    for row in rows:
        for line in _remarks(row):
            stdout.print(line, markup=False)
    if waiting:
        stdout.print("Changes of the sources wait for the next refresh.")


class ExplainFormat(StrEnum):
    """How an explanation is printed."""

    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"


def explain(
    name: NameArgument,
    form: Annotated[
        ExplainFormat, typer.Option("--format", "-f", help="Text, a JSON document, or a Mermaid diagram.")
    ] = ExplainFormat.TEXT,
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze",
            help="Compute what a refresh would change now, with rows and time of each step; writes nothing.",
        ),
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how a stream table is kept up to date, and why not better.

    Example: `pgtrickle explain gold.revenue_by_day --analyze`
    """
    from pgtrickle_assets.refresh.explanation_views import as_mermaid, as_text

    workspace = open_workspace(project)
    (chosen,) = checked_names(workspace.project, [name])
    if analyze:
        workspace.use_warm_spark()
    with workspace.session() as session:
        explanation = session.engine.analyze(chosen) if analyze else session.engine.explain(chosen)
    if as_json or form is ExplainFormat.JSON:
        print_json(explanation)
    else:
        text = as_mermaid(explanation) if form is ExplainFormat.MERMAID else as_text(explanation)
        stdout.print(text, markup=False)


def history(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Stream table; all by default.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Number of refreshes.")] = 20,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the latest refreshes, newest first.

    Example: `pgtrickle history gold.revenue_by_day --limit 5`
    """
    workspace = open_workspace(project)
    if name is not None:
        checked_names(workspace.project, [name])
    with workspace.session() as session:
        rows = session.engine.history(name, limit)
    if as_json:
        print_json(list(rows))
        return
    print_table(
        ("started", "stream table", "status", "strategy", "reason", "delta in", "delta out", "seconds", "snapshot"),
        [
            (
                row["start_time"],
                row["stream_table"],
                row["status"],
                row["strategy"],
                row["error_message"] or row["refresh_reason_detail"] or row["refresh_reason"],
                row["delta_row_count"],
                row["delta_rows_out"],
                row["seconds"],
                row["ducklake_snapshot_id"],
            )
            for row in rows
        ],
        empty="Nothing has been refreshed yet.",
    )


def sink_status(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Show the last delivery of each stream table into the lake.

    Example: `pgtrickle sink-status --json`
    """
    workspace = open_workspace(project)
    with workspace.session() as session:
        rows = list(session.engine.sink_status())
    if as_json:
        print_json(rows)
        return
    columns = (
        "stream_table_name",
        "last_delivery_status",
        "last_delivery_at",
        "last_rows_written",
        "last_bytes_written",
        "failed_attempts",
        "last_error",
    )
    print_table(
        ("stream table", "delivery", "at", "rows", "bytes", "failed attempts", "last error"),
        [[row[column] for column in columns] for row in rows],
        empty="Nothing has been delivered yet.",
    )


def _remarks(row: Mapping[str, Any]) -> list[str]:
    """What has to be said of a stream table below the table."""
    name, lines = row["stream_table"], []
    if row["last_error"]:
        lines.append(f"{name}: {row['last_error']}")
    if row["status"] == Status.PAUSED:
        lines.append(f"{name} is paused. Run `pgtrickle resume {name}` to let it refresh again.")
    if row["status"] == Status.SUSPENDED:
        lines.append(f"{name} is suspended: it failed too often in a row. {how_to_resume(name)}")
    return lines


def _yes_no(value: object) -> object:
    return ("yes" if value else "no") if isinstance(value, bool) else value
