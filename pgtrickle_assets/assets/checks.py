"""Asset checks: is what is stored what the query says?"""

from typing import Final

import dagster as dg

from pgtrickle_assets.assets.engine import EngineSession
from pgtrickle_assets.assets.failures import step_failures
from pgtrickle_assets.assets.keys import ENGINE, SPARK, SPARK_POOL, lake_key
from pgtrickle_assets.assets.metadata import check_metadata
from pgtrickle_assets.project import Project
from pgtrickle_assets.refresh.model import CheckReport
from pgtrickle_assets.stream_table import StreamTable

EQUALS_FULL: Final = "differential_equals_full"


def build_checks(project: Project) -> list[dg.AssetChecksDefinition]:
    """The checks of all stream tables."""
    return [_equals_full(table) for table in project.stream_tables]


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
        session: EngineSession = getattr(context.resources, ENGINE)
        with step_failures(context):
            report = session.synced().check_equals_full(table.name)
        return dg.AssetCheckResult(passed=report.passed, description=summary(report), metadata=check_metadata(report))

    return differential_equals_full


def summary(report: CheckReport) -> str:
    """One sentence on a check."""
    at = f"at snapshot {report.snapshot}"
    if report.passed:
        return f"{report.stored_rows} rows, equal {at}."
    return f"{report.surplus_rows} rows too many and {report.missing_rows} rows missing {at}."
