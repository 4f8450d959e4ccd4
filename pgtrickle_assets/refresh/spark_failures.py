"""Failures of Spark jobs that can pass, told by their type and error condition."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pgtrickle_assets.errors import StorageUnavailableError

_FILE_NOT_READ = "FAILED_READ_FILE"
"""Error condition of Spark's own readers, with subconditions."""


@contextmanager
def spark_failures() -> Iterator[None]:
    """Turns failures of the block's Spark jobs to read the lake's files into our error.

    Our own code on executors does nothing but read and write files, so what it raises there is taken for a failure of
    the storage; retries are limited, should it be something else.

    Raises:
        StorageUnavailableError: A file could not be read.
    """
    try:
        yield
    except Exception as error:
        # Not imported before: most refreshes of little data need no Spark.
        if "pyspark" in sys.modules and (what := _reading_failed(error)):
            raise StorageUnavailableError(
                f"a Spark task could not read files of the lake ({what})",
                hint="It is tried again; the cause is in Spark's log.",
            ) from error
        raise


def _reading_failed(error: Exception) -> str | None:
    """Name of a failure of a task to read, or None when it is something else."""
    from pyspark.errors import PySparkException, PythonException

    if not isinstance(error, PySparkException):
        return None
    condition = error.getCondition() or ""
    if condition.partition(".")[0] == _FILE_NOT_READ:
        return condition
    return type(error).__name__ if isinstance(error, PythonException) else None
