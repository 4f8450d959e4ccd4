"""External assets for source tables and foreign lake tables, and the assets that mirror sources into the lake."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from pgtrickle_assets.assets.engine import EngineSession
from pgtrickle_assets.assets.failures import step_failures
from pgtrickle_assets.assets.keys import ENGINE, lake_key, source_key
from pgtrickle_assets.assets.metadata import column_schema, mirror_metadata
from pgtrickle_assets.project import Project
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh.model import MirrorReport

MIRROR_GROUP = "raw"
SOURCE_GROUP = "sources"
LAKE_GROUP = "lake"


def source_specs(project: Project) -> list[dg.AssetSpec]:
    """One external asset per source table, and per lake table that something else writes."""
    sources = [
        dg.AssetSpec(
            source_key(source, table),
            group_name=SOURCE_GROUP,
            kinds={"postgres"},
            description=f"Table {table} of source {source}.",
        )
        for source, tables in project.source_tables.items()
        for table in tables
    ]
    lake = [
        dg.AssetSpec(
            lake_key(table),
            group_name=LAKE_GROUP,
            kinds={"ducklake"},
            description="Lake table that another writer keeps.",
        )
        for table in project.lake_tables
    ]
    return [*sources, *lake]


def build_mirror_assets(project: Project) -> list[dg.AssetsDefinition]:
    """The assets that mirror all sources; one step, because one batch moves them to one commit point."""
    specs = [
        _mirror_spec(project, source, table) for source, tables in project.source_tables.items() for table in tables
    ]
    if not specs:
        return []

    @dg.multi_asset(
        name="capture_changes",
        specs=specs,
        can_subset=True,
        required_resource_keys={ENGINE},
    )
    def capture_changes(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        session: EngineSession = getattr(context.resources, ENGINE)
        report = capture(session, context)
        for key in context.selected_asset_keys:
            yield dg.MaterializeResult(asset_key=key, metadata=_metadata_of(report, key))

    return [capture_changes]


def capture(session: EngineSession, context: dg.OpExecutionContext | dg.AssetExecutionContext) -> MirrorReport:
    """Moves the change buffers into the mirrors and pins the cut of the run."""
    with step_failures(context):
        report = session.synced().capture(context.run.run_id)
    session.cut = report.cut
    moved = sum(inserted + deleted for inserted, deleted in report.changes.values())
    context.log.info("captured %d changed rows in %.2f s; cut %d", moved, report.seconds, report.cut)
    return report


def mirror_events(report: MirrorReport) -> Iterator[dg.AssetMaterialization]:
    """A materialization per mirror that a capture batch changed."""
    for table, (inserted, deleted) in report.changes.items():
        if inserted or deleted:
            metadata = mirror_metadata((inserted, deleted), report.cut, report.snapshot, table)
            yield dg.AssetMaterialization(lake_key(table), metadata=metadata)


def _mirror_spec(project: Project, source: str, table: TableName) -> dg.AssetSpec:
    mirror = project.sources[source].mirror_of(table)
    schema = project.mirror_schema(source, table)
    metadata: dict[str, Any] = {"dagster/table_name": str(mirror), "dagster/storage_kind": "ducklake"}
    if schema is not None:
        metadata["dagster/column_schema"] = column_schema(schema.columns)
    return dg.AssetSpec(
        lake_key(mirror),
        deps=[source_key(source, table)],
        group_name=MIRROR_GROUP,
        kinds={"postgres", "ducklake"},
        description=f"The current rows of {source}.{table}.",
        metadata=metadata,
    )


def _metadata_of(report: MirrorReport, key: dg.AssetKey) -> dict[str, Any]:
    for table, changes in report.changes.items():
        if lake_key(table) == key:
            return mirror_metadata(changes, report.cut, report.snapshot, table)
    return {"rows_inserted": 0, "rows_deleted": 0, "cut": report.cut}
