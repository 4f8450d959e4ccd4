"""What delete files and partial data files say about single rows: positions and the snapshot ids of rows.

Read only where counting rows exactly, or telling old deletes from new ones, needs it. Files never change, so facts are
kept by file id, the most recent few thousand of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.storage import filesystem, storage_error

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]

SNAPSHOT_ID_COLUMN: Final = "_ducklake_internal_snapshot_id"

_KEPT: Final = 4096
_THREADS: Final = 16

V = TypeVar("V")


class _Cache(Generic[V]):
    def __init__(self) -> None:
        self._values: OrderedDict[int, V] = OrderedDict()

    def get(self, key: int, load: Callable[[], V]) -> V:
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key]
        value = load()
        self.put(key, value)
        return value

    def has(self, key: int) -> bool:
        return key in self._values

    def put(self, key: int, value: V) -> None:
        self._values[key] = value
        while len(self._values) > _KEPT:
            self._values.popitem(last=False)


class RowFacts:
    """Reads and keeps positions and snapshot ids."""

    def __init__(self, storage_options: Mapping[str, str]) -> None:
        self._options = storage_options
        self._deletes: _Cache[tuple[Ids, Ids | None]] = _Cache()
        self._targets: _Cache[str] = _Cache()
        self._snapshots: _Cache[Ids] = _Cache()

    def deletes(self, delete_file_id: int, path: str, kind: str = "parquet") -> tuple[Ids, Ids | None]:
        """(positions, snapshot ids or None) of a Parquet delete file, in file order.

        Raises:
            LakeError: The file cannot be read, or is a deletion vector.
        """
        if kind != "parquet":
            raise LakeError(
                f"delete file {path} is a deletion vector ({kind}), which has no history of its rows",
                hint="Rewrite the table's files with ducklake_rewrite_data_files.",
            )
        return self._deletes.get(delete_file_id, lambda: self._read_deletes(path))

    def read_ahead(self, files: Sequence[tuple[int, str]]) -> None:
        """Read Parquet delete files, given by id and path, several at a time; those that fit into what is kept."""
        unknown = [file for file in files if not self._deletes.has(file[0])][:_KEPT]
        if len(unknown) < 2:
            return
        with ThreadPoolExecutor(min(_THREADS, len(unknown))) as pool:
            found = list(pool.map(lambda file: self._read_deletes(file[1]), unknown))
        for (file_id, _), facts in zip(unknown, found, strict=True):
            self._deletes.put(file_id, facts)

    def deleted_from(self, delete_file_id: int, path: str) -> str:
        """Name, without folders, of the data file that a Parquet delete file is for.

        Raises:
            LakeError: The file cannot be read.
        """
        return self._targets.get(delete_file_id, lambda: self._read_target(path))

    def row_snapshots(self, file_id: int, path: str) -> Ids:
        """Snapshot id of each row of a partial data file, by position.

        Raises:
            LakeError: The file cannot be read or lacks the column.
        """
        return self._snapshots.get(file_id, lambda: self._read(path, [SNAPSHOT_ID_COLUMN])[0])

    def _read_deletes(self, path: str) -> tuple[Ids, Ids | None]:
        columns = self._read(path, ["pos", SNAPSHOT_ID_COLUMN], optional=True)
        return columns[0], columns[1] if len(columns) > 1 else None

    def _read_target(self, path: str) -> str:
        (paths,) = self._read(path, ["file_path"])
        return str(paths[0]).rsplit("/", 1)[-1] if len(paths) else ""

    def _read(self, path: str, columns: list[str], *, optional: bool = False) -> list[NDArray[Any]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        files, inner = filesystem(path, self._options)
        try:
            with pq.ParquetFile(inner, filesystem=files) as parquet:
                names = parquet.schema_arrow.names
                wanted = [name for name in columns if name in names]
                if len(wanted) < (1 if optional else len(columns)):
                    raise LakeError(f"{path} lacks the column {columns[0]}")
                table = parquet.read(columns=wanted)
        except OSError as error:
            raise storage_error(error, path, self._options) from error
        except pa.ArrowException as error:
            raise LakeError(f"cannot read {path}: {error}") from error
        return [table.column(name).to_numpy() for name in wanted]
