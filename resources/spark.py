"""Spark for runs: a session of this process, or a client of a warm Spark Connect server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pgtrickle_assets.project import Project


class SparkSessions:
    """The Spark session of this process, started when it is first asked for.

    It has the attribute of `PySparkResource` of dagster-pyspark, so either can be the resource `spark`. Nobody stops
    the session: other runs of the process may use it, and it ends with the process.

    Args:
        project: The project whose settings say where Spark runs.
    """

    def __init__(self, project: Project) -> None:
        self._project = project

    @property
    def spark_session(self) -> SparkSession:
        """The session.

        Raises:
            ServiceError: When there is no suitable Java.
        """
        from pgtrickle_assets.connections import project_settings
        from pgtrickle_assets.services.spark import spark_session

        return spark_session(project_settings(self._project))


def spark_resource(project: Project) -> dg.ResourceDefinition:
    """The resource `spark` of a project."""
    return dg.ResourceDefinition(
        resource_fn=lambda _: SparkSessions(project), description="PySpark, local or through Spark Connect."
    )
