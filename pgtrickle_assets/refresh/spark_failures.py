"""Failures of Spark jobs, told by type, error condition and SQLSTATE: those that can pass, and those of the data."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pgtrickle_assets.errors import PgTrickleError, QueryDataError, SparkUnavailableError, StorageUnavailableError
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

_LOG: Final = logging.getLogger(__name__)

_FILE_NOT_READ: Final = "FAILED_READ_FILE"
"""Error condition of Spark's own readers, with subconditions."""

_DATA_EXCEPTION: Final = "22"
_CARDINALITY_VIOLATION: Final = "21"
"""Classes of SQLSTATE."""

_OUT_OF_RANGE: Final = "a number is out of the range of its type"
_BAD_CAST: Final = "a value cannot be cast"
_WORDS: Final = {
    "ARITHMETIC_OVERFLOW": _OUT_OF_RANGE,
    "BINARY_ARITHMETIC_OVERFLOW": _OUT_OF_RANGE,
    "CAST_OVERFLOW": _OUT_OF_RANGE,
    "NUMERIC_VALUE_OUT_OF_RANGE": _OUT_OF_RANGE,
    "DIVIDE_BY_ZERO": "division by zero",
    "REMAINDER_BY_ZERO": "division by zero",
    "CAST_INVALID_INPUT": _BAD_CAST,
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": "a subquery gives more than one row",
}
"""What error conditions mean; Spark's own texts advise settings that would give other numbers."""


@contextmanager
def spark_failures(name: TableName) -> Iterator[None]:
    """Turns failures of the block's Spark jobs into our errors where they have a known cause.

    Our own code on executors does nothing but read and write files, so what it raises there is taken for a failure of
    the storage; retries are limited, should it be something else.

    Args:
        name: The table that is computed or written.

    Raises:
        StorageUnavailableError: A file could not be read.
        SparkUnavailableError: Spark is gone, or does not answer.
        QueryDataError: The query has no answer for the rows that it reads.
    """
    try:
        yield
    except Exception as error:
        # Not imported before: most refreshes of little data need no Spark.
        known = _known(error, name) if "pyspark" in sys.modules else None
        if known is None:
            raise
        raise known from error


@contextmanager
def cleanup_failures_logged() -> Iterator[None]:
    """Lets a Spark that cannot clean up after a refresh pass: what it keeps goes with its session."""
    try:
        yield
    except Exception as error:
        if "pyspark" not in sys.modules or not _is_of_spark(error):
            raise
        _LOG.warning("Spark could not let go of the views of a refresh: %s", type(error).__name__)


def _is_of_spark(error: Exception) -> bool:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError)


def _known(error: Exception, name: TableName) -> PgTrickleError | None:
    from pyspark.errors import PySparkException, PythonException

    if _is_gone(error):
        return SparkUnavailableError(
            f"Spark went away, or did not answer, while it computed {name}",
            hint="It is tried again. When that happens often, give it more memory (PGTRICKLE_SPARK_DRIVER_MEMORY).",
        )
    if not isinstance(error, PySparkException):
        return None
    condition = error.getCondition() or ""
    if condition.partition(".")[0] == _FILE_NOT_READ or isinstance(error, PythonException):
        return StorageUnavailableError(
            f"a Spark task could not read files of the lake ({condition or type(error).__name__})",
            hint="It is tried again; the cause is in Spark's log.",
        )
    return _of_the_data(error, condition, name)


def _is_gone(error: Exception) -> bool:
    """Whether the JVM or the Spark Connect server could not be reached."""
    from py4j.protocol import Py4JNetworkError

    if isinstance(error, Py4JNetworkError):
        return True
    if "pyspark.errors.exceptions.connect" not in sys.modules:
        return False
    from grpc import StatusCode
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    return isinstance(error, SparkConnectGrpcException) and error.getGrpcStatusCode() is StatusCode.UNAVAILABLE


def _of_the_data(error: PySparkException, condition: str, name: TableName) -> QueryDataError | None:
    state = error.getSqlState() or ""
    words = _WORDS.get(condition.partition(".")[0])
    if condition == "USER_RAISED_EXCEPTION":
        # What the SQL made from a query raises, in PostgreSQL's words.
        words = (error.getMessageParameters() or {}).get("errorMessage")
    if words is None and not state.startswith((_DATA_EXCEPTION, _CARDINALITY_VIOLATION)):
        return None
    return QueryDataError(
        f"the query of {name} fails on the rows that it reads: {words or condition}.",
        hint="Correct the rows in the source, or let the query treat them, such as with NULLIF, CASE or a wider type.",
    )
