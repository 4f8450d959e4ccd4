"""Writing rows into new data files: by executors where the rows are, or by the driver where they are few."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.model import WEIGHT_COLUMN, LakeTable, NewDataFile
from pgtrickle_assets.lake.parquet_write import TableWriter, WriteOptions, conformed, sorted_rows
from pgtrickle_assets.lake.partition_values import BUCKET, partition_keys
from pgtrickle_assets.lake.spark_columns import quoted_name
from pgtrickle_assets.lake.storage import storage_error, storage_for

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BUCKET_COLUMN: Final = "__pgt_bucket"

_Batches = Iterator[pa.RecordBatch]


def write_rows(
    rows: DataFrame | pa.Table,
    table: LakeTable,
    *,
    delivery_id: str,
    options: WriteOptions | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> tuple[NewDataFile, ...]:
    """Write rows into new files of a table; no snapshot names them yet.

    Args:
        rows: The table's columns by name, in any order; a column `__pgt_weight` says how often to write each row (zero:
            not at all). Other columns are ignored. A DataFrame is evaluated once, by one job.
        table: The table, with its path, column ids and partition spec.
        delivery_id: Goes into each file's name, so that files of a failed delivery can be told.
        options: Layout of the files.
        storage_options: See `storage.STORAGE_OPTIONS`.

    Returns:
        One entry per file, with exact statistics; none when there are no rows.

    Raises:
        LakeError: A column is missing, a value does not fit, a NOT NULL column has a NULL, or a weight is negative.
            Files written so far are deleted.
    """
    layout = options or WriteOptions()
    if isinstance(rows, pa.Table):
        ordered = sorted_rows(conformed(table, rows), layout.sort_by)
        return _written(TableWriter(table, delivery_id, layout, storage_options), [ordered], table)
    return _write_on_executors(rows, table, delivery_id, layout, storage_options)


def _write_on_executors(
    rows: DataFrame,
    table: LakeTable,
    delivery_id: str,
    options: WriteOptions,
    storage_options: Mapping[str, str] | None,
) -> tuple[NewDataFile, ...]:
    names = [column.name for column in table.columns if column.name in rows.columns]
    if WEIGHT_COLUMN in rows.columns:
        names.append(WEIGHT_COLUMN)
    # Plain names on the way: mapInArrow takes none with a backtick or a dot.
    frame = rows.select(*[quoted_name(name) for name in names]).toDF(*[f"c{place}" for place in range(len(names))])
    frame = _distributed(frame, names, table, options)
    write = _executor(names, table, delivery_id, options, dict(storage_options or {}))
    results = frame.mapInArrow(write, "result BINARY").toArrow().column("result").to_pylist()
    # Our own executors pickled these.
    outcomes: list[NewDataFile | LakeError] = [pickle.loads(result) for result in results]  # noqa: S301
    files = tuple(outcome for outcome in outcomes if isinstance(outcome, NewDataFile))
    errors = [outcome for outcome in outcomes if isinstance(outcome, LakeError)]
    if errors:
        _delete(files, table, storage_options)
        raise errors[0]
    return files


def _executor(
    names: list[str], table: LakeTable, delivery_id: str, options: WriteOptions, storage_options: dict[str, str]
) -> Callable[[_Batches], _Batches]:
    def write(batches: _Batches) -> _Batches:
        outcomes: tuple[NewDataFile | LakeError, ...]
        writer = TableWriter(table, delivery_id, options, storage_options)
        try:
            outcomes = _written(writer, (conformed(table, _named(batch, names)) for batch in batches), table)
        except LakeError as error:
            # It travels as a row: Spark would wrap it into a stack trace and try again.
            outcomes = (error,)
        yield pa.record_batch([_binary([pickle.dumps(outcome) for outcome in outcomes])], names=["result"])

    return write


def _binary(values: list[bytes]) -> pa.Array:
    # Not pa.array: it imports pandas, without which a worker starts much sooner.
    ends = np.cumsum([0, *(len(value) for value in values)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(values))]
    )


def _written(writer: TableWriter, parts: Iterable[pa.Table], table: LakeTable) -> tuple[NewDataFile, ...]:
    """Write all parts, or leave no file."""
    try:
        for part in parts:
            writer.add(part)
        return writer.finish()
    except LakeError:
        writer.abandon()
        raise
    except OSError as error:
        writer.abandon()
        if isinstance(error, FileNotFoundError):
            raise LakeError(f"there is no place for files at {table.path}", hint="Create the bucket.") from error
        raise storage_error(error, table.path, writer.storage_options) from error


def _named(batch: pa.RecordBatch, names: list[str]) -> pa.Table:
    return pa.Table.from_batches([batch]).select(range(len(names))).rename_columns(names)


def _distributed(frame: DataFrame, names: list[str], table: LakeTable, options: WriteOptions) -> DataFrame:
    """Bring rows of a partition to one task and into order, so that it gets few files and one is open at a time."""
    from pyspark.sql import functions as f

    keys: list[Column] = []
    if table.partition_fields:
        frame = _with_buckets(frame, names, table)
        keys = _partition_columns(names, table)
        frame = frame.repartition(*keys)
    order = [*keys, *[f.col(f"c{names.index(name)}") for name in options.sort_by]]
    return frame.sortWithinPartitions(*order) if order else frame


def _partition_columns(names: list[str], table: LakeTable) -> list[Column]:
    """Spark expressions with one value per combination of partition values; they need not be its text."""
    from pyspark.sql import functions as f

    by_id = {column.id: column.name for column in table.columns}
    columns: list[Column] = []
    for place, field in enumerate(table.partition_fields):
        column = f.col(f"c{names.index(by_id[field.column_id])}")
        if BUCKET.fullmatch(field.transform):
            columns.append(f.col(f"{_BUCKET_COLUMN}{place}"))
        elif field.transform == "identity":
            columns.append(column)
        else:
            columns.append(f.date_part(f.lit(field.transform), column))
    return columns


def _with_buckets(frame: DataFrame, names: list[str], table: LakeTable) -> DataFrame:
    """Add the bucket of each bucketed key; Spark's own hash is another one."""
    places = [place for place, field in enumerate(table.partition_fields) if BUCKET.fullmatch(field.transform)]
    if not places:
        return frame
    from pyspark.sql.types import StringType, StructType

    schema = StructType([*frame.schema.fields])
    for place in places:
        schema = schema.add(f"{_BUCKET_COLUMN}{place}", StringType())

    def add(batches: _Batches) -> _Batches:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            keys = partition_keys(table, _named(batch, names))
            for place in places:
                rows = rows.append_column(f"{_BUCKET_COLUMN}{place}", keys[place])
            yield from rows.to_batches()

    return frame.mapInArrow(add, schema)


def _delete(files: tuple[NewDataFile, ...], table: LakeTable, storage_options: Mapping[str, str] | None) -> None:
    storage = storage_for(table.path, storage_options)
    for file in files:
        # What cannot be deleted now is an orphan that maintenance finds by its delivery.
        with suppress(OSError):
            storage.delete(table.path + file.path)
