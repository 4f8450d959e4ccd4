"""Compaction, expiry and clean-up, through the functions of DuckLake's official extension.

Compaction changes no rows: merged files keep the snapshot ids of their rows, so deltas over a merge stay small (see
`delta_planning`). It runs beside our commits without the lock, because it reads and writes whole files; if a table is
deleted from meanwhile, either side notices and the table is left for the next time. Expiry takes the lock: it must
never free the id of a snapshot that somebody may still build on.

Each step is a commit or a file of its own, so a process that is killed between any two leaves a sound lake; what
compaction does to the statistics is written down before (`kept_statistics`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.errors import LakeError, LakeUnavailableError
from pgtrickle_assets.lake.bootstrap import lock_key
from pgtrickle_assets.lake.compaction_plan import CompactionPolicy, FileFacts, TablePlan, plan_table
from pgtrickle_assets.lake.duckdb_attach import attach, redact
from pgtrickle_assets.lake.kept_statistics import has_unmended, kept_statistics, mend_statistics
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.services.duckdb import connect

if TYPE_CHECKING:
    import duckdb

    from pgtrickle_assets.lake.catalog import Lake

_ALIAS: Final = "lake"
_LOCK_SPACE: Final = 0x7067746D  # "pgtm"
_ROUNDING: Final = 1e-9
_EXPIRED_AT_ONCE: Final = 500
"""Snapshots for which the catalog lock is held at a time."""

_FILES: Final = """
SELECT s.schema_name, t.table_name, coalesce((
    SELECT string_agg(coalesce(v.partition_value, '\\N'), '/' ORDER BY v.partition_key_index)
    FROM {c}.ducklake_file_partition_value v WHERE v.table_id = f.table_id AND v.data_file_id = f.data_file_id), ''),
  f.file_size_bytes, f.record_count, coalesce(d.delete_count, 0)
FROM {c}.ducklake_table t JOIN {c}.ducklake_schema s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
JOIN {c}.ducklake_data_file f ON f.table_id = t.table_id AND f.end_snapshot IS NULL
LEFT JOIN {c}.ducklake_delete_file d
  ON d.table_id = t.table_id AND d.data_file_id = f.data_file_id AND d.end_snapshot IS NULL
