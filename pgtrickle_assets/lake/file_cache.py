"""What is read of data files, kept for the next search: a data file never changes.

A search by a key that the files are not sorted by reads columns of the whole table, refresh after refresh. So columns
of large row groups stay on the local disk as Arrow files, which are mapped into memory: what a search does not look at
is not read, and nothing is decoded twice. Small ones are kept for as long as a refresh takes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import time
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pgtrickle_assets.lake.deletes import Positions, deleted_positions
from pgtrickle_assets.lake.model import DataFile, LakeColumn
from pgtrickle_assets.lake.storage import Storage

LARGE_ROWS: Final = 8192
"""Files and row groups with fewer rows are read whole, and their columns are not worth files of their own."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_ABANDONED_SECONDS: Final = 3600.0
_SUFFIX: Final = ".arrow"
_MAPPED: Final = 4096


@dataclass
class ColumnFiles:
    """Columns on the local disk, for all processes with the same home; those that were not used for longest go first.

    Whatever goes wrong with them only costs another read of the data file. A power failure may leave a file without its
    content, so those of an earlier start of the machine are not used.

    Attributes:
        folder: Where they are; everything in it may be removed at any time.
        limit: Bytes that they may take.
    """

    folder: Path
    limit: int
    _used: int | None = None
    """Bytes that the files take, as far as this process knows; None before it wrote one."""
    _mapped: dict[str, pa.ChunkedArray] = field(default_factory=dict[str, pa.ChunkedArray])
    """Columns that this process read last: opening a file takes longer than looking through what it holds."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, key: str) -> pa.ChunkedArray | None:
        """The column stored under a key, mapped into memory."""
        path = self._own / f"{key}{_SUFFIX}"
        found = self._mapped.pop(key, None)
        try:
            if found is None:
                # Mapped for as long as something of the column is in use.
                found = pa.ipc.open_file(pa.memory_map(str(path))).read_all().column(0)
            os.utime(path)
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException, IndexError):
            _remove(path)
            return None
        with self._lock:
            self._mapped[key] = found
            if len(self._mapped) > _MAPPED:
                del self._mapped[next(iter(self._mapped))]
        return found

    def write(self, key: str, column: pa.ChunkedArray) -> None:
        """Store a column; not where the disk is nearly full, and not when that fails."""
        part = self._own / f".{key}.{os.getpid()}.{threading.get_ident()}"
        try:
            if not self._room(column.nbytes):
                return
            table = pa.table({"column": column})
            with pa.OSFile(str(part), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            if self._own == self.folder:
                with part.open("rb") as written:
                    os.fsync(written.fileno())
            part.replace(self._own / f"{key}{_SUFFIX}")
        except (OSError, pa.ArrowException):
            _remove(part)

    @cached_property
    def _own(self) -> Path:
        """The folder for this start of the machine; the folder itself where that cannot be told."""
        with suppress(OSError):
            folder = self.folder / _BOOT_ID.read_text("ascii").strip()
            for other in self.folder.iterdir() if self.folder.exists() else ():
                # One in use may be of another machine with the same home.
                if other != folder and other.stat().st_mtime < time() - _ABANDONED_SECONDS:
                    shutil.rmtree(other, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return folder
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self.folder

    def _room(self, size: int) -> bool:
        """Whether a column of so many bytes may be stored; makes place for it."""
        if size > self.limit // 8:
            return False
        disk = shutil.disk_usage(self._own)
        if disk.free - size < disk.total // 20:
            return False
        used = self._trimmed(self.limit) if self._used is None else self._used
        if used + size > self.limit:
            used = self._trimmed(self.limit * 3 // 4)
        self._used = used + size
        return True

    def _trimmed(self, limit: int) -> int:
        """Remove the files that were not used for longest until the others take no more than the limit."""
        found: list[tuple[float, int, str]] = []
        with os.scandir(self._own) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat()
                    if entry.name.endswith(_SUFFIX):
                        found.append((status.st_mtime, status.st_size, entry.path))
                    elif status.st_mtime < time() - _ABANDONED_SECONDS:
                        _remove(Path(entry.path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= limit:
                break
            _remove(Path(path))
            total -= size
        return total


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


@dataclass(slots=True)
class FileCache:
    """What one refresh read of data files.

    Attributes:
        limit: Bytes of rows and columns kept in memory at most; what comes later is read anew each time.
        files: Keeps large columns for other refreshes.
    """

    limit: int
    files: ColumnFiles | None = None
    _metadata: dict[str, pq.FileMetaData] = field(default_factory=dict[str, pq.FileMetaData])
    _deleted: dict[object, Positions] = field(default_factory=dict[object, Positions])
    _columns: dict[tuple[str, int, str, str], pa.ChunkedArray] = field(
        default_factory=dict[tuple[str, int, str, str], pa.ChunkedArray]
    )
    _rows: dict[object, pa.Table] = field(default_factory=dict[object, pa.Table])
    _bytes: int = 0

    def rows(self, file: DataFile, columns: tuple[LakeColumn, ...], read: Callable[[], pa.Table]) -> pa.Table:
        """Columns of all rows of a file that a reader sees; read when they are not known."""
        key = (file.id, file.deletes, file.inline_deletes, file.rows_after, file.rows_upto, columns)
        if key in self._rows:
            return self._rows[key]
        found = read()
        if self._bytes + found.nbytes <= self.limit:
            self._bytes += found.nbytes
            self._rows[key] = found
        return found

    def metadata(self, file: DataFile, read: Callable[[], pq.FileMetaData]) -> pq.FileMetaData:
        """The footer of a file; read when it is not known."""
        if file.path not in self._metadata:
            self._metadata[file.path] = read()
        return self._metadata[file.path]

    def deleted(self, storage: Storage, file: DataFile) -> Positions:
        """See `deleted_positions`."""
        key = (file.id, file.deletes, file.inline_deletes)
        if key not in self._deleted:
            self._deleted[key] = deleted_positions(storage, file)
        return self._deleted[key]

    def column(
        self, file: DataFile, group: int, rows: int, source: tuple[str, str], read: Callable[[], pa.ChunkedArray]
    ) -> pa.ChunkedArray:
        """One column of a row group.

        Args:
            file: The data file.
            group: Number of the row group.
            rows: Its number of rows.
            source: Name of the column in the file, and the type in which it is wanted.
            read: Reads it in that type.
        """
        key = (file.path, group, *source)
        if key in self._columns:
            return self._columns[key]
        files = self.files if rows >= LARGE_ROWS else None
        name = "" if files is None else _key(file, group, source)
        found = None if files is None else files.read(name)
        if found is not None and len(found) == rows:
            self._columns[key] = found
            return found
        found = read()
        if files is not None:
            files.write(name, found)
        if self._bytes + found.nbytes <= self.limit:
            self._bytes += found.nbytes
            self._columns[key] = found
        return found


def _key(file: DataFile, group: int, source: tuple[str, str]) -> str:
    parts = (file.path, str(file.file_size_bytes), str(group), *source)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]
