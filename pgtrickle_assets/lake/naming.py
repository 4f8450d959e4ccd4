"""Directories of schemas and tables, the same before and in the commit that creates them."""

from __future__ import annotations

import re
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from pgtrickle_assets.lake.location import with_slash
from pgtrickle_assets.lake.model import LakeColumn, LakeTable, PartitionField, TableDefinition
from pgtrickle_assets.lake.table_reading import join_path
from pgtrickle_assets.lake.types import nodes

SCHEMA_NAMED: Final = """
SELECT schema_id, schema_name, path, path_is_relative FROM {c}.ducklake_schema
WHERE lower(schema_name) = lower(%s) AND end_snapshot IS NULL
"""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")


def directory_of(*names: str) -> str:
    """Relative directory of a schema (one name) or a table (schema, table): its name, or a UUID for an unusual one.

    DuckDB takes a random UUID there; ours follows from the names, so that writers know it before the commit.
    """
    name = names[-1]
    return f"{name}/" if _PLAIN.fullmatch(name) else f"{uuid5(NAMESPACE_OID, chr(0).join(names))}/"


def number_columns(definition: TableDefinition) -> tuple[LakeColumn, ...]:
    """Columns of a new table with their ids: from 1, depth first."""
    columns: list[LakeColumn] = []
    next_id = 1
    for column in definition.columns:
        count = len(nodes(column.type))
        children = tuple(range(next_id + 1, next_id + count))
        columns.append(LakeColumn(next_id, column.name, column.type, column.nullable, None, children))
        next_id += count
    return tuple(columns)


def table_path(data_path: str, schema_path: str | None, relative: bool | None, definition: TableDefinition) -> str:
    """Full path of a new table's files, given its schema's stored path."""
    schema_place = join_path(data_path, schema_path, relative)
    return with_slash(schema_place) + directory_of(definition.name.schema, definition.name.name)


def planned_table(definition: TableDefinition, path: str, at: int, schema_version: int) -> LakeTable:
    """The description of a table that the next commit will create; its id and partition id are -1."""
    columns = number_columns(definition)
    by_name = {column.name: column.id for column in columns}
    fields = tuple(PartitionField(by_name[name], transform) for name, transform in definition.partition_by)
    return LakeTable(-1, definition.name, columns, path, at, schema_version, -1 if fields else None, fields)
