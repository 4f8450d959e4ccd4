"""Metadata of assets and materializations (design, section 3.5).

Keys without prefix `dagster/` are ours; the IO manager alone writes them on materializations.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import dagster as dg
import sqlglot
from sqlglot.errors import SqlglotError

from pgtrickle_assets.assets.keys import lake_key
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    from pgtrickle_assets.project import Project
    from pgtrickle_assets.query.plan import QueryPlan
    from pgtrickle_assets.query.types import ColumnSchema
    from pgtrickle_assets.refresh.model import CheckReport, Freshness, RefreshResult
    from pgtrickle_assets.stream_table import StreamTable

MAX_TEXT: Final = 16_000
"""Characters of a long text in metadata; Dagster stores and loads metadata as a whole."""

_CHART_WIDTH: Final = 24


def code_version(table: StreamTable) -> str:
    """A hash of what decides the content: the normalised query, its dialect and the partitioning.

    White space, comments and keyword case do not count.
    """
    try:
        normalised = sqlglot.parse_one(table.query, read=table.dialect).sql(table.dialect, comments=False)
    except SqlglotError:
        normalised = table.query
    text = "\x00".join((normalised, table.dialect, table.partition_by or ""))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def column_schema(columns: Sequence[ColumnSchema]) -> dg.TableSchema:
    """Columns as Dagster shows them."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name, str(column.type), constraints=dg.TableColumnConstraints(nullable=column.nullable)
            )
            for column in columns
        ]
    )


def column_lineage(plan: QueryPlan) -> dg.TableColumnLineage:
    """Which columns of which inputs each output column is computed from."""
    return dg.TableColumnLineage(
        {
            column: [
                dg.TableColumnDep(asset_key=lake_key(plan.inputs[relation].name), column_name=name)
                for relation, name in origins
                if relation in plan.inputs
            ]
            for column, origins in plan.lineage.items()
        }
    )


def definition_metadata(project: Project, table: StreamTable, plan: QueryPlan | None) -> dict[str, Any]:
    """Metadata of a stream table's definition."""
    metadata: dict[str, Any] = {
        "dagster/table_name": table.name,
        "dagster/storage_kind": "ducklake",
        "schedule": table.schedule,
        "refresh_mode": table.refresh_mode,
        "partition_by": table.partition_by or "all",
        "query": dg.MetadataValue.md(_fenced(table.query, "sql")),
    }
    metadata.update(column_metadata(plan))
    if plan is not None:
        metadata["maintenance"] = dg.MetadataValue.md(maintenance_text(project, table.name))
        if plan.notes:
            metadata["notes"] = dg.MetadataValue.md("\n".join(f"- {note}" for note in plan.notes))
    if table.path is not None and project.root is not None:
        reference = dg.LocalFileCodeReference(
            file_path=str(project.root / table.path), line_number=table.query_line, label=table.path
        )
        metadata["dagster/code_references"] = dg.CodeReferencesMetadataValue(code_references=[reference])
    return metadata


def column_metadata(plan: QueryPlan | None) -> dict[str, Any]:
    """Columns and their origins, as far as they are known; Dagster shows those of the latest materialization."""
    if plan is None:
        return {}
    metadata: dict[str, Any] = {"dagster/column_schema": column_schema(plan.output)}
    if plan.lineage:
        metadata["dagster/column_lineage"] = column_lineage(plan)
    return metadata


def delivered_metadata(project: Project, table: StreamTable) -> dict[str, Any]:
    """What a materialization says of the stream table itself: columns, origins, and the file of its query."""
    metadata = column_metadata(project.plan(table.name))
    if table.path is not None and project.root is not None:
        metadata["sql_file"] = dg.MetadataValue.path(str(project.root / table.path))
    return metadata


def maintenance_text(project: Project, name: str) -> str:
    """How a stream table with known columns is maintained, as markdown of bounded size."""
    from pgtrickle_assets.refresh.definition import define
    from pgtrickle_assets.refresh.explanation import explain
    from pgtrickle_assets.refresh.explanation_views import as_text

    text = as_text(explain(define(project, name)), sql=False)
    return _fenced(_bounded(text, f"`pgtrickle explain {name}` shows all of it."))


