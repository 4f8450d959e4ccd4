"""File access for driver and executors: one pyarrow filesystem per location, with timeouts and retries set.

Locations are complete paths as the catalog stores them: a plain local path, `file://`, `s3://`, `gs://` (or `gcs://`)
or `az://` (or `abfss://`). What is after the scheme is taken literally; nothing is percent-decoded, because DuckLake
stores percent signs of hive-style directories as they are.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import fs

from pgtrickle_assets.errors import (
    ConfigurationError,
    LakeError,
    LakeHistoryExpiredError,
    StorageUnavailableError,
)
from pgtrickle_assets.lake import s3

STORAGE_OPTIONS: Final = frozenset(
    {
        "endpoint", "region", "access_key_id", "secret_access_key", "session_token", "use_ssl", "url_style",
        "anonymous", "account_name", "account_key", "connect_timeout", "request_timeout", "max_attempts",
        "spark_reader",
    }
)  # fmt: skip
"""Keys a `storage_options` mapping may have; all values are text.

`endpoint` is a URL or `host:port`, then `use_ssl` (`true`/`false`) says which; `url_style` is for DuckDB;
`spark_reader` is `auto`, `native` (Hadoop's file system jars are on Spark's class path) or `arrow` (executors read
through pyarrow).
"""

_SCHEMES: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az", "abfss": "az"}
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
_DENIED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file found by `Storage.files`: complete path, size in bytes, time of the last change (UTC)."""

    path: str
    size: int
    modified: datetime | None


@dataclass(frozen=True, slots=True)
class Storage:
    """Access to the files of one location; cheap to make again from its two arguments, so it is never pickled itself.

    Attributes:
        filesystem: The pyarrow filesystem.
        prefix: What stands before the filesystem's own paths, `""` or a scheme such as `s3://`.
        options: The options it was made with, sorted. Secret.
    """

    filesystem: fs.FileSystem
    prefix: str
    options: s3.Options = field(default=(), repr=False)

    @property
    def is_local(self) -> bool:
        """Whether the files are on a disk of this machine (or mounted like one)."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def inner(self, path: str) -> str:
        """`path` as the filesystem wants it: without scheme."""
        return path.partition("://")[2] if "://" in path else path

    def open_input(self, path: str) -> pa.NativeFile:
        """Open for random access; FileNotFoundError when the file is gone."""
        return self.filesystem.open_input_file(self.inner(path))

    def open_output(self, path: str) -> pa.NativeFile:
        """Open for writing; a directory that is missing on a local disk is made."""
        inner = self.inner(path)
        if self.is_local:
            Path(inner).parent.mkdir(parents=True, exist_ok=True)
        return self.filesystem.open_output_stream(inner)

    def make_durable(self, path: str) -> None:
        """Put a local file and its directory entry on disk for good; object stores do so by themselves."""
        if not self.is_local:
            return
        file = Path(self.inner(path))
        for entry, flags in ((file, os.O_RDONLY), (file.parent, os.O_RDONLY | os.O_DIRECTORY)):
            descriptor = os.open(entry, flags)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def size(self, path: str) -> int:
        """Bytes of the file; FileNotFoundError when it is not there."""
        info = self.filesystem.get_file_info(self.inner(path))
        if info.type != fs.FileType.File:
            raise FileNotFoundError(path)
        return int(info.size)

    def exists(self, path: str) -> bool:
        """Whether there is a file at `path`."""
        return self.filesystem.get_file_info(self.inner(path)).type == fs.FileType.File

    def delete(self, path: str) -> bool:
        """Remove a file; False when it was seen to be gone already."""
        if isinstance(self.filesystem, fs.S3FileSystem):
            s3.delete(self.inner(path), self.options)
            return True
        try:
            self.filesystem.delete_file(self.inner(path))
        except FileNotFoundError:
            return False
        return True

    def files(self, path: str) -> Iterator[StoredFile]:
        """All files under a directory, at any depth; none when the directory does not exist."""
        selector = fs.FileSelector(self.inner(path), recursive=True, allow_not_found=True)
        for info in self.filesystem.get_file_info(selector):
            if info.type == fs.FileType.File:
                yield StoredFile(f"{self.prefix}{info.path}", int(info.size), info.mtime)


def storage_for(path: str, options: Mapping[str, str] | None = None) -> Storage:
    """The storage that holds `path`.

    Args:
        path: A complete path or data path of a lake.
        options: See `STORAGE_OPTIONS`; what is left out comes from the environment, as the object store's SDK reads it.

    Raises:
        ConfigurationError: Unknown scheme, unknown option, or an option that is not a number where one is needed.
    """
    given = dict(options or {})
    unknown = sorted(given.keys() - STORAGE_OPTIONS)
    if unknown:
        raise ConfigurationError(
            f"unknown storage option {unknown[0]!r}", hint=f"Known options: {', '.join(sorted(STORAGE_OPTIONS))}."
        )
    scheme, separator, _ = path.partition("://")
    if not separator or scheme == "file":
        return Storage(_local(), f"{scheme}://" if separator else "")
    kind = _SCHEMES.get(scheme)
    if kind is None:
        raise ConfigurationError(
            f"no storage for scheme {scheme!r} of {path!r}", hint="Use a local path, s3://, gs:// or az://."
        )
    items = tuple(sorted(given.items()))
    return Storage(_remote(kind, items), f"{scheme}://", items)


def filesystem(path: str, options: Mapping[str, str] | None = None) -> tuple[fs.FileSystem, str]:
    """The pyarrow filesystem that holds `path`, and the path as that filesystem spells it.

    Raises:
        ConfigurationError: As `storage_for`.
    """
    storage = storage_for(path, options)
    return storage.filesystem, storage.inner(path)


def storage_error(error: OSError, path: str, options: Mapping[str, str] | None = None) -> LakeError:
    """Our error for a failed file operation under `path`: transient unless the system or the server says otherwise.

    Object-store clients report everything but "not found" without an error number, after having retried; S3 is then
    asked about the bucket.
    """
    reason = os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]
    if isinstance(error, FileNotFoundError):
        return LakeHistoryExpiredError(
            f"the file {path} of a planned snapshot is gone",
            hint="Its snapshot was expired meanwhile, or files were moved: plan again.",
        )
    if error.errno in _NO_SPACE:
        return LakeError(f"no space is left for files under {path}", hint="Free space, then refresh again.")
    verdict = "unknown" if error.errno else _diagnosis(path, options)
    if isinstance(error, PermissionError) or error.errno in _DENIED or verdict == "denied":
        return LakeError(f"access to files under {path} is denied ({reason})", hint="Check owner, mode or credentials.")
    if verdict == "missing":
        return LakeError(f"the bucket of {path} does not exist", hint="Create it, or correct the lake's data_path.")
    return StorageUnavailableError(f"the storage under {path} failed: {reason}", hint="It is tried again.")


@contextmanager
def storage_errors(path: str, options: Mapping[str, str] | None) -> Iterator[None]:
    """Turns failed file operations of the block into our errors; see `storage_error`."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path, options) from error


