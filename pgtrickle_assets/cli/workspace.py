"""What commands work on: a project, its settings and databases, its engine and its Dagster instance."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgtrickle_assets.cli.output import stderr
from pgtrickle_assets.cli.warm_spark import attach
from pgtrickle_assets.connections import DAGSTER_DSN_VARIABLE, Connections, project_settings
from pgtrickle_assets.errors import ConfigurationError, ServiceError
from pgtrickle_assets.project import PROJECT_VARIABLE, Project, believing, load_configured_project
from pgtrickle_assets.project_config import PROJECT_FILE
from pgtrickle_assets.settings import unknown_variables

if TYPE_CHECKING:
    import dagster as dg
    from pyspark.sql import SparkSession

    from pgtrickle_assets.assets.engine import EngineSession
    from pgtrickle_assets.settings import Settings

_DAGSTER_HOME_VARIABLE: Final = "DAGSTER_HOME"
_GLANCE_SECONDS: Final = 3
_INSTANCE_FILE: Final = "dagster.yaml"


class Workspace:
    """A project opened by a command; nothing is connected to before it is used.

    Args:
        project: The project.
    """

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def settings(self) -> Settings:
        """The settings that hold."""
        return project_settings(self.project)

    @cached_property
    def connections(self) -> Connections:
        """The project's databases."""
        return Connections(self.project, self.settings)

    @contextmanager
    def session(self) -> Iterator[EngineSession]:
        """The refresh engine, opened at its first use."""
        from pgtrickle_assets.assets.engine import EngineSession
        from resources.engine import open_refresh_engine

        with EngineSession(self.project, self._spark, open_refresh_engine).closing() as session:
            yield session

    @contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        """The Dagster instance that the UI shows.

        Raises:
            ServiceError: When its storage cannot be reached.
        """
        import dagster as dg
        from sqlalchemy.exc import SQLAlchemyError

        self.prepare_dagster()
        try:
            opened = dg.DagsterInstance.get()
        except SQLAlchemyError as error:
            # The text of the driver's error may hold the connection string.
            raise ServiceError(
                f"Dagster's storage cannot be reached ({type(error).__name__}).",
                hint=f"Check {DAGSTER_DSN_VARIABLE}, or unset it to use the embedded PostgreSQL.",
            ) from error
        with opened as instance:
            yield instance

    @cached_property
    def definitions(self) -> dg.Definitions:
        """The project's Dagster definitions."""
        from pgtrickle_assets.build import build_definitions

        return build_definitions(self.project)

    def known_states(self) -> dict[str, str]:
        """Status of each registered stream table, or nothing where no catalog answers; starts and makes nothing."""
        import psycopg

        from pgtrickle_assets.control.migrations import schema_version
        from pgtrickle_assets.control.registry import stored

        dsn = self.connections.reachable_catalog
        if dsn is None:
            return {}
        try:
            with psycopg.connect(dsn.get_secret_value(), connect_timeout=_GLANCE_SECONDS) as connection:
                if schema_version(connection) is None:
                    return {}
                return {str(row.name): row.status.value for row in stored(connection, project=self.project.name)}
        except psycopg.Error:
            return {}

    def prepare_dagster(self) -> Path:
        """Sets the environment that Dagster's processes need; returns `DAGSTER_HOME`.

        A `DAGSTER_HOME` that is set stays; otherwise it is `dagster` in the home folder, with the `dagster.yaml` that
        comes with the product.
        """
        os.environ[DAGSTER_DSN_VARIABLE] = self.connections.dagster_dsn().get_secret_value()
        if self.project.root is not None:
            os.environ[PROJECT_VARIABLE] = str(self.project.root)
        if not os.environ.get(_DAGSTER_HOME_VARIABLE):
            home = self.connections.home / "dagster"
            home.mkdir(parents=True, exist_ok=True)
            if not (home / _INSTANCE_FILE).exists():
                shutil.copyfile(_bundled(_INSTANCE_FILE), home / _INSTANCE_FILE)
            os.environ[_DAGSTER_HOME_VARIABLE] = str(home)
        return Path(os.environ[_DAGSTER_HOME_VARIABLE])

    def use_warm_spark(self) -> None:
        """Attaches this process to the Spark of a running `pgtrickle up`, if there is one."""
        attach(project_settings(self.project).home)

    def _spark(self) -> SparkSession:
        from pgtrickle_assets.services.spark import spark_session

        return spark_session(self.settings)


def open_workspace(path: Path | None, *, believe_names: bool = False, warn: bool = True) -> Workspace:
    """Opens the project that a command is for, and says which environment variables were meant for it in vain.

    Args:
        path: Value of `--project`; without it `PGTRICKLE_PROJECT`, else the current folder if it is a project, else the
            bundled example.
        believe_names: Load without what was seen of the sources, because they are about to be read anew.
        warn: Whether to warn of variables that look like a setting and are none.

    Raises:
        ConfigurationError: When there is no such project or it has a mistake.
    """
    if path is None and not os.environ.get(PROJECT_VARIABLE) and Path(PROJECT_FILE).is_file():
        path = Path.cwd()
    if path is None and not believe_names:
        project = load_configured_project()
    else:
        folder = path or configured_folder()
        project = Project.load(folder, known=believing(folder) if believe_names else None)
    if warn:
        warn_of_unknown_variables(project)
    return Workspace(project)


def warn_of_unknown_variables(project: Project) -> None:
    """One line on standard error for each variable that looks like a setting and is none."""
    for warning in unknown_variables(known=project.environment_variables):
        stderr.print(f"warning: {warning}", style="yellow", markup=False)


def configured_folder() -> Path:
    """The folder that `PGTRICKLE_PROJECT` names, or the bundled example's."""
    from pgtrickle_assets.bundled_example import example_folder

    configured = os.environ.get(PROJECT_VARIABLE)
    return Path(configured) if configured else example_folder()


def _bundled(name: str) -> Path:
    for folder in (Path(__file__).resolve().parents[2], Path(sys.prefix) / "share" / "pgtrickle"):
        if (folder / name).is_file():
            return folder / name
    raise ConfigurationError(
        f"This installation came without {name}.", hint="Set DAGSTER_HOME to a folder of yours that has one."
    )
