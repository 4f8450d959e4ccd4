"""Parquet files of a table, written by the process at hand: on the driver or on an executor.

A file holds rows of one combination of partition values, has a field id on every node, and is named after the delivery
that wrote it. Nothing refers to it until a snapshot does; a writer that dies leaves files that nobody names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.model import WEIGHT_COLUMN, LakeTable, NewDataFile
from pgtrickle_assets.lake.parquet_columns import arrow_schema, file_schema, leaf_id, to_file
from pgtrickle_assets.lake.parquet_statistics import FileStatistics
from pgtrickle_assets.lake.partition_values import directory, partition_keys, split
from pgtrickle_assets.lake.storage import storage_for

_OPEN_FILES: Final = 32
_MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How files are laid out.

    Attributes:
        target_file_bytes: A file is closed once it has this many bytes; it may get one row group bigger.
        row_group_rows: Rows per row group: what a reader can skip at once.
        sort_by: Columns by which the rows of one writer are sorted, so that bounds of row groups are narrow.
        compression: Parquet codec.
        compression_level: Level of that codec, None for its default.
    """

    target_file_bytes: int = 128 * _MEBIBYTE
    row_group_rows: int = 122_880
    sort_by: tuple[str, ...] = ()
    compression: str = "zstd"
    compression_level: int | None = None


def conformed(table: LakeTable, rows: pa.Table) -> pa.Table:
    """Rows with exactly the table's columns and types; each row as often as its `__pgt_weight` says.

    Raises:
        LakeError: A column is missing, a value does not fit its type, a NOT NULL column has a NULL, or a weight is
            negative.
    """
    schema = arrow_schema(table.columns)
    arrays: list[pa.ChunkedArray] = []
    for column, field in zip(table.columns, schema, strict=True):
        if column.name not in rows.column_names:
            raise LakeError(f"rows for table {table.name} lack its column {column.name!r}")
        values = rows.column(column.name)
        try:
            values = values if values.type == field.type else values.cast(field.type)
        except pa.ArrowException as error:
            raise LakeError(f"a value does not fit column {column.name!r} of {table.name}: {error}") from error
        if not column.nullable and values.null_count:
            raise LakeError(
                f"column {column.name!r} of {table.name} is NOT NULL, but {values.null_count} row(s) have NULL in it",
                hint="Change the query, or drop the constraint of the table.",
            )
        arrays.append(values)
    result = pa.Table.from_arrays(arrays, schema=schema)
    return _repeated(table, result, rows.column(WEIGHT_COLUMN)) if WEIGHT_COLUMN in rows.column_names else result


def _repeated(table: LakeTable, rows: pa.Table, weights: pa.ChunkedArray) -> pa.Table:
    counts = weights.to_numpy()
    if len(counts) and counts.min() < 0:
        raise LakeError(f"rows to append to {table.name} have a negative weight; deletes need positions")
    if not len(counts) or (counts.min() == 1 and counts.max() == 1):
        return rows
    return rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))


class TableWriter:
    """Writes rows of a table into as many files as partitions and sizes ask for.

    Args:
        table: The table, its path included.
        delivery_id: Goes into each file name.
        options: Layout.
        storage_options: See `storage.STORAGE_OPTIONS`; also an attribute.
    """

    def __init__(
        self, table: LakeTable, delivery_id: str, options: WriteOptions, storage_options: Mapping[str, str] | None
    ) -> None:
        self._table = table
        self._delivery_id = delivery_id
        self._options = options
        self.storage_options = storage_options
        self._open: dict[tuple[str | None, ...], _FileWriter] = {}
        self._finished: list[NewDataFile] = []

    def add(self, rows: pa.Table) -> None:
        """Take rows as `conformed` gives them.

        Raises:
            LakeError: A value that cannot be stored.
        """
        if not rows.num_rows:
            return
        if not self._table.partition_fields:
            self._write((), rows)
            return
        for values, places in split(partition_keys(self._table, rows), rows.num_rows):
            self._write(values, rows.take(places))

    def finish(self) -> tuple[NewDataFile, ...]:
        """Close what is open and name all files that were written."""
        for values in list(self._open):
            self._close(values)
        return tuple(self._finished)

    def abandon(self) -> None:
        """Delete every file written so far, as far as the storage lets us; the rest are orphans for maintenance."""
        storage = storage_for(self._table.path, self.storage_options)
        for writer in self._open.values():
            writer.abandon()
        for file in self._finished:
            with suppress(OSError):
                storage.delete(self._table.path + file.path)
        self._open.clear()
        self._finished.clear()

    def _write(self, values: tuple[str | None, ...], rows: pa.Table) -> None:
        # In pieces of a row group, so that a file can close between them.
        for start in range(0, rows.num_rows, self._options.row_group_rows):
            writer = self._writer(values)
            writer.add(rows.slice(start, self._options.row_group_rows))
            if writer.is_full:
                self._close(values)

    def _writer(self, values: tuple[str | None, ...]) -> _FileWriter:
        """The open file of a partition; the one that was used least recently closes when there are too many."""
        writer = self._open.pop(values, None)
        if writer is None:
            if len(self._open) >= _OPEN_FILES:
                self._close(next(iter(self._open)))
            writer = _FileWriter(self._table, values, self._delivery_id, self._options, self.storage_options)
        self._open[values] = writer
        return writer

    def _close(self, values: tuple[str | None, ...]) -> None:
        # It stays open until it is finished, so that `abandon` finds it.
        self._finished.append(self._open[values].finish())
        del self._open[values]


