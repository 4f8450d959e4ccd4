"""Stream tables over lake tables that DuckDB writes, and DuckDB as a reader of everything at every snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.refresh.model import Strategy
from pgtrickle_assets.stream_table import StreamTable
from tests.e2e.lakehouse import Lakehouse, lakehouse

SETUP = (
    "CREATE TABLE shops (id int PRIMARY KEY, city text)",
    "INSERT INTO shops VALUES (1, 'Oslo'), (2, 'Bergen'), (3, NULL)",
)


def _items(system: Lakehouse) -> Counter[tuple[object, ...]]:
    with system.duckdb() as duckdb:
        rows = duckdb.execute(
            "SELECT s.city, count(*), sum(i.price) FROM lake.main.items i"
            " JOIN lake.raw.shops s ON s.id = i.shop GROUP BY 1"
        ).fetchall()
    return Counter(rows)


def _expect_refreshed(system: Lakehouse, strategy: Strategy = Strategy.DIFFERENTIAL) -> None:
    results = system.refresh()
    assert results["gold.per_city"].strategy is strategy, results["gold.per_city"].reason
    assert system.lake_rows("gold.per_city") == _items(system)
    system.check()


def test_a_stream_table_follows_what_duckdb_does_to_a_lake_table(
    new_database: Callable[[], str], tmp_path: Path, spark: object
) -> None:
    query = "SELECT s.city, count(*) AS n, sum(i.price) AS total FROM items i JOIN shops s ON s.id = i.shop GROUP BY 1"
    with lakehouse(new_database, tmp_path, spark, [], SETUP) as first, first.duckdb() as duckdb:
        duckdb.execute("CREATE TABLE lake.main.items (id INTEGER, shop INTEGER, price DECIMAL(10,2), note VARCHAR)")
        duckdb.execute("INSERT INTO lake.main.items SELECT i, i % 3 + 1, i, 'note' FROM range(200) t(i)")
        system = first.with_stream_tables([StreamTable(name="gold.per_city", query=query)])
    with system as opened:
        _expect_refreshed(opened, Strategy.FULL)
        changes = (
            "INSERT INTO lake.main.items VALUES (1000, 1, 5.50, NULL), (1001, 3, NULL, 'x')",
            "UPDATE lake.main.items SET price = price + 1, shop = 2 WHERE id < 20",
            "DELETE FROM lake.main.items WHERE id BETWEEN 30 AND 60",
            "CALL ducklake_merge_adjacent_files('lake')",
            "CALL ducklake_rewrite_data_files('lake', 'items', delete_threshold => 0.0)",
        )
        for change in changes:
            with opened.duckdb() as duckdb:
                duckdb.execute(change)
            compacts = change.startswith("CALL")
            _expect_refreshed(opened, Strategy.NO_CHANGE if compacts else Strategy.DIFFERENTIAL)
        with opened.duckdb() as duckdb:
            duckdb.execute("UPDATE lake.main.items SET note = 'changed'")
        unread = opened.refresh()["gold.per_city"]
        assert (unread.strategy, unread.reason_code) == (Strategy.NO_CHANGE, "unread_columns")


def test_a_column_that_is_read_and_loses_its_name_or_takes_another_s_never_gives_old_rows(
    new_database: Callable[[], str], tmp_path: Path, spark: object
) -> None:
    query = "SELECT shop, price FROM tariffs"
    with lakehouse(new_database, tmp_path, spark, [], SETUP) as first, first.duckdb() as duckdb:
        duckdb.execute("CREATE TABLE lake.main.tariffs (shop INTEGER, price INTEGER, old_price INTEGER)")
        duckdb.execute("INSERT INTO lake.main.tariffs SELECT i, i, i + 100 FROM range(5) t(i)")
        opened = first.with_stream_tables([StreamTable(name="gold.tariffs", query=query)])
    with opened as system:
        system.refresh()
        _change(system, "ALTER TABLE lake.main.tariffs RENAME price TO rate", "UPDATE lake.main.tariffs SET rate = 7")
        with pytest.raises(LakeError, match=r"main\.tariffs has no column price"):
            system.refresh()
        _change(system, "ALTER TABLE lake.main.tariffs RENAME rate TO price")
        assert system.refresh()["gold.tariffs"].strategy is Strategy.DIFFERENTIAL
        assert system.lake_rows("gold.tariffs") == Counter({(shop, 7): 1 for shop in range(5)})
        _change(
            system,
            "ALTER TABLE lake.main.tariffs RENAME price TO new_price",
            "ALTER TABLE lake.main.tariffs RENAME old_price TO price",
        )
        assert "gold.tariffs" in system.engine.behind()
        assert system.refresh()["gold.tariffs"].strategy is Strategy.FULL
        assert system.lake_rows("gold.tariffs") == Counter({(shop, shop + 100): 1 for shop in range(5)})
        system.check()


def _change(system: Lakehouse, *statements: str) -> None:
    for statement in statements:
        with system.duckdb() as duckdb:
            duckdb.execute(statement)


def test_duckdb_reads_every_table_at_every_snapshot(
    new_database: Callable[[], str], tmp_path: Path, spark: object
) -> None:
    queries = {
        "st.cities": "SELECT city, count(*) AS n, max(id) AS top FROM shops GROUP BY city",
        "st.all": "SELECT * FROM shops",
    }
    with lakehouse(new_database, tmp_path, spark, queries, SETUP) as system:
        seen: dict[int, dict[str, Counter[tuple[object, ...]]]] = {}
        changes = (
            "SELECT 1",
            "INSERT INTO shops VALUES (4, 'Oslo')",
            "DELETE FROM shops WHERE id = 1",
            "TRUNCATE shops",
        )
        for statement in changes:
            system.execute(statement)
            system.refresh()
            seen[system.engine.head()] = {name: system.lake_rows(name) for name in (*queries, "raw.shops")}
        for snapshot, tables in seen.items():
            for name, rows in tables.items():
                assert system.lake_rows(name, at=snapshot) == rows, (snapshot, name)
        with system.duckdb() as duckdb:
            ids = [row[0] for row in duckdb.execute("SELECT snapshot_id FROM ducklake_snapshots('lake')").fetchall()]
        assert sorted(ids) == list(range(system.engine.head() + 1))
