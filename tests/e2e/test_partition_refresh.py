"""Partitions move on by themselves, from their own frontiers, and the whole table follows from all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pgtrickle_assets.refresh.model import RefreshResult
from pgtrickle_assets.stream_table import StreamTable
from tests.e2e.lakehouse import Lakehouse, lakehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_DAY = {
    "st.rows": "SELECT id, day, customer, amount FROM orders",
    "st.named": "SELECT o.id, o.day, o.amount, c.name FROM orders o LEFT JOIN customers c ON c.id = o.customer",
    "st.busy": "SELECT day, count(*) AS n, sum(amount) AS total, min(amount) AS least, avg(amount) AS mean "
    "FROM orders GROUP BY day HAVING count(*) > 1",
    "st.ranked": "SELECT id, day, rank() OVER (PARTITION BY day ORDER BY amount, id) AS place FROM orders",
    "st.spread": "SELECT day, count(DISTINCT customer) AS customers, max(bought) AS most FROM "
    "(SELECT day, customer, sum(amount) AS bought FROM orders GROUP BY day, customer) b GROUP BY day",
}
NOT_BY_DAY = {
    "st.shares": "SELECT o.id, o.day, o.amount, t.n FROM orders o CROSS JOIN (SELECT count(*) AS n FROM orders) t"
}
FIRST, SECOND = "2024-01-01", "2024-01-02"
SETUP = (
    "CREATE TABLE customers (id integer PRIMARY KEY, name text)",
    "CREATE TABLE orders (id integer PRIMARY KEY, day date, customer integer, amount numeric(10,2))",
    "INSERT INTO customers SELECT i, 'customer ' || i FROM generate_series(1, 3) i",
    "INSERT INTO orders SELECT i, CASE WHEN i % 7 > 0 THEN date '2024-01-01' + i % 3 END, i % 4, i "
    "FROM generate_series(1, 40) i",
)
CHANGES = (
    "UPDATE orders SET amount = amount + 0.5 WHERE id % 5 = 0",
    "DELETE FROM orders WHERE amount < 6",
    "INSERT INTO orders VALUES (101, '2024-01-01', 1, 1), (102, '2024-01-02', 2, 1), (103, NULL, 2, 7)",
    "UPDATE orders SET day = CASE day WHEN '2024-01-01' THEN date '2024-01-02' ELSE '2024-01-01' END WHERE id % 11 = 0",
    "UPDATE customers SET name = upper(name) WHERE id = 2",
)


@pytest.fixture(scope="module")
def system(postgres_server: Any, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Lakehouse]:
    made: list[str] = []

    def new_database() -> str:
        made.append(f"partitions_{len(made)}")
        return postgres_server.create_database(made[-1])

    tables = [
        StreamTable(name=name, query=query, partition_by="day(day)") for name, query in (BY_DAY | NOT_BY_DAY).items()
    ]
    with lakehouse(new_database, tmp_path_factory.mktemp("partitions"), spark, tables, SETUP) as opened:
        opened.refresh()
        yield opened
    for name in made:
        postgres_server.drop_database(name)


@pytest.fixture
def cut(system: Lakehouse) -> Callable[[], int]:
    return lambda: system.engine.capture("test").cut


def _of(rows: Counter[tuple[Any, ...]], system: Lakehouse, name: str, day: str) -> Counter[tuple[Any, ...]]:
    place = system.engine.project.plan(name).output  # type: ignore[union-attr]
    position = [column.name for column in place].index("day")
    return Counter({row: count for row, count in rows.items() if str(row[position]) == day})


def _strategy(result: RefreshResult) -> tuple[str, str]:
    return result.strategy.value, result.reason_code


@pytest.mark.parametrize("name", [*BY_DAY, *NOT_BY_DAY])
def test_a_partition_moves_alone_and_the_whole_table_from_all_frontiers(
    name: str, system: Lakehouse, cut: Callable[[], int]
) -> None:
    query = (BY_DAY | NOT_BY_DAY)[name]
    is_local = name in BY_DAY
    system.execute("TRUNCATE orders, customers", *SETUP[2:])
    system.engine.refresh(name, cut=cut())
    before = answer = system.lake_rows(name)
    for change in CHANGES:
        system.execute(change)
        result = system.engine.refresh(name, partitions=[FIRST], cut=cut())
        if result.strategy.value != "no_change":
            wanted = ("differential", "small_delta") if is_local else ("full", "partitions_asked")
            assert _strategy(result) == wanted
        stored, answer = system.lake_rows(name), system.postgres_rows(query)
        assert _of(stored, system, name, FIRST) == _of(answer, system, name, FIRST), change
        assert stored - _of(stored, system, name, FIRST) == before - _of(before, system, name, FIRST)
        assert system.engine.check_equals_full(name).passed
    result = system.engine.refresh(name, partitions=[FIRST, SECOND], cut=cut())
    assert result.strategy.value == ("differential" if is_local else "full")
    stored = system.lake_rows(name)
    for day in (FIRST, SECOND):
        assert _of(stored, system, name, day) == _of(answer, system, name, day)
    system.execute("UPDATE orders SET amount = amount * 2 WHERE id % 3 = 1", "DELETE FROM orders WHERE id = 101")
    result = system.engine.refresh(name, cut=cut())
    assert _strategy(result) == (("differential", "small_delta") if is_local else ("full", "partitions_realigned"))
    assert system.lake_rows(name) == system.postgres_rows(query)
    assert system.engine.check_equals_full(name).passed
    system.execute("UPDATE orders SET amount = amount - 1 WHERE id % 4 = 1")
    result = system.engine.refresh(name, cut=cut())
    assert _strategy(result) == ("differential", "small_delta")
    assert system.lake_rows(name) == system.postgres_rows(query)


def test_a_table_whose_partitions_are_at_several_cuts_is_behind_only_when_an_input_moved(
    system: Lakehouse, cut: Callable[[], int]
) -> None:
    name = "st.rows"
    system.engine.refresh(name, cut=cut())
    system.engine.refresh(name, partitions=[FIRST], cut=cut())
    assert name not in system.engine.behind()
    system.execute("UPDATE orders SET amount = amount + 1")
    system.engine.refresh(name, partitions=[FIRST], cut=cut())
    assert name in system.engine.behind()
    system.engine.refresh(name, cut=cut())
    assert name not in system.engine.behind()
    system.engine.refresh(name, partitions=[FIRST], cut=cut())
    assert name not in system.engine.behind()


@pytest.mark.parametrize("name", BY_DAY)
def test_partitions_filled_before_the_table_are_kept_right(
    name: str, new_database: Callable[[], str], tmp_path: Path, spark: SparkSession
) -> None:
    query = BY_DAY[name]
    table = StreamTable(name=name, query=query, partition_by="day(day)")
    with lakehouse(new_database, tmp_path, spark, [table], SETUP) as system:
        result = system.engine.refresh(name, partitions=[SECOND], cut=system.engine.capture("test").cut)
        assert _strategy(result) == ("full", "first_fill")
        assert system.lake_rows(name) == _of(system.postgres_rows(query), system, name, SECOND)
        system.execute(*CHANGES)
        result = system.engine.refresh(name, partitions=[SECOND], cut=system.engine.capture("test").cut)
        assert _strategy(result) == ("differential", "small_delta")
        assert system.lake_rows(name) == _of(system.postgres_rows(query), system, name, SECOND)
        result = system.refresh()[name]
        assert _strategy(result) == ("full", "first_fill")
        assert system.lake_rows(name) == system.postgres_rows(query)
        assert system.engine.check_equals_full(name).passed