class _FileWriter:
    """One file, from the first row to its footer."""

    def __init__(
        self,
        table: LakeTable,
        values: tuple[str | None, ...],
        delivery_id: str,
        options: WriteOptions,
        storage_options: Mapping[str, str] | None,
    ) -> None:
        self._table = table
        self._values = values
        self._options = options
        self._schema = file_schema(table.columns)
        self._statistics = FileStatistics(table.columns)
        self._relative = f"{directory(table, values)}pgt-{delivery_id}-{uuid4().hex}.parquet"
        self._storage = storage_for(table.path, storage_options)
        self._buffered: list[pa.Table] = []
        self._buffered_rows = 0
        self._rows = 0
        self._sink = self._storage.open_output(table.path + self._relative)
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression=options.compression,
            compression_level=options.compression_level,
            store_decimal_as_integer=True,
            write_page_index=True,
            store_schema=False,
        )

    @property
    def is_full(self) -> bool:
        return self._sink.tell() >= self._options.target_file_bytes

    def add(self, rows: pa.Table) -> None:
        self._buffered.append(rows)
        self._buffered_rows += rows.num_rows
        if self._buffered_rows >= self._options.row_group_rows:
            self._flush()

    def finish(self) -> NewDataFile:
        self._flush(everything=True)
        self._writer.close()
        self._sink.close()
        path = self._table.path + self._relative
        self._storage.make_durable(path)
        size, footer_size, column_sizes = _footer(self._storage.open_input(path), self._table)
        return NewDataFile(
            self._relative,
            self._rows,
            size,
            footer_size,
            self._statistics.bounds(),
            column_sizes,
            self._values,
        )

    def abandon(self) -> None:
        for step in (self._writer.close, self._sink.close):
            with suppress(OSError):
                step()
        with suppress(OSError):
            self._storage.delete(self._table.path + self._relative)

    def _flush(self, *, everything: bool = False) -> None:
        rows = pa.concat_tables(self._buffered).combine_chunks() if self._buffered else None
        if rows is None:
            return
        whole = rows.num_rows if everything else rows.num_rows - rows.num_rows % self._options.row_group_rows
        for start in range(0, whole, self._options.row_group_rows):
            self._write_group(rows.slice(start, min(self._options.row_group_rows, whole - start)))
        rest = rows.slice(whole)
        self._buffered = [rest] if rest.num_rows else []
        self._buffered_rows = rest.num_rows

    def _write_group(self, rows: pa.Table) -> None:
        self._statistics.add(rows)
        try:
            arrays = [
                pa.chunked_array([to_file(chunk, column.type, field.type) for chunk in rows.column(place).chunks])
                for place, (column, field) in enumerate(zip(self._table.columns, self._schema, strict=True))
            ]
        except pa.ArrowInvalid as error:
            raise LakeError(f"a value cannot be stored in {self._table.name}: {error}") from error
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=rows.num_rows)
        self._rows += rows.num_rows


def _footer(source: pa.NativeFile, table: LakeTable) -> tuple[int, int, dict[int, int]]:
    """Bytes of the file, bytes of its footer, compressed bytes by leaf column id."""
    with source:
        size = source.size()
        source.seek(size - 8)
        footer_size = int.from_bytes(source.read(4), "little")
        metadata = pq.ParquetFile(source).metadata
    sizes: dict[int, int] = {}
    for group in range(metadata.num_row_groups):
        row_group: Any = metadata.row_group(group)
        for place, column in enumerate(table.columns):
            sizes[leaf_id(column)] = sizes.get(leaf_id(column), 0) + row_group.column(place).total_compressed_size
    return size, footer_size, sizes


def sorted_rows(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """Rows in the order of the columns `by` that Arrow can sort on."""
    keys = [name for name in by if not pa.types.is_nested(rows.schema.field(name).type)]
    return rows.sort_by([(name, "ascending") for name in keys]) if keys else rows
