"""Running one random query on DuckDB, and on PostgreSQL; a failing one is left behind as a file that runs it again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path
from typing import Any

from pgtrickle_assets.query.functions.numbers import shows_own_digits
from pgtrickle_assets.query.plan import QueryPlan
from pgtrickle_assets.query.types import ColumnType
from tests.differential.duckdb_executor import StreamTable, Warehouse, connect
from tests.differential.sql_generator import TABLES, Row, SqlScenario, create_statement
from tests.differential.surface_runner import plan_over
from tests.integration.query.engines import multiset, postgres_answer

ACCEPTED_DIGITS = Decimal("1e-12")


def plan(scenario: SqlScenario) -> QueryPlan:
    """The plan of the query."""
    return plan_over(scenario.sql, TABLES)


@cache
def _shared() -> Any:
    return connect()


@contextmanager
def _own_schema() -> Iterator[Any]:
    """The shared DuckDB with an empty schema to work in; opening a DuckDB takes longer than many a case."""
    connection = _shared()
    connection.execute("CREATE OR REPLACE SCHEMA pgt_case; USE pgt_case")
    try:
        yield connection
    finally:
        connection.execute("USE main; DROP SCHEMA pgt_case CASCADE")


def maintain(scenario: SqlScenario, after: Callable[[StreamTable, QueryPlan, dict[str, list[Row]]], None]) -> None:
    """Apply every batch, refresh, compare with a recompute, and call `after` with the rows of the tables."""
    query = plan(scenario)
    with _own_schema() as connection:
        warehouse = Warehouse(connection)
        for name, table in TABLES.items():
            warehouse.create(str(table.name), table.columns, scenario.tables[name])
        stream = StreamTable(warehouse, query)
        assert stream.maintenance.differential, stream.maintenance.reasons
        rows = {name: list(held) for name, held in scenario.tables.items()}
        after(stream, query, rows)
        for batch in scenario.batches:
            for name, table in TABLES.items():
                warehouse.change(str(table.name), [(*row, weight) for other, row, weight in batch if other == name])
            for name, row, weight in batch:
                for _ in range(abs(weight)):
                    rows[name].append(row) if weight > 0 else rows[name].remove(row)
            warehouse.apply()
            stream.refresh()
            stream.check()
            warehouse.settle()
            assert stream.refresh() == {}, "a refresh without changes must do nothing"
            after(stream, query, rows)


def run(scenario: SqlScenario) -> None:
    """Maintain the query on DuckDB alone."""
    maintain(scenario, lambda *_: None)


def run_against(scenario: SqlScenario, postgres: Any) -> None:
    """Maintain the query on DuckDB and compare with PostgreSQL's answer at every state."""

    def compare(stream: StreamTable, query: QueryPlan, rows: dict[str, list[Row]]) -> None:
        fill(postgres, rows)
        expected = accepted(postgres_answer(postgres, scenario.sql, query), query)
        actual = accepted(multiset(stream.visible(), query), query)
        assert actual == expected, f"missing {expected - actual}, surplus {actual - expected}"

    maintain(scenario, compare)


def accepted(rows: Any, query: QueryPlan) -> Any:
    """Rows without what PostgreSQL is known to answer otherwise: digits of a quotient after the twelfth."""
    kinds = [column.type for column in query.output]
    return type(rows)(tuple(map(_accepted, row, kinds)) for row in rows.elements())


def _accepted(value: Any, kind: ColumnType) -> Any:
    if isinstance(value, Decimal) and shows_own_digits(kind):
        return value.quantize(ACCEPTED_DIGITS, ROUND_HALF_UP).normalize() + 0
    if isinstance(value, float):
        return round(value, 9) + 0.0
    return value


def create(postgres: Any) -> None:
    """Make the empty tables in PostgreSQL."""
    postgres.execute("SET timezone = 'UTC'")
    for table in TABLES.values():
        postgres.execute(create_statement(table))


def fill(postgres: Any, rows: dict[str, list[Row]]) -> None:
    """Give the tables in PostgreSQL these rows and no others."""
    for name, table in TABLES.items():
        postgres.execute(f"DELETE FROM {name}")
        if rows[name]:
            one = f"({', '.join(['%s'] * len(table.columns))})"
            values = [value for row in rows[name] for value in row]
            postgres.execute(f"INSERT INTO {name} VALUES {', '.join([one] * len(rows[name]))}", values)


def keeping(scenario: SqlScenario, check: Callable[[SqlScenario], None]) -> None:
    """Run a check; a failing scenario is left behind as a runnable file whose path is added to the error."""
    try:
        check(scenario)
    except Exception as error:
        path = Path(tempfile.gettempdir()) / "pgtrickle_failing_query.py"
        path.write_text(source(scenario))
        error.add_note(f"{scenario.sql}\nrun again with: python {path}")
        raise


def source(scenario: SqlScenario) -> str:
    """A Python file that runs the scenario; with a DSN of an empty database as argument also against PostgreSQL."""
    return (
        "import sys\n"
        "from decimal import Decimal\n\n"
        "from tests.differential.sql_generator import SqlScenario\n"
        "from tests.differential.sql_scenario import create, run, run_against\n\n"
        "nan = float('nan')\n"
        f"sql = {scenario.sql!r}\n"
        f"tables = {scenario.tables!r}\n"
        f"batches = {scenario.batches!r}\n"
        "scenario = SqlScenario(sql, tables, batches)\n"
        "if len(sys.argv) == 1:\n"
        "    run(scenario)\n"
        "else:\n"
        "    import psycopg\n\n"
        "    with psycopg.connect(sys.argv[1], autocommit=True) as postgres:\n"
        "        create(postgres)\n"
        "        run_against(scenario, postgres)\n"
    )
