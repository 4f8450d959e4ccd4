"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.project import Project

ProjectOption = Annotated[
    Path | None,
    typer.Option(
        "--project",
        "-p",
        help="Project folder; PGTRICKLE_PROJECT, the current folder or the bundled example by default.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Stream table, as schema.table.", show_default=False)]
NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Stream tables, as schema.table; all by default.", show_default=False),
]


def checked_names(project: Project, names: list[str] | None) -> list[str]:
    """The stream tables that an argument names; all without one.

    Raises:
        typer.BadParameter: For an unknown name, with the nearest.
    """
    try:
        return [project.stream_table(name).name for name in names] if names else list(project.order)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from error


def checked_partitions(project: Project, name: str, keys: list[str]) -> list[str]:
    """The partitions of a stream table that an option names, as they are stored.

    Raises:
        typer.BadParameter: For a key that is none of its partitions, with the nearest.
    """
    try:
        return list(project.partition_keys(name, keys))
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from error
