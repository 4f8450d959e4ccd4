"""What the DuckLake catalog says about a table, as plain data.

Ids, counters and snapshot numbers are those of the catalog (DuckLake specification 1.0). A scan or a delta is planned
from the catalog, before any file is read; it names files, rows and positions, and says how much there is to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pgtrickle_assets.query.types import ColumnSchema, ColumnType, TableName

WEIGHT_COLUMN = "__pgt_weight"
"""Name of the integer weight in every Z-set that moves between engine, Spark and lake."""


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """A top-level column of a table version."""

    id: int
    name: str
    type: ColumnType
    nullable: bool = True
    initial_default: str | None = None
    child_ids: tuple[int, ...] = ()
    """Ids of nested nodes, depth first (a list has one: its element)."""


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One key of a table's partition spec: `transform` is identity, year, month, day, hour or bucket(N)."""

    column_id: int
    transform: str


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table as it is at one snapshot.

    `path` is the full location of the table's files and ends with a slash. `at` is the snapshot of this version.
    """

    id: int
    name: TableName
    columns: tuple[LakeColumn, ...]
    path: str
    at: int
    schema_version: int
    partition_id: int | None = None
    partition_fields: tuple[PartitionField, ...] = ()
    unsupported: tuple[tuple[str, str], ...] = ()
    """(name, DuckLake type) of columns that we can't carry; they are not in `columns`, and we never append to such a
    table."""

    def column(self, name: str) -> LakeColumn | None:
        """The column called `name`, or None."""
        return next((column for column in self.columns if column.name == name), None)

    def renamed_since(self, earlier: LakeTable) -> frozenset[str]:
        """Names that now mean another column than in an earlier version, whose rows a delta says nothing about."""
        before = {column.name: column.id for column in earlier.columns}
        return frozenset(c.name for c in self.columns if before.get(c.name, c.id) != c.id)


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Statistics of one column of one file; None means unknown, never zero."""

    minimum: str | None
    maximum: str | None
    value_count: int | None
    null_count: int | None
    contains_nan: bool | None


@dataclass(frozen=True, slots=True)
class FileDeletes:
    """The delete file that is active for a data file at a snapshot.

    `max_snapshot` (partial_max) is set when rows carry their own snapshot id. `upto` is set when the file is newer than
    the read snapshot: then only rows whose `_ducklake_internal_snapshot_id` is at most `upto` count, and `delete_count`
    is their number. `is_misdated` says that this leaves rows out whose id is not newer than the snapshot, though their
    deletion is; the official extension counts them (see `delete_dating`).
    """

    id: int
    path: str
    format: str
    delete_count: int
    begin_snapshot: int
    max_snapshot: int | None
    upto: int | None = None
    is_misdated: bool = False


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table at a snapshot.

    `path` is complete. `names` maps column id -> name inside the file for columns whose name differs from the table's;
    a column id in `missing` is not in the file and reads as its initial default. `inline_deletes` are positions deleted
    through the catalog's inlined-delete table.

    A partial file (`max_snapshot` set) holds rows of several snapshots. When some of them don't count for this reading,
    `rows_after` (exclusive) and `rows_upto` (inclusive) bound the `_ducklake_internal_snapshot_id` of those that do;
    None is no bound. `counted_rows` is the exact number of rows that this entry stands for, deletes applied, where
    planning has counted it.
    """

    id: int
    path: str
    record_count: int
    file_size_bytes: int
    row_id_start: int | None
    begin_snapshot: int
    end_snapshot: int | None
    max_snapshot: int | None
    mapping_id: int | None
    partition_values: tuple[str | None, ...] = ()
    deletes: FileDeletes | None = None
    inline_deletes: frozenset[int] = frozenset()
    names: Mapping[int, str] = field(default_factory=dict)
    missing: frozenset[int] = frozenset()
    bounds: Mapping[int, ColumnBounds] = field(default_factory=dict)
    rows_after: int | None = None
    rows_upto: int | None = None
    counted_rows: int | None = None

    @property
    def live_rows(self) -> int:
        """Rows that a reader of this snapshot sees; an upper bound where a partial file's rows were not counted."""
        if self.counted_rows is not None:
            return self.counted_rows
        return self.record_count - _deleted_count(self)


