"""Check that a lake's catalog is sound: the invariants that every writer must keep, as SQL.

For operators (`pgtrickle doctor`) and for tests, which run it after every operation. It reads the catalog only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.changes import parse_changes
from pgtrickle_assets.lake.statistics import bound_key
from pgtrickle_assets.lake.types import column_type

if TYPE_CHECKING:
    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.lake.connections import CatalogConnection

# Each query returns one text for each problem.
_RULES: Final = {
    "snapshot ids have no gap": """
        SELECT 'no snapshot ' || (snapshot_id + 1) FROM {c}.ducklake_snapshot s
        WHERE snapshot_id < (SELECT max(snapshot_id) FROM {c}.ducklake_snapshot)
          AND NOT EXISTS (SELECT 1 FROM {c}.ducklake_snapshot n WHERE n.snapshot_id = s.snapshot_id + 1)""",
    "every snapshot says what it changed": """
        SELECT 'snapshot ' || snapshot_id FROM {c}.ducklake_snapshot s WHERE NOT EXISTS (
          SELECT 1 FROM {c}.ducklake_snapshot_changes h WHERE h.snapshot_id = s.snapshot_id)""",
    "counters never go back": """
        SELECT 'snapshot ' || snapshot_id FROM (
          SELECT *, lag(schema_version) OVER w AS v, lag(next_catalog_id) OVER w AS n, lag(next_file_id) OVER w AS f
          FROM {c}.ducklake_snapshot WINDOW w AS (ORDER BY snapshot_id)) s
        WHERE schema_version < v OR next_catalog_id < n OR next_file_id < f OR schema_version > v + 1""",
    "catalog ids are below their counter": """
        SELECT kind || ' ' || id FROM (
          SELECT 'schema' AS kind, schema_id AS id FROM {c}.ducklake_schema
          UNION ALL SELECT 'table', table_id FROM {c}.ducklake_table
          UNION ALL SELECT 'view', view_id FROM {c}.ducklake_view
          UNION ALL SELECT 'partition', partition_id FROM {c}.ducklake_partition_info) ids
        WHERE id >= (SELECT max(next_catalog_id) FROM {c}.ducklake_snapshot)""",
    "file ids are below their counter": """
        SELECT kind || ' ' || id FROM (
          SELECT 'data file' AS kind, data_file_id AS id FROM {c}.ducklake_data_file
          UNION ALL SELECT 'delete file', delete_file_id FROM {c}.ducklake_delete_file
          UNION ALL SELECT 'mapping', mapping_id FROM {c}.ducklake_column_mapping) ids
        WHERE id >= (SELECT max(next_file_id) FROM {c}.ducklake_snapshot)""",
    "a file id is used once": """
        SELECT 'file id ' || id FROM (
          SELECT data_file_id AS id FROM {c}.ducklake_data_file
          UNION ALL SELECT delete_file_id FROM {c}.ducklake_delete_file) ids GROUP BY id HAVING count(*) > 1""",
    "a live schema name is unique": """
        SELECT lower(schema_name) FROM {c}.ducklake_schema WHERE end_snapshot IS NULL
        GROUP BY lower(schema_name) HAVING count(*) > 1""",
    "a live table or view name is unique": """
        SELECT name FROM (
          SELECT schema_id, lower(table_name) AS name FROM {c}.ducklake_table WHERE end_snapshot IS NULL
          UNION ALL SELECT schema_id, lower(view_name) FROM {c}.ducklake_view WHERE end_snapshot IS NULL) names
        GROUP BY schema_id, name HAVING count(*) > 1""",
    "a table has one live version": """
        SELECT 'table ' || table_id FROM {c}.ducklake_table WHERE end_snapshot IS NULL
        GROUP BY table_id HAVING count(*) > 1""",
    "a live table lies in a live schema": """
        SELECT table_name FROM {c}.ducklake_table t WHERE end_snapshot IS NULL AND NOT EXISTS (
          SELECT 1 FROM {c}.ducklake_schema s WHERE s.schema_id = t.schema_id AND s.end_snapshot IS NULL)""",
    "a column has one live version": """
        SELECT 'column ' || column_id || ' of table ' || table_id FROM {c}.ducklake_column WHERE end_snapshot IS NULL
        GROUP BY table_id, column_id HAVING count(*) > 1""",
    "a live column name is unique": """
        SELECT lower(column_name) || ' of table ' || table_id FROM {c}.ducklake_column
        WHERE end_snapshot IS NULL AND parent_column IS NULL
        GROUP BY table_id, lower(column_name) HAVING count(*) > 1""",
    "a column ends with its table": """
        SELECT 'column ' || column_id || ' of table ' || table_id FROM {c}.ducklake_column c
        WHERE end_snapshot IS NULL AND NOT EXISTS (
          SELECT 1 FROM {c}.ducklake_table t WHERE t.table_id = c.table_id AND t.end_snapshot IS NULL)""",
    "a file ends with its table": """
        SELECT path FROM {c}.ducklake_data_file f WHERE end_snapshot IS NULL AND NOT EXISTS (
          SELECT 1 FROM {c}.ducklake_table t WHERE t.table_id = f.table_id AND t.end_snapshot IS NULL)""",
    "a data file has at most one delete file at a time": """
        SELECT 'data file ' || a.data_file_id FROM {c}.ducklake_delete_file a
        JOIN {c}.ducklake_delete_file b ON a.data_file_id = b.data_file_id AND a.delete_file_id < b.delete_file_id
        WHERE a.begin_snapshot < coalesce(b.end_snapshot, 9223372036854775807)
          AND b.begin_snapshot < coalesce(a.end_snapshot, 9223372036854775807)""",
    "a delete file deletes from a data file that is there": """
        SELECT path FROM {c}.ducklake_delete_file d WHERE NOT EXISTS (
          SELECT 1 FROM {c}.ducklake_data_file f WHERE f.data_file_id = d.data_file_id AND f.table_id = d.table_id)""",
    "no more rows are deleted than there are": """
        SELECT d.path FROM {c}.ducklake_delete_file d JOIN {c}.ducklake_data_file f USING (data_file_id)
        WHERE d.delete_count > f.record_count OR d.delete_count <= 0""",
    "a deletion is not older than its file": """
        SELECT d.path FROM {c}.ducklake_delete_file d JOIN {c}.ducklake_data_file f USING (data_file_id)
        WHERE d.begin_snapshot < f.begin_snapshot""",
    "nothing is newer than the newest snapshot": """
        SELECT kind FROM (
          SELECT 'data file ' || data_file_id AS kind, greatest(begin_snapshot, end_snapshot) AS at
          FROM {c}.ducklake_data_file
          UNION ALL SELECT 'delete file ' || delete_file_id, greatest(begin_snapshot, end_snapshot)
          FROM {c}.ducklake_delete_file
          UNION ALL SELECT 'table ' || table_id, greatest(begin_snapshot, end_snapshot) FROM {c}.ducklake_table) x
        WHERE at > (SELECT max(snapshot_id) FROM {c}.ducklake_snapshot)""",
    "every table shape has its schema version": """
        SELECT 'table ' || table_id || ' at ' || begin_snapshot FROM (
          SELECT DISTINCT table_id, begin_snapshot FROM {c}.ducklake_column
          UNION SELECT table_id, begin_snapshot FROM {c}.ducklake_partition_info) shapes
        WHERE NOT EXISTS (SELECT 1 FROM {c}.ducklake_schema_versions v
          WHERE v.table_id = shapes.table_id AND v.begin_snapshot = shapes.begin_snapshot)""",
    "row ids of files do not overlap": """
        SELECT a.path FROM {c}.ducklake_data_file a JOIN {c}.ducklake_data_file b
          ON a.table_id = b.table_id AND a.data_file_id < b.data_file_id
          AND a.row_id_start < b.row_id_start + b.record_count AND b.row_id_start < a.row_id_start + a.record_count
        WHERE a.end_snapshot IS NULL AND b.end_snapshot IS NULL
          AND a.partial_max IS NULL AND b.partial_max IS NULL""",
    "row ids are below their counter": """
        SELECT f.path FROM {c}.ducklake_data_file f LEFT JOIN {c}.ducklake_table_stats s USING (table_id)
        WHERE s.next_row_id IS NULL OR (f.partial_max IS NULL AND f.row_id_start + f.record_count > s.next_row_id)""",
    "a table has one row of statistics": """
        SELECT 'table ' || table_id FROM {c}.ducklake_table_stats GROUP BY table_id HAVING count(*) > 1""",
    "a column has one row of statistics": """
        SELECT 'column ' || column_id || ' of table ' || table_id FROM {c}.ducklake_table_column_stats
        GROUP BY table_id, column_id HAVING count(*) > 1""",
    "file sizes are known": """
        SELECT path FROM {c}.ducklake_data_file WHERE file_size_bytes <= 0 OR footer_size <= 0 OR record_count <= 0""",
    "views can be loaded": """
        SELECT view_name FROM {c}.ducklake_view WHERE column_aliases IS NULL OR sql IS NULL""",
    "a partitioned file has a value for each key": """
        SELECT f.path FROM {c}.ducklake_data_file f WHERE f.partition_id IS NOT NULL AND
          (SELECT count(*) FROM {c}.ducklake_partition_column k WHERE k.partition_id = f.partition_id) <>
          (SELECT count(*) FROM {c}.ducklake_file_partition_value v WHERE v.data_file_id = f.data_file_id)""",
    "a live file is not queued for deletion": """
        SELECT f.path FROM {c}.ducklake_data_file f
        JOIN {c}.ducklake_files_scheduled_for_deletion q USING (data_file_id)
        UNION ALL SELECT d.path FROM {c}.ducklake_delete_file d
        JOIN {c}.ducklake_files_scheduled_for_deletion q ON q.data_file_id = d.delete_file_id""",
    "inline tables exist": """
        SELECT table_name FROM {c}.ducklake_inlined_data_tables i WHERE NOT EXISTS (
          SELECT 1 FROM pg_class k JOIN pg_namespace n ON n.oid = k.relnamespace
          WHERE n.nspname = %(schema)s AND k.relname = i.table_name)""",
}

_CHANGES: Final = "SELECT snapshot_id, changes_made FROM {c}.ducklake_snapshot_changes"

_BOUNDS: Final = """
SELECT t.table_name, c.column_name, c.column_type, f.path, s.value_count, s.null_count, s.min_value, s.max_value,
  g.contains_null, g.min_value, g.max_value
