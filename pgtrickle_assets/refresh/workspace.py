"""Everything that refreshing a project needs open: the lake with its control schema, the sources, the definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle_assets.capture.postgres import PostgresSource
from pgtrickle_assets.connections import Connections
from pgtrickle_assets.control.migrations import migrate
from pgtrickle_assets.lake.catalog import Lake
from pgtrickle_assets.lake.file_cache import ColumnFiles
from pgtrickle_assets.refresh.definition import Definition, define
from pgtrickle_assets.refresh.mirrors import Mirror, MirrorCapture, MirroredSource
from pgtrickle_assets.type_names import parse_numeric

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pgtrickle_assets.project import Project
    from pgtrickle_assets.query.types import ColumnType, TableName
    from pgtrickle_assets.settings import Settings

SparkProvider = Callable[[], "SparkSession"]


@dataclass
class Workspace:
    """The open parts of one project.

    Attributes:
        project: The project, with what is known of its sources.
        settings: Settings in force.
        spark: Gives the session when something has to be computed.
        lake: The lake; its catalog database also holds the control schema.
        sources: Capture of each source by name.
    """

    project: Project
    settings: Settings
    spark: SparkProvider
    lake: Lake
    sources: dict[str, PostgresSource]

    @classmethod
    @contextmanager
    def open(cls, project: Project, settings: Settings, spark: SparkProvider) -> Iterator[Workspace]:
        """Open a project; makes lake and control schema when they are missing.

        Raises:
            ServiceError: The embedded PostgreSQL does not start.
            LakeError: The lake cannot be reached or has a version that we do not write.
            ControlError: The control schema is of a newer release.
        """
        connections = Connections(project, settings)
        location = connections.lake_location()
        limit = settings.column_cache_bytes
        lake = Lake.bootstrap(location, ColumnFiles(connections.home / "cache", limit) if limit else None)
        try:
            migrate(location.catalog_dsn)
            sources = {
                name: _source(project, name, connections.source_dsn(name).get_secret_value())
                for name in project.sources
            }
            yield cls(project, settings, spark, lake, sources)
        finally:
            lake.close()

    def definition(self, name: str) -> Definition:
        """The definition of a stream table.

        Raises:
            ConfigurationError: There is none of that name, or its query cannot be planned.
        """
        return define(self.project, name)

    @property
    def capture(self) -> MirrorCapture:
        """Moves changes of the sources into the mirrors."""
        return MirrorCapture(self.lake, self.spark, tuple(self._mirrored(name) for name in self.sources))

    def _mirrored(self, name: str) -> MirroredSource:
        config = self.project.sources[name]
        mirrors: dict[TableName, Mirror] = {}
        for table in self.project.source_tables[name]:
            schema = self.project.mirror_schema(name, table)
            mirrors[table] = Mirror(config.mirror_of(table), schema.key if schema else ())
        return MirroredSource(self.sources[name], mirrors)


def _source(project: Project, name: str, dsn: str) -> PostgresSource:
    config = project.sources[name]
    excluded = {config.table_name(text): frozenset(columns) for text, columns in config.exclude_columns.items()}
    types: dict[TableName, dict[str, ColumnType]] = {}
    for text, kind in config.numeric.items():
        table, _, column = text.rpartition(".")
        types.setdefault(config.table_name(table), {})[column] = parse_numeric(text, kind)
    return PostgresSource(name, dsn, consumer=project.name, exclude_columns=excluded, column_types=types)
