"""One batch: everything that committed between a position and now, at one snapshot."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.capture import catalog, read_sql, registry
from pgtrickle_assets.capture.buffer_sql import buffer
from pgtrickle_assets.capture.bulk import LOCK_MILLISECONDS, BulkQuery, BulkReader, run
from pgtrickle_assets.capture.connect import open_connection, translated
from pgtrickle_assets.capture.dsn import place
from pgtrickle_assets.capture.locks import describe_holders
from pgtrickle_assets.capture.position import Position, Snapshot
from pgtrickle_assets.capture.proof import Request, prove_history, refuse_gaps, require_installed, unchanged_columns
from pgtrickle_assets.capture.source_table import SourceColumn
from pgtrickle_assets.capture.state import ObservedTable, arrivals, observe
from pgtrickle_assets.errors import SourceBusyError
from pgtrickle_assets.query.types import TableName, TableSchema

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

    Connection = psycopg.Connection[Any]

WEIGHT_COLUMN = "__pgt_weight"


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch whose snapshot is held open.

    `changes` and `content` stream over the batch's own connection, one stream at a time. `copy_part` reads the same
    snapshot over a connection of its own, so that parts can be copied by many at once.

    Attributes:
        position: Where the next batch starts once this one is stored.
        snapshot: The snapshot of all that is read here.
        change_queries: The net changes of each table that was captured before.
        copies: For each table to copy, queries that yield its rows in disjoint parts.
        keys: The unique keys of each table, by the columns of which none can be NULL.
        reader: Holds the locks of the batch.
        quiet: Those tables whose buffer holds nothing new, so that their query need not be run.
        pending_leaves: Tables with partitions whose TRUNCATE is not recorded yet: install again after this batch.
    """

    position: str
    snapshot: Snapshot
    change_queries: Mapping[TableName, BulkQuery]
    copies: Mapping[TableName, tuple[BulkQuery, ...]]
    keys: Mapping[TableName, tuple[frozenset[str], ...]]
    reader: BulkReader
    quiet: frozenset[TableName] = frozenset()
    pending_leaves: tuple[TableName, ...] = ()

    def changes(self, table: TableName) -> Iterator[pa.RecordBatch]:
        """Stream a table's net changes: its columns and `__pgt_weight`, no row twice, no weight zero."""
        return iter(()) if table in self.quiet else self.reader.rows(self.change_queries[table])

    def change_table(self, table: TableName) -> pa.Table:
        """A table's net changes, in memory."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self.changes(table)), schema=self.change_queries[table].schema)

    def content(self, table: TableName) -> Iterator[pa.RecordBatch]:
        """Stream all rows of a table that is copied."""
        for part in self.copies[table]:
            yield from self.reader.rows(part)

    def content_table(self, table: TableName) -> pa.Table:
        """All rows of a table that is copied, in memory."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self.content(table)), schema=self.copies[table][0].schema)

    def schema(self, table: TableName) -> TableSchema:
        """Columns of a table of this batch as they are read (without key)."""
        query = self.change_queries[table] if table in self.change_queries else self.copies[table][0]
        return TableSchema(table, tuple(column.schema for column in query.columns))


