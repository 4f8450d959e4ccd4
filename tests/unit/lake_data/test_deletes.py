from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.deletes import deleted_positions
from pgtrickle_assets.lake.model import DataFile, FileDeletes
from pgtrickle_assets.lake.storage import storage_for


def file_with(path, kind="parquet", inline=(), upto=None):
    deletes = FileDeletes(1, str(path), kind, 0, 1, None, upto)
    return DataFile(1, "/f", 100, 1, 0, 1, None, None, None, deletes=deletes, inline_deletes=frozenset(inline))


def positions(file):
    return deleted_positions(storage_for("/"), file).tolist()


def test_file_and_inlined_deletes_come_together_sorted(tmp_path):
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"file_path": ["x", "x"], "pos": [3, 9]}), path)
    assert positions(file_with(path, inline={5, 9, 1})) == [1, 3, 5, 9]


def test_rows_after_the_read_snapshot_do_not_count(tmp_path):
    path = tmp_path / "d.parquet"
    snapshots = pa.array([4, 7], pa.int64())
    pq.write_table(
        pa.table({"file_path": ["x", "x"], "pos": [3, 9], "_ducklake_internal_snapshot_id": snapshots}), path
    )
    assert positions(file_with(path)) == [3, 9]
    assert positions(file_with(path, upto=6)) == [3]


def _run(start, length):
    return struct.pack("<HHH", 1, start, length - 1)


def _puffin(bitmaps):
    body = b"\xd1\xd3\x39\x64" + struct.pack("<Q", len(bitmaps))
    body += b"".join(struct.pack("<I", high) + bitmap for high, bitmap in bitmaps)
    return struct.pack(">I", len(body)) + body + b"\0\0\0\0"


def test_a_deletion_vector_of_all_container_kinds_is_read(tmp_path):
    array = np.array([1, 5, 65535], dtype="<u2")
    bits = np.zeros(65536, dtype=np.uint8)
    bits[::13] = 1
    plain = struct.pack("<IIHHHHII", 12346, 2, 0, len(array) - 1, 2, int(bits.sum()) - 1, 24, 30)
    plain += array.tobytes() + np.packbits(bits, bitorder="little").tobytes()
    runs = struct.pack("<I", 12347 | (0 << 16)) + b"\x01" + struct.pack("<HH", 0, 9) + _run(100, 10)
    path = tmp_path / "d.puffin"
    path.write_bytes(_puffin([(0, plain), (1, runs)]))
    expected = [1, 5, 65535, *(2 * 65536 + np.flatnonzero(bits)), *range(2**32 + 100, 2**32 + 110)]
    assert positions(file_with(path, "puffin")) == [int(value) for value in expected]


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(LakeError, match="avro"):
        positions(file_with(tmp_path / "x", "avro"))