def _diagnosis(path: str, options: Mapping[str, str] | None) -> str:
    scheme, separator, inner = path.partition("://")
    if not separator or _SCHEMES.get(scheme) != "s3":
        return "unknown"
    return s3.diagnosis(inner, tuple(sorted((options or {}).items())))


def reads_natively(path: str, options: Mapping[str, str] | None = None) -> bool:
    """Whether Spark's own Parquet reader opens `path`: on a local disk, elsewhere if told that Hadoop's jars are there.

    Raises:
        ConfigurationError: The option `spark_reader` has a value that does not exist.
    """
    choice = (options or {}).get("spark_reader", "auto")
    if choice not in ("auto", "native", "arrow"):
        raise ConfigurationError(f"storage option spark_reader is {choice!r}", hint="Use auto, native or arrow.")
    if choice == "auto":
        return "://" not in path or path.startswith("file://")
    return choice == "native"


def spark_options(path: str, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """What Spark's own reader must be told to open `path`; holds secrets, so it goes with the read and nowhere else."""
    scheme, separator, _ = path.partition("://")
    return s3.s3a_options(options or {}) if separator and _SCHEMES.get(scheme) == "s3" else {}


def spark_path(path: str, options: Mapping[str, str] | None = None) -> str:
    """`path` as Hadoop's file systems spell it: `s3a://`, `gs://`, `abfss://container@account...`, `file://`."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return f"file://{path}"
    kind = _SCHEMES.get(scheme, scheme)
    if kind == "s3":
        return f"s3a://{rest}"
    if kind == "gs":
        return f"gs://{rest}"
    account = (options or {}).get("account_name")
    if kind == "az" and account and "@" not in rest:
        container, _, key = rest.partition("/")
        return f"abfss://{container}@{account}.dfs.core.windows.net/{key}"
    return path


@lru_cache(maxsize=1)
def _local() -> fs.LocalFileSystem:
    # Memory maps make a small column read of a big file cost what it touches.
    return fs.LocalFileSystem(use_mmap=True)


@lru_cache(maxsize=16)
def _remote(kind: str, options: tuple[tuple[str, str], ...]) -> fs.FileSystem:
    given = dict(options)
    if kind == "s3":
        return s3.filesystem(options)
    if kind == "gs":
        scheme, host = s3.endpoint_of(given)
        return fs.GcsFileSystem(anonymous=given.get("anonymous") == "true", endpoint_override=host, scheme=scheme)
    if "account_name" not in given:
        raise ConfigurationError("Azure storage needs the storage option account_name")
    return fs.AzureFileSystem(account_name=given["account_name"], account_key=given.get("account_key"))
