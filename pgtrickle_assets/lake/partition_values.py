# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Partition values of rows, computed exactly as DuckDB's DuckLake extension does.

Source: DuckLake specification 1.0, partitioning; the hash of `bucket` is Murmur3 (x86, 32 bit, seed 0) of the physical
value, checked against DuckDB 1.5.5 by the tests.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.model import LakeTable
from pgtrickle_assets.lake.parquet_statistics import value_text
from pgtrickle_assets.query.types import ColumnType

BUCKET: Final = re.compile(r"bucket\((\d+)\)")
_MAX_PART: Final = 120
_KEPT_PART: Final = 80
_NULL_DIRECTORY: Final = "__HIVE_DEFAULT_PARTITION__"
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps without zone have none
_PARTS: Final = ("year", "month", "day", "hour")


def partition_keys(table: LakeTable, rows: pa.Table) -> list[pa.Array]:
    """The text of each partition key for each row, in the order of the partition spec; NULL stays NULL.

    Raises:
        LakeError: The spec names a column or transform that we don't know.
    """
    by_id = {column.id: column for column in table.columns}
    keys: list[pa.Array] = []
    for field in table.partition_fields:
        column = by_id.get(field.column_id)
        if column is None:
            raise LakeError(f"table {table.name} is partitioned by a column that we can't carry")
        values = rows.column(column.name).combine_chunks()
        keys.append(transform_values(values, column.type, field.transform))
    return keys


def transform_values(values: pa.Array, kind: ColumnType, transform: str) -> pa.Array:
    """Apply one partition transform and give its text per value.

    Raises:
        LakeError: Unknown transform.
    """
    if transform in _PARTS:
        moments = values.cast(pa.timestamp("us")) if pa.types.is_date(values.type) else values
        return pc.call_function(transform, [moments]).cast(pa.string())
    encoded = values.dictionary_encode()
    distinct: list[Any] = encoded.dictionary.to_pylist()
    if transform == "identity":
        texts = pa.array([_identity(value, kind) for value in distinct], pa.string())
        return texts.take(encoded.indices)
    match = BUCKET.fullmatch(transform)
    if match is None:
        raise LakeError(f"unknown partition transform {transform!r}")
    count = int(match[1])
    buckets = [None if value is None else str(bucket_of(value, kind, count)) for value in distinct]
    return pa.array(buckets, pa.string()).take(encoded.indices)


def split(keys: Sequence[pa.Array], count: int) -> Iterator[tuple[tuple[str | None, ...], pa.Array]]:
    """Rows by combination of partition values: (values, row numbers)."""
    names = [f"k{n}" for n in range(len(keys))]
    table = pa.table([*keys, pa.array(np.arange(count, dtype=np.int64))], names=[*names, "row"])
    grouped = table.group_by(names, use_threads=False).aggregate([("row", "list")])
    rows = grouped.column("row_list").combine_chunks()
    for place in range(grouped.num_rows):
        yield tuple(grouped.column(name)[place].as_py() for name in names), rows[place].values


def directory(table: LakeTable, values: Sequence[str | None]) -> str:
    """Hive-style directory of a partition, relative to the table, with a slash at the end; empty without partitions."""
    by_id = {column.id: column.name for column in table.columns}
    names = [
        by_id[field.column_id] if field.transform == "identity" else field.transform.partition("(")[0]
        for field in table.partition_fields
    ]
    return "".join(
        f"{_escaped(name)}={_NULL_DIRECTORY if value is None else _escaped(value)}/"
        for name, value in zip(names, values, strict=True)
    )


def _escaped(text: str) -> str:
    """Part of a directory's name. The path only helps people: readers take the values from the catalog."""
    escaped = quote(text, safe="")
    if len(escaped) <= _MAX_PART:
        return escaped
    # File systems allow 255 bytes for both parts together; the digest keeps partitions apart.
    start = re.sub("%[0-9A-F]?$", "", escaped[:_KEPT_PART])
    return f"{start}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _identity(value: Any, kind: ColumnType) -> str | None:
    if value is None:
        return None
    if kind.name == "boolean":
        return "true" if value else "false"
    if isinstance(value, bytes):
        return "".join(chr(byte) if 32 <= byte < 127 and byte not in b"\\'\"" else f"\\x{byte:02X}" for byte in value)
    return value_text(value, kind)


def bucket_of(value: Any, kind: ColumnType, count: int) -> int:
    """The number of a value's bucket."""
    return (murmur3_32(_hashed_bytes(value, kind)) & 0x7FFFFFFF) % count


def _hashed_bytes(value: Any, kind: ColumnType) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        raise LakeError(f"bucket partitioning by a column of type {kind} is not supported")
    return int(_physical(value, kind)).to_bytes(8, "little", signed=True)


def _physical(value: Any, kind: ColumnType) -> int:
    if isinstance(value, Decimal):
        return int(value.scaleb(kind.scale or 0))
    if isinstance(value, datetime):
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        elapsed = moment - _EPOCH
        return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
    if isinstance(value, date):
        return value.toordinal() - date(1970, 1, 1).toordinal()
    return int(value)


def murmur3_32(data: bytes) -> int:
    """Murmur3, x86 variant, 32 bits, seed 0."""
    blocks: NDArray[np.uint32] = np.frombuffer(data, "<u4", len(data) // 4)
    state = 0
    for block in blocks.tolist():
        state ^= _mixed(block)
        state = (_rotated(state, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    tail = data[len(blocks) * 4 :]
    if tail:
        state ^= _mixed(int.from_bytes(tail, "little"))
    state ^= len(data)
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return state ^ (state >> 16)


def _mixed(block: int) -> int:
    return (_rotated((block * 0xCC9E2D51) & 0xFFFFFFFF, 15) * 0x1B873593) & 0xFFFFFFFF


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & 0xFFFFFFFF
