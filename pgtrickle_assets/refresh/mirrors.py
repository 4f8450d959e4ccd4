"""Moving the change buffers of all sources into their mirrors, in one lake snapshot.

A batch reads every source at one commit point each, so a source transaction becomes visible in the lake at once or
not at all. The capture position moves in the transaction that makes the snapshot; buffers are trimmed only after it,
so a batch that dies anywhere is simply read again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pgtrickle_assets.control import capture_position
from pgtrickle_assets.errors import CaptureGapError, PgTrickleError, SourceReplacedError, SourceSchemaChangedError
from pgtrickle_assets.lake.spark_read import read_table
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh.comparison import difference
from pgtrickle_assets.refresh.delivery import Attempts, Identity, deliver
from pgtrickle_assets.refresh.model import MirrorReport
from pgtrickle_assets.refresh.relations import as_frame
from pgtrickle_assets.refresh.source_copy import copied_rows
from pgtrickle_assets.refresh.table_write import TableWrite, existing_table

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg import Cursor
    from pyspark.sql import DataFrame, SparkSession

    from pgtrickle_assets.capture.batch import OpenBatch
    from pgtrickle_assets.capture.postgres import PostgresSource
    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.lake.model import ScanPlan

logger = logging.getLogger(__name__)

_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class Mirror:
    """The lake table that mirrors a source table, and the columns of the source's key (empty without one)."""

    table: TableName
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MirroredSource:
    """A source and the lake tables that mirror it.

    Attributes:
        source: The database.
        mirrors: Mirror by source table.
    """

    source: PostgresSource
    mirrors: Mapping[TableName, Mirror]

    @property
    def name(self) -> str:
        """Name of the source in the project."""
        return self.source.name


@dataclass(slots=True)
class _Step:
    """What a batch holds of one source."""

    mirrored: MirroredSource
    expected: str | None
    position: str


