"""The main job: load, refresh, play batches, refresh after each, compare, and report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pgtrickle_assets.bundled_example import example_folder
from pgtrickle_assets.demo.batches import BATCHES
from pgtrickle_assets.demo.report import DemoReport, LakeReference

if TYPE_CHECKING:
    from pgtrickle_assets.demo.player import Player
    from pgtrickle_assets.project import Project

SOURCE = "flights"
INITIAL = "initial"


def _silent(_: str) -> None:
    """Shows nothing."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How to play the example.

    Attributes:
        project: The bundled example, loaded.
        batches: How many of the batches to play.
        progress: Called with one line before each longer piece of work.
    """

    project: Project
    batches: int = len(BATCHES)
    progress: Callable[[str], None] = field(default=_silent)


def run_demo(options: DemoOptions) -> DemoReport:
    """Play the bundled example on its services, which are started when they are embedded and don't run.

    What an earlier run left is reused: the loaded database, the lake, the control schema. Batches go on with the days
    after the last one. The services keep running.

    Args:
        options: How to play it.

    Returns:
        What each refresh did and how each comparison ended. A failed comparison is in the report, not raised.

    Raises:
        PgTrickleError: A service does not start, or a refresh failed.
    """
    with _open(options) as player:
        player.refresh(INITIAL)
        for batch in BATCHES[: options.batches]:
            player.play(batch)
        return _report(player)


@contextmanager
def _open(options: DemoOptions) -> Iterator[Player]:
    from pgtrickle_assets.cli.workspace import Workspace as CommandWorkspace
    from pgtrickle_assets.demo.load import load_flights
    from pgtrickle_assets.demo.player import Player
    from pgtrickle_assets.refresh.api import RefreshEngine
    from pgtrickle_assets.refresh.workspace import Workspace
    from pgtrickle_assets.services.spark import spark_session

    folder = example_folder()
    command = CommandWorkspace(options.project)
    settings = command.settings
    if "spark_compiler" not in settings.model_fields_set:
        # Minutes of small jobs: half of Spark's processor time would go into compiling what is hardly run again.
        settings = settings.model_copy(update={"spark_compiler": "quick"})
    # Spark takes as long to start as the flights to load. The runs of this process share the session.
    spark = ThreadPoolExecutor(1).submit(spark_session, settings)
    options.progress("Starting PostgreSQL and Spark")
    source = command.connections.source_dsn(SOURCE).get_secret_value()
    options.progress("Loading a year of flights")
    if not load_flights(source, folder / "source"):
        options.progress("The flights of an earlier run are still there")
    options.progress("Setting up capture and the lake")
    with Workspace.open(command.project, settings, spark.result) as workspace:
        engine = RefreshEngine(workspace)
        seen = engine.sync()
        command.project.remember(lambda known: replace(seen, bounds={**known.bounds, **seen.bounds}))
        with command.instance() as instance:
            yield Player(folder, source, workspace, engine, command.definitions, instance, options.progress)


def _report(player: Player) -> DemoReport:
    player.say("Asking DuckDB")
    location = player.workspace.lake.location
    return DemoReport(
        tuple(player.refreshes),
        player.checks(),
        player.source,
        LakeReference(location.catalog_dsn, location.data_path),
        player.sample(),
    )
