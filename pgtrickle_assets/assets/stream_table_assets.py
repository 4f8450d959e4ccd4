"""One partitioned asset per stream table; its materialization is a refresh."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from pgtrickle_assets.assets.delivered_check import log_delivered
from pgtrickle_assets.assets.engine import EngineSession
from pgtrickle_assets.assets.failures import step_failures
from pgtrickle_assets.assets.keys import ENGINE, IO_MANAGER, SPARK, SPARK_POOL, identifier, lake_key
from pgtrickle_assets.assets.metadata import code_version, definition_metadata
from pgtrickle_assets.assets.partitions_definitions import asked_partitions, partition_mapping, partitions_definition
from pgtrickle_assets.assets.processes import mark_process
from pgtrickle_assets.errors import SourceLocationError
from pgtrickle_assets.project import Project
from pgtrickle_assets.refresh.model import PreparedRefresh
from pgtrickle_assets.stream_table import StreamTable


class RefreshConfig(dg.Config):
    """Run configuration of a stream table's asset."""

    full: bool = Field(default=False, description="Recompute from scratch instead of moving the difference.")


def build_stream_table_assets(project: Project) -> list[dg.AssetsDefinition]:
    """The assets of all stream tables, upstream first.

    Raises:
        SourceLocationError: When Dagster does not take an option, such as a tag with a blank.
    """
    return [_build(project, table) for table in project.stream_tables]


def _build(project: Project, table: StreamTable) -> dg.AssetsDefinition:
    try:
        return _stream_table_asset(project, table)
    except (dg.DagsterInvalidDefinitionError, dg.DagsterInvariantViolationError) as error:
        raise SourceLocationError(str(error).splitlines()[0], path=table.path or table.name, line=1) from error


def _stream_table_asset(project: Project, table: StreamTable) -> dg.AssetsDefinition:
    @dg.asset(
        key=lake_key(table.table),
        deps=_dependencies(project, table),
        partitions_def=partitions_definition(table, project.known.bounds.get(table.name)),
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key=IO_MANAGER,
        required_resource_keys={ENGINE, SPARK},
        pool=SPARK_POOL,
        code_version=code_version(table),
        kinds={"spark", "ducklake"},
        group_name=identifier(table.table.schema),
        owners=list(table.owners),
        tags=dict(table.tags),
        description=table.description or None,
        metadata=definition_metadata(project, table, project.plan(table.name)),
        op_tags={"pgtrickle/stream_table": identifier(table.name)},
    )
    def refresh(context: dg.AssetExecutionContext, config: RefreshConfig) -> Iterator[dg.Output[Any]]:
        session: EngineSession = getattr(context.resources, ENGINE)
        mark_process(context)
        prepared = prepare(
            session, context, table.name, partitions=asked_partitions(context), full=config.full, initiated_by="MANUAL"
        )
        # The IO manager delivers while this waits.
        yield dg.Output(prepared)
        log_delivered(session, context, table)

    return refresh


def prepare(
    session: EngineSession,
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    name: str,
    *,
    partitions: Sequence[str] | None,
    full: bool,
    initiated_by: str,
) -> PreparedRefresh:
    """Computes a refresh and logs what was chosen; the IO manager delivers what this returns."""
    with step_failures(context):
        prepared = session.synced().prepare(
            name,
            partitions=partitions,
            cut=session.cut,
            full=full,
            run_id=context.run.run_id,
            initiated_by=initiated_by,
        )
    context.log.info(
        "%s: %s (%s), %d changed rows read, cut %d",
        name,
        prepared.strategy.value,
        prepared.reason,
        prepared.delta_in,
        prepared.cut,
    )
    return prepared


def _dependencies(project: Project, table: StreamTable) -> list[dg.AssetDep]:
    dependencies: Mapping[dg.AssetKey, dg.AssetDep] = {
        lake_key(reference.table): dg.AssetDep(
            lake_key(reference.table),
            partition_mapping=partition_mapping(project.stream_table(str(reference.table)), table)
            if reference.kind == "stream_table"
            else None,
        )
        for reference in project.references[table.name].values()
    }
    return list(dependencies.values())
