"""The tables of a DuckLake 1.0 catalog in PostgreSQL, and the first rows of a new lake.

The official extension inserts by position, so the order of columns is part of the format and no column may be added.
Indexes may: those here serve our lookups and those of the extension.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "1.0"

_TABLES: Final = """
metadata: key VARCHAR NOT NULL, value VARCHAR NOT NULL, scope VARCHAR, scope_id BIGINT
snapshot: snapshot_id BIGINT PRIMARY KEY, snapshot_time TIMESTAMPTZ, schema_version BIGINT, next_catalog_id BIGINT,
  next_file_id BIGINT
snapshot_changes: snapshot_id BIGINT PRIMARY KEY, changes_made VARCHAR, author VARCHAR, commit_message VARCHAR,
  commit_extra_info VARCHAR
schema: schema_id BIGINT PRIMARY KEY, schema_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_name VARCHAR,
  path VARCHAR, path_is_relative BOOLEAN
table: table_id BIGINT, table_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT,
  table_name VARCHAR, path VARCHAR, path_is_relative BOOLEAN
view: view_id BIGINT, view_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT, view_name VARCHAR,
  dialect VARCHAR, sql VARCHAR, column_aliases VARCHAR
tag: object_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR, value VARCHAR
column_tag: table_id BIGINT, column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR, value VARCHAR
column: column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, table_id BIGINT, column_order BIGINT,
  column_name VARCHAR, column_type VARCHAR, initial_default VARCHAR, default_value VARCHAR, nulls_allowed BOOLEAN,
  parent_column BIGINT, default_value_type VARCHAR, default_value_dialect VARCHAR
data_file: data_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT,
  file_order BIGINT, path VARCHAR, path_is_relative BOOLEAN, file_format VARCHAR, record_count BIGINT,
  file_size_bytes BIGINT, footer_size BIGINT, row_id_start BIGINT, partition_id BIGINT, encryption_key VARCHAR,
  mapping_id BIGINT, partial_max BIGINT
delete_file: delete_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT,
  data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, format VARCHAR, delete_count BIGINT,
  file_size_bytes BIGINT, footer_size BIGINT, encryption_key VARCHAR, partial_max BIGINT
file_column_stats: data_file_id BIGINT, table_id BIGINT, column_id BIGINT, column_size_bytes BIGINT, value_count BIGINT,
  null_count BIGINT, min_value VARCHAR, max_value VARCHAR, contains_nan BOOLEAN, extra_stats VARCHAR
file_variant_stats: data_file_id BIGINT, table_id BIGINT, column_id BIGINT, variant_path VARCHAR,
  shredded_type VARCHAR, column_size_bytes BIGINT, value_count BIGINT, null_count BIGINT, min_value VARCHAR,
  max_value VARCHAR, contains_nan BOOLEAN, extra_stats VARCHAR
table_stats: table_id BIGINT, record_count BIGINT, next_row_id BIGINT, file_size_bytes BIGINT
table_column_stats: table_id BIGINT, column_id BIGINT, contains_null BOOLEAN, contains_nan BOOLEAN, min_value VARCHAR,
  max_value VARCHAR, extra_stats VARCHAR
partition_info: partition_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT
partition_column: partition_id BIGINT, table_id BIGINT, partition_key_index BIGINT, column_id BIGINT, transform VARCHAR
file_partition_value: data_file_id BIGINT, table_id BIGINT, partition_key_index BIGINT, partition_value VARCHAR
files_scheduled_for_deletion: data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, schedule_start TIMESTAMPTZ
inlined_data_tables: table_id BIGINT, table_name VARCHAR, schema_version BIGINT
column_mapping: mapping_id BIGINT, table_id BIGINT, type VARCHAR
name_mapping: mapping_id BIGINT, column_id BIGINT, source_name VARCHAR, target_field_id BIGINT, parent_column BIGINT,
  is_partition BOOLEAN
schema_versions: begin_snapshot BIGINT, schema_version BIGINT, table_id BIGINT
macro: schema_id BIGINT, macro_id BIGINT, macro_name VARCHAR, begin_snapshot BIGINT, end_snapshot BIGINT
macro_impl: macro_id BIGINT, impl_id BIGINT, dialect VARCHAR, sql VARCHAR, type VARCHAR
macro_parameters: macro_id BIGINT, impl_id BIGINT, column_id BIGINT, parameter_name VARCHAR, parameter_type VARCHAR,
  default_value VARCHAR, default_value_type VARCHAR
sort_info: sort_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT
sort_expression: sort_id BIGINT, table_id BIGINT, sort_key_index BIGINT, expression VARCHAR, dialect VARCHAR,
  sort_direction VARCHAR, null_order VARCHAR
"""

_INDEXES: Final = {
    "data_file": (
        ("live", "(table_id) WHERE end_snapshot IS NULL"),
        ("ended", "(table_id, end_snapshot) WHERE end_snapshot IS NOT NULL"),
    ),
    "delete_file": (("by_file", "(table_id, data_file_id)"),),
    "file_column_stats": (("by_column", "(table_id, column_id)"), ("by_file", "(data_file_id)")),
    "file_partition_value": (("by_file", "(table_id, data_file_id)"),),
    "table_column_stats": (("by_table", "(table_id)"),),
    "column": (("by_table", "(table_id)"),),
    "table": (("by_name", "(table_name)"),),
}

_FIRST_ROWS: Final = """
INSERT INTO {c}.ducklake_snapshot VALUES (0, now(), 0, 1, 0);
INSERT INTO {c}.ducklake_snapshot_changes VALUES (0, 'created_schema:"main"', NULL, NULL, NULL);
INSERT INTO {c}.ducklake_schema VALUES (0, gen_random_uuid(), 0, NULL, 'main', 'main/', true);
"""


def parse_tables() -> dict[str, tuple[str, ...]]:
    """Column definitions by table name (without the prefix `ducklake_`), in their order."""
    text = _TABLES.replace("\n  ", " ").strip()
    tables: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        name, _, columns = line.partition(": ")
        tables[name] = tuple(columns.split(", "))
    return tables


def create_statements() -> tuple[str, ...]:
    """Statements for an empty catalog; `{c}` stands for the quoted schema.

    The metadata rows with values (version, data path, ...) are inserted by the caller.
    """
    creates = [f"CREATE TABLE {{c}}.ducklake_{name} ({', '.join(columns)})" for name, columns in parse_tables().items()]
    rows = [statement.strip() for statement in _FIRST_ROWS.split(";") if statement.strip()]
    return ("CREATE SCHEMA IF NOT EXISTS {c}", *creates, *index_statements(), *rows)


def index_statements() -> tuple[str, ...]:
    """Statements that add our indexes where they are missing; harmless to other readers and writers."""
    return tuple(
        f"CREATE INDEX IF NOT EXISTS pgt_{table}_{suffix} ON {{c}}.ducklake_{table} {definition}"
        for table, indexes in _INDEXES.items()
        for suffix, definition in indexes
    )
