"""PostgreSQL's own answer to each defining query, compared with what the lake holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_SHOWN_ROWS = 5


@dataclass(frozen=True, slots=True)
class DefiningQuery:
    """A stream table and the query that PostgreSQL is asked."""

    table: TableName
    query: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Outcome of a symmetric multiset comparison.

    Attributes:
        rows: Rows in PostgreSQL's answer.
        differing: Rows that one side has more often than the other, counted as often as they are in excess.
        examples: A few of them, each with its count in the answer minus its count in the lake as last value.
        columns_differ: Names or order of the columns are not the same; rows were not compared.
    """

    rows: int
    differing: int = 0
    examples: tuple[tuple[object, ...], ...] = ()
    columns_differ: bool = False

    @property
    def equal(self) -> bool:
        """Whether both sides hold the same rows, each as often, under the same column names."""
        return self.differing == 0 and not self.columns_differ


def postgres_answers(dsn: str, queries: Sequence[DefiningQuery]) -> Iterator[tuple[TableName, pa.Table]]:
    """Yield PostgreSQL's answer to each query.

    A query may name stream tables that come before it. They are built in a transaction that is rolled back, so the
    source keeps nothing of it.

    Args:
        dsn: Connection string of the source database, as its owner or someone else who may create schemas.
        queries: Defining queries, upstream first.
    """
    import adbc_driver_postgresql.dbapi as adbc

    with adbc.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute("SET LOCAL TimeZone = 'UTC'")
        for schema in sorted({query.table.schema for query in queries}):
            cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(schema)}")
        for query in queries:
            name = f"{_quoted(query.table.schema)}.{_quoted(query.table.name)}"
            cursor.execute(f"CREATE UNLOGGED TABLE {name} AS {query.query}")
            cursor.execute(f"SELECT * FROM {name}")  # noqa: S608 - the name is quoted
            yield query.table, cursor.fetch_arrow_table()
        connection.rollback()


def compare_with_lake(
    connection: duckdb.DuckDBPyConnection, lake: str, table: TableName, snapshot: int, answer: pa.Table
) -> Comparison:
    """Compare PostgreSQL's answer with a table of the lake, read by DuckDB's own DuckLake extension.

    Args:
        connection: DuckDB with the lake attached.
        lake: Name under which it is attached.
        table: The stream table.
        snapshot: Lake snapshot to read.
        answer: What PostgreSQL answers at the same point of its history.
    """
    name = f"{_quoted(lake)}.{_quoted(table.schema)}.{_quoted(table.name)}"
    stored = f"SELECT * FROM {name} AT (VERSION => {int(snapshot)})"  # noqa: S608 - the name is quoted
    described = connection.execute(f"DESCRIBE {stored}").fetchall()
    types = {str(row[0]): str(row[1]) for row in described}
    if list(types) != answer.column_names:
        return Comparison(answer.num_rows, columns_differ=True)
    connection.register("pgt_answer", _plain(answer))
    try:
        return _multiset_difference(connection, stored, types, answer.num_rows)
    finally:
        connection.unregister("pgt_answer")


def _multiset_difference(
    connection: duckdb.DuckDBPyConnection, stored: str, types: dict[str, str], rows: int
) -> Comparison:
    # Numerics come as text from PostgreSQL; both sides meet in the widest decimal so that no digit is rounded away.
    columns = ", ".join(
        f"CAST({_quoted(name)} AS {'DECIMAL(38, 18)' if kind.startswith('DECIMAL') else kind}) AS {_quoted(name)}"
        for name, kind in types.items()
    )
    query = f"""
        SELECT * EXCLUDE (pgt_side), SUM(pgt_side) AS pgt_excess
        FROM (
            SELECT {columns}, 1 AS pgt_side FROM pgt_answer
            UNION ALL
            SELECT {columns}, -1 FROM ({stored})
        )
        GROUP BY ALL HAVING SUM(pgt_side) <> 0
    """  # noqa: S608 - names are quoted, types come from DESCRIBE
    differing = connection.execute(query).fetchall()
    excess = sum(abs(int(row[-1])) for row in differing)
    return Comparison(rows, excess, tuple(differing[:_SHOWN_ROWS]))


def _plain(answer: pa.Table) -> pa.Table:
    """The same table with PostgreSQL's numerics as the text they are stored as."""
    import pyarrow as pa

    columns = [
        pa.chunked_array([chunk.storage for chunk in column.chunks], type=column.type.storage_type)
        if isinstance(column.type, pa.BaseExtensionType)
        else column
        for column in answer.columns
    ]
    return pa.table(columns, names=answer.column_names)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