@dataclass(frozen=True, slots=True)
class InlinedRows:
    """Rows that live in the catalog itself: one entry per inline table that holds some at the snapshot.

    `rows` are in the order of the table's columns at the read snapshot; values are Python objects. `row_ids[i]` is the
    row id of `rows[i]`.
    """

    rows: tuple[tuple[object, ...], ...] = ()
    row_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """Everything needed to read a table at snapshot `table.at`."""

    table: LakeTable
    files: tuple[DataFile, ...]
    inlined: InlinedRows

    @property
    def row_count(self) -> int:
        """Rows that the scan yields."""
        return sum(file.live_rows for file in self.files) + len(self.inlined.rows)

    @property
    def bytes(self) -> int:
        """Bytes of data files, whole."""
        return sum(file.file_size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class DeltaPlan:
    """What changed in a table between two snapshots, found from the catalog alone (design, section 5).

    Attributes:
        table: The table at snapshot `until`.
        since: Snapshot of the old state, exclusive.
        until: Snapshot of the new state, inclusive.
        added: Files whose live rows at `until` come in at weight +1.
        removed: Files whose live rows at `since` go out at weight -1.
        deleted: Files live at both ends that lost rows: (file as of `since`, file as of `until`); the rows that are
            visible in the old version (`rows_upto` and deletes applied) and deleted in the new one go out at -1.
        inlined_added: Inlined rows that appear.
        inlined_removed: Inlined rows that vanish.
    """

    table: LakeTable
    since: int
    until: int
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    deleted: tuple[tuple[DataFile, DataFile], ...]
    inlined_added: InlinedRows
    inlined_removed: InlinedRows

    @property
    def inserted_rows(self) -> int:
        """Rows that come in, before equal rows are consolidated."""
        return sum(file.live_rows for file in self.added) + len(self.inlined_added.rows)

    @property
    def deleted_rows(self) -> int:
        """Rows that go out, before equal rows are consolidated."""
        partial = sum(_deleted_count(new) - _deleted_count(old) for old, new in self.deleted)
        return sum(file.live_rows for file in self.removed) + partial + len(self.inlined_removed.rows)

    @property
    def is_empty(self) -> bool:
        """Whether the catalog shows that nothing changed."""
        return not (self.added or self.removed or self.deleted or self.inlined_added.rows or self.inlined_removed.rows)


def _deleted_count(file: DataFile) -> int:
    return (file.deletes.delete_count if file.deletes else 0) + len(file.inline_deletes)


@dataclass(frozen=True, slots=True)
class NewDataFile:
    """A Parquet file that a writer finished and that no snapshot names yet; `path` is relative to the table's path.

    `bounds` maps column id (leaves only) -> statistics; a column without exact statistics is absent.
    """

    path: str
    record_count: int
    file_size_bytes: int
    footer_size: int
    bounds: Mapping[int, ColumnBounds]
    column_sizes: Mapping[int, int] = field(default_factory=dict)
    partition_values: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class RowDeletes:
    """Positions to delete from one data file, as planned against `file` (its deletes included)."""

    file: DataFile
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table to create: ids are given by the commit."""

    name: TableName
    columns: tuple[ColumnSchema, ...]
    partition_by: tuple[tuple[str, str], ...] = ()
    """(column name, transform) pairs; empty for an unpartitioned table."""
    comment: str = ""


@dataclass(frozen=True, slots=True)
class TableChange:
    """One table's part of a commit.

    Attributes:
        table: Name of the table, which exists at the planned snapshot unless `create` is set.
        create: Create the table (and its schema, if new) in the same snapshot.
        added_files: New data files.
        deletes: Row deletes.
        removed_files: Data files to end as a whole (overwrite: all that were live).
        removed_inlined_rows: Row ids of inlined rows to end, by nothing but their row id.
    """

    table: TableName
    create: TableDefinition | None = None
    added_files: tuple[NewDataFile, ...] = ()
    deletes: tuple[RowDeletes, ...] = ()
    removed_files: tuple[DataFile, ...] = ()
    removed_inlined_rows: tuple[int, ...] = ()
