"""Data files and delete files of a table as catalog rows, and as the entries that readers get."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.model import ColumnBounds, DataFile, LakeTable
from pgtrickle_assets.lake.sqltext import statement
from pgtrickle_assets.lake.table_reading import join_path

if TYPE_CHECKING:
    from pgtrickle_assets.lake.connections import CatalogConnection

FILE_COLUMNS: Final = """f.data_file_id, f.path, f.path_is_relative, f.file_format, f.record_count, f.file_size_bytes,
f.row_id_start, f.begin_snapshot, f.end_snapshot, f.partial_max, f.mapping_id, f.encryption_key"""

DELETE_COLUMNS: Final = """d.data_file_id, d.delete_file_id, d.path, d.path_is_relative, d.format, d.delete_count,
d.begin_snapshot, d.end_snapshot, d.partial_max, d.encryption_key"""

_MAPPINGS: Final = """
SELECT m.mapping_id, m.type, n.source_name, n.target_field_id, n.is_partition
FROM {c}.ducklake_column_mapping m JOIN {c}.ducklake_name_mapping n ON n.mapping_id = m.mapping_id
WHERE m.table_id = %s AND n.parent_column IS NULL
"""

_SHAPE: Final = """
SELECT coalesce(max(begin_snapshot) FILTER (WHERE end_snapshot IS NULL OR %(at)s < end_snapshot), 0),
       coalesce(min(begin_snapshot), 0)
FROM {c}.ducklake_column WHERE table_id = %(table)s AND parent_column IS NULL AND begin_snapshot <= %(at)s
"""

_BOUNDS: Final = """
SELECT data_file_id, column_id, min_value, max_value, value_count, null_count, contains_nan
FROM {c}.ducklake_file_column_stats
WHERE table_id = %s AND column_id = ANY(%s) AND (%s::bigint[] IS NULL OR data_file_id = ANY(%s))
"""

_FEW_FILES: Final = 1000


@dataclass(frozen=True, slots=True)
class DeleteRow:
    """A row of `ducklake_delete_file`, path made whole."""

    id: int
    data_file_id: int
    path: str
    format: str
    count: int
    begin: int
    end: int | None
    partial_max: int | None

    def visible(self, at: int) -> bool:
        """Whether the file is active at a snapshot."""
        return self.begin <= at and (self.end is None or at < self.end)


@dataclass(frozen=True, slots=True)
class FileRow:
    """A row of `ducklake_data_file` with everything that was ever deleted from it in the window that was read."""

    file: DataFile
    deletes: tuple[DeleteRow, ...] = ()
    inline_deletes: tuple[tuple[int, int], ...] = ()

    def visible(self, at: int) -> bool:
        """Whether the file is live at a snapshot."""
        end = self.file.end_snapshot
        return self.file.begin_snapshot <= at and (end is None or at < end)

    def active_deletes(self, at: int) -> DeleteRow | None:
        """The delete file in force at a snapshot."""
        return next((row for row in self.deletes if row.visible(at)), None)


@dataclass(slots=True)
class Shape:
    """What decides the names inside files: when columns last changed, when the table began, and name mappings."""

    changed: int
    began: int
    mappings: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    hive_mappings: frozenset[int] = frozenset()

    def needs_footer(self, file: DataFile) -> bool:
        """Whether the catalog alone cannot say which columns a file has, and under which names."""
        if file.mapping_id is not None or self.changed <= self.began:
            return False
        return file.begin_snapshot < self.changed or file.row_id_start is None


class ShapeQuery:
    """Reads a `Shape`; create it before other queries so that all share one round trip."""

    def __init__(self, connection: CatalogConnection, schema: str, table: LakeTable) -> None:
        self._shape = connection.execute(statement(_SHAPE, schema), {"at": table.at, "table": table.id})
        self._mappings = connection.execute(statement(_MAPPINGS, schema), (table.id,))

    def fetch(self) -> Shape:
        """The shape of the table.

        Raises:
            LakeError: A mapping of a kind that DuckLake 1.0 does not have.
        """
        changed, began = self._shape.fetchone() or (0, 0)
        mappings: defaultdict[int, dict[int, str]] = defaultdict(dict)
        hive: set[int] = set()
        for mapping_id, kind, source, target, is_partition in self._mappings.fetchall():
            if kind != "map_by_name":
                raise LakeError(f"a file is mapped by {kind!r}, which DuckLake 1.0 does not define")
            if is_partition:
                hive.add(mapping_id)
            else:
                mappings[mapping_id][target] = source
        return Shape(changed, began, dict(mappings), frozenset(hive))


def file_from_row(row: Sequence[Any], table: LakeTable) -> DataFile:
    """A data file from `FILE_COLUMNS`, without deletes.

    Raises:
        LakeError: The file is encrypted or not Parquet.
    """
    file_id, path, relative, kind, records, size, row_id, begin, end, partial_max, mapping, key = row
    if key is not None:
        raise LakeError(f"table {table.name} has an encrypted file ({path}); encrypted lakes are not supported")
    if kind is not None and kind.lower() != "parquet":
        raise LakeError(f"table {table.name} has a file of format {kind!r} ({path}); only Parquet is supported")
    full = join_path(table.path, path, relative)
    return DataFile(file_id, full, records, size, row_id, begin, end, partial_max, mapping)


def delete_from_row(row: Sequence[Any], table: LakeTable) -> DeleteRow:
    """A delete file from `DELETE_COLUMNS`.

    Raises:
        LakeError: The delete file is encrypted.
    """
    data_file_id, delete_id, path, relative, kind, count, begin, end, partial_max, key = row
    if key is not None:
        raise LakeError(f"table {table.name} has an encrypted delete file ({path}); encrypted lakes are not supported")
    full = join_path(table.path, path, relative)
    return DeleteRow(delete_id, data_file_id, full, (kind or "parquet").lower(), count, begin, end, partial_max)


def group_partition_values(rows: Iterable[tuple[Any, ...]]) -> dict[int, tuple[str | None, ...]]:
    """Values by file id, from (file id, key index, value) ordered by file and key."""
    grouped: defaultdict[int, list[str | None]] = defaultdict(list)
    for file_id, _, value in rows:
        grouped[file_id].append(value)
    return {file_id: tuple(values) for file_id, values in grouped.items()}


def read_bounds(
    connection: CatalogConnection, schema: str, table: LakeTable, files: Sequence[DataFile], columns: Sequence[int]
) -> dict[int, dict[int, ColumnBounds]]:
    """Statistics of some columns by file id and column id; one query."""
    few = [file.id for file in files] if len(files) <= _FEW_FILES else None
    rows = connection.execute(statement(_BOUNDS, schema), (table.id, list(columns), few, few)).fetchall()
    bounds: defaultdict[int, dict[int, ColumnBounds]] = defaultdict(dict)
    for file_id, column_id, minimum, maximum, values, nulls, nan in rows:
        bounds[file_id][column_id] = ColumnBounds(minimum, maximum, values, nulls, nan)
    return dict(bounds)
