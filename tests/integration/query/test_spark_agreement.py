"""The same corpus on Spark. One session runs it all; a failing file names each query that differs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.query.engines import CORPUS, corpus, multiset, planned, postgres_answer, rendered
from tests.integration.query.spark_side import spark_rows, spark_views

NAMES = sorted(path.stem for path in CORPUS.glob("*.sql"))
SAMPLE = 6
"""Every so many queries of a file run in the quick suite; all of them in the nightly one."""


def _differences(spark: Any, postgres: Any, queries: list[str]) -> list[str]:
    found: list[str] = []
    for sql in queries:
        plan = planned(sql)
        expected = postgres_answer(postgres, sql, plan)
        actual = multiset(spark_rows(spark, rendered(plan, "spark"), plan), plan)
        if actual != expected:
            found.append(f"{sql}\n  missing {expected - actual}\n  surplus {actual - expected}")
    return found


@pytest.fixture(scope="module")
def small_spark(spark: Any, sample_tables: dict[str, Any]) -> Any:
    """The shared session with the sample tables, set up for tiny inputs."""
    settings = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
    }
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    spark_views(spark, sample_tables)
    yield spark
    for key, value in before.items():
        spark.conf.set(key, value)
    for name in sample_tables:
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize("name", NAMES)
def test_spark_gives_what_postgres_gives(small_spark: Any, sample_postgres: Any, name: str) -> None:
    assert not _differences(small_spark, sample_postgres, corpus(name)[::SAMPLE])


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_spark_gives_what_postgres_gives_for_all(small_spark: Any, sample_postgres: Any, name: str) -> None:
    assert not _differences(small_spark, sample_postgres, corpus(name))
