"""Bulk reads: binary COPY into Arrow, inside somebody's exported snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.capture.connect import SESSION, bulk_uri, from_sqlstate
from pgtrickle_assets.capture.dsn import DsnProvider
from pgtrickle_assets.capture.source_table import SourceColumn
from pgtrickle_assets.capture.values import arrow_schema, exact
from pgtrickle_assets.errors import PgTrickleError
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 16 << 20
LOCK_MILLISECONDS = 10_000
"""A reader waits behind an ALTER that itself waits for the batch; the server cannot see that knot, so we give up."""


@dataclass(frozen=True, slots=True)
class BulkQuery:
    """A query that anyone with the connection string can run at the same snapshot; picklable.

    Attributes:
        dsn: Yields the connection string where the query is run.
        snapshot: From pg_export_snapshot(), valid while the exporting transaction is open.
        sql: Yields the columns, then the weight if any, then the array checks (see `values.exact`).
        table: What it reads.
        columns: Of the result.
        weight: Name of the weight column of the result, or None.
    """

    dsn: DsnProvider
    snapshot: str
    sql: str
    table: TableName
    columns: tuple[SourceColumn, ...]
    weight: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """Of the batches that `run` yields."""
        return arrow_schema(self.columns, weight=self.weight)


def run(query: BulkQuery) -> Iterator[pa.RecordBatch]:
    """Stream a query's result in batches of some megabytes.

    Raises:
        SourceValueError: A value has no exact counterpart.
        SourceUnavailableError: The connection broke.
        SourceBusyError: A lock was not granted in time.
    """
    import adbc_driver_postgresql.dbapi as adbc

    try:
        with closing(adbc.connect(bulk_uri(query.dsn()), autocommit=True)) as connection:
            _begin(connection, query.snapshot)
            yield from _batches(connection, query)
    except adbc.Error as error:
        raise _translated(error, query.table) from None


def _begin(connection: Any, snapshot: str) -> None:
    from psycopg import sql

    pinned = sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)).as_string(None)
    begin = ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", pinned)
    limits = ("SET statement_timeout = 0", f"SET lock_timeout = {LOCK_MILLISECONDS}")
    for statement in (*begin, *SESSION, *limits):
        with closing(connection.cursor()) as cursor:
            cursor.execute(statement)


def _batches(connection: Any, query: BulkQuery) -> Iterator[pa.RecordBatch]:
    from adbc_driver_postgresql import StatementOptions

    schema = query.schema
    with closing(connection.cursor()) as cursor:
        cursor.adbc_statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(BATCH_BYTES)})
        cursor.execute(query.sql)
        with closing(cursor.fetch_record_batch()) as reader:
            for batch in reader:
                if batch.num_rows:
                    yield exact(batch, query.table, query.columns, schema)


def _translated(error: Any, table: TableName) -> PgTrickleError:
    from adbc_driver_manager import AdbcStatusCode

    broken = error.sqlstate is None and error.status_code in (AdbcStatusCode.IO, AdbcStatusCode.INTERNAL)
    # The driver's text carries the whole query; the SQLSTATE says enough.
    return from_sqlstate(error.sqlstate, f"reading source table {table}", type(error).__name__, broken=broken)


def collect(queries: Sequence[BulkQuery]) -> pa.Table:
    """All rows of queries with one schema, in memory."""
    import pyarrow as pa

    return pa.Table.from_batches([batch for query in queries for batch in run(query)], schema=queries[0].schema)
