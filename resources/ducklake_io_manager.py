"""The DuckLake IO manager: the one way by which anything gets into the lake."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from pgtrickle_assets.assets.engine import EngineSession
from pgtrickle_assets.assets.failures import step_failures
from pgtrickle_assets.assets.keys import ENGINE, lake_key
from pgtrickle_assets.assets.metadata import code_version, delivered_metadata, partition_metadata, refresh_metadata
from pgtrickle_assets.assets.partitions_definitions import dynamic_partitions_name, widened_bounds
from pgtrickle_assets.partitions import ALL_KEY, NULL_KEY
from resources.event_batches import log_materializations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pgtrickle_assets.refresh.model import PreparedRefresh, RefreshResult
    from pgtrickle_assets.schema_cache import KnownSchemas
    from pgtrickle_assets.stream_table import StreamTable

_RECENT = 12
_MANY_PARTITIONS = 50


class DuckLakeIOManager(dg.IOManager):
    """Delivers prepared refreshes and reads stream tables as Spark data frames.

    An output of an asset gets the refresh's metadata on the materialization that Dagster makes. An output of a step of
    the jobs `refresh` and `rebuild` gets one materialization per partition that the delta touched.

    Args:
        session: The run's engine.
    """

    def __init__(self, session: EngineSession) -> None:
        self._session = session

    def handle_output(self, context: dg.OutputContext, obj: PreparedRefresh) -> None:
        """Delivers a refresh; what it raises fails the step, and nothing is half written."""
        with step_failures(context):
            result = self._session.engine.deliver(obj)
        # Stream tables made from SQL may have come since this code location was loaded.
        table = self._session.engine.project.stream_table(str(result.stream_table))
        self._session.results[table.name] = result
        context.log.info(
            "%s: +%d -%d rows in %.2f s, %s",
            table.name,
            result.rows_inserted,
            result.rows_deleted,
            result.seconds.get("total", 0.0),
            result.delivery_status if result.snapshot is None else f"snapshot {result.snapshot}",
        )
        self._remember_partitions(context, table, result)
        metadata = {
            **refresh_metadata(result, self._recent(table)),
            **delivered_metadata(self._session.engine.project, table),
        }
        if context.has_asset_key:
            keys = context.asset_partition_keys if context.has_asset_partitions else [ALL_KEY]
            single = keys[0] if len(keys) == 1 else ""
            context.add_output_metadata(partition_metadata(result, single, metadata, brief=False))
        elif result.error is None:
            self._log_materializations(context, table, result, metadata)

    def load_input(self, context: dg.InputContext) -> DataFrame:
        """The upstream lake table, restricted to the partitions that the reader's mapping names."""
        name = ".".join(context.asset_key.path)
        partitions = None
        if context.has_asset_partitions and ALL_KEY not in context.asset_partition_keys:
            partitions = context.asset_partition_keys
        with step_failures(context):
            return self._session.synced().read(name, partitions)

    def _log_materializations(
        self, context: dg.OutputContext, table: StreamTable, result: RefreshResult, metadata: dict[str, Any]
    ) -> None:
        touched = result.touched_partitions
        if table.partitioning is None:
            touched = (ALL_KEY,) if touched else ()
        brief = len(touched) > _MANY_PARTITIONS
        tags = {"dagster/code_version": code_version(table), "dagster/data_version": str(result.snapshot)}
        log_materializations(
            context,
            [
                dg.AssetMaterialization(
                    lake_key(table.table),
                    partition=key,
                    metadata=partition_metadata(result, key, metadata, brief=brief),
                    tags=tags,
                )
                for key in touched
            ],
        )

    def _recent(self, table: StreamTable) -> list[tuple[str, float]]:
        rows = self._session.engine.history(table.name, _RECENT)
        timed = [row for row in reversed(rows) if row["strategy"] is not None and row["seconds"] is not None]
        return [(row["strategy"], row["seconds"]) for row in timed]

    def _remember_partitions(self, context: dg.OutputContext, table: StreamTable, result: RefreshResult) -> None:
        by, project = table.partitioning, self._session.project
        keys = [key for key in result.touched_partitions if key != NULL_KEY]
        if by is None or not keys:
            return
        if by.is_time:

            def widen(known: KnownSchemas) -> KnownSchemas:
                widened = widened_bounds(by, known.bounds.get(table.name), keys)
                return replace(known, bounds={**known.bounds, table.name: widened})

            project.remember(widen)
        elif by.values is None and context.step_context is not None:
            context.step_context.instance.add_dynamic_partitions(
                dynamic_partitions_name(table), list(result.touched_partitions)
            )


def ducklake_io_manager() -> dg.IOManagerDefinition:
    """The resource `ducklake_io_manager`; it uses the engine of the resource `pgtrickle`."""
    return dg.IOManagerDefinition(
        resource_fn=lambda context: DuckLakeIOManager(getattr(context.resources, ENGINE)),
        required_resource_keys={ENGINE},
        description="Delivers refreshes into DuckLake and reads stream tables.",
    )
