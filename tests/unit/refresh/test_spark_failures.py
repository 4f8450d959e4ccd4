"""Which failures of Spark jobs may pass, and which are the data's."""

from __future__ import annotations

import pytest
from grpc import StatusCode
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, PythonException, SparkRuntimeException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from pgtrickle_assets.errors import (
    LakeError,
    QueryDataError,
    SparkUnavailableError,
    StorageUnavailableError,
    TransientError,
)
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh.spark_failures import cleanup_failures_logged, spark_failures

NAME = TableName("gold", "shares")


class _UnreadFile(SparkRuntimeException):
    """As Spark raises it; its own constructor needs a template that only the JVM has."""

    def getCondition(self):  # noqa: N802 (Spark's name)
        return "FAILED_READ_FILE.NO_HINT"


@pytest.mark.parametrize("error", [PythonException("Traceback ..."), _UnreadFile("x")])
def test_a_task_that_could_not_read_is_tried_again(error):
    with pytest.raises(StorageUnavailableError) as caught, spark_failures(NAME):
        raise error
    assert isinstance(caught.value, TransientError)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        SparkConnectGrpcException("connection reset", grpc_status_code=StatusCode.UNAVAILABLE),
        Py4JNetworkError("answer from Java side is empty"),
    ],
)
def test_a_spark_that_went_away_is_told_in_words_and_tried_again(error):
    with pytest.raises(SparkUnavailableError, match=r"Spark went away.* gold\.shares") as caught, spark_failures(NAME):
        raise error
    assert isinstance(caught.value, TransientError)


def test_what_spark_cannot_clean_up_undoes_no_refresh(caplog):
    with cleanup_failures_logged():
        raise SparkConnectGrpcException("gone", grpc_status_code=StatusCode.UNAVAILABLE)
    assert "could not let go" in caplog.text
    with pytest.raises(ValueError, match="bug"), cleanup_failures_logged():
        raise ValueError("bug")


@pytest.mark.parametrize("error", [AnalysisException("no such column"), LakeError("refused"), ValueError("bug")])
def test_anything_else_stays_what_it_is(error):
    with pytest.raises(type(error)) as caught, spark_failures(NAME):
        raise error
    assert caught.value is error


class _OfTheData(SparkRuntimeException):
    def __init__(self, condition, state, text=None):
        super().__init__("x")
        self.facts = condition, state, text

    def getCondition(self):  # noqa: N802 (Spark's name)
        return self.facts[0]

    def getSqlState(self):  # noqa: N802 (Spark's name)
        return self.facts[1]

    def getMessageParameters(self):  # noqa: N802 (Spark's name)
        return {"errorMessage": self.facts[2]}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (_OfTheData("DIVIDE_BY_ZERO", "22012"), "division by zero"),
        (_OfTheData("NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION", "22003"), "a number is out of the range of its type"),
        (_OfTheData("SCALAR_SUBQUERY_TOO_MANY_ROWS", "21000"), "a subquery gives more than one row"),
        (_OfTheData("USER_RAISED_EXCEPTION", "P0001", "value too long"), "value too long"),
        (_OfTheData("SOMETHING_NEW", "22999"), "SOMETHING_NEW"),
    ],
)
def test_what_the_rows_do_not_allow_is_said_without_advice_to_change_spark(error, words):
    with pytest.raises(QueryDataError) as caught, spark_failures(NAME):
        raise error
    assert str(caught.value).startswith(f"the query of gold.shares fails on the rows that it reads: {words}. ")
    assert "spark." not in str(caught.value)
    assert not isinstance(caught.value, TransientError)
