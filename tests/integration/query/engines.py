"""Runs a query's text on PostgreSQL and its plan on another engine, and compares what comes out."""

from __future__ import annotations

import datetime
import json
import math
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

from pgtrickle_assets.query.plan import QueryPlan, Scan
from pgtrickle_assets.query.planner import plan_query
from pgtrickle_assets.query.render import render
from pgtrickle_assets.query.render_types import identifier, type_name
from pgtrickle_assets.query.types import ColumnType, TableSchema
from tests.integration.query.tables import BY_NAME, TABLES, SampleTable

CORPUS = Path(__file__).parent / "corpus"
_OIDS = {
    16: "boolean", 20: "int64", 21: "int16", 23: "int32", 25: "varchar", 700: "float32", 701: "float64", 1082: "date",
    1083: "time", 1114: "timestamp", 1184: "timestamptz", 1700: "decimal", 2950: "uuid", 3802: "json", 114: "json",
    1043: "varchar", 1042: "varchar", 17: "blob", 1007: "list", 1009: "list", 1016: "list", 1231: "list", 1182: "list",
    1022: "list", 19: "varchar",
}  # fmt: skip


def corpus(name: str) -> list[str]:
    """Queries of a corpus file, separated by semicolons at line ends."""
    text = (CORPUS / f"{name}.sql").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return [query.strip() for query in "\n".join(lines).split(";\n") if query.strip().rstrip(";")]


def resolve(parts: tuple[str, ...]) -> TableSchema | None:
    """The schema of a sample table."""
    table = BY_NAME.get(parts[-1])
    return table.schema() if table is not None and parts[:-1] in ((), ("public",)) else None


def load_postgres(connection: Any) -> None:
    """Create and fill the sample tables in PostgreSQL."""
    connection.execute("SET timezone = 'UTC'")
    for table in TABLES:
        connection.execute(table.create())
        if table.rows.strip():
            connection.execute(f'INSERT INTO "{table.name}" VALUES {table.rows}')


def arrow_tables(connection: Any) -> dict[str, Any]:
    """The sample tables as Arrow tables with the types of the lake."""
    import pyarrow as pa

    from pgtrickle_assets.query.arrow_types import arrow_type

    found: dict[str, Any] = {}
    for table in TABLES:
        rows = connection.execute(f'SELECT * FROM "{table.name}"').fetchall()
        columns = table.schema().columns
        arrays = [
            pa.array([stored_value(row[i], column.type) for row in rows], arrow_type(column.type))
            for i, column in enumerate(columns)
        ]
        found[table.name] = pa.table(arrays, names=[column.name for column in columns])
    return found


def stored_value(value: Any, kind: ColumnType) -> Any:
    """A value that psycopg read, as Arrow takes it."""
    if value is None:
        return None
    if kind.name == "json":
        return json.dumps(value)
    return str(value) if kind.name == "uuid" else value


def duckdb_with(tables: dict[str, Any]) -> Any:
    """A DuckDB with the sample tables."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, table in tables.items():
        connection.register("incoming", table)
        columns = ", ".join(
            f"CAST({identifier(c.name, 'duckdb')} AS {type_name(c.type, 'duckdb')}) AS {identifier(c.name, 'duckdb')}"
            for c in _table(name).schema().columns
        )
        connection.execute(f'CREATE TABLE "{name}" AS SELECT {columns} FROM incoming')
        connection.unregister("incoming")
    return connection


def _table(name: str) -> SampleTable:
    return BY_NAME[name]


def rendered(plan: QueryPlan, dialect: Any) -> str:
    """The plan's SQL over the sample tables."""

    def relation(scan: Scan) -> str:
        return identifier(scan.relation.split(".", 1)[1], dialect)

    pairs = [(column.id, schema.name) for column, schema in zip(plan.root.output, plan.output, strict=True)]
    return render(plan.root, dialect, relation, pairs)


def normal(value: Any, kind: ColumnType) -> Any:
    """A value in a form that compares equal across drivers; floats to 12 digits, since sums of them depend on order."""
    if value is None:
        return None
    if kind.name == "decimal":
        return Decimal(value).normalize() + 0
    if kind.is_float:
        number = float(value)
        if math.isnan(number):
            return "NaN"
        # psycopg reads the six digits that PostgreSQL writes of a real.
        return float(f"{number:.{6 if kind.name == 'float32' else 12}g}") + 0.0
    if kind.name == "json":
        return json.dumps(json.loads(value) if isinstance(value, str) else value, sort_keys=True)
    if kind.name == "uuid":
        return str(value)
    if kind.name == "timestamptz":
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    if kind.element is not None:
        return tuple(normal(item, kind.element) for item in value)
    return value


def multiset(rows: list[tuple[Any, ...]], plan: QueryPlan) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset of normalized values."""
    kinds = [schema.type for schema in plan.output]
    return Counter(tuple(normal(v, k) for v, k in zip(row, kinds, strict=True)) for row in rows)


def postgres_answer(connection: Any, sql: str, plan: QueryPlan) -> Counter[tuple[Any, ...]]:
    """PostgreSQL's rows; names and types of its columns must be the plan's."""
    cursor = connection.execute(sql)
    assert cursor.description is not None
    names = [column.name for column in cursor.description]
    assert names == [schema.name for schema in plan.output]
    kinds = [_OIDS.get(column.type_code, str(column.type_code)) for column in cursor.description]
    assert kinds == [schema.type.name for schema in plan.output]
    return multiset(cursor.fetchall(), plan)


def planned(sql: str) -> QueryPlan:
    """The plan of a query over the sample tables."""
    return plan_query(sql, resolve=resolve)
