"""Commands that steer stream tables and their control schema: `pause`, `resume`, `snapshot`, `restore`, `migrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pgtrickle_assets.cli.options import JsonOption, NameArgument, ProjectOption, checked_names
from pgtrickle_assets.cli.output import print_json, print_table, progress, stdout
from pgtrickle_assets.cli.workspace import open_workspace

if TYPE_CHECKING:
    from pgtrickle_assets.control.snapshots import NamedSnapshot

SteeredNames = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Stream tables, as schema.table.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(pause)
    app.command()(resume)
    app.command()(snapshot)
    app.command()(restore)
    app.command()(migrate)


def pause(names: SteeredNames, project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Stop the refreshes of stream tables, and of what reads them, until `pgtrickle resume`.

    Sensors leave them alone, `pgtrickle refresh` leaves them out, and refreshing one by name is an error. What is
    stored stays readable.

    Example: `pgtrickle pause gold.revenue_by_day`
    """
    workspace = open_workspace(project)
    chosen = checked_names(workspace.project, names)
    with workspace.session() as session:
        for name in chosen:
            session.engine.pause(name)
    _show_states(dict.fromkeys(chosen, "PAUSED"), as_json=as_json)


def resume(names: SteeredNames, project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Let paused or suspended stream tables refresh again; their errors are forgotten.

    Example: `pgtrickle resume gold.revenue_by_day`
    """
    workspace = open_workspace(project)
    chosen = checked_names(workspace.project, names)
    with workspace.session() as session:
        states = {name: session.engine.resume(name) for name in chosen}
    _show_states(states, as_json=as_json)


def snapshot(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Stream table; without one, all snapshots are listed.", show_default=False
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", "-l", help="Name of the snapshot; made up by default.", show_default=False)
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List the snapshots and take none.")] = False,
    drop: Annotated[
        str | None, typer.Option("--drop", metavar="LABEL", help="Forget a snapshot.", show_default=False)
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Name the present content of a stream table, so that `pgtrickle restore` can put it back.

    Nothing is copied: it is a lake snapshot that expiry never passes.

    Example: `pgtrickle snapshot gold.revenue_by_day --label before-correction`
    """
    if name is None and (label or drop):
        raise typer.BadParameter("--label and --drop need a stream table.")
    if drop and (label or show):
        raise typer.BadParameter("--drop goes with neither --label nor --list.")
    workspace = open_workspace(project)
    chosen = None if name is None else checked_names(workspace.project, [name])[0]
    with workspace.session() as session:
        engine = session.engine
        if chosen is None or show:
            _show_snapshots(list(engine.snapshots(chosen)), as_json=as_json)
        elif drop is not None:
            engine.drop_snapshot(chosen, drop)
            _show_dropped(chosen, drop, as_json=as_json)
        else:
            taken = engine.take_snapshot(chosen, label)
            if as_json:
                print_json(_described(taken))
            else:
                stdout.print(
                    f"{chosen}: snapshot {taken.label} is lake snapshot {taken.snapshot_version}.", markup=False
                )


def restore(
    name: NameArgument,
    label: Annotated[
        str | None, typer.Option("--label", "-l", help="Snapshot; the newest by default.", show_default=False)
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put the content of a snapshot back into a stream table, in one Dagster run.

    Its frontier goes back too: the next refresh moves on from there. Pause the stream table first to keep the content.

    Example: `pgtrickle restore gold.revenue_by_day --label before-correction`
    """
    from pgtrickle_assets.assets.jobs import RESTORE
    from pgtrickle_assets.cli.refreshing import refreshes_of, run
    from pgtrickle_assets.cli.runs import raise_failures

    workspace = open_workspace(project)
    workspace.use_warm_spark()
    (chosen,) = checked_names(workspace.project, [name])
    config = {"stream_table": chosen, "snapshot": label}
    outcome = run(workspace, RESTORE, {"ops": {RESTORE: {"config": config}}})
    rows = refreshes_of(workspace, outcome.run_id)
    if as_json:
        print_json({"run_id": outcome.run_id, "success": outcome.success, "refreshes": rows})
    raise_failures(outcome, "restore", step_names={RESTORE: chosen})
    if not as_json:
        for row in rows:
            changed = f"+{row['rows_inserted']} -{row['rows_deleted']} rows"
            stdout.print(f"{chosen}: {row['reason']}; {changed}, lake snapshot {row['snapshot']}.", markup=False)


def migrate(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring the schema `pgtrickle` in the catalog's database to this version.

    Every command that opens the lake does it too; this one does nothing else, for a user who may.

    Example: `pgtrickle migrate --dry-run`
    """
    from pgtrickle_assets.capture.connect import open_connection
    from pgtrickle_assets.control import migrations

    workspace = open_workspace(project)
    dsn = workspace.connections.catalog_dsn().get_secret_value()
    with progress("Looking at the control schema ..."):
        with open_connection(dsn) as connection:
            before = migrations.schema_version(connection)
            waiting = migrations.pending(connection)
        applied = () if dry_run else migrations.migrate(dsn)
    steps = [step for step in waiting if dry_run or step.version in applied]
    if as_json:
        listed = [{"version": step.version, "description": step.description} for step in steps]
        print_json({"before": before, "dry_run": dry_run, "steps": listed})
        return
    for step in steps:
        stdout.print(f"{'would apply' if dry_run else 'applied'} {step.version}: {step.description}", markup=False)
    if not steps:
        stdout.print(f"The control schema is at version {before}; there is nothing to do.", markup=False)


def _show_states(states: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        print_json([{"stream_table": name, "status": status} for name, status in states.items()])
        return
    for name, status in states.items():
        stdout.print(f"{name}: {status}", markup=False)


def _show_snapshots(found: list[NamedSnapshot], *, as_json: bool) -> None:
    if as_json:
        print_json([_described(one) for one in found])
        return
    print_table(
        ("stream table", "label", "lake snapshot", "content of", "taken"),
        [(one.stream_table, one.label, one.snapshot_version, one.data_timestamp, one.created_at) for one in found],
        empty="There are no snapshots; `pgtrickle snapshot NAME` takes one.",
    )


def _show_dropped(name: str, label: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"stream_table": name, "dropped": label})
    else:
        stdout.print(f"{name}: snapshot {label} is forgotten.", markup=False)


def _described(taken: NamedSnapshot) -> dict[str, object]:
    return {
        "stream_table": taken.stream_table,
        "label": taken.label,
        "snapshot": taken.snapshot_version,
        "cut": taken.cut,
        "frontier": dict(taken.frontier),
        "data_timestamp": taken.data_timestamp,
        "created_at": taken.created_at,
    }
