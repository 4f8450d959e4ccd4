"""Commands that change which stream tables a project has: `create`, `alter`, `drop`.

Each of them checks the whole project as it would be, against its databases, before it touches a file. When registering
fails after all, the files are put back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from pgtrickle_assets.cli.definition_options import (
    DescriptionOption,
    DialectOption,
    FileOption,
    ModeOption,
    OwnerOption,
    PartitionByOption,
    PartitionEndOption,
    PartitionStartOption,
    QueryOption,
    ScheduleOption,
    TagOption,
    ViewOption,
    given_options,
    given_text,
)
from pgtrickle_assets.cli.options import JsonOption, NameArgument, ProjectOption, checked_names
from pgtrickle_assets.cli.output import print_json, progress, stdout
from pgtrickle_assets.cli.project_files import root_of, write_and_register
from pgtrickle_assets.cli.workspace import Workspace, open_workspace
from pgtrickle_assets.documents import read_text
from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.option_block import parse_stream_table
from pgtrickle_assets.option_editing import file_of, rendered
from pgtrickle_assets.project import PROJECT_VARIABLE, Project
from pgtrickle_assets.project_config import read_project_config
from pgtrickle_assets.refresh.model import Effect, StreamTableStatus
from pgtrickle_assets.services.filelock import file_lock
from pgtrickle_assets.stream_table import StreamTable, StreamTableOptions
from pgtrickle_assets.suggestions import did_you_mean

_LOCK_FILE = ".change.lock"
_LOCK_SECONDS = 300.0


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(create)
    app.command()(alter)
    app.command()(drop)


def create(
    name: NameArgument,
    query: QueryOption = None,
    file: FileOption = None,
    schedule: ScheduleOption = None,
    refresh_mode: ModeOption = None,
    partition_by: PartitionByOption = None,
    partition_start: PartitionStartOption = None,
    partition_end: PartitionEndOption = None,
    description: DescriptionOption = None,
    owner: OwnerOption = None,
    tag: TagOption = None,
    dialect: DialectOption = None,
    view: ViewOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a stream table: check its query against the sources, write its SQL file, register it.

    Example: `pgtrickle create gold.revenue --query "SELECT day, SUM(price) AS revenue FROM orders GROUP BY day"`
    """
    text = given_text(query, file)
    if text is None:
        raise typer.BadParameter("a stream table needs a query: give --query or --file.")
    with _own_project(project) as workspace:
        loaded = workspace.project
        if name in loaded.order:
            raise typer.BadParameter(
                f"there is a stream table {name} already; change it with `pgtrickle alter {name}`."
            )
        options = given_options(
            schedule, refresh_mode, partition_by, partition_start, partition_end, description, owner, tag, dialect, view
        )
        table, written = _rendered(loaded, name, text, options, None)
        candidate = loaded.with_stream_tables([*loaded.stream_tables, table])
        effect = _effect(candidate, name)
        line = write_and_register(project, workspace, {file_of(name): written}, name)
        _show(name, line, effect, as_json=as_json, heading=f"wrote {file_of(name)}")


def alter(
    name: NameArgument,
    query: QueryOption = None,
    file: FileOption = None,
    schedule: ScheduleOption = None,
    refresh_mode: ModeOption = None,
    partition_by: PartitionByOption = None,
    partition_start: PartitionStartOption = None,
    partition_end: PartitionEndOption = None,
    description: DescriptionOption = None,
    owner: OwnerOption = None,
    tag: TagOption = None,
    dialect: DialectOption = None,
    view: ViewOption = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="Option to take out; may be given again.", show_default=False)
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the query or options of a stream table in its SQL file; comments and other options stay.

    A table whose columns and partitions stay is kept: the next refresh recomputes it and writes the difference.
    Otherwise it is made anew. The command says which.

    Example: `pgtrickle alter gold.revenue --schedule 5m --unset description`
    """
    with _own_project(project) as workspace:
        loaded = workspace.project
        (name,) = checked_names(loaded, [name])
        options = given_options(
            schedule, refresh_mode, partition_by, partition_start, partition_end, description, owner, tag, dialect, view
        )
        for option in unset or ():
            if option not in StreamTableOptions.model_fields:
                raise typer.BadParameter(
                    f"--unset {option}: no such option. {did_you_mean(option, StreamTableOptions.model_fields)}"
                )
            options[option] = None
        text = given_text(query, file)
        if text is None and not options:
            raise typer.BadParameter("say what to alter: --query, --file, an option or --unset.")
        path = _file_of(loaded, name)
        table, written = _rendered(loaded, name, read_text(path, str(path)), options, text)
        others = [other for other in loaded.stream_tables if other.name != name]
        candidate = loaded.with_stream_tables([*others, table])
        effect = _effect(candidate, name)
        line = write_and_register(project, workspace, {path.relative_to(root_of(loaded)).as_posix(): written}, name)
        _show(name, line, effect, as_json=as_json, heading=f"wrote {table.path}")


def drop(
    name: NameArgument,
    cascade: Annotated[bool, typer.Option("--cascade", help="Drop the stream tables that read it too.")] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Drop a stream table: its file, its registration, its lake tables, and the capture that nobody else needs.

    Older lake snapshots still hold it until they are expired.

    Example: `pgtrickle drop gold.revenue`
    """
    with _own_project(project) as workspace:
        loaded = workspace.project
        (name,) = checked_names(loaded, [name])
        readers = _readers(loaded, name)
        if readers and not cascade:
            raise ConfigurationError(
                f"stream table {name} is read by {', '.join(readers)}.",
                hint=f"Drop them first, or all at once with `pgtrickle drop {name} --cascade`.",
            )
        gone = [*reversed(readers), name]
        files = {_file_of(loaded, dropped).relative_to(root_of(loaded)).as_posix(): None for dropped in gone}
        # What stays must be a project still, before anything is taken away.
        loaded.with_stream_tables([table for table in loaded.stream_tables if table.name not in gone])
        write_and_register(project, workspace, files, None)
        if as_json:
            print_json({"dropped": gone, "files": list(files)})
            return
        for dropped in gone:
            stdout.print(f"{dropped}: dropped.", markup=False)


