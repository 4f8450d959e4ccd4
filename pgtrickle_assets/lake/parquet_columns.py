# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Columns between Parquet files and Arrow tables in the lake's types.

In memory every value has the Arrow type of `types.arrow_type`: uuid and json are text. In files that we write uuid is
Parquet's 16-byte UUID and json is annotated as such, as DuckDB writes them. Files of other writers may hold narrower or
differently annotated columns; they are cast up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.inlined import initial_value
from pgtrickle_assets.lake.model import DataFile, InlinedRows, LakeColumn, LakeTable
from pgtrickle_assets.lake.storage import Storage, storage_errors
from pgtrickle_assets.lake.types import arrow_type
from pgtrickle_assets.query.types import ColumnType

SNAPSHOT_COLUMN: Final = "_ducklake_internal_snapshot_id"
"""Column of a partial data or delete file that holds the snapshot of each row."""


@dataclass(frozen=True, slots=True)
class FileColumn:
    """How to get one column out of a file.

    `source` is its name in the file; None when the file does not have it and rows read `default` instead.
    """

    name: str
    type: ColumnType
    source: str | None
    default: object = None


def table_columns(table: LakeTable, names: Sequence[str]) -> tuple[LakeColumn, ...]:
    """The columns called `names`; LakeError names the one that the table does not have."""
    found = {column.name: column for column in table.columns}
    for name in names:
        if name not in found:
            raise LakeError(f"table {table.name} has no column {name!r} at snapshot {table.at}")
    return tuple(found[name] for name in names)


def file_columns(columns: Sequence[LakeColumn], file: DataFile) -> tuple[FileColumn, ...]:
    """How to get `columns` out of `file`."""
    return tuple(
        FileColumn(
            column.name,
            column.type,
            None if column.id in file.missing else file.names.get(column.id, column.name),
            initial_value(column) if column.id in file.missing else None,
        )
        for column in columns
    )


def text_uuid_files(storage: Storage, files: Sequence[DataFile], columns: Sequence[LakeColumn]) -> frozenset[int]:
    """Ids of the files that hold uuid columns as text.

    Only files that another writer registered (they have a name mapping) can, so only their footers are looked at.
    """
    uuids = [column for column in columns if _innermost(column.type).name == "uuid"]
    found: set[int] = set()
    for file in files if uuids else ():
        sources = [column.source for column in file_columns(uuids, file) if column.source is not None]
        if file.mapping_id is None or not sources:
            continue
        with storage_errors(file.path, dict(storage.options)), storage.open_input(file.path) as source:
            schema = pq.read_schema(source)
        if any(_holds_text(schema.field(name).type) for name in sources):
            found.add(file.id)
    return frozenset(found)


def _innermost(kind: ColumnType) -> ColumnType:
    return kind if kind.element is None else _innermost(kind.element)


def _holds_text(kind: pa.DataType) -> bool:
    return _holds_text(kind.value_type) if pa.types.is_list(kind) else pa.types.is_string(kind)


def inlined_table(columns: Sequence[LakeColumn], table: LakeTable, rows: InlinedRows) -> pa.Table:
    """Rows that live in the catalog, as a table with `columns`."""
    if not rows.rows:
        # Not from an empty list: that would import pandas, which takes longer than the rest of a small read.
        schema = arrow_schema(columns)
        return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    places = {column.id: place for place, column in enumerate(table.columns)}
    arrays = [pa.array([row[places[column.id]] for row in rows.rows], arrow_type(column.type)) for column in columns]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(columns))


def arrow_schema(columns: Sequence[LakeColumn]) -> pa.Schema:
    """Schema of the in-memory table with these columns."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def file_schema(columns: Sequence[LakeColumn]) -> pa.Schema:
    """Schema of a file that we write: a field id on every node and the physical types of DuckDB's own files."""
    return pa.schema([_file_field(column.name, column.type, (column.id, *column.child_ids)) for column in columns])


def _file_field(name: str, kind: ColumnType, ids: Sequence[int]) -> pa.Field:
    metadata: Mapping[str, str] = {"PARQUET:field_id": str(ids[0])}
    if kind.element is not None:
        return pa.field(name, pa.list_(_file_field("element", kind.element, ids[1:])), metadata=metadata)
    return pa.field(name, _file_type(kind), metadata=metadata)


def _file_type(kind: ColumnType) -> pa.DataType:
    if kind.name == "uuid":
        return pa.uuid()
    if kind.name == "json":
        return pa.json_(pa.string())
    return arrow_type(kind)


def leaf_id(column: LakeColumn) -> int:
    """Id of the node that holds the column's values: a list's is its innermost element."""
    return (column.child_ids or (column.id,))[-1]


def to_file(values: pa.Array, kind: ColumnType, target: pa.DataType) -> pa.Array:
    """In-memory values as they are stored; `target` is the type from `file_schema`."""
    if kind.element is not None:
        child = target.field(0)
        stored = to_file(values.values, kind.element, child.type)
        return _rebuild_list(values, stored, target)
    if kind.name == "uuid":
        return pa.ExtensionArray.from_storage(target, uuid_bytes(values))
    if kind.name == "json":
        return pa.ExtensionArray.from_storage(target, values)
    return values


def from_file(values: pa.Array, kind: ColumnType) -> pa.Array:
    """Values as read from a file, in the in-memory type; narrower types are widened, never the other way.

    Raises:
        pyarrow.ArrowInvalid: A value does not fit, which means the catalog describes another file.
    """
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if kind.element is not None:
        inner = from_file(values.values, kind.element)
        return _rebuild_list(values, inner, arrow_type(kind))
    if kind.name == "uuid" and pa.types.is_fixed_size_binary(values.type):
        return uuid_text(values)
    target = arrow_type(kind)
    return values if values.type == target else pc.cast(values, target)


def _rebuild_list(values: pa.ListArray, inner: pa.Array, target: pa.DataType) -> pa.ListArray:
    # Offsets are copied because Arrow takes no NULL mask with the offsets of a slice.
    offsets = pa.array(values.offsets.to_numpy(zero_copy_only=False).astype(np.int32))
    mask = pc.is_null(values) if values.null_count else None
    return pa.ListArray.from_arrays(offsets, inner, type=target, mask=mask)


def uuid_bytes(values: pa.Array) -> pa.Array:
    """Text of UUIDs (any case, with or without hyphens) -> 16-byte binary, NULLs kept."""
    digits = pc.fill_null(pc.replace_substring(values, pattern="-", replacement=""), "0" * 32)
    try:
        raw = bytes.fromhex("".join(digits.to_pylist()))
    except ValueError as error:
        raise pa.ArrowInvalid(f"not a UUID: {error}") from None
    if len(raw) != 16 * len(values):
        raise pa.ArrowInvalid("not a UUID: a value does not have 32 hexadecimal digits")
    validity = None
    if values.null_count:
        bits = np.packbits(pc.is_valid(values).to_numpy(zero_copy_only=False), bitorder="little")
        validity = pa.py_buffer(bits.tobytes())
    return pa.Array.from_buffers(pa.binary(16), len(values), [validity, pa.py_buffer(raw)])


def uuid_text(values: pa.Array) -> pa.Array:
    """16-byte binary -> lower-case text with hyphens, NULLs kept."""
    raw = b"".join(pc.fill_null(values, b"\0" * 16).to_pylist()) if len(values) else b""
    digits = np.frombuffer(raw.hex().encode(), dtype="S32") if raw else np.empty(0, dtype="S32")
    texts = pa.array([f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}" for d in digits.astype(str)], pa.string())
    return pc.if_else(pc.is_valid(values), texts, pa.scalar(None, pa.string()))
