"""Where a project's databases and files are: as configured, or embedded on this machine."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from pgtrickle_assets.settings import load_settings

if TYPE_CHECKING:
    from pgtrickle_assets.lake.location import LakeLocation
    from pgtrickle_assets.project import Project
    from pgtrickle_assets.services.postgres import EmbeddedPostgres
    from pgtrickle_assets.settings import Settings

DAGSTER_DSN_VARIABLE: Final = "PGTRICKLE_DAGSTER_DSN"
"""Environment variable from which `dagster.yaml` takes Dagster's storage."""

_CATALOG_DATABASE: Final = "lake"
_DAGSTER_DATABASE: Final = "dagster"


def project_settings(project: Project) -> Settings:
    """The settings that hold for a project: environment, then the project file's `settings`, then defaults.

    `home` comes out absolute; a relative one is taken from the project's folder.

    Raises:
        ConfigurationError: For an unknown setting or a wrong value, in the project file or the environment.
    """
    settings = load_settings({"home": project.home, **project.settings})
    home = (project.root or Path.cwd()) / settings.home.expanduser()
    return settings.model_copy(update={"home": home.resolve()})


class Connections:
    """Connection strings of a project; starts the embedded PostgreSQL when one is needed.

    Order for the catalog and Dagster's storage: the environment's setting, `pgtrickle.yaml`, the embedded server. Each
    embedded source is a database of its own, named like the source.

    Args:
        project: The project.
        settings: Its settings.
    """

    def __init__(self, project: Project, settings: Settings) -> None:
        self._project = project
        self._settings = settings

    @property
    def home(self) -> Path:
        """Folder for embedded services and local state, absolute."""
        return self._settings.home

    @property
    def embedded(self) -> EmbeddedPostgres:
        """The embedded server of this home, running or not."""
        from pgtrickle_assets.services.postgres import EmbeddedPostgres

        return EmbeddedPostgres(self.home / "postgres", options=self._settings.embedded_postgres_options)

    @property
    def needs_embedded(self) -> bool:
        """Whether any of the databases is embedded."""
        sources = any(source.is_embedded for source in self._project.sources.values())
        return sources or self._catalog() is None or self._dagster() is None

    @property
    def reachable_catalog(self) -> SecretStr | None:
        """Connection string of the catalog, or None where it is embedded and does not run; starts nothing."""
        configured = self._catalog()
        if configured is not None:
            return configured
        return SecretStr(self.embedded.dsn(_CATALOG_DATABASE)) if self.embedded.running() is not None else None

    def source_dsn(self, name: str) -> SecretStr:
        """Connection string of a source."""
        source = self._project.sources[name]
        return self._embedded_database(name) if source.is_embedded else source.connection(name)

    def catalog_dsn(self) -> SecretStr:
        """Connection string of the lake's catalog."""
        return self._catalog() or self._embedded_database(_CATALOG_DATABASE)

    def dagster_dsn(self) -> SecretStr:
        """Connection string of Dagster's storage."""
        return self._dagster() or self._embedded_database(_DAGSTER_DATABASE)

    @property
    def catalog_schema(self) -> str:
        """Schema of the catalog's tables."""
        return self._project.lake.catalog_schema or self._settings.ducklake_catalog_schema

    @property
    def data_path(self) -> str:
        """Where the lake's files are."""
        configured = self._settings.data_path or self._project.lake.data_path
        if configured is None:
            return str(self.home / "lake")
        if "://" in configured:
            return configured
        return str(((self._project.root or Path.cwd()) / Path(configured).expanduser()).resolve())

    def lake_location(self) -> LakeLocation:
        """Where the lake is, made or not."""
        from pgtrickle_assets.lake.location import LakeLocation

        options = {name: value.get_secret_value() for name, value in self._project.lake.storage_options().items()}
        return LakeLocation(self.catalog_dsn().get_secret_value(), self.catalog_schema, self.data_path, options)

    def _catalog(self) -> SecretStr | None:
        if self._settings.catalog_dsn is not None:
            return self._settings.catalog_dsn
        return None if self._project.lake.is_embedded else self._project.lake.connection()

    def _dagster(self) -> SecretStr | None:
        return self._settings.dagster_dsn

    def _embedded_database(self, name: str) -> SecretStr:
        self._started  # noqa: B018 - starts the server once
        return SecretStr(self.embedded.create_database(name))

    @cached_property
    def _started(self) -> str:
        return self.embedded.start()