WHERE t.end_snapshot IS NULL AND (f.file_size_bytes < %s OR d.delete_count IS NOT NULL)
"""
_EXPIRABLE: Final = """
SELECT snapshot_id FROM {c}.ducklake_snapshot
WHERE snapshot_id < %s AND snapshot_id < (SELECT max(snapshot_id) FROM {c}.ducklake_snapshot)
  AND snapshot_id < coalesce((SELECT min(snapshot_id) FROM {c}.ducklake_snapshot WHERE snapshot_time >= %s),
    9223372036854775807)
ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was done to one table; `skipped` says why nothing was."""

    table: TableName
    merged_files: int = 0
    rewritten_files: int = 0
    skipped: str = ""


def plan_compaction(
    lake: Lake, policy: CompactionPolicy, tables: Collection[TableName] | None = None
) -> dict[TableName, TablePlan]:
    """Tables that are worth compacting, of all or of those given, by name.

    Raises:
        LakeUnavailableError: The catalog cannot be reached.
    """
    files: defaultdict[TableName, list[FileFacts]] = defaultdict(list)
    for schema, table, *facts in lake.connections.fetch(lake.sql(_FILES), (policy.tiers[-1],)):
        files[TableName(schema, table)].append(FileFacts(*facts))
    wanted = {name: plan_table(files[name], policy) for name in sorted(files) if tables is None or name in tables}
    return {name: plan for name, plan in wanted.items() if not plan.is_empty}


def compact(
    lake: Lake, *, policy: CompactionPolicy | None = None, tables: Collection[TableName] | None = None
) -> tuple[Compaction, ...]:
    """Merge small files and rewrite files with many deletes, of all tables that need it or of those given.

    A table that another writer changes at the same time is skipped, with the reason.

    Raises:
        LakeUnavailableError: The catalog cannot be reached.
    """
    used = policy or CompactionPolicy()
    wanted = plan_compaction(lake, used, tables)
    if not wanted:
        return ()
    with _attached(lake, {"memory_limit": used.memory_limit, "threads": used.threads}) as connection:
        return tuple(_compact_table(lake, connection, table, plan) for table, plan in wanted.items())


def _compact_table(lake: Lake, connection: duckdb.DuckDBPyConnection, table: TableName, plan: TablePlan) -> Compaction:
    import duckdb

    merged = rewritten = 0
    stored = lake.table(table)
    if stored is None:
        return Compaction(table, skipped="the table was dropped meanwhile")
    try:
        with kept_statistics(lake, stored):
            if plan.rewrite_from is not None:
                call = f"CALL ducklake_rewrite_data_files('{_ALIAS}', ?, schema => ?, delete_threshold => ?)"
                rewritten = _processed(
                    connection, call, [table.name, table.schema, max(0.0, plan.rewrite_from - _ROUNDING)]
                )
            for bound in plan.merge_below:
                call = f"CALL ducklake_merge_adjacent_files('{_ALIAS}', ?, schema => ?, max_file_size => ?)"
                merged += _processed(connection, call, [table.name, table.schema, bound])
    except duckdb.Error as error:
        return Compaction(table, merged, rewritten, skipped=redact(str(error), lake.location))
    return Compaction(table, merged, rewritten)


def _processed(connection: duckdb.DuckDBPyConnection, call: str, parameters: list[object]) -> int:
    return sum(int(row[2]) for row in connection.execute(call, parameters).fetchall())


def expire_snapshots(
    lake: Lake, *, older_than: timedelta, keep_from: Callable[[], int | None], dry_run: bool = False
) -> tuple[int, ...]:
    """Expire the oldest snapshots, some at a time and always from the old end; ids of those that went.

    Args:
        lake: The lake.
        older_than: Keep younger ones. Must exceed the longest job, as DuckDB checks conflicts by id alone.
        keep_from: Gives the smallest snapshot that a frontier, a running refresh or a reader needs; it and all newer
            ones stay. None when nobody needs any. Asked while the catalog lock is held, so that nobody who takes the
            lock can come to need an older one.
        dry_run: Only say which.

    Raises:
        LakeError: Another process holds the catalog lock for long, or DuckDB refuses.
    """
    moment = datetime.now(UTC) - older_than
    found = _expirable(lake, keep_from(), moment)
    if dry_run or not found:
        return found
    expired: list[int] = []
    with _attached(lake, {}) as connection:
        while True:
            with _locked(lake):
                versions = _expirable(lake, keep_from(), moment)[:_EXPIRED_AT_ONCE]
                if versions:
                    call = f"CALL ducklake_expire_snapshots('{_ALIAS}', versions => ?)"
                    _call(lake, connection, call, [list(versions)])
            expired += versions
            if len(versions) < _EXPIRED_AT_ONCE:
                return tuple(expired)


def _expirable(lake: Lake, keep_from: int | None, moment: datetime) -> tuple[int, ...]:
    limit = 2**62 if keep_from is None else keep_from
    return tuple(row[0] for row in lake.connections.fetch(lake.sql(_EXPIRABLE), (limit, moment)))


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


@contextmanager
def only_maintainer(lake: Lake) -> Iterator[bool]:
    """Whether this process may maintain the lake: False while another one does. Ends with the process at the latest."""
    key = (_LOCK_SPACE, lock_key(lake.location.catalog_schema)[1])
    with lake.connection() as connection:
        row = connection.execute("SELECT pg_try_advisory_lock(%s, %s)", key).fetchone()
        if row is None or not row[0]:
            yield False
            return
        try:
            yield True
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s, %s)", key)


def recover_compactions(lake: Lake) -> int:
    """Do what a compaction left undone whose process died; how many there were, 0 while a maintenance runs."""
    if not has_unmended(lake):
        return 0
    with only_maintainer(lake) as alone:
        return mend_statistics(lake) if alone else 0
