"""A PostgreSQL database as a source of changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.capture import install as installation
from pgtrickle_assets.capture import registry, trim
from pgtrickle_assets.capture.batch import OpenBatch, open_batch
from pgtrickle_assets.capture.connect import open_connection, translated
from pgtrickle_assets.capture.describe import ColumnChoice, describe
from pgtrickle_assets.capture.dsn import DsnProvider, FixedDsn, place
from pgtrickle_assets.capture.install import InstallOutcome, TriggerState
from pgtrickle_assets.capture.locks import LockPolicy
from pgtrickle_assets.capture.position import Position
from pgtrickle_assets.capture.proof import PART_BYTES, Request
from pgtrickle_assets.capture.source_table import SourceTable
from pgtrickle_assets.query.types import ColumnType, TableName

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

    CopySink = Callable[[TableName, Iterator[pa.RecordBatch]], None]


@dataclass(frozen=True, slots=True)
class CaptureBatch:
    """One batch in memory.

    Attributes:
        position: Where the next batch starts once this one is stored.
        changes: Net change of each table that was captured before: its columns and `__pgt_weight` (int64); no row
            occurs twice.
        copied: Full content at the same snapshot of each table that was to be copied, without weight; empty for those
            that went to a sink.
        pending_leaves: Tables to install again, because they have new partitions.
    """

    position: str
    changes: Mapping[TableName, pa.Table]
    copied: Mapping[TableName, pa.Table]
    pending_leaves: tuple[TableName, ...] = ()


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """Change capture from one database.

    Every method opens its own connections and closes them; an instance can be used from several threads, and pickled.

    Attributes:
        name: Of the source in the project.
        dsn: Connection string, or a picklable callable that yields it where it is needed.
        consumer: Who reads the changes; several projects may capture the same tables, each at its own pace.
        exclude_columns: Columns to leave out, by table.
        column_types: Decimal types for numeric columns, by table and column.
        lock_policy: How long to insist on locks when installing.
    """

    name: str
    dsn: str | DsnProvider = field(repr=False)
    consumer: str = "default"
    exclude_columns: Mapping[TableName, Collection[str]] = field(default_factory=dict)
    column_types: Mapping[TableName, Mapping[str, ColumnType]] = field(default_factory=dict)
    lock_policy: LockPolicy = field(default_factory=LockPolicy)

    @property
    def _provider(self) -> DsnProvider:
        return FixedDsn(self.dsn) if isinstance(self.dsn, str) else self.dsn

    @property
    def _choice(self) -> ColumnChoice:
        return ColumnChoice(self.exclude_columns, self.column_types)

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        dsn = self._provider()
        with closing(open_connection(dsn, autocommit=True)) as connection, translated(place(dsn)):
            yield connection

    def describe(self, tables: Sequence[TableName] | None = None) -> dict[TableName, SourceTable]:
        """Columns, types, keys and foreign keys of tables.

        Args:
            tables: Exact names, or None for all tables that can be captured.

        Raises:
            SourceTableError: A named table is missing or cannot be captured.
            UnsupportedTypeError: A column of a named table has no exact type in the lake.
        """
        with self._connection() as connection:
            return describe(connection, tables, self._choice)

    def install(self, tables: Sequence[TableName]) -> dict[TableName, InstallOutcome]:
        """Record changes of tables from now on; calling it again repairs and adapts.

        Returns:
            Per table what was done; `created` and `rebuilt` tables have to be copied by the next batch.

        Raises:
            SourcePrivilegeError: The hint says what to grant.
            SourceBusyError: A table stays locked; the holder is named.
        """
        with self._connection() as connection:
            described = describe(connection, tables, self._choice)
            return installation.install(connection, described, self.consumer, self.lock_policy)

    def uninstall(self, tables: Sequence[TableName] | None = None) -> None:
        """Stop recording tables (None: all of this consumer), and remove every trace that no other consumer needs."""
        with self._connection() as connection:
            installation.uninstall(connection, tables, self.consumer, self.lock_policy)

    def trigger_inventory(self) -> list[TriggerState]:
        """Every trigger that should exist in this database, and whether it is there and fires."""
        with self._connection() as connection:
            if not registry.exists(connection):
                return []
            return installation.inventory(connection, list(registry.captured(connection).values()))

    def open_batch(
        self,
        position: str | None,
        tables: Sequence[TableName],
        copy_tables: Collection[TableName] = (),
        *,
        part_bytes: int = PART_BYTES,
    ) -> AbstractContextManager[OpenBatch]:
        """A batch whose snapshot is held open: changes and copies are streamed, in parallel if wanted.

        Args:
            position: From the last stored batch, or None before the first.
            tables: All tables of the source that move together; one that is left out has to be copied next time.
            copy_tables: Those of `tables` whose full content is wanted instead of changes.
            part_bytes: Heap bytes per part of a copy.

        Raises:
            SourceSchemaChangedError: Captured columns changed; install again and copy.
            SourceReplacedError: Another database, or a restored one; copy all tables.
            CaptureGapError: Some changes were not recorded; copy the named tables.
        """
        return open_batch(
            Request(
                dsn=self._provider,
                consumer=self.consumer,
                position=Position.parse(position) if position else None,
                tables=tuple(dict.fromkeys((*tables, *copy_tables))),
                copy=frozenset(copy_tables),
                choice=self._choice,
                part_bytes=part_bytes,
            )
        )

    def read_batch(
        self,
        position: str | None,
        tables: Sequence[TableName],
        copy_tables: Collection[TableName] = (),
        sink: CopySink | None = None,
    ) -> CaptureBatch:
        """A batch in memory; see `open_batch` for arguments and errors.

        Args:
            position: See `open_batch`.
            tables: See `open_batch`.
            copy_tables: See `open_batch`.
            sink: Takes the content of each copied table as a stream instead, so that it need not fit into memory.
        """
        with self.open_batch(position, tables, copy_tables) as batch:
            copied: dict[TableName, pa.Table] = {}
            for table in batch.copies:
                if sink is None:
                    copied[table] = batch.content_table(table)
                else:
                    sink(table, batch.content(table))
            changes = {table: batch.change_table(table) for table in batch.change_queries}
            return CaptureBatch(batch.position, changes, copied, batch.pending_leaves)

    def has_changes(self, position: str | None, tables: Sequence[TableName] | None = None) -> bool:
        """Whether a batch from `position` would hold something; cheap, and bounded in time.

        Args:
            position: From the last stored batch; None means yes.
            tables: To look at; None for those of the position.
        """
        if not position:
            return True
        parsed = Position.parse(position)
        with self._connection() as connection:
            return trim.has_changes(connection, self._names(parsed, tables), parsed)

    def pending(self, position: str | None, tables: Sequence[TableName] | None = None) -> dict[TableName, int]:
        """Recorded rows per table that the next batch will read."""
        parsed = Position.parse(position) if position else None
        with self._connection() as connection:
            names = tables if tables is not None or parsed is None else self._names(parsed, None)
            chosen = (
                list(registry.captured(connection)) if names is None and registry.exists(connection) else names or []
            )
            return trim.pending(connection, chosen, parsed)

    def trim(self, position: str) -> int:
        """Delete recorded rows that this and every other consumer has stored; call it after the batch is committed.

        Returns:
            Number of rows deleted.
        """
        with self._connection() as connection:
            return trim.trim(connection, self.consumer, Position.parse(position))

    def holdback(self) -> trim.Holdback | None:
        """The oldest open transaction that has written; its changes, and no others, have to wait for its end."""
        with self._connection() as connection:
            return trim.holdback(connection)

    @staticmethod
    def _names(position: Position, tables: Sequence[TableName] | None) -> list[TableName]:
        return list(tables) if tables is not None else [TableName(*name) for name in position.tables]
