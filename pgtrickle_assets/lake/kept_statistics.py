"""Table-wide bounds over a compaction.

DuckDB 1.5.5 sets a table's bounds anew from the files that are live after it has rewritten some: too narrow for older
snapshots, which it reads by the same bounds, and both NULL after a file without values, which its next insert takes
for a table without values. What the bounds were, with what all files say, encloses everything that is still readable.

Bounds that enclose more than the live rows must not be the answer to MIN and MAX. DuckDB takes them for it where the
table's row count is that of its live rows, so the count stays one of all rows ever inserted, as every writer leaves it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

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
    before, count = lake.connections.read(lambda c: (_statistics(lake, c, table), _count(lake, c, table)))
    try:
        yield
    finally:
        with lake.connection() as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", lock_key(lake.location.catalog_schema))
            now = _statistics(lake, connection, table)
            if (now, _count(lake, connection, table)) != (before, count):
                connection.execute(lake.sql(_UPDATE_COUNT), (count, table.id))
                _restore(lake, connection, table, before, now)


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
