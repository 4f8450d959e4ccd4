"""File access for driver and executors: one pyarrow filesystem per location, with timeouts and retries set.

Locations are complete paths as the catalog stores them: a plain local path, `file://`, `s3://`, `gs://` (or `gcs://`)
or `az://` (or `abfss://`). What is after the scheme is taken literally; nothing is percent-decoded, because DuckLake
stores percent signs of hive-style directories as they are.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
_DEFAULT_CONNECT_TIMEOUT: Final = 5.0
_DEFAULT_REQUEST_TIMEOUT: Final = 30.0
_DEFAULT_ATTEMPTS: Final = 8


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
    """

    filesystem: fs.FileSystem
    prefix: str

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
        """Remove a file; False when it was gone already."""
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
    return Storage(_remote(kind, tuple(sorted(given.items()))), f"{scheme}://")


def filesystem(path: str, options: Mapping[str, str] | None = None) -> tuple[fs.FileSystem, str]:
    """The pyarrow filesystem that holds `path`, and the path as that filesystem spells it.

    Raises:
        ConfigurationError: As `storage_for`.
    """
    storage = storage_for(path, options)
    return storage.filesystem, storage.inner(path)


def storage_error(error: OSError, path: str) -> LakeError:
    """Our error for a failed file operation under `path`: transient unless the operating system says otherwise.

    Object-store clients report everything but "not found" and "denied" without an error number, after having retried.
    """
    reason = os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]
    if isinstance(error, FileNotFoundError):
        return LakeHistoryExpiredError(
            f"the file {path} of a planned snapshot is gone",
            hint="Its snapshot was expired meanwhile, or files were moved: plan again.",
        )
    if error.errno in _NO_SPACE:
        return LakeError(f"no space is left for files under {path}", hint="Free space, then refresh again.")
    if isinstance(error, PermissionError) or error.errno in _DENIED:
        return LakeError(f"access to files under {path} is denied ({reason})", hint="Check owner, mode or credentials.")
    return StorageUnavailableError(f"the storage under {path} failed: {reason}", hint="It is tried again.")


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
        return _s3(given)
    if kind == "gs":
        scheme, host = _endpoint(given)
        return fs.GcsFileSystem(anonymous=given.get("anonymous") == "true", endpoint_override=host, scheme=scheme)
    if "account_name" not in given:
        raise ConfigurationError("Azure storage needs the storage option account_name")
    return fs.AzureFileSystem(account_name=given["account_name"], account_key=given.get("account_key"))


def _s3(given: Mapping[str, str]) -> fs.FileSystem:
    scheme, host = _endpoint(given)
    if host:
        # Most servers that are not AWS refuse the checksums that the SDK otherwise adds to every upload.
        os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        os.environ.setdefault("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
    return fs.S3FileSystem(
        access_key=given.get("access_key_id"),
        secret_key=given.get("secret_access_key"),
        session_token=given.get("session_token"),
        anonymous=given.get("anonymous") == "true",
        region=given.get("region") or ("us-east-1" if host else None),
        endpoint_override=host,
        scheme=scheme,
        connect_timeout=_number(given, "connect_timeout", _DEFAULT_CONNECT_TIMEOUT),
        request_timeout=_number(given, "request_timeout", _DEFAULT_REQUEST_TIMEOUT),
        retry_strategy=fs.AwsStandardS3RetryStrategy(
            max_attempts=int(_number(given, "max_attempts", _DEFAULT_ATTEMPTS))
        ),
    )


def _endpoint(given: Mapping[str, str]) -> tuple[str, str | None]:
    """Scheme and `host:port` of the configured server; no host means the provider's own."""
    scheme, separator, host = given.get("endpoint", "").rstrip("/").partition("://")
    if separator:
        return scheme, host
    return ("http" if given.get("use_ssl") == "false" else "https"), scheme or None


def _number(given: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(given.get(name, default))
    except ValueError:
        raise ConfigurationError(f"storage option {name} is not a number: {given[name]!r}") from None
