"""Deleted positions of a data file: from its delete file (Parquet or Puffin) and from the catalog's inlined deletes.

Source of the rules: DuckLake specification 1.0, delete files; Iceberg's Puffin blob type `deletion-vector-v1`; the
portable 64-bit format of RoaringFormatSpec.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.model import DataFile, FileDeletes
from pgtrickle_assets.lake.storage import Storage, storage_error

Positions = NDArray[np.int64]
"""Sorted, distinct 0-based row positions in a file."""

_DELETION_VECTOR_MAGIC: Final = b"\xd1\xd3\x39\x64"
_COOKIE_RUNS: Final = 12347
_COOKIE_PLAIN: Final = 12346
_NO_OFFSETS_BELOW: Final = 4


def deleted_positions(storage: Storage, file: DataFile) -> Positions:
    """Positions of `file` that are deleted at the snapshot that it was planned for.

    Args:
        storage: Storage of the lake's files.
        file: The data file as planned: its delete file and inlined deletes are those visible at the read snapshot, and
            `deletes.upto` tells whether later rows of the delete file have to be left out.

    Raises:
        LakeError: The delete file has an unknown format.
        LakeHistoryExpiredError: The delete file is gone, as after an expiry of the snapshot.
        StorageUnavailableError: The storage failed for now.
    """
    try:
        return _positions(storage, file)
    except OSError as error:
        raise storage_error(error, file.path, dict(storage.options)) from error


def _positions(storage: Storage, file: DataFile) -> Positions:
    inline = np.fromiter(file.inline_deletes, dtype=np.int64, count=len(file.inline_deletes))
    if file.deletes is None:
        return np.sort(inline)
    if file.deletes.format == "puffin":
        stored = _puffin(storage, file.deletes.path)
    elif file.deletes.format == "parquet":
        stored = _parquet(storage, file.deletes)
    else:
        raise LakeError(f"delete file {file.deletes.path} has the unknown format {file.deletes.format!r}")
    if not len(inline) and bool(np.all(stored[1:] > stored[:-1])):
        return stored
    return np.union1d(stored, inline)


def _parquet(storage: Storage, deletes: FileDeletes) -> Positions:
    with storage.open_input(deletes.path) as source:
        reader = pq.ParquetFile(source)
        # Columns are told by place (path, position, snapshot), as DuckLake's reader does.
        names = reader.schema_arrow.names[1 : 2 if deletes.upto is None else 3]
        table = reader.read(columns=names)
    positions = table.column(0).to_numpy().astype(np.int64, copy=False)
    if deletes.upto is not None and len(names) > 1:
        positions = positions[table.column(1).to_numpy() <= deletes.upto]
    return positions


def _puffin(storage: Storage, path: str) -> Positions:
    with storage.open_input(path) as source:
        data = source.read()
    # DuckLake 1.0 stores the bare blob; a complete Puffin file has the same blob after its own magic.
    start = data.find(_DELETION_VECTOR_MAGIC)
    if start < 4:
        raise LakeError(f"{path} holds no deletion vector")
    length = struct.unpack_from(">I", data, start - 4)[0]
    return _roaring64(memoryview(data)[start + 4 : start + length])


def _roaring64(data: memoryview) -> Positions:
    """Values of a portable 64-bit Roaring bitmap."""
    (count,) = struct.unpack_from("<Q", data, 0)
    at = 8
    parts: list[Positions] = []
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, at)
        low, at = _roaring32(data, at + 4)
        parts.append(low + (high << 32))
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _roaring32(data: memoryview, at: int) -> tuple[Positions, int]:
    """Values of a portable 32-bit Roaring bitmap at `at`, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    run_flags = np.zeros(0, dtype=np.uint8)
    if cookie & 0xFFFF == _COOKIE_RUNS:
        size = (cookie >> 16) + 1
        flag_bytes = (size + 7) // 8
        run_flags = np.unpackbits(np.frombuffer(data, np.uint8, flag_bytes, at), bitorder="little")[:size]
        at += flag_bytes
        has_offsets = size >= _NO_OFFSETS_BELOW
    elif cookie == _COOKIE_PLAIN:
        (size,) = struct.unpack_from("<I", data, at)
        at += 4
        has_offsets = True
    else:
        raise LakeError(f"not a Roaring bitmap: cookie {cookie}")
    header = np.frombuffer(data, "<u2", 2 * size, at).reshape(size, 2).astype(np.int64)
    at += 4 * size + (4 * size if has_offsets else 0)
    parts: list[Positions] = []
    for index, (key, less_one) in enumerate(header):
        values, at = _container(data, at, int(less_one) + 1, is_run=bool(len(run_flags) and run_flags[index]))
        parts.append(values + (int(key) << 16))
    return (np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)), at


def _container(data: memoryview, at: int, cardinality: int, *, is_run: bool) -> tuple[Positions, int]:
    if is_run:
        (runs,) = struct.unpack_from("<H", data, at)
        pairs = np.frombuffer(data, "<u2", 2 * runs, at + 2).reshape(runs, 2).astype(np.int64)
        values = [np.arange(start, start + length + 1, dtype=np.int64) for start, length in pairs]
        return np.concatenate(values) if values else np.empty(0, dtype=np.int64), at + 2 + 4 * runs
    if cardinality > 4096:
        bits = np.unpackbits(np.frombuffer(data, np.uint8, 8192, at), bitorder="little")
        return np.flatnonzero(bits).astype(np.int64), at + 8192
    return np.frombuffer(data, "<u2", cardinality, at).astype(np.int64), at + 2 * cardinality
