"""PostgreSQL for assets that users write beside the stream tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    import psycopg

    from pgtrickle_assets.project import Project


class PostgresSources:
    """Connections to the sources and the catalog of a project.

    Args:
        project: The project.
    """

    def __init__(self, project: Project) -> None:
        self._project = project

    def connect(self, source: str) -> psycopg.Connection:
        """A connection to a source, by the name it has in `pgtrickle.yaml`; close it after use."""
        import psycopg

        from pgtrickle_assets.connections import Connections, project_settings

        connections = Connections(self._project, project_settings(self._project))
        return psycopg.connect(connections.source_dsn(source).get_secret_value())


def postgres_resource(project: Project) -> dg.ResourceDefinition:
    """The resource `postgres` of a project."""
    return dg.ResourceDefinition(
        resource_fn=lambda _: PostgresSources(project), description="The project's PostgreSQL sources."
    )
