"""Table-wide bounds over a compaction.

DuckDB 1.5.5 sets a table's bounds anew from the files that are live after it has rewritten some: too narrow for older
snapshots, which it reads by the same bounds, and both NULL after a file without values, which its next insert takes
for a table without values. What the bounds were, with what all files say, encloses everything that is still readable.

What they were is written down before, as an entry of the table in `ducklake_metadata` that DuckDB carries along: when
the process dies in between, `mend_statistics` does the rest.

Bounds that enclose more than the live rows must not be the answer to MIN and MAX. DuckDB takes them for it where the
table's row count is that of its live rows, so the count stays one of all rows ever inserted, as every writer leaves it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import time
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pgtrickle_assets.lake.appending import COLUMN_STATS, DELETE_COLUMNS, UPDATE_COLUMNS
from pgtrickle_assets.lake.bootstrap import lock_key
from pgtrickle_assets.lake.model import ColumnBounds, LakeTable
from pgtrickle_assets.lake.statistics import ColumnStatistics, leaves, merge, summarize

if TYPE_CHECKING:
    from pgtrickle_assets.lake.catalog import Lake

_FILES: Final = """
SELECT column_id, min_value, max_value, value_count, null_count, contains_nan
FROM {c}.ducklake_file_column_stats WHERE table_id = %s
"""
_KEY: Final = "pgtrickle_statistics_before_compaction"
_SETTLED_SECONDS: Final = 300.0
_NOTE: Final = "INSERT INTO {c}.ducklake_metadata (key, value, scope, scope_id) VALUES (%s, %s, 'table', %s)"
_NOTES: Final = "SELECT scope_id, value FROM {c}.ducklake_metadata WHERE key = %s AND scope = 'table'"
_FORGET: Final = "DELETE FROM {c}.ducklake_metadata WHERE key = %s AND value = %s AND scope = 'table' AND scope_id = %s"
_COUNT: Final = "SELECT record_count FROM {c}.ducklake_table_stats WHERE table_id = %s"
_UPDATE_COUNT: Final = """
UPDATE {c}.ducklake_table_stats SET record_count = greatest(record_count + 1, %s) WHERE table_id = %s
"""


@contextmanager
def kept_statistics(lake: Lake, table: LakeTable) -> Iterator[None]:
    """Let the table's bounds enclose after the block what they enclosed before it, and what was added meanwhile.

    A column whose bounds cannot be known any more loses them: it is read in full, which is always right.

    Raises:
        LakeUnavailableError: The catalog cannot be reached.
    """
    with lake.connection() as connection, connection.transaction():
        # Under the lock no commit of ours can add rows between the look and the note.
        connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", lock_key(lake.location.catalog_schema))
        note = _note(_statistics(lake, connection, table), _count(lake, connection, table))
        connection.execute(lake.sql(_NOTE), (_KEY, note, table.id))
    try:
        yield
    finally:
        _mend(lake, table, note, forget=True)


def has_unmended(lake: Lake) -> bool:
    """Whether a compaction runs or has died before its end."""
    return bool(lake.connections.fetch(lake.sql(_NOTES), (_KEY,)))


def mend_statistics(lake: Lake) -> int:
    """Do what processes that died during a compaction left undone; how many there were.

    Only for callers that know that no compaction runs. A young note stays for the next call: the database may still be
    busy with the last statement of the dead process.

    Raises:
        LakeUnavailableError: The catalog cannot be reached.
    """
    notes = lake.connections.fetch(lake.sql(_NOTES), (_KEY,))
    if not notes:
        return 0
    tables = {table.id: table for table in lake.tables()}
    for table_id, note in notes:
        if table_id in tables:
            _mend(lake, tables[table_id], note, forget=_age_seconds(note) > _SETTLED_SECONDS)
        else:
            with lake.connection() as connection:
                connection.execute(lake.sql(_FORGET), (_KEY, note, table_id))
    return len(notes)


def _mend(lake: Lake, table: LakeTable, note: str, *, forget: bool) -> None:
    before, count = _noted(note)
    with lake.connection() as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", lock_key(lake.location.catalog_schema))
        now = _statistics(lake, connection, table)
        if (now, _count(lake, connection, table)) != (before, count):
            connection.execute(lake.sql(_UPDATE_COUNT), (count, table.id))
            _restore(lake, connection, table, before, now)
        if forget:
            connection.execute(lake.sql(_FORGET), (_KEY, note, table.id))


def _note(statistics: Mapping[int, ColumnStatistics], count: int) -> str:
    columns = {
        column: [stats.contains_null, stats.contains_nan, stats.minimum, stats.maximum]
        for column, stats in statistics.items()
    }
    return json.dumps({"id": uuid4().hex, "at": time(), "rows": count, "columns": columns})


def _age_seconds(note: str) -> float:
    return time() - float(json.loads(note)["at"])


def _noted(note: str) -> tuple[Mapping[int, ColumnStatistics], int]:
    content = json.loads(note)
    return {int(column): ColumnStatistics(*stats) for column, stats in content["columns"].items()}, content["rows"]


def _restore(
    lake: Lake,
    connection: Any,
    table: LakeTable,
    before: Mapping[int, ColumnStatistics],
    now: Mapping[int, ColumnStatistics],
) -> None:
    files = _file_bounds(lake, connection, table)
    unknown: list[int] = []
    updated: list[tuple[object, ...]] = []
    for leaf in leaves(table.columns):
        old, current = before.get(leaf.id), now.get(leaf.id)
        if old is None or current is None:
            continue
        added = summarize(files[leaf.id], leaf.type)
        both = None if added is None else merge(old, added, leaf.type)
        kept = None if both is None else merge(both, current, leaf.type)
        if kept is None:
            unknown.append(leaf.id)
        elif kept != current:
            updated.append((leaf.id, kept.contains_null, kept.contains_nan, kept.minimum, kept.maximum))
    if updated:
        connection.execute(lake.sql(UPDATE_COLUMNS), [*([*column] for column in zip(*updated, strict=True)), table.id])
    if unknown:
        connection.execute(lake.sql(DELETE_COLUMNS), (table.id, unknown))


def _statistics(lake: Lake, connection: Any, table: LakeTable) -> Mapping[int, ColumnStatistics]:
    rows = connection.execute(lake.sql(COLUMN_STATS), (table.id,)).fetchall()
    return {row[0]: ColumnStatistics(*row[1:]) for row in rows}


def _count(lake: Lake, connection: Any, table: LakeTable) -> int:
    row = connection.execute(lake.sql(_COUNT), (table.id,)).fetchone()
    return row[0] if row else 0


def _file_bounds(lake: Lake, connection: Any, table: LakeTable) -> Mapping[int, list[ColumnBounds]]:
    found: defaultdict[int, list[ColumnBounds]] = defaultdict(list)
    for column_id, *bounds in connection.execute(lake.sql(_FILES), (table.id,)).fetchall():
        found[column_id].append(ColumnBounds(*bounds))
    return found
