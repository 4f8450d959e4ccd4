"""Which columns a data file really holds, by field id, where the catalog cannot tell.

A merged file keeps the column names of the time its rows were written, and so does the output of a rewrite although it
begins later. For such files of a table whose columns changed, the Parquet footer decides. Files never change, so what a
footer says is kept by file id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.storage import filesystem, storage_error

_THREADS: Final = 16
_FIELD_ID: Final = b"PARQUET:field_id"
_INTERNAL: Final = "_ducklake_internal_"


class FileColumns:
    """Top-level field ids and names of data files, read once per file."""

    def __init__(self, storage_options: Mapping[str, str]) -> None:
        self._options = storage_options
        self._known: dict[int, dict[int, str]] = {}

    def of(self, files: Sequence[tuple[int, str]]) -> dict[int, dict[int, str]]:
        """Name by field id, for each (file id, full path).

        Raises:
            LakeError: A file is gone, unreadable, or has columns without field ids.
        """
        unknown = [file for file in files if file[0] not in self._known]
        if unknown:
            with ThreadPoolExecutor(min(_THREADS, len(unknown))) as pool:
                found = pool.map(lambda file: self._read(file[1]), unknown)
                self._known.update(zip((file[0] for file in unknown), found, strict=True))
        return {file_id: self._known[file_id] for file_id, _ in files}

    def _read(self, path: str) -> dict[int, str]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        files, inner = filesystem(path, self._options)
        try:
            schema = pq.read_schema(inner, filesystem=files)
        except OSError as error:
            raise storage_error(error, path, self._options) from error
        except pa.ArrowException as error:
            raise LakeError(f"cannot read the footer of data file {path}: {error}") from error
        names: dict[int, str] = {}
        for column in schema:
            if column.name.startswith(_INTERNAL):
                continue
            field_id = (column.metadata or {}).get(_FIELD_ID)
            if field_id is None:
                raise LakeError(
                    f"data file {path} has columns without field ids, and its table's columns have changed since",
                    hint="Compact the table with DuckLake's own functions, or write it again.",
                )
            names[int(field_id)] = column.name
        return names
