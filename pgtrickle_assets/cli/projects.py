"""Commands on a project as a whole: `init`, `apply`, `list`, `version`."""

from __future__ import annotations

from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, Any

import typer

from pgtrickle_assets.cli.options import JsonOption, ProjectOption
from pgtrickle_assets.cli.output import print_json, print_table, progress, stderr, stdout
from pgtrickle_assets.cli.skeletons import load_sample, write_skeleton
from pgtrickle_assets.cli.workspace import open_workspace
from pgtrickle_assets.project import Project
from pgtrickle_assets.query.plan import QueryPlan


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(init)
    app.command()(apply)
    app.command("list")(list_tables)
    app.command()(version)


def init(
    folder: Annotated[Path, typer.Argument(help="Folder to make.", show_default=False)],
    empty: Annotated[bool, typer.Option("--empty", help="No example; a source of yours instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a project folder that runs.

    It comes with an example: three tables, loaded into the embedded PostgreSQL, and two stream tables on them.

    Example: `pgtrickle init my_project && cd my_project && pgtrickle refresh`
    """
    written = write_skeleton(folder, empty=empty)
    if not empty:
        with progress("Starting the embedded PostgreSQL and loading the example ..."):
            load_sample(Project.load(folder))
    if as_json:
        print_json({"project": str(folder.resolve()), "files": written})
        return
    for name in written:
        stdout.print(f"wrote {folder / name}", markup=False)
    following = "set SOURCE_DSN, write a query, then `pgtrickle apply`" if empty else "`pgtrickle refresh`"
    stdout.print(f"Next: cd {folder}, {following}.", markup=False)


def apply(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Check the whole project against its databases and make everything ready: capture, lake, control schema.

    Example: `pgtrickle apply --project my_project`
    """
    workspace = open_workspace(project, believe_names=True)
    with progress("Reading the sources ..."), workspace.session() as session:
        refused = session.synced().requests().refused
    for name, error in refused.items():
        stderr.print(f"warning: {name}, made from SQL, was not taken up: {error}", style="yellow", markup=False)
    # With the columns known, loading checks every name and plans every query.
    loaded = open_workspace(project, warn=False).project
    plans = {name: loaded.plan(name) for name in loaded.order}
    if as_json:
        print_json({"project": loaded.name, "stream_tables": [_described(loaded, name, plans[name]) for name in plans]})
        return
    sources = sum(len(tables) for tables in loaded.source_tables.values())
    stdout.print(f"{loaded.name}: {sources} source tables captured, {len(plans)} stream tables ready.", markup=False)


def list_tables(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """List the stream tables, upstream first.

    Needs no database; the status is shown where the catalog answers.

    Example: `pgtrickle list --json`
    """
    workspace = open_workspace(project)
    loaded, states = workspace.project, workspace.known_states()
    rows = [{**_described(loaded, name, loaded.plan(name)), "status": states.get(name)} for name in loaded.order]
    if as_json:
        print_json(rows)
        return
    print_table(
        ("stream table", "status", "schedule", "mode", "partitions", "reads", "description"),
        [
            (
                r["name"],
                r["status"],
                r["schedule"],
                r["refresh_mode"],
                r["partition_by"],
                ", ".join(r["reads"]),
                r["description"],
            )
            for r in rows
        ],
        empty=f"{loaded.name} has no stream tables; write stream_tables/<schema>/<name>.sql.",
    )


def version(as_json: JsonOption = False) -> None:
    """Print the version.

    Example: `pgtrickle version`
    """
    number = installed_version("pgtrickle-assets")
    if as_json:
        parts = ("dagster", "pyspark", "pyarrow", "duckdb", "sqlglot", "psycopg")
        print_json({"pgtrickle": number, **{part: installed_version(part) for part in parts}})
    else:
        stdout.print(number)


def _described(project: Project, name: str, plan: QueryPlan | None) -> dict[str, Any]:
    table = project.stream_table(name)
    return {
        "name": name,
        "schedule": table.schedule,
        "refresh_mode": table.refresh_mode,
        "partition_by": table.partition_by or "all",
        "reads": [str(r.source_table or r.table) for r in project.references[name].values()],
        "description": table.description,
        "file": table.path,
        "columns": None if plan is None else {column.name: str(column.type) for column in plan.output},
    }
