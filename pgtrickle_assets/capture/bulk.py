"""Bulk reads: binary COPY into Arrow, inside somebody's exported snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle_assets.capture.connect import SESSION, bulk_uri, from_sqlstate
from pgtrickle_assets.capture.dsn import DsnProvider
from pgtrickle_assets.capture.source_table import SourceColumn
from pgtrickle_assets.capture.values import arrow_schema, exact
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
    """Stream a query's result over a connection of its own; runs in any thread, process or Spark executor.

    Raises:
        SourceValueError: A value has no exact counterpart.
        SourceUnavailableError: The connection broke.
        SourceBusyError: A lock was not granted in time.
    """
    with closing(BulkReader(query.dsn())) as reader:
        reader.join(query.snapshot)
        yield from reader.rows(query)


class BulkReader:
    """A connection that holds its locks before it joins a snapshot; not for several threads.

    A TRUNCATE that waits for our lock makes everybody behind it wait. Who reads over the connection that holds the lock
    does not stand in that queue.
    """

    def __init__(self, dsn: str) -> None:
        import adbc_driver_postgresql.dbapi as adbc

        with _translated("the source"):
            self._connection = adbc.connect(bulk_uri(dsn), autocommit=True)
        try:
            self._execute(*SESSION, *_LIMITS, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give up locks and snapshot."""
        self._connection.close()

    def lock(self, relation: TableName) -> None:
        """Lock a table with its partitions against TRUNCATE and rewrites, not against writers.

        Raises:
            SourceBusyError: Somebody has it alone and keeps it.
        """
        from psycopg import sql

        name = sql.Identifier(relation.schema, relation.name)
        self._execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(name).as_string(None))

    def join(self, snapshot: str) -> None:
        """See what the exporter of the snapshot sees."""
        from psycopg import sql

        self._execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)).as_string(None))

    def heap_pages(self, oids: Sequence[int]) -> dict[int, int]:
        """Pages of those relations that can be read by page range.

        Their size is asked for under a lock; this connection has it, another would stand behind a waiting TRUNCATE.
        """
        from psycopg import sql

        text = sql.SQL(
            "SELECT c.oid::bigint, pg_relation_size(c.oid) / current_setting('block_size')::bigint FROM pg_class c"
            " JOIN pg_am m ON m.oid = c.relam AND m.amname = 'heap' WHERE c.oid = ANY({}::oid[])"
        ).format(sql.Literal(list(oids)))
        with _translated("the source"), closing(self._connection.cursor()) as cursor:
            cursor.execute(text.as_string(None))
            return {int(oid): int(pages) for oid, pages in cursor.fetchall()}

    def rows(self, query: BulkQuery) -> Iterator[pa.RecordBatch]:
        """Stream a query's result in batches of some megabytes; finish one stream before the next.

        Raises:
            SourceValueError: A value has no exact counterpart.
            SourceUnavailableError: The connection broke, or the server ended the statement.
        """
        from adbc_driver_postgresql import StatementOptions

        schema = query.schema
        with _translated(f"source table {query.table}"), closing(self._connection.cursor()) as cursor:
            cursor.adbc_statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(BATCH_BYTES)})
            cursor.execute(query.sql)
            with closing(cursor.fetch_record_batch()) as reader:
                for batch in reader:
                    if batch.num_rows:
                        yield exact(batch, query.table, query.columns, schema)

    def _execute(self, *statements: str) -> None:
        for statement in statements:
            with _translated("the source"), closing(self._connection.cursor()) as cursor:
                cursor.execute(statement)


_LIMITS = (
    "SET statement_timeout = 0",
    "SET idle_in_transaction_session_timeout = 0",
    f"SET lock_timeout = {LOCK_MILLISECONDS}",
)


@contextmanager
def _translated(where: str) -> Iterator[None]:
    import adbc_driver_postgresql.dbapi as adbc
    from adbc_driver_manager import AdbcStatusCode

    try:
        yield
    except adbc.Error as error:
        broken = error.sqlstate is None and error.status_code in (AdbcStatusCode.IO, AdbcStatusCode.INTERNAL)
        # The driver's text carries the whole query; the SQLSTATE says enough.
        raise from_sqlstate(error.sqlstate, where, type(error).__name__, broken=broken) from None
    except OSError:
        # What ends a stream of rows in its middle comes through Arrow, which knows no SQLSTATE.
        raise from_sqlstate(None, where, "while its rows were read", broken=True) from None