FROM {c}.ducklake_table_column_stats g
JOIN {c}.ducklake_column c ON c.table_id = g.table_id AND c.column_id = g.column_id AND c.end_snapshot IS NULL
JOIN {c}.ducklake_table t ON t.table_id = g.table_id AND t.end_snapshot IS NULL
JOIN {c}.ducklake_data_file f ON f.table_id = g.table_id AND f.end_snapshot IS NULL
LEFT JOIN {c}.ducklake_file_column_stats s ON s.data_file_id = f.data_file_id AND s.column_id = g.column_id
"""


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken rule: its name, and what breaks it."""

    rule: str
    detail: str


def lint(lake: Lake) -> tuple[Problem, ...]:
    """All problems of the catalog; empty when it is sound."""
    return lake.connections.read(lambda connection: tuple(_problems(lake, connection)))


def _problems(lake: Lake, connection: CatalogConnection) -> Iterator[Problem]:
    parameters = {"schema": lake.location.catalog_schema}
    asked = {rule: connection.execute(lake.sql(query), parameters) for rule, query in _RULES.items()}
    changes = connection.execute(lake.sql(_CHANGES), ())
    bounds = connection.execute(lake.sql(_BOUNDS), ())
    for rule, cursor in asked.items():
        for row in cursor.fetchall():
            yield Problem(rule, str(row[0]))
    for snapshot_id, text in changes.fetchall():
        try:
            parse_changes(text)
        except LakeError as error:
            yield Problem("the change log is readable", f"snapshot {snapshot_id}: {error.message}")
    for row in bounds.fetchall():
        yield from _check_bounds(*row)


def _check_bounds(
    table: str,
    column: str,
    lake_type: str,
    path: str,
    value_count: int | None,
    null_count: int | None,
    minimum: str | None,
    maximum: str | None,
    contains_null: bool | None,
    table_minimum: str | None,
    table_maximum: str | None,
) -> Iterator[Problem]:
    kind = column_type(lake_type)
    place = f"{column} of {table}, file {path}"
    if kind is None:
        return
    if null_count and contains_null is False:
        yield Problem("table statistics know of NULLs", place)
    if minimum is None or maximum is None:
        return
    low, high = bound_key(minimum, kind), bound_key(maximum, kind)
    if low is None or high is None:
        return
    if low > high:
        yield Problem("a minimum is not above its maximum", place)
    if table_minimum is None or table_maximum is None:
        yield Problem("table bounds enclose file bounds", f"{place}: the table has none")
        return
    outer_low, outer_high = bound_key(table_minimum, kind), bound_key(table_maximum, kind)
    if (outer_low is not None and outer_low > low) or (outer_high is not None and outer_high < high):
        yield Problem("table bounds enclose file bounds", f"{place}: {minimum}..{maximum}")
