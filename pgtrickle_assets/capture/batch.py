"""One batch: everything that committed between a position and now, at one snapshot."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.capture import read_sql, registry
from pgtrickle_assets.capture.buffer_sql import buffer
from pgtrickle_assets.capture.bulk import BulkQuery, run
from pgtrickle_assets.capture.connect import open_connection, translated
from pgtrickle_assets.capture.describe import ColumnChoice, describe
from pgtrickle_assets.capture.dsn import DsnProvider, place
from pgtrickle_assets.capture.locks import describe_holders
from pgtrickle_assets.capture.position import Position, Snapshot
from pgtrickle_assets.capture.registry import Captured, Identity
from pgtrickle_assets.capture.source_table import SourceColumn
from pgtrickle_assets.capture.state import ObservedTable, arrivals, gap, observe, shape_changes
from pgtrickle_assets.errors import (
    CaptureGapError,
    SourceBusyError,
    SourceReplacedError,
    SourceSchemaChangedError,
    SourceTableError,
)
from pgtrickle_assets.query.types import TableName, TableSchema

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

    Connection = psycopg.Connection[Any]

WEIGHT_COLUMN = "__pgt_weight"
PART_BYTES = 256 << 20
_LOCK_SECONDS = 10


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch whose snapshot is held open.

    Attributes:
        position: Where the next batch starts once this one is stored.
        snapshot: The snapshot of all that is read here.
        change_queries: The net changes of each table that was captured before.
        quiet: Those of them whose buffer holds nothing new, so that the query need not be run.
        copies: For each table to copy, queries that yield its rows in disjoint parts; they may run anywhere, at once.
        pending_leaves: Tables with partitions whose TRUNCATE is not recorded yet: install again after this batch.
    """

    position: str
    snapshot: Snapshot
    change_queries: Mapping[TableName, BulkQuery]
    copies: Mapping[TableName, tuple[BulkQuery, ...]]
    quiet: frozenset[TableName] = frozenset()
    pending_leaves: tuple[TableName, ...] = ()

    def changes(self, table: TableName) -> Iterator[pa.RecordBatch]:
        """Stream a table's net changes: its columns and `__pgt_weight`, no row twice, no weight zero."""
        query = self.change_queries[table]
        return iter(()) if table in self.quiet else run(query)

    def change_table(self, table: TableName) -> pa.Table:
        """A table's net changes, in memory."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self.changes(table)), schema=self.change_queries[table].schema)

    def schema(self, table: TableName) -> TableSchema:
        """Columns of a table of this batch as they are read (without key)."""
        query = self.change_queries[table] if table in self.change_queries else self.copies[table][0]
        return TableSchema(table, tuple(column.schema for column in query.columns))


def copy_part(part: BulkQuery) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one part of a table at the batch's snapshot; runs in any thread, process or Spark executor."""
    return run(part)


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


@contextmanager
def open_batch(request: Request) -> Iterator[OpenBatch]:
    """Pin a snapshot, prove that nothing before it is missing, and hand out the queries that read it.

    Raises:
        SourceSchemaChangedError: Captured columns of a table were dropped, renamed or retyped.
        CaptureGapError: Some change since the position was not recorded: copy the named tables.
        SourceReplacedError: The position belongs to another database, or to a history that a restore took back.
        SourceTableError: Capture is not installed on a table.
        SourceBusyError: A table is being rewritten; try again.
    """
    import psycopg

    dsn = request.dsn()
    where = place(dsn)
    with open_connection(dsn) as lead, translated(where):
        lead.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        lead.read_only = True
        lead.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'".encode())
        lead.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        row = lead.execute("SELECT pg_current_snapshot()::text, pg_export_snapshot()").fetchone()
        snapshot, exported = (Snapshot.parse(row[0]), row[1]) if row else (Snapshot(0, 0), "")
        here = registry.identity(lead)
        captured = _require_installed(lead, request)
        observed = observe(lead, list(captured.values()))
        _prove_history(lead, request, here, captured)
        columns = _columns(lead, request, captured, observed)
        _refuse_gaps(lead, request, observed)
        _pin_files(lead, request, observed)
        receipt = _leave_receipt(dsn, request.consumer)
        queries = _change_queries(request, exported, observed, columns)
        states = {(name.schema, name.name): observed[name].state for name in request.tables}
        yield OpenBatch(
            position=str(Position(here.system, here.database, snapshot, receipt, states)),
            snapshot=snapshot,
            change_queries=queries,
            quiet=_quiet(lead, request, [observed[name] for name in queries]),
            copies=_copy_queries(lead, request, exported, observed, columns),
            pending_leaves=tuple(n for n in request.tables if observed[n].state.leaves.keys() - observed[n].guarded),
        )


def _require_installed(lead: Connection, request: Request) -> dict[TableName, Captured]:
    known = registry.captured(lead) if registry.exists(lead) else {}
    missing = [str(name) for name in request.tables if name not in known]
    if missing:
        raise SourceTableError(
            f"change capture is not installed on source table {', '.join(missing)}.", hint="Install it first."
        )
    return {name: known[name] for name in request.tables}


