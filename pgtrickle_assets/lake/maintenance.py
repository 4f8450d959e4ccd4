"""Compaction, expiry and clean-up, through the functions of DuckLake's official extension.

Compaction changes no rows: merged files keep the snapshot ids of their rows, so deltas over a merge stay small (see
`delta_planning`). It runs beside our commits without the lock, because it reads and writes whole files; if a table is
deleted from meanwhile, either side notices and the table is left for the next time. Expiry takes the lock: it must
never free the id of a snapshot that somebody may still build on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.errors import LakeError, LakeUnavailableError
from pgtrickle_assets.lake.bootstrap import lock_key
from pgtrickle_assets.lake.duckdb_attach import attach, redact
from pgtrickle_assets.lake.kept_statistics import kept_statistics
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.services.duckdb import connect

if TYPE_CHECKING:
    import duckdb

    from pgtrickle_assets.lake.catalog import Lake

_ALIAS: Final = "lake"

_STATE: Final = """
SELECT s.schema_name, t.table_name, count(*) FILTER (WHERE f.file_size_bytes < %(small)s AND d.delete_count IS NULL),
  count(*) FILTER (WHERE d.delete_count >= %(ratio)s * f.record_count)
FROM {c}.ducklake_table t JOIN {c}.ducklake_schema s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
JOIN {c}.ducklake_data_file f ON f.table_id = t.table_id AND f.end_snapshot IS NULL
LEFT JOIN {c}.ducklake_delete_file d ON d.data_file_id = f.data_file_id AND d.end_snapshot IS NULL
WHERE t.end_snapshot IS NULL GROUP BY t.table_id, s.schema_name, t.table_name ORDER BY 1, 2
"""
_EXPIRABLE: Final = """
SELECT snapshot_id FROM {c}.ducklake_snapshot
WHERE snapshot_id < %s AND snapshot_id < (SELECT max(snapshot_id) FROM {c}.ducklake_snapshot)
  AND snapshot_id < coalesce((SELECT min(snapshot_id) FROM {c}.ducklake_snapshot WHERE snapshot_time >= %s),
    9223372036854775807)
ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When files of a table are worth rewriting.

    Attributes:
        small_bytes: Files below this size count as small.
        min_small_files: Merge a table when it has at least so many small files without deletes.
        delete_ratio: Rewrite files of which at least this share of rows is deleted.
        memory_limit: Memory for DuckDB.
        threads: Threads for DuckDB.
    """

    small_bytes: int = 32 * 1024 * 1024
    min_small_files: int = 8
    delete_ratio: float = 0.3
    memory_limit: str = "1GB"
    threads: int = 2


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was done to one table; `skipped` says why nothing was."""

    table: TableName
    merged_files: int = 0
    rewritten_files: int = 0
    skipped: str = ""


def compact(
    lake: Lake, *, policy: CompactionPolicy | None = None, tables: Sequence[TableName] | None = None
) -> tuple[Compaction, ...]:
    """Merge small files and rewrite files with many deletes, of all tables that need it or of those given.

    A table that another writer changes at the same time is skipped, with the reason.

    Raises:
        LakeUnavailableError: The catalog cannot be reached.
    """
    used = policy or CompactionPolicy()
    parameters = {"small": used.small_bytes, "ratio": used.delete_ratio}
    rows = lake.connections.read(lambda c: c.execute(lake.sql(_STATE), parameters).fetchall())
    wanted = [
        (TableName(row[0], row[1]), row[2] >= used.min_small_files, row[3] > 0)
        for row in rows
        if (tables is None or TableName(row[0], row[1]) in tables) and (row[2] >= used.min_small_files or row[3] > 0)
    ]
    if not wanted:
        return ()
    results: list[Compaction] = []
    with _attached(lake, {"memory_limit": used.memory_limit, "threads": used.threads}) as connection:
        for table, merge, rewrite in wanted:
            results.append(_compact_table(lake, connection, table, used, merge=merge, rewrite=rewrite))
    return tuple(results)


