"""A query whose result moves with the time is recomputed although no source changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING

from tests.e2e.lakehouse import lakehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {
    "st.overdue": "SELECT count(*) AS n FROM tasks WHERE due < now()",
    "st.all": "SELECT count(*) AS n FROM tasks",
}
SETUP = (
    "CREATE TABLE tasks (id integer PRIMARY KEY, due timestamptz)",
    "INSERT INTO tasks VALUES (1, now() - interval '1 day'), (2, now() + interval '1 day')",
)


def test_a_refresh_without_changes_recomputes_what_moves_with_time_and_nothing_else(
    new_database: Callable[[], str], tmp_path: Path, spark: SparkSession
) -> None:
    with lakehouse(new_database, tmp_path, spark, TABLES, SETUP) as system:
        system.execute("INSERT INTO tasks VALUES (3, now() + interval '1 second')")
        system.refresh()
        sleep(2.0)
        done = {name: (result.strategy.value, result.reason_code) for name, result in system.refresh().items()}
        assert done == {"st.overdue": ("full", "stable_function"), "st.all": ("no_change", "inputs_unchanged")}
        assert system.lake_rows("st.overdue") == {(2,): 1}
        assert system.lake_rows("st.all") == {(3,): 1}
