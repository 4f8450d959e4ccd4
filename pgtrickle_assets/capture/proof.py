"""Proof that a batch from a position to a snapshot holds every change, or an error that says which tables to copy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.capture import read_sql, registry
from pgtrickle_assets.capture.buffer_sql import buffer
from pgtrickle_assets.capture.describe import ColumnChoice, describe
from pgtrickle_assets.capture.dsn import DsnProvider
from pgtrickle_assets.capture.position import Position, Snapshot
from pgtrickle_assets.capture.registry import Captured, Identity
from pgtrickle_assets.capture.source_table import SourceColumn
from pgtrickle_assets.capture.state import ObservedTable, gap, shape_changes
from pgtrickle_assets.errors import CaptureGapError, SourceReplacedError, SourceSchemaChangedError, SourceTableError
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

PART_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """What to read.

    Attributes:
        dsn: Yields the connection string; travels with the queries.
        consumer: Whose subscriptions count.
        position: From the last stored batch, or None before the first.
        tables: All tables of the source that are to move.
        copy: Those of `tables` whose full content is wanted instead of changes.
        choice: Type overrides of the project.
        part_bytes: Size of a part of a copy, roughly.
    """

    dsn: DsnProvider
    consumer: str
    position: Position | None
    tables: Sequence[TableName]
    copy: Collection[TableName]
    choice: ColumnChoice = field(default_factory=ColumnChoice)
    part_bytes: int = PART_BYTES

    @property
    def copies_all(self) -> bool:
        """Nothing is read from the position, so nothing about it has to be proved."""
        return set(self.copy) >= set(self.tables)


def require_installed(lead: Connection, request: Request) -> dict[TableName, Captured]:
    """The registered tables of a request."""
    known = registry.captured(lead) if registry.exists(lead) else {}
    missing = [str(name) for name in request.tables if name not in known]
    if missing:
        raise SourceTableError(
            f"change capture is not installed on source table {', '.join(missing)}.", hint="Install it first."
        )
    return {name: known[name] for name in request.tables}


def prove_history(lead: Connection, request: Request, here: Identity, captured: Mapping[TableName, Captured]) -> None:
    """The position must belong to this database, to what it is still made of, and not to what was trimmed away."""
    position = request.position
    if not registry.belongs_here(lead):
        raise SourceReplacedError(
            "the capture schema of the source came from a dump of another database.",
            hint="Install capture again and copy all tables.",
        )
    if position is None or request.copies_all:
        return
    if (position.system, position.database) != (here.system, here.database):
        raise SourceReplacedError(
            "the source is not the database that was captured before (other server, or created anew).",
            hint="Point the source to the former database, or copy all of its tables again.",
        )
    old = [
        str(name)
        for name, table in captured.items()
        if name not in request.copy and table.trimmed and not position.snapshot.covers(Snapshot.parse(table.trimmed))
    ]
    if old:
        raise CaptureGapError(
            f"changes of source table {', '.join(old)} after the given position were consumed and removed already.",
            tables=old,
            hint="Use the stored position, or copy these tables again.",
        )
    found = lead.execute("SELECT 1 FROM pgtrickle_changes.receipts WHERE token = %s", [position.receipt]).fetchone()
    if found is None:
        raise SourceReplacedError(
            "the source went back to a state before the captured position (backup restored, failover, lost commits).",
            hint="Copy all tables of the source again.",
        )


def unchanged_columns(
    lead: Connection,
    request: Request,
    captured: Mapping[TableName, Captured],
    observed: Mapping[TableName, ObservedTable],
) -> dict[TableName, tuple[SourceColumn, ...]]:
    """The columns that the consumer subscribed to, all still as they were when capture was installed."""
    rows = lead.execute(
        "SELECT relid, columns FROM pgtrickle_changes.subscriptions WHERE consumer = %s", [request.consumer]
    ).fetchall()
    subscribed: dict[int, list[str]] = dict(rows)
    changed: dict[TableName, list[str]] = {}
    excluded: dict[TableName, set[str]] = {}
    for name, table in captured.items():
        if table.relid not in subscribed:
            raise SourceTableError(f"change capture is not installed on source table {name}.", hint="Install it first.")
        wanted = subscribed[table.relid]
        changed[name] = shape_changes(observed[name], wanted)
        excluded[name] = {a.name for a in observed[name].attributes} - set(wanted)
    _raise_changed({name: texts for name, texts in changed.items() if texts})
    described = describe(lead, list(captured), ColumnChoice(excluded, request.choice.types))
    return {name: table.columns for name, table in described.items()}


def _raise_changed(changed: Mapping[TableName, Sequence[str]]) -> None:
    if changed:
        text = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in changed.items())
        raise SourceSchemaChangedError(
            f"captured source tables changed: {text}.",
            tables=[str(name) for name in changed],
            hint="Install capture again and copy these tables.",
        )


def refuse_gaps(lead: Connection, request: Request, observed: Mapping[TableName, ObservedTable]) -> None:
    """Raise when a table that is not copied has changes which no buffer holds."""
    found = {name: _gap_of(lead, request, table) for name, table in observed.items()}
    gaps = {name: text for name, text in found.items() if text}
    if gaps:
        text = "; ".join(f"{name}: {reason}" for name, reason in gaps.items())
        raise CaptureGapError(
            f"changes of source tables are not all known: {text}.",
            tables=[str(name) for name in gaps],
            hint="Install capture again and copy these tables.",
        )


def _gap_of(lead: Connection, request: Request, table: ObservedTable) -> str:
    from psycopg import sql

    name = table.captured.name
    if name in request.copy:
        return "" if table.has_triggers else "a trigger of its capture is missing or disabled"
    before = request.position.tables.get((name.schema, name.name)) if request.position else None
    reason = gap(before, table)
    if reason or request.position is None:
        return reason
    found = lead.execute(
        sql.SQL("SELECT 1 FROM {} WHERE __pgt_weight = 0 AND {} LIMIT 1").format(
            buffer(table.captured.relid), read_sql.unseen(request.position.snapshot)
        )
    ).fetchone()
    return "it was written while its definition differed, or truncated above READ COMMITTED" if found else ""