@contextmanager
def _own_project(path: Path | None) -> Iterator[Workspace]:
    """The project to change, which no other command changes meanwhile.

    Its names are believed until the databases are asked.
    """
    from pgtrickle_assets.bundled_example import example_folder

    opened = open_workspace(path, believe_names=True).project
    if path is None and not os.environ.get(PROJECT_VARIABLE) and opened.root == example_folder().resolve():
        raise ConfigurationError(
            "the bundled example is not changed.",
            hint="Run `pgtrickle init my_project`, or name a project with --project.",
        )
    opened.home.mkdir(parents=True, exist_ok=True)
    with file_lock(opened.home / _LOCK_FILE, seconds=_LOCK_SECONDS):
        # Files may have changed while this command waited.
        yield open_workspace(path, believe_names=True, warn=False)


def _file_of(project: Project, name: str) -> Path:
    table = project.stream_table(name)
    path = table.path
    if path is None:
        hint = f"Use pgtrickle.alter_stream_table('{name}', ...) or pgtrickle.drop_stream_table('{name}')."
        raise ConfigurationError(f"stream table {name} was made from SQL, not by a file.", hint=hint)
    return root_of(project) / path


def _rendered(
    project: Project, name: str, text: str, options: Mapping[str, Any], query: str | None
) -> tuple[StreamTable, str]:
    """The stream table as its file will define it, and the file.

    Args:
        project: The project.
        name: The stream table.
        text: Its file as it is, or what a new one begins with.
        options: New options; None takes one out.
        query: Text with the new query and perhaps an option block.
    """
    path = file_of(name)
    defaults = read_project_config(root_of(project)).defaults.model_dump(exclude_unset=True)
    changes = dict(options)
    try:
        if query is not None:
            given = parse_stream_table(query, name=name, path=path).model_dump(exclude_unset=True)
            query = given["query"]
            own = {option: value for option, value in given.items() if option in StreamTableOptions.model_fields}
            changes = {**own, **changes}
        written = rendered(name, text, changes, query, defaults)
        return parse_stream_table(written, name=name, path=path, defaults=defaults), written
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from error


def _effect(candidate: Project, name: str) -> Effect:
    """Checks the project as it would be, and says what that does to a stream table."""
    with progress("Checking the query against the sources ..."), Workspace(candidate).session() as session:
        session.engine.validate()
        return session.engine.effect_of(name)


def _readers(project: Project, name: str) -> Sequence[str]:
    """Every stream table that reads one, at any distance, upstream first."""
    return [other for other in project.order if other != name and name in project.closure([other])]


_EFFECTS = {
    Effect.CREATED: "registered; `pgtrickle refresh {name}` fills it.",
    Effect.UNCHANGED: "its content stays as it is.",
    Effect.RECOMPUTED: "its table is kept; the next refresh recomputes it and writes the difference.",
    Effect.REBUILT: "its columns or partitions changed: its table is made anew; `pgtrickle refresh {name}` fills it.",
}


def _show(name: str, line: StreamTableStatus | None, effect: Effect, *, as_json: bool, heading: str) -> None:
    mode = line.effective_mode if line is not None else None
    reasons = line.reasons if line is not None else ()
    if as_json:
        print_json(
            {
                "stream_table": name,
                "file": file_of(name),
                "effect": effect.value,
                "effective_mode": mode,
                "reasons": [{"code": code, "detail": detail} for code, detail in reasons],
            }
        )
        return
    stdout.print(heading, markup=False)
    stdout.print(f"{name}: {_EFFECTS[effect].format(name=name)}", markup=False)
    for _, detail in reasons:
        stdout.print(f"{name} is recomputed in full at each refresh: {detail}.", markup=False)
