"""`pgtrickle explain --analyze`: what it announces is what the next refresh does, and it leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle_assets.refresh.model import RefreshResult
from tests.e2e.lakehouse import Lakehouse, lakehouse

SETUP = (
    "CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10, 2))",
    "INSERT INTO orders SELECT i, i % 5, i FROM generate_series(1, 40) AS i",
    "CREATE TABLE customers (id int PRIMARY KEY, region text)",
    "INSERT INTO customers SELECT i, 'r' || i % 2 FROM generate_series(0, 4) AS i",
)
QUERY = """
SELECT c.region, count(*) AS n, avg(o.amount) AS a FROM orders o JOIN customers c ON c.id = o.customer GROUP BY 1
"""
NAME = "gold.by_region"


def _footprint(system: Lakehouse) -> list[Any]:
    """Everything that a refresh would leave: snapshots, history, deliveries and frontiers."""
    tables = ("pgt_refresh_history", "pgt_ducklake_sink_delivery", "pgt_frontiers", "pgt_partition_cuts")
    with psycopg.connect(system.location.catalog_dsn) as connection:
        rows = [connection.execute(f"SELECT * FROM pgtrickle.{table} ORDER BY 1").fetchall() for table in tables]
    files = sorted(path.name for path in Path(system.location.data_path).rglob("*.parquet"))
    return [system.engine.head(), *rows, files]


def _agrees(analysis: dict[str, Any], result: RefreshResult) -> None:
    (change,) = [item for item in analysis["changes"] if item["table"] == NAME]
    assert analysis["strategy"] == result.strategy.value
    assert (change["rows_inserted"], change["rows_deleted"]) == (result.rows_inserted, result.rows_deleted)
    assert analysis["rows_read"] == result.delta_in
    assert analysis["steps"][-1]["target"] == "result"
    assert analysis["steps"][-1]["rows"] == result.rows_inserted + result.rows_deleted
    assert all(step["seconds"] >= 0 for step in analysis["steps"])


@pytest.mark.parametrize("small_delta_rows", [0, 200_000])
def test_an_analysis_foretells_the_refresh_and_writes_nothing(
    new_database: Callable[[], str], tmp_path: Path, spark: object, small_delta_rows: int
) -> None:
    with lakehouse(new_database, tmp_path, spark, {NAME: QUERY}, SETUP, small_delta_rows=small_delta_rows) as system:
        system.refresh()
        system.execute("UPDATE orders SET amount = amount + 1 WHERE id < 4", "DELETE FROM orders WHERE customer = 2")
        assert system.engine.analyze(NAME)["analysis"]["source_changes_waiting"]
        system.engine.capture("test")
        before = _footprint(system)
        analysis = system.engine.analyze(NAME)["analysis"]
        assert _footprint(system) == before
        assert not analysis["source_changes_waiting"]
        _agrees(analysis, system.engine.refresh(NAME))
        system.check()
        operators = system.engine.explain(NAME)["operators"]
        rows = [(operators[item["number"]]["rule"], item["rows"]) for item in analysis["operators"]]
        # Orders 1, 2 and 3 are updated, and all eight orders of customer 2 go, one of which is among these.
        assert rows == [("linear", 4), ("group_by", 4), ("inner_join", 12), ("delta", 12), ("delta", 0)]


def test_an_analysis_before_the_first_fill_and_without_changes(
    new_database: Callable[[], str], tmp_path: Path, spark: object
) -> None:
    with lakehouse(new_database, tmp_path, spark, {NAME: QUERY}, SETUP) as system:
        system.engine.capture("test")
        analysis = system.engine.analyze(NAME)["analysis"]
        assert (analysis["strategy"], analysis["reason_code"]) == ("full", "first_fill")
        result = system.engine.refresh(NAME)
        changes = {item["table"]: item["rows_inserted"] for item in analysis["changes"]}
        assert changes[NAME] == result.rows_inserted == 2
        nothing = system.engine.analyze(NAME)["analysis"]
        assert (nothing["strategy"], nothing["steps"], nothing["changes"]) == ("no_change", [], [])