def _prove_history(lead: Connection, request: Request, here: Identity, captured: Mapping[TableName, Captured]) -> None:
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


def _columns(
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


def _refuse_gaps(lead: Connection, request: Request, observed: Mapping[TableName, ObservedTable]) -> None:
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


def _pin_files(lead: Connection, request: Request, observed: Mapping[TableName, ObservedTable]) -> None:
    """Keep TRUNCATE and rewrites, which no snapshot protects from, away from what is read directly."""
    import psycopg
    from psycopg import sql

    for name, table in observed.items():
        names = _direct_reads(request, table)
        for oid, relation in names.items():
            try:
                lead.execute(
                    sql.SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(
                        sql.Identifier(relation.schema, relation.name)
                    )
                )
            except psycopg.errors.LockNotAvailable:
                lead.rollback()
                raise SourceBusyError(
                    f"source table {relation} cannot be read: {describe_holders(lead, [oid])}.",
                    hint="Try again when that session is done.",
                ) from None
            row = lead.execute("SELECT pg_relation_filenode(%s)::bigint", [oid]).fetchone()
            if row is None or row[0] != table.files[oid]:
                raise SourceBusyError(f"source table {name} was rewritten while the batch began.", hint="Try again.")


def _direct_reads(request: Request, table: ObservedTable) -> dict[int, TableName]:
    """Relations of a table that are read themselves and not through the buffer."""
    name = table.captured.name
    names = dict(table.leaf_names) if table.relation and table.relation.partitioned else {table.captured.relid: name}
    if name in request.copy:
        return names
    before = request.position.tables.get((name.schema, name.name)) if request.position else None
    return {oid: names[oid] for oid in arrivals(before, table)} if before else {}


def _leave_receipt(dsn: str, consumer: str) -> str:
    """Commit a token durably: everything that the snapshot saw is then on disk, and stays as long as the token does."""
    token = str(uuid.uuid4())
    with open_connection(dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        connection.execute(
            "INSERT INTO pgtrickle_changes.receipts (token, consumer) VALUES (%s, %s)", [token, consumer]
        )
    return token


def _change_queries(
    request: Request,
    exported: str,
    observed: Mapping[TableName, ObservedTable],
    columns: Mapping[TableName, tuple[SourceColumn, ...]],
) -> dict[TableName, BulkQuery]:
    queries: dict[TableName, BulkQuery] = {}
    for name in request.tables:
        if name in request.copy or request.position is None:
            continue
        table = observed[name]
        arrived = list(_direct_reads(request, table).values())
        text = read_sql.changes(table.captured.relid, columns[name], request.position.snapshot, arrived)
        queries[name] = BulkQuery(request.dsn, exported, text, name, columns[name], WEIGHT_COLUMN)
    return queries


def _quiet(lead: Connection, request: Request, tables: Sequence[ObservedTable]) -> frozenset[TableName]:
    """Tables without a new row in their buffer and without a new partition."""
    from psycopg import sql

    if request.position is None or not tables:
        return frozenset()
    looks = [
        sql.SQL("EXISTS (SELECT FROM {} WHERE {})").format(
            buffer(table.captured.relid), read_sql.unseen(request.position.snapshot)
        )
        for table in tables
    ]
    row = lead.execute(sql.SQL("SELECT {}").format(sql.SQL(", ").join(looks))).fetchone() or ()
    calm = (table for table, busy in zip(tables, row, strict=True) if not busy)
    return frozenset(table.captured.name for table in calm if not _direct_reads(request, table))


def _copy_queries(
    lead: Connection,
    request: Request,
    exported: str,
    observed: Mapping[TableName, ObservedTable],
    columns: Mapping[TableName, tuple[SourceColumn, ...]],
) -> dict[TableName, tuple[BulkQuery, ...]]:
    copies: dict[TableName, tuple[BulkQuery, ...]] = {}
    for name in request.tables:
        if name in request.copy:
            relations = _direct_reads(request, observed[name])
            pages = _heap_pages(lead, list(relations))
            texts = [
                read_sql.content(relation, columns[name], first, last)
                for oid, relation in relations.items()
                for first, last in _ranges(pages.get(oid, 0), request.part_bytes // 8192)
            ]
            copies[name] = tuple(BulkQuery(request.dsn, exported, text, name, columns[name]) for text in texts)
    return copies


def _heap_pages(lead: Connection, oids: Sequence[int]) -> dict[int, int]:
    """Pages of those relations that can be read by page range."""
    return dict(
        lead.execute(
            "SELECT c.oid, pg_relation_size(c.oid) / current_setting('block_size')::bigint FROM pg_class c"
            " JOIN pg_am m ON m.oid = c.relam AND m.amname = 'heap' WHERE c.oid = ANY(%s)",
            [list(oids)],
        ).fetchall()
    )


def _ranges(pages: int, step: int) -> list[tuple[int, int | None]]:
    """Page ranges that cover a heap to its end, wherever that is by now."""
    starts = list(range(0, pages, max(1, step))) or [0]
    return list(zip(starts, [*starts[1:], None], strict=True))
