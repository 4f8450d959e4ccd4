"""The refresh engine as a resource: one per run, opened at its first use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

import dagster as dg

from pgtrickle_assets.assets.engine import Engine, EngineSession, OpenEngine, SparkProvider
from pgtrickle_assets.assets.keys import SPARK
from resources.event_batches import enable_event_batches

if TYPE_CHECKING:
    from pgtrickle_assets.project import Project


def open_refresh_engine(project: Project, spark: SparkProvider) -> AbstractContextManager[Engine]:
    """Opens the refresh engine of a project."""
    from pgtrickle_assets.connections import project_settings
    from pgtrickle_assets.refresh.api import RefreshEngine

    return cast("AbstractContextManager[Engine]", RefreshEngine.open(project, project_settings(project), spark))


def open_refresh_engine_on(s3: Any) -> OpenEngine:
    """As `open_refresh_engine`, with the lake's object store as a resource of dagster-aws describes it."""

    def open_engine(project: Project, spark: SparkProvider) -> AbstractContextManager[Engine]:
        from resources.object_storage import s3_storage_options

        return open_refresh_engine(project.with_storage(s3_storage_options(s3)), spark)

    return open_engine


def engine_resource(project: Project, open_engine: OpenEngine | None = None) -> dg.ResourceDefinition:
    """The resource `pgtrickle` of a project: an `EngineSession`.

    Args:
        project: The project.
        open_engine: Opens the engine; `open_refresh_engine` by default.
    """

    def session(context: dg.InitResourceContext) -> Iterator[EngineSession]:
        enable_event_batches()
        spark = getattr(context.resources, SPARK)
        with EngineSession(
            project, lambda: spark.spark_session, open_engine or open_refresh_engine
        ).closing() as opened:
            yield opened

    return dg.ResourceDefinition(
        resource_fn=session, required_resource_keys={SPARK}, description="Refreshes the project's stream tables."
    )
