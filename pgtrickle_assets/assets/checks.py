"""Asset checks: is what is stored what the query says, and is it recent enough?"""

from collections.abc import Callable
from typing import Final

import dagster as dg

from pgtrickle_assets.assets.delivered_check import DELIVERED, delivered_check
from pgtrickle_assets.assets.engine import Engine, EngineSession
from pgtrickle_assets.assets.failures import step_failures
from pgtrickle_assets.assets.keys import ENGINE, SPARK, SPARK_POOL, lake_key
from pgtrickle_assets.assets.metadata import check_metadata, freshness_metadata
from pgtrickle_assets.project import Project
from pgtrickle_assets.refresh.model import CheckReport
from pgtrickle_assets.stream_table import StreamTable

EQUALS_FULL: Final = "differential_equals_full"
AGREES_WITH_DUCKDB: Final = "agrees_with_duckdb"
FRESH: Final = "fresh"


def build_checks(project: Project) -> list[dg.AssetChecksDefinition]:
    """The checks of all stream tables."""
    return [build(table) for table in project.stream_tables for build in _BUILDERS.values()]


def check_names() -> tuple[str, ...]:
    """Names of the checks that each stream table has."""
    return tuple(_BUILDERS)


def _equals_full(table: StreamTable) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=lake_key(table.table),
        name=EQUALS_FULL,
        description="What is stored equals the defining query, run in full on its inputs at the frontier.",
        blocking=True,
        required_resource_keys={ENGINE, SPARK},
        pool=SPARK_POOL,
    )
    def differential_equals_full(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        return _compared(context, lambda engine: engine.check_equals_full(table.name))

    return differential_equals_full


def _agrees_with_duckdb(table: StreamTable) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=lake_key(table.table),
        name=AGREES_WITH_DUCKDB,
        description="What is stored equals what DuckDB reads and computes from the inputs at the frontier.",
        blocking=True,
        required_resource_keys={ENGINE},
    )
    def agrees_with_duckdb(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        return _compared(context, lambda engine: engine.check_agrees_with_duckdb(table.name))

    return agrees_with_duckdb


def _compared(context: dg.AssetCheckExecutionContext, compare: Callable[[Engine], CheckReport]) -> dg.AssetCheckResult:
    session: EngineSession = getattr(context.resources, ENGINE)
    with step_failures(context):
        report = compare(session.synced())
    return dg.AssetCheckResult(passed=report.passed, description=summary(report), metadata=check_metadata(report))


def _fresh(table: StreamTable) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=lake_key(table.table),
        name=FRESH,
        description="What the stream table is behind its inputs is within its schedule.",
        required_resource_keys={ENGINE},
    )
    def fresh(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        session: EngineSession = getattr(context.resources, ENGINE)
        with step_failures(context):
            found = session.synced().freshness(table.name)
        return dg.AssetCheckResult(
            passed=found.fresh,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"{table.name} {found.detail}.",
            metadata=freshness_metadata(found),
        )

    return fresh


_BUILDERS: Final[dict[str, Callable[[StreamTable], dg.AssetChecksDefinition]]] = {
    EQUALS_FULL: _equals_full,
    AGREES_WITH_DUCKDB: _agrees_with_duckdb,
    DELIVERED: delivered_check,
    FRESH: _fresh,
}


def summary(report: CheckReport) -> str:
    """One sentence on a check."""
    at = f"at snapshot {report.snapshot}"
    if report.passed:
        return f"{report.stored_rows} rows, equal {at}."
    if not (report.surplus_rows or report.missing_rows):
        return f"{report.detail} {at}."
    return f"{report.surplus_rows} rows too many and {report.missing_rows} rows missing {at}."
