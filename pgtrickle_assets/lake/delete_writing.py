"""Delete files: which rows of a data file are gone, written as the official extension writes them.

The first delete of a data file is a two-column Parquet file. Every later one replaces it by a cumulative file whose
third column says in which snapshot each row was deleted; the old file's catalog row is removed and its path scheduled.
The ids in that column must be those of the snapshot that the commit finally gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.delete_facts import SNAPSHOT_ID_COLUMN, RowFacts
from pgtrickle_assets.lake.model import LakeTable, RowDeletes
from pgtrickle_assets.lake.storage import storage_errors, storage_for

if TYPE_CHECKING:
    import pyarrow as pa

_FIELD_IDS: Final = {"file_path": "2147483646", "pos": "2147483645", SNAPSHOT_ID_COLUMN: "2147483539"}
_MAGIC_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class WrittenDeletes:
    """A delete file that no snapshot names yet.

    `snapshot_id` is the snapshot that its contents are right for, or None when they are right for any.
    """

    path: str
    relative_path: str
    delete_count: int
    file_size_bytes: int
    footer_size: int
    begin_snapshot: int | None
    snapshot_id: int | None


def removes_all(deletes: RowDeletes) -> bool:
    """Whether nothing of the data file is left, so that the file ends instead of getting a delete file."""
    return deletes.file.live_rows == len(deletes.positions)


def check_positions(deletes: RowDeletes) -> None:
    """Positions must be in the file, once each.

    Raises:
        LakeError: They aren't; the plan is wrong.
    """
    positions = deletes.positions
    if len(set(positions)) != len(positions):
        raise LakeError(f"the plan deletes a row of {deletes.file.path} twice")
    if positions and not (min(positions) >= 0 and max(positions) < deletes.file.record_count):
        raise LakeError(f"the plan deletes rows that {deletes.file.path} does not have")
    if deletes.file.inline_deletes.intersection(positions):
        raise LakeError(f"the plan deletes rows of {deletes.file.path} that are deleted already")


def write_deletes(
    table: LakeTable,
    deletes: RowDeletes,
    *,
    snapshot_id: int,
    prefix: str,
    facts: RowFacts,
    options: Mapping[str, str],
) -> WrittenDeletes:
    """Write the delete file that holds the file's earlier deletes and the new ones.

    Raises:
        LakeError: A position is deleted already, or the earlier file can't be read.
    """
    import numpy as np

    positions = np.sort(np.asarray(deletes.positions, dtype=np.int64))
    old = deletes.file.deletes
    begin: int | None = None
    snapshots = None
    if old is not None:
        before, ids = facts.deletes(old.id, old.path, old.format)
        ids = np.full(len(before), old.begin_snapshot, dtype=np.int64) if ids is None else ids
        if np.isin(positions, before).any():
            raise LakeError(f"the plan deletes rows of {deletes.file.path} that are deleted already")
        begin = int(ids.min()) if len(ids) else old.begin_snapshot
        merged = np.concatenate([before, positions])
        order = np.argsort(merged, kind="stable")
        positions = merged[order]
        snapshots = np.concatenate([ids, np.full(len(deletes.positions), snapshot_id, dtype=np.int64)])[order]
    relative = f"{prefix}{uuid4().hex}-delete.parquet"
    content = _as_table(deletes.file.path, positions, snapshots)
    size, footer = _write(table.path + relative, content, options)
    return WrittenDeletes(
        table.path + relative, relative, len(positions), size, footer, begin, None if old is None else snapshot_id
    )


def _as_table(data_file: str, positions: object, snapshots: object | None) -> pa.Table:
    import pyarrow as pa

    columns = {"pos": positions} if snapshots is None else {"pos": positions, SNAPSHOT_ID_COLUMN: snapshots}
    arrays: dict[str, pa.Array] = {name: pa.array(values, pa.int64()) for name, values in columns.items()}
    paths = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), len(arrays["pos"])), [data_file])
    arrays = {"file_path": paths.cast(pa.string()), **arrays}
    fields = [
        pa.field(name, array.type, metadata={b"PARQUET:field_id": _FIELD_IDS[name].encode()})
        for name, array in arrays.items()
    ]
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def _write(path: str, content: pa.Table, options: Mapping[str, str]) -> tuple[int, int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(content, sink, compression="zstd", store_schema=False)
    data = sink.getvalue().to_pybytes()
    storage = storage_for(path, options)
    with storage_errors(path, options):
        with storage.open_output(path) as stream:
            stream.write(data)
        storage.make_durable(path)
    return len(data), int.from_bytes(data[-_MAGIC_BYTES:-4], "little")