def _compact_table(
    lake: Lake,
    connection: duckdb.DuckDBPyConnection,
    table: TableName,
    policy: CompactionPolicy,
    *,
    merge: bool,
    rewrite: bool,
) -> Compaction:
    import duckdb

    merged = rewritten = 0
    stored = lake.table(table)
    if stored is None:
        return Compaction(table, skipped="the table was dropped meanwhile")
    try:
        with kept_statistics(lake, stored):
            if rewrite:
                call = f"CALL ducklake_rewrite_data_files('{_ALIAS}', ?, schema => ?, delete_threshold => ?)"
                rows = connection.execute(call, [table.name, table.schema, policy.delete_ratio]).fetchall()
                rewritten = _processed(rows)
            if merge:
                call = f"CALL ducklake_merge_adjacent_files('{_ALIAS}', ?, schema => ?)"
                merged = _processed(connection.execute(call, [table.name, table.schema]).fetchall())
    except duckdb.Error as error:
        return Compaction(table, merged, rewritten, skipped=redact(str(error), lake.location))
    return Compaction(table, merged, rewritten)


def _processed(rows: list[tuple[Any, ...]]) -> int:
    return sum(int(row[2]) for row in rows)


def expire_snapshots(
    lake: Lake, *, older_than: timedelta, keep_from: int | None, dry_run: bool = False
) -> tuple[int, ...]:
    """Expire the oldest snapshots; ids of those that went.

    Args:
        lake: The lake.
        older_than: Keep younger ones. Must exceed the longest job, as DuckDB checks conflicts by id alone.
        keep_from: Smallest snapshot that a frontier, a running refresh or a reader needs; it and all newer ones stay.
            None when nobody needs any.
        dry_run: Only say which.

    Raises:
        LakeError: Another process holds the catalog lock for long, or DuckDB refuses.
    """
    with _locked(lake):
        limit = 2**62 if keep_from is None else keep_from
        moment = datetime.now(UTC) - older_than
        found = lake.connections.fetch(lake.sql(_EXPIRABLE), (limit, moment))
        versions = [row[0] for row in found]
        if versions and not dry_run:
            with _attached(lake, {}) as connection:
                _call(lake, connection, f"CALL ducklake_expire_snapshots('{_ALIAS}', versions => ?)", [versions])
    return tuple(versions)


def clean_up(lake: Lake, *, older_than: timedelta, dry_run: bool = False) -> int:
    """Delete files that compaction or expiry put aside long enough ago; how many.

    Args:
        lake: The lake.
        older_than: Time since they were put aside. Must exceed the longest read of an older snapshot.
        dry_run: Only count.

    Raises:
        LakeError: DuckDB refuses.
    """
    moment = datetime.now(UTC) - older_than
    with _attached(lake, {}) as connection:
        call = f"CALL ducklake_cleanup_old_files('{_ALIAS}', older_than => ?, dry_run => ?)"
        return len(_call(lake, connection, call, [moment, dry_run]))


def _call(
    lake: Lake, connection: duckdb.DuckDBPyConnection, statement: str, parameters: list[object]
) -> list[tuple[Any, ...]]:
    import duckdb

    try:
        return connection.execute(statement, parameters).fetchall()
    except duckdb.Error as error:
        raise LakeError(f"DuckLake's maintenance failed: {redact(str(error), lake.location)}") from None


@contextmanager
def _attached(lake: Lake, config: dict[str, str | bool | int | float]) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(connect(config=config)) as connection:
        attach(connection, lake.location, _ALIAS)
        yield connection


@contextmanager
def _locked(lake: Lake) -> Iterator[None]:
    """The catalog lock, for the session instead of a transaction, as DuckDB writes through its own connection."""
    import psycopg

    key = lock_key(lake.location.catalog_schema)
    with lake.connection() as connection:
        try:
            connection.execute("SELECT pg_advisory_lock(%s, %s)", key)
        except psycopg.Error as error:
            raise LakeUnavailableError("another process holds the lake's lock for too long") from error
        try:
            yield
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s, %s)", key)
