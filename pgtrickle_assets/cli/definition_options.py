"""Options of the commands that define a stream table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

QueryOption = Annotated[str | None, typer.Option("--query", "-q", help="The defining query.", show_default=False)]
FileOption = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="File with the query and perhaps an option block; - for standard input."),
]
ScheduleOption = Annotated[
    str | None, typer.Option(help="Duration, cron expression, calculated or manual.", show_default=False)
]
ModeOption = Annotated[str | None, typer.Option(help="auto, differential or full.", show_default=False)]
PartitionByOption = Annotated[str | None, typer.Option(help="For example day(order_date).", show_default=False)]
PartitionStartOption = Annotated[str | None, typer.Option(help="First partition in time.", show_default=False)]
PartitionEndOption = Annotated[str | None, typer.Option(help="End of the partitions in time.", show_default=False)]
DescriptionOption = Annotated[str | None, typer.Option(help="Text for people.", show_default=False)]
OwnerOption = Annotated[
    list[str] | None, typer.Option("--owner", help="team:name or e-mail; may be given again.", show_default=False)
]
TagOption = Annotated[
    list[str] | None, typer.Option("--tag", help="key=value; may be given again.", show_default=False)
]
DialectOption = Annotated[str | None, typer.Option(help="postgres or spark.", show_default=False)]

ViewOption = Annotated[
    str | None, typer.Option(help="Name of a view to keep in the lake, as schema.view.", show_default=False)
]


def given_text(query: str | None, file: Path | None) -> str | None:
    """The text of `--query` or `--file`."""
    if query is not None and file is not None:
        raise typer.BadParameter("give --query or --file, not both.")
    if file is None:
        return query
    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"--file {file} cannot be read: {error}.") from error


def given_options(
    schedule: str | None,
    refresh_mode: str | None,
    partition_by: str | None,
    partition_start: str | None,
    partition_end: str | None,
    description: str | None,
    owners: list[str] | None,
    tags: list[str] | None,
    dialect: str | None,
    view: str | None,
) -> dict[str, Any]:
    """The options that were given."""
    given: dict[str, Any] = {
        "schedule": schedule,
        "refresh_mode": refresh_mode,
        "partition_by": partition_by,
        "partition_start": partition_start,
        "partition_end": partition_end,
        "description": description,
        "owners": owners or None,
        "tags": dict(_tag(tag) for tag in tags) if tags else None,
        "dialect": dialect,
        "view": view,
    }
    return {option: value for option, value in given.items() if value is not None}


def _tag(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise typer.BadParameter(f"--tag {text} is not of the form key=value.")
    return key, value