def copy_part(part: BulkQuery) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one part of a table at the batch's snapshot, from any thread, process or Spark executor.

    Raises:
        SourceBusyError: A TRUNCATE or ALTER waits for the batch, and this read behind it; start the batch again.
    """
    return run(part)


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
    dsn = request.dsn()
    with closing(open_connection(dsn)) as lead, closing(BulkReader(dsn)) as reader:
        with translated(place(dsn)):
            batch = _begin(lead, reader, request, dsn)
        yield batch


def _begin(lead: Connection, reader: BulkReader, request: Request, dsn: str) -> OpenBatch:
    import psycopg

    # Locks come before the snapshot, so that a TRUNCATE comes before or after all of the batch.
    for oid, name in _existing(lead, request.copy).items():
        _lock(lead, reader, oid, name)
    lead.rollback()
    lead.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    lead.read_only = True
    lead.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    # Whoever waits for the reader's locks may make us wait in turn; the server cannot see that knot.
    lead.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_MILLISECONDS}ms"])
    row = lead.execute("SELECT pg_current_snapshot()::text, pg_export_snapshot()").fetchone()
    snapshot, exported = (Snapshot.parse(row[0]), row[1]) if row else (Snapshot(0, 0), "")
    here = registry.identity(lead)
    captured = require_installed(lead, request)
    observed = observe(lead, list(captured.values()))
    prove_history(lead, request, here, captured)
    columns = unchanged_columns(lead, request, captured, observed)
    refuse_gaps(lead, request, observed)
    _pin_files(lead, reader, request, observed)
    reader.join(exported)
    receipt = _leave_receipt(dsn, request.consumer)
    queries = _change_queries(request, exported, observed, columns)
    states = {(name.schema, name.name): observed[name].state for name in request.tables}
    return OpenBatch(
        position=str(Position(here.system, here.database, snapshot, receipt, states)),
        snapshot=snapshot,
        change_queries=queries,
        copies=_copy_queries(reader, request, exported, observed, columns),
        keys=_keys(lead, observed),
        reader=reader,
        quiet=_quiet(lead, request, [observed[name] for name in queries]),
        pending_leaves=tuple(n for n in request.tables if observed[n].state.leaves.keys() - observed[n].guarded),
    )


def _existing(lead: Connection, names: Collection[TableName]) -> dict[int, TableName]:
    """Oids of those tables that are there; what is wrong with the others is said later."""
    rows = lead.execute(
        "SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN unnest(%s::text[], %s::text[]) AS w(schema, name) ON w.schema = n.nspname AND w.name = c.relname"
        " WHERE c.relkind IN ('r', 'p')",
        [[name.schema for name in names], [name.name for name in names]],
    ).fetchall()
    return {oid: TableName(schema, name) for oid, schema, name in rows}


def _lock(lead: Connection, reader: BulkReader, oid: int, name: TableName) -> None:
    try:
        reader.lock(name)
    except SourceBusyError:
        raise SourceBusyError(
            f"source table {name} cannot be read: {describe_holders(lead, [oid])}.",
            hint="Try again when that session is done.",
        ) from None


def _pin_files(
    lead: Connection, reader: BulkReader, request: Request, observed: Mapping[TableName, ObservedTable]
) -> None:
    """Keep TRUNCATE and rewrites, which no snapshot protects from, away from what is read directly.

    Partitions that came in while the batch began are locked here only, so their file must still be the snapshot's.
    """
    for name, table in observed.items():
        for oid, relation in _direct_reads(request, table).items():
            _lock(lead, reader, oid, relation)
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


def _keys(lead: Connection, observed: Mapping[TableName, ObservedTable]) -> dict[TableName, tuple[frozenset[str], ...]]:
    found = catalog.unique_keys(lead, [table.captured.relid for table in observed.values()])
    keys: dict[TableName, tuple[frozenset[str], ...]] = {}
    for name, table in observed.items():
        columns = {column.number: column.name for column in table.attributes if column.not_null}
        standing = [numbers for numbers in found.get(table.captured.relid, []) if set(numbers) <= columns.keys()]
        keys[name] = tuple(frozenset(columns[number] for number in numbers) for numbers in standing)
    return keys


def _leave_receipt(dsn: str, consumer: str) -> str:
    """Commit a token durably: everything that the snapshot saw is then on disk, and stays as long as the token does."""
    token = str(uuid.uuid4())
    with closing(open_connection(dsn, autocommit=True)) as connection:
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
    reader: BulkReader,
    request: Request,
    exported: str,
    observed: Mapping[TableName, ObservedTable],
    columns: Mapping[TableName, tuple[SourceColumn, ...]],
) -> dict[TableName, tuple[BulkQuery, ...]]:
    copies: dict[TableName, tuple[BulkQuery, ...]] = {}
    for name in request.tables:
        if name in request.copy:
            relations = _direct_reads(request, observed[name])
            pages = reader.heap_pages(list(relations))
            texts = [
                read_sql.content(relation, columns[name], first, last)
                for oid, relation in relations.items()
                for first, last in _ranges(pages.get(oid, 0), request.part_bytes // 8192)
            ]
            copies[name] = tuple(BulkQuery(request.dsn, exported, text, name, columns[name]) for text in texts)
    return copies


def _ranges(pages: int, step: int) -> list[tuple[int, int | None]]:
    """Page ranges that cover a heap to its end, wherever that is by now."""
    starts = list(range(0, pages, max(1, step))) or [0]
    return list(zip(starts, [*starts[1:], None], strict=True))
