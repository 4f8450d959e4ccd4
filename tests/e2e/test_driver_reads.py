"""What is little is read and compared on the driver, what is much on Spark: the answers are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pgtrickle_assets.lake.model import WEIGHT_COLUMN
from pgtrickle_assets.refresh.comparison import difference, difference_on_driver
from pgtrickle_assets.refresh.model import Strategy
from pgtrickle_assets.refresh.relations import as_frame
from tests.e2e.lakehouse import lakehouse

SETUP = (
    "CREATE TABLE planes (tail text PRIMARY KEY, maker text, built int)",
    "CREATE TABLE flights (id int PRIMARY KEY, tail text, carrier int, minutes int)",
    "INSERT INTO planes SELECT 'N' || i, 'maker ' || i % 4, 1990 + i % 7 FROM generate_series(1, 40) i",
    "INSERT INTO flights SELECT i, CASE WHEN i % 9 > 0 THEN 'N' || i % 50 END, i % 5, i % 60"
    " FROM generate_series(1, 600) i",
)
CHANGES = (
    ("INSERT INTO planes VALUES ('N900', 'maker new', 2020)", "INSERT INTO flights VALUES (9001, 'N900', 1, 38)"),
    ("INSERT INTO planes VALUES ('N901', 'maker new', 2021)", "INSERT INTO flights VALUES (9002, 'N901', 1, 50)"),
    ("UPDATE planes SET maker = NULL WHERE tail = 'N7'", "UPDATE flights SET tail = 'N8' WHERE id % 40 = 3"),
    ("DELETE FROM planes WHERE built = 1990", "UPDATE flights SET carrier = carrier + 1 WHERE id % 30 = 0"),
    ("DELETE FROM flights WHERE tail IN ('N900', 'N901')", "UPDATE planes SET maker = 'maker 1' WHERE maker IS NULL"),
)
QUERY = (
    "SELECT p.maker, f.carrier, count(*) AS flights, sum(f.minutes) AS minutes, min(p.built) AS oldest,"
    " max(f.minutes) AS longest FROM flights f JOIN planes p ON p.tail = f.tail GROUP BY p.maker, f.carrier"
)

ROWS_ALONE = {
    "st.rows": "SELECT count(*) AS n FROM flights",
    "st.ones": "SELECT 1 AS one FROM planes",
    "st.some": "SELECT EXISTS (SELECT 1 FROM flights) AS some",
    "st.beside": "SELECT p.tail, (SELECT count(*) FROM flights) AS n FROM planes p",
    "st.pairs": "SELECT count(*) AS n FROM planes p CROSS JOIN flights f",
    "st.few": "SELECT 1 AS one FROM flights LIMIT 3",
}


@pytest.mark.parametrize("place", ["on Spark", "on the driver"])
def test_rows_are_counted_where_no_column_is_read(
    place: str, new_database: Callable[[], str], tmp_path: Path, spark: object
) -> None:
    small_delta_rows = 0 if place == "on Spark" else 200_000
    with lakehouse(new_database, tmp_path, spark, ROWS_ALONE, SETUP, small_delta_rows=small_delta_rows) as system:
        for statements in ((), *CHANGES[:3], ("TRUNCATE flights",), ("INSERT INTO flights VALUES (1, 'N1', 1, 1)",)):
            system.execute(*statements)
            system.refresh()
            for name, query in ROWS_ALONE.items():
                assert system.lake_rows(name) == system.postgres_rows(query), (name, statements)
        system.check()


@pytest.mark.parametrize("place", ["on Spark", "on the driver", "looked up by Spark"])
def test_rows_found_by_keys_of_both_sides_are_all_there(
    place: str, new_database: Callable[[], str], tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_delta_rows = 0 if place == "on Spark" else 200_000
    if place == "looked up by Spark":
        monkeypatch.setattr("pgtrickle_assets.refresh.relations.fits_lookup", lambda scan: False)
    queries = {"gold.by_maker": QUERY}
    with lakehouse(new_database, tmp_path, spark, queries, SETUP, small_delta_rows=small_delta_rows) as system:
        system.refresh()
        for statements in CHANGES:
            system.execute(*statements)
            result = system.refresh()["gold.by_maker"]
            assert result.strategy is Strategy.DIFFERENTIAL, result.reason
            assert system.lake_rows("gold.by_maker") == system.postgres_rows(QUERY)
            if place == "on the driver":
                assert result.jobs == len(result.statements), "only the steps are jobs; delivery needs none"
        system.check()


@pytest.mark.parametrize("place", ["on the driver", "on Spark"])
def test_times_of_day_are_compared(
    place: str, new_database: Callable[[], str], tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "on Spark":
        monkeypatch.setattr("pgtrickle_assets.refresh.verification.fits_driver", lambda scan: False)
    setup = ("CREATE TABLE shifts AS SELECT 1 AS id, time '23:59:59.999999' AS starts UNION ALL SELECT 2, NULL",)
    with lakehouse(new_database, tmp_path, spark, {"st.shifts": "SELECT id, starts FROM shifts"}, setup) as system:
        system.refresh()
        assert system.engine.check_equals_full("st.shifts").passed


@pytest.mark.parametrize("place", ["on the driver", "on Spark"])
def test_a_check_shows_rows_that_are_missing_and_rows_that_are_too_many(
    place: str, new_database: Callable[[], str], tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "on Spark":
        monkeypatch.setattr("pgtrickle_assets.refresh.verification.fits_driver", lambda scan: False)
    with lakehouse(new_database, tmp_path, spark, {"gold.planes": "SELECT tail, built FROM planes"}, SETUP) as system:
        system.refresh()
        assert system.engine.check_equals_full("gold.planes").passed
        with system.duckdb() as duckdb:
            duckdb.execute("DELETE FROM lake.gold.planes WHERE tail IN ('N1', 'N2')")
            duckdb.execute("INSERT INTO lake.gold.planes VALUES ('N3', 1993), ('N99', NULL), ('N99', NULL)")
        report = system.engine.check_equals_full("gold.planes")
        assert (report.passed, report.missing_rows, report.surplus_rows) == (False, 2, 3)
        assert (report.stored_rows, report.expected_rows) == (41, 40)
        shown = {("N1", "1991"): -1, ("N2", "1992"): -1, ("N3", "1993"): 1, ("N99", None): 2}
        assert dict(report.differences) == shown


def test_rows_after_an_empty_chunk_reach_spark(spark: object) -> None:
    one, none = pa.table({"a": [1]}), pa.table({"a": pa.array([], pa.int64())})
    rows = pa.concat_tables([none, one, none, none, one, none])
    assert as_frame(spark, rows).toArrow().to_pylist() == [{"a": 1}, {"a": 1}]


def test_both_comparisons_take_nulls_nans_and_zeros_as_postgresql_does(spark: object) -> None:
    nan = float("nan")
    stored = pa.table({"k": [1, 1, 2, None, None, 3], "f": [0.0, nan, -0.0, None, 1.0, 2.0]})
    expected = pa.table({"k": [1, 1, 2, None, None, 4], "f": [-0.0, nan, 0.0, None, None, 2.0]})
    wanted = Counter({(3, 2.0, -1): 1, (4, 2.0, 1): 1, (None, 1.0, -1): 1, (None, None, 1): 1})
    on_driver = difference_on_driver(stored, expected)
    on_spark = difference(as_frame(spark, stored), as_frame(spark, expected), ["k", "f"]).toArrow()
    for found in (on_driver, on_spark):
        assert Counter((row["k"], row["f"], row[WEIGHT_COLUMN]) for row in found.to_pylist()) == wanted