@dataclass(frozen=True)
class MirrorCapture:
    """Moves changes into mirrors.

    Attributes:
        lake: The lake.
        spark: Gives the session; called only when rows have to be located or a large table is copied.
        sources: All sources of the project.
    """

    lake: Lake
    spark: Callable[[], SparkSession]
    sources: tuple[MirroredSource, ...]

    def has_changes(self, among: Mapping[str, Collection[TableName]] | None = None) -> bool:
        """Whether a batch would hold something; asks only the sources and the catalog.

        Args:
            among: Tables to look at, by source; None for all.
        """
        with self.lake.connection() as connection:
            positions = capture_position.positions(connection)
            uncopied = self._uncopied(connection)
        for mirrored in self.sources:
            tables = [table for table in mirrored.mirrors if among is None or table in among.get(mirrored.name, ())]
            known = positions.get(mirrored.name)
            if uncopied[mirrored.name].intersection(tables) or (known is None and tables):
                return True
            if known and tables and mirrored.source.has_changes(known.position, tables):
                return True
        return False

    def run(self, run_id: str) -> MirrorReport:
        """Capture one batch.

        Raises:
            SourceError: A source cannot be read, or its columns changed since capture was installed.
            LakeError: The lake cannot be written.
        """
        started = monotonic()
        recopy: set[tuple[str, TableName]] = set()
        for _ in range(_ATTEMPTS):
            try:
                return self._batch(run_id, started, recopy)
            except _RecopyError as error:
                recopy |= error.tables
        return self._batch(run_id, started, recopy)

    def _batch(self, run_id: str, started: float, recopy: set[tuple[str, TableName]]) -> MirrorReport:
        with ExitStack() as open_batches:
            steps: list[_Step] = []
            writes: dict[TableName, TableWrite] = {}
            for mirrored in self.sources:
                if not mirrored.mirrors:
                    continue
                step, batch, copied = self._open(open_batches, mirrored, recopy)
                steps.append(step)
                writes.update(self._writes(mirrored, batch, copied))
            return self._commit(run_id, started, steps, writes)

    def _open(
        self, stack: ExitStack, mirrored: MirroredSource, recopy: set[tuple[str, TableName]]
    ) -> tuple[_Step, OpenBatch, frozenset[TableName]]:
        with self.lake.connection() as connection:
            known = capture_position.position(connection, mirrored.name)
            uncopied = self._uncopied(connection)[mirrored.name]
        tables = list(mirrored.mirrors)
        copy = set(uncopied) | {table for source, table in recopy if source == mirrored.name}
        if known is None:
            copy = set(tables)
        expected = known.position if known else None
        try:
            batch = stack.enter_context(mirrored.source.open_batch(expected, tables, copy))
        except SourceSchemaChangedError:
            raise
        except CaptureGapError as error:
            raise self._to_copy(mirrored, error, copy) from error
        _require_keys(mirrored, batch)
        return _Step(mirrored, expected, batch.position), batch, frozenset(copy)

    @staticmethod
    def _to_copy(mirrored: MirroredSource, error: CaptureGapError, copying: set[TableName]) -> PgTrickleError:
        everything = isinstance(error, SourceReplacedError) or not error.tables
        lost = [table for table in mirrored.mirrors if everything or str(table) in error.tables]
        if set(lost) <= copying:
            return error
        logger.warning("Source %s: %s Copying %s again.", mirrored.name, error, ", ".join(map(str, lost)))
        return _RecopyError({(mirrored.name, table) for table in lost})

    def _writes(
        self, mirrored: MirroredSource, batch: OpenBatch, copied: frozenset[TableName]
    ) -> dict[TableName, TableWrite]:
        writes: dict[TableName, TableWrite] = {}
        for table, mirror in mirrored.mirrors.items():
            if table in batch.quiet:
                continue
            stored = existing_table(self.lake, mirror.table)
            scan = self.lake.scan(stored)
            rows = self._copied(scan, batch, table) if table in copied else batch.change_table(table)
            writes[mirror.table] = TableWrite(
                self.lake,
                self.spark,
                mirror.table,
                rows,
                key=mirror.key,
                sort_by=mirror.key,
                inserts_only=not scan.row_count,
            )
        return writes

    def _copied(self, scan: ScanPlan, batch: OpenBatch, table: TableName) -> pa.Table | DataFrame:
        """What a full copy changes in the mirror."""
        stored = scan.table
        rows = copied_rows(self.spark, stored, batch, table)
        if not scan.row_count:
            return rows
        columns = [column.name for column in stored.columns]
        now = read_table(self.spark(), scan, columns, storage_options=self.lake.location.storage_options)
        return difference(now, as_frame(self.spark(), rows), columns)

    def _commit(
        self, run_id: str, started: float, steps: list[_Step], writes: Mapping[TableName, TableWrite]
    ) -> MirrorReport:
        def within(cursor: Cursor[tuple[Any, ...]], snapshot: int) -> None:
            self._record(cursor, steps, snapshot)

        def require_current() -> None:
            with self.lake.connection() as connection:
                for step in steps:
                    capture_position.require_unmoved(connection, step.mirrored.name, step.expected)

        delivery_id = str(uuid4())
        identity = Identity(
            delivery_id,
            "pg_trickle/mirror",
            f"Changes of {', '.join(step.mirrored.name for step in steps)}",
            {"run_id": run_id, "kind": "mirror"},
        )
        attempts = Attempts(_ATTEMPTS, lambda: None, _log_failure)
        try:
            result = deliver(self.lake, list(writes.values()), identity, attempts, within, require_current)
        finally:
            for write in writes.values():
                write.release()
        if result is None:
            with self.lake.connection() as connection, connection.transaction(), connection.cursor() as cursor:
                self._record(cursor, steps, None)
        self._trim(steps)
        changes = {name: (write.inserted, write.deleted) for name, write in writes.items() if not write.is_empty}
        snapshot = result.snapshot_id if result else None
        return MirrorReport(
            self.lake.head() if snapshot is None else snapshot, snapshot, changes, monotonic() - started
        )

    def _record(self, cursor: Cursor[tuple[Any, ...]], steps: list[_Step], snapshot: int | None) -> None:
        for step in steps:
            if step.position == step.expected:
                continue
            name = step.mirrored.name
            capture_position.advance(cursor, name, expect=step.expected, position=step.position, snapshot_id=snapshot)
            for row in capture_position.mirrors(cursor, name):
                if row.ducklake_snapshot_id is None and row.source in step.mirrored.mirrors:
                    at = self.lake.head() if snapshot is None else snapshot
                    capture_position.put_mirror(cursor, replace(row, ducklake_snapshot_id=at))

    def _trim(self, steps: list[_Step]) -> None:
        for step in steps:
            try:
                step.mirrored.source.trim(step.position)
            except PgTrickleError as error:
                # The changes are in the lake; what stays in the buffer is trimmed after the next batch.
                logger.warning("Change buffers of source %s were not trimmed: %s", step.mirrored.name, error)

    def _uncopied(self, connection: Any) -> dict[str, frozenset[TableName]]:
        """Tables without a first copy, by source."""
        copied = {
            (row.source_name, row.source)
            for row in capture_position.mirrors(connection)
            if row.ducklake_snapshot_id is not None
        }
        return {
            mirrored.name: frozenset(table for table in mirrored.mirrors if (mirrored.name, table) not in copied)
            for mirrored in self.sources
        }


def _require_keys(mirrored: MirroredSource, batch: OpenBatch) -> None:
    """Plans rest on keys, so rows that a key kept out must not come in before the plans are made anew."""
    lost = [
        f"{table} ({', '.join(mirror.key)})"
        for table, mirror in mirrored.mirrors.items()
        if mirror.key and not any(key <= set(mirror.key) for key in batch.keys[table])
    ]
    if lost:
        raise SourceSchemaChangedError(
            f"a unique key went away in source {mirrored.name}: {', '.join(lost)}.",
            hint="Run again: stream tables are then planned without it.",
        )


class _RecopyError(PgTrickleError):
    """Some tables have to be copied again; the batch starts over with that."""

    def __init__(self, tables: set[tuple[str, TableName]]) -> None:
        super().__init__("some source tables have to be copied again")
        self.tables = tables


def _log_failure(error: Exception, _: float) -> bool:
    logger.warning("Writing mirrors failed: %s", error)
    return True
