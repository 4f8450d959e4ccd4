"""From a table at a snapshot to the files and rows that make it up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.delete_dating import DeleteDating
from pgtrickle_assets.lake.file_columns import FileColumns
from pgtrickle_assets.lake.file_listing import (
    DELETE_COLUMNS,
    FILE_COLUMNS,
    FileRow,
    Shape,
    ShapeQuery,
    delete_from_row,
    file_from_row,
    group_partition_values,
)
from pgtrickle_assets.lake.inlined import AT, InlineTables
from pgtrickle_assets.lake.model import DataFile, InlinedRows, LakeTable, ScanPlan
from pgtrickle_assets.lake.sqltext import statement

if TYPE_CHECKING:
    from pgtrickle_assets.lake.connections import CatalogConnection

_FILES: Final = """
SELECT {columns} FROM {c}.ducklake_data_file f WHERE f.table_id = %(table)s AND {visible:f} ORDER BY f.data_file_id
""".replace("{columns}", FILE_COLUMNS)

_DELETES: Final = """
SELECT {columns} FROM {c}.ducklake_delete_file d WHERE d.table_id = %(table)s AND {visible:d}
""".replace("{columns}", DELETE_COLUMNS)

_PARTITION_VALUES: Final = """
SELECT v.data_file_id, v.partition_key_index, v.partition_value
FROM {c}.ducklake_file_partition_value v JOIN {c}.ducklake_data_file f ON f.data_file_id = v.data_file_id
WHERE v.table_id = %(table)s AND f.table_id = %(table)s AND {visible:f} ORDER BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class RawScan:
    """What the catalog said about a table at a snapshot, before files are looked into."""

    files: list[FileRow]
    shape: Shape
    inlined: InlinedRows


def read_scan(connection: CatalogConnection, schema: str, table: LakeTable) -> RawScan:
    """The table's files and inlined rows at its snapshot: a fixed number of queries, whatever the number of files."""
    parameters = {"at": table.at, "table": table.id}
    shape = ShapeQuery(connection, schema, table)
    files = connection.execute(statement(_FILES, schema), parameters, binary=True)
    deletes = connection.execute(statement(_DELETES, schema), parameters)
    values = connection.execute(statement(_PARTITION_VALUES, schema), parameters)
    inline = InlineTables(connection, schema, table)
    inline_deletes = inline.deleted_positions(table.at)
    inlined = inline.rows(AT, {"at": table.at})
    active = {found.data_file_id: found for found in (delete_from_row(row, table) for row in deletes.fetchall())}
    partition_values = group_partition_values(values.fetchall())
    rows = [
        FileRow(
            replace(file, partition_values=partition_values[file.id]) if file.id in partition_values else file,
            (active[file.id],) if file.id in active else (),
            tuple(inline_deletes.get(file.id, ())),
        )
        for file in (file_from_row(row, table) for row in files.fetchall())
    ]
    return RawScan(rows, shape.fetch(), inlined)


def build_scan(table: LakeTable, raw: RawScan, dating: DeleteDating, columns: FileColumns) -> ScanPlan:
    """The plan from what the catalog said; opens footers where names are in doubt, and newer delete files.

    Raises:
        LakeDeletesUndatedError: The table's deletes at that snapshot cannot be told.
    """
    dating.read_ahead(deletes for row in raw.files for deletes in row.deletes)
    files = [file_as_of(row, table.at, dating) for row in raw.files]
    return ScanPlan(table, resolve_names(files, table, raw.shape, columns), raw.inlined)


def file_as_of(row: FileRow, at: int, dating: DeleteDating) -> DataFile:
    """The entry that a reader at a snapshot gets."""
    active = row.active_deletes(at)
    inline = frozenset(position for position, snapshot in row.inline_deletes if snapshot <= at)
    newer = row.file.max_snapshot is not None and row.file.max_snapshot > at
    if active is None and not inline and not newer:
        return row.file
    return replace(
        row.file,
        deletes=dating.as_of(active, at) if active else None,
        inline_deletes=inline,
        rows_upto=at if newer else None,
    )


def resolve_names(
    files: Sequence[DataFile], table: LakeTable, shape: Shape, columns: FileColumns
) -> tuple[DataFile, ...]:
    """The files with `names` and `missing` filled in.

    Raises:
        LakeError: A file's columns come from its path (hive style), or its footer cannot be read.
    """
    in_doubt = [(file.id, file.path) for file in files if shape.needs_footer(file)]
    footers = columns.of(in_doubt) if in_doubt else {}
    return tuple(_named(file, table, shape, footers) for file in files)


def _named(file: DataFile, table: LakeTable, shape: Shape, footers: Mapping[int, Mapping[int, str]]) -> DataFile:
    if file.mapping_id is not None:
        if file.mapping_id in shape.hive_mappings:
            raise LakeError(
                f"table {table.name} has a file whose partition columns stand in its path only ({file.path})",
                hint="Compact the table with DuckLake's own functions, which writes the columns into the files.",
            )
        inside = shape.mappings.get(file.mapping_id, {})
    elif file.id in footers:
        inside = footers[file.id]
    else:
        return file
    names = {
        column.id: inside[column.id] for column in table.columns if inside.get(column.id, column.name) != column.name
    }
    missing = frozenset(column.id for column in table.columns if column.id not in inside)
    return replace(file, names=names, missing=missing)
