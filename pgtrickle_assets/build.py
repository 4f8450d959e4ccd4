"""From a project to Dagster definitions."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from pgtrickle_assets.assets.checks import build_checks
from pgtrickle_assets.assets.jobs import MAINTAIN, REFRESH, build_jobs, maintenance_schedule
from pgtrickle_assets.assets.keys import ENGINE, IO_MANAGER, RUN_PLAN, SPARK
from pgtrickle_assets.assets.source_assets import build_mirror_assets, source_specs
from pgtrickle_assets.assets.stream_table_assets import build_stream_table_assets
from pgtrickle_assets.connections import project_settings
from resources.ducklake_io_manager import ducklake_io_manager
from resources.engine import engine_resource, open_refresh_engine_on
from resources.postgres import postgres_resource
from resources.spark import spark_resource
from sensors.delivery_retries import delivery_retries_sensor
from sensors.due_refreshes import due_refreshes_sensor
from sensors.lake_changes import lake_changes_sensor
from sensors.recovery import recovery_sensor
from sensors.schema_changes import schema_changes_sensor
from sensors.source_changes import source_changes_sensor
from sensors.sql_requests import sql_requests_sensor

if TYPE_CHECKING:
    from pgtrickle_assets.project import Project

_SENSORS: Final = (
    source_changes_sensor,
    lake_changes_sensor,
    due_refreshes_sensor,
    delivery_retries_sensor,
    sql_requests_sensor,
    schema_changes_sensor,
    recovery_sensor,
)

S3: Final = "s3"
"""Key of the resource with the lake's object store, as dagster-aws calls it."""

_UNSET_OWNERS: Final = "Parameter `owners` of initializer `SensorDefinition"


def build_definitions(
    project: Project, *, resources: Mapping[str, Any] | None = None, made_elsewhere: Collection[dg.AssetKey] = ()
) -> dg.Definitions:
    """Assets, checks, jobs, sensors and resources of a project.

    Needs neither PostgreSQL nor Spark nor the lake. To merge into a code location of your own, use
    `Definitions.merge(build_definitions(project), ...)`.

    Args:
        project: The project.
        resources: Resources that replace ours, by key (`spark`, `postgres`, `pgtrickle`, `ducklake_io_manager`). An
            `S3Resource` of dagster-aws under the key `s3` gives the lake's endpoint and credentials.
        made_elsewhere: Keys of assets of yours that write lake tables which stream tables read, such as dbt models; for
            these there is no external asset here.

    Raises:
        ConfigurationError: For a query that cannot be planned, as far as the columns of its inputs are known.
    """
    # Dagster copies sensors when it resolves definitions, which is later, and then warns of an option nobody has set.
    warnings.filterwarnings("ignore", message=_UNSET_OWNERS, category=dg.BetaWarning)
    with warnings.catch_warnings():
        # Backfills in one run are a beta feature that the tests cover.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return _build(project, resources or {}, frozenset(made_elsewhere))


def _build(project: Project, resources: Mapping[str, Any], made_elsewhere: frozenset[dg.AssetKey]) -> dg.Definitions:
    specs = [spec for spec in source_specs(project) if spec.key not in made_elsewhere]
    jobs = build_jobs(project)
    refresh = next((job for job in jobs if job.name == REFRESH), None)
    sensors = [build(project, refresh) for build in _SENSORS] if refresh is not None else []
    cron = project_settings(project).maintenance_schedule
    schedules = [maintenance_schedule(job, cron) for job in jobs if job.name == MAINTAIN and cron]
    return dg.Definitions(
        assets=[*specs, *build_mirror_assets(project), *build_stream_table_assets(project)],
        asset_checks=build_checks(project),
        jobs=jobs,
        sensors=sensors,
        schedules=schedules,
        resources={
            SPARK: spark_resource(project),
            "postgres": postgres_resource(project),
            ENGINE: engine_resource(project, open_refresh_engine_on(resources[S3]) if S3 in resources else None),
            IO_MANAGER: ducklake_io_manager(),
            RUN_PLAN: dg.mem_io_manager,
            **resources,
        },
        executor=dg.in_process_executor,
    )
