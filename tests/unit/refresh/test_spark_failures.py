"""Which failures of Spark jobs may pass."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PythonException, SparkRuntimeException

from pgtrickle_assets.errors import LakeError, StorageUnavailableError, TransientError
from pgtrickle_assets.refresh.spark_failures import spark_failures


class _UnreadFile(SparkRuntimeException):
    """As Spark raises it; its own constructor needs a template that only the JVM has."""

    def getCondition(self):  # noqa: N802 (Spark's name)
        return "FAILED_READ_FILE.NO_HINT"


@pytest.mark.parametrize("error", [PythonException("Traceback ..."), _UnreadFile("x")])
def test_a_task_that_could_not_read_is_tried_again(error):
    with pytest.raises(StorageUnavailableError) as caught, spark_failures():
        raise error
    assert isinstance(caught.value, TransientError)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [AnalysisException("no such column"), LakeError("refused"), ValueError("bug")])
def test_anything_else_stays_what_it_is(error):
    with pytest.raises(type(error)) as caught, spark_failures():
        raise error
    assert caught.value is error