def refresh_metadata(result: RefreshResult, recent_seconds: Sequence[tuple[str, float]] = ()) -> dict[str, Any]:
    """Metadata of one refresh, for each materialization it brings.

    Args:
        result: What the refresh did.
        recent_seconds: Strategy and duration of the latest refreshes, oldest first, for the chart.
    """
    metadata: dict[str, Any] = {
        "strategy": result.strategy.value,
        "reason": result.reason,
        "reason_code": result.reason_code,
        "delta_rows_in": result.delta_in,
        "delta_rows_out": result.delta_out,
        "rows_inserted": result.rows_inserted,
        "rows_deleted": result.rows_deleted,
        "bytes_written": result.bytes_written,
        "files_written": result.files_written,
        "spark_jobs": result.jobs,
        "refresh_seconds": float(result.seconds.get("total", sum(result.seconds.values()))),
        "seconds_by_phase": dg.MetadataValue.json({phase: round(value, 4) for phase, value in result.seconds.items()}),
        "cut": result.cut,
        "frontier": dg.MetadataValue.json(dict(result.frontier)),
        "refresh_id": result.refresh_id,
        "delivery": result.delivery_status,
        "dagster/row_count": result.row_count,
    }
    if result.snapshot is not None:
        metadata["snapshot"] = result.snapshot
    if result.error:
        metadata["error"] = result.error
    if result.statements:
        metadata["delta_sql"] = dg.MetadataValue.md(_statements(result.statements))
    if recent_seconds:
        metadata["recent_refreshes"] = dg.MetadataValue.md(refresh_chart(recent_seconds))
    return metadata


def partition_metadata(result: RefreshResult, key: str, common: Mapping[str, Any], *, brief: bool) -> dict[str, Any]:
    """Metadata of one partition of a refresh; `brief` leaves out what is long and the same for all of them."""
    long = ("delta_sql", "recent_refreshes", "seconds_by_phase", "frontier", "dagster/column_lineage")
    metadata = {name: value for name, value in common.items() if not (brief and name in long)}
    if key in result.partition_rows:
        metadata["dagster/partition_row_count"] = result.partition_rows[key]
    return metadata


def _statements(statements: Sequence[tuple[str, str]]) -> str:
    """The statements one after the other, as many as fit."""
    shown: list[str] = []
    left = MAX_TEXT
    for place, (step, text) in enumerate(statements):
        if left <= 0:
            shown.append(f"{len(statements) - place} more statements.")
            break
        cut = text if len(text) <= left else f"{text[:left]} ..."
        left -= len(text)
        shown.append(f"**{step}**\n{_fenced(cut, 'sql')}")
    return "\n\n".join(shown)


def _bounded(text: str, rest: str) -> str:
    """A text cut at a line where it is too long; `rest` says where the whole of it is."""
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT].rpartition(chr(10))[0]}\n...\n{rest}"


def _fenced(text: str, language: str = "") -> str:
    """A block of markdown shown as it is; a longer fence than any in the text keeps it whole."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def refresh_chart(recent: Sequence[tuple[str, float]]) -> str:
    """A bar per refresh, scaled to the slowest, as text that Dagster's markdown shows unchanged."""
    slowest = max((seconds for _, seconds in recent), default=0.0) or 1.0
    lines = [
        f"{'█' * max(1, round(seconds / slowest * _CHART_WIDTH)):<{_CHART_WIDTH}} {seconds:8.2f} s  {strategy}"
        for strategy, seconds in recent
    ]
    return _fenced("\n".join(lines))


def check_metadata(report: CheckReport) -> dict[str, Any]:
    """Metadata of a check evaluation; a failed one shows the first differing rows."""
    metadata: dict[str, Any] = {
        "stored_rows": report.stored_rows,
        "expected_rows": report.expected_rows,
        "surplus_rows": report.surplus_rows,
        "missing_rows": report.missing_rows,
        "snapshot": report.snapshot,
        "check_seconds": float(report.seconds),
    }
    if report.recompute_seconds is not None:
        metadata["recompute_seconds"] = float(report.recompute_seconds)
    if report.detail:
        metadata["detail"] = report.detail
    if report.differences:
        names = [f"{index}:{name}" if name == "difference" else name for index, name in enumerate(report.columns)]
        records = [
            dg.TableRecord({"difference": count, **dict(zip(names, values, strict=True))})
            for values, count in report.differences
        ]
        columns = [dg.TableColumn("difference", "int64"), *(dg.TableColumn(name, "varchar") for name in names)]
        metadata["differing_rows"] = dg.MetadataValue.table(records, schema=dg.TableSchema(columns=columns))
    return metadata


def freshness_metadata(found: Freshness) -> dict[str, Any]:
    """Metadata of an evaluation of the check `fresh`."""
    metadata: dict[str, Any] = {"age_seconds": float(found.age_seconds)}
    if found.allowed_seconds is not None:
        metadata["allowed_seconds"] = float(found.allowed_seconds)
    if found.cut is not None:
        metadata["cut"] = found.cut
    return metadata


def mirror_metadata(changes: tuple[int, int], cut: int, snapshot: int | None, table: TableName) -> dict[str, Any]:
    """Metadata of a mirror's materialization."""
    metadata: dict[str, Any] = {
        "rows_inserted": changes[0],
        "rows_deleted": changes[1],
        "cut": cut,
        "dagster/table_name": str(table),
    }
    if snapshot is not None:
        metadata["snapshot"] = snapshot
    return metadata
