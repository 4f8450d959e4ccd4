"""Tables as the catalog describes them at a snapshot: names, column trees, partition spec, location."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.lake.location import with_slash
from pgtrickle_assets.lake.model import LakeColumn, LakeTable, PartitionField
from pgtrickle_assets.lake.sqltext import statement
from pgtrickle_assets.lake.types import column_type
from pgtrickle_assets.query.types import ColumnType, TableName

if TYPE_CHECKING:
    from pgtrickle_assets.lake.connections import CatalogConnection

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A row of `ducklake_snapshot`; the counters are the next free ids after this commit."""

    id: int
    time: datetime
    schema_version: int
    next_catalog_id: int
    next_file_id: int


SNAPSHOT_COLUMNS: Final = "snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id"

OLDEST_SNAPSHOT: Final = "SELECT min(snapshot_id) FROM {c}.ducklake_snapshot"

_WANTED: Final = """
t.table_id, s.schema_name, t.table_name, s.path, s.path_is_relative, t.path, t.path_is_relative
FROM {c}.ducklake_table t JOIN {c}.ducklake_schema s ON s.schema_id = t.schema_id
WHERE {visible:t} AND {visible:s}
  AND (%(names)s::text[] IS NULL OR t.table_name = ANY(%(names)s))
  AND (%(schemas)s::text[] IS NULL OR s.schema_name = ANY(%(schemas)s))
"""

_COLUMNS: Final = """
SELECT c.table_id, c.column_id, c.column_name, c.column_type, c.initial_default, c.nulls_allowed, c.parent_column
FROM {c}.ducklake_column c
WHERE {visible:c} AND c.table_id IN (SELECT t.table_id FROM {c}.ducklake_table t WHERE {visible:t}
  AND (%(names)s::text[] IS NULL OR t.table_name = ANY(%(names)s)))
ORDER BY c.table_id, c.column_order, c.column_id
"""

_PARTITIONS: Final = """
SELECT p.table_id, p.partition_id, k.column_id, k.transform
FROM {c}.ducklake_partition_info p
LEFT JOIN {c}.ducklake_partition_column k ON k.partition_id = p.partition_id AND k.table_id = p.table_id
WHERE {visible:p} AND p.table_id IN (SELECT t.table_id FROM {c}.ducklake_table t WHERE {visible:t}
  AND (%(names)s::text[] IS NULL OR t.table_name = ANY(%(names)s)))
ORDER BY p.table_id, k.partition_key_index
"""


def read_tables(
    connection: CatalogConnection,
    schema: str,
    data_path: str,
    snapshot: Snapshot,
    names: Sequence[TableName] | None = None,
) -> tuple[LakeTable, ...]:
    """The tables at a snapshot, all or those called `names`; three queries in one round trip."""
    parameters = {
        "at": snapshot.id,
        "names": None if names is None else [name.name for name in names],
        "schemas": None if names is None else [name.schema for name in names],
    }
    tables = connection.execute(statement("SELECT" + _WANTED, schema), parameters)
    columns = connection.execute(statement(_COLUMNS, schema), parameters)
    partitions = connection.execute(statement(_PARTITIONS, schema), parameters)
    rows = tables.fetchall()
    columns_of = _by_table(columns.fetchall())
    partitions_of = _by_table(partitions.fetchall())
    wanted = None if names is None else set(names)
    found = [
        _table(row, columns_of[row[0]], partitions_of[row[0]], snapshot, data_path)
        for row in rows
        if wanted is None or TableName(row[1], row[2]) in wanted
    ]
    return tuple(sorted(found, key=lambda table: table.name))


def _by_table(rows: Iterable[Row]) -> defaultdict[int, list[Row]]:
    grouped: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row[0]].append(row[1:])
    return grouped


def _table(row: Row, columns: list[Row], partitions: list[Row], snapshot: Snapshot, data_path: str) -> LakeTable:
    table_id, schema_name, table_name, schema_path, schema_relative, table_path, table_relative = row
    carried, unsupported = build_columns(columns)
    schema_place = join_path(data_path, schema_path, schema_relative)
    return LakeTable(
        id=table_id,
        name=TableName(schema_name, table_name),
        columns=carried,
        path=with_slash(join_path(schema_place, table_path, table_relative)),
        at=snapshot.id,
        schema_version=snapshot.schema_version,
        partition_id=partitions[0][0] if partitions and partitions[0][1] is not None else None,
        partition_fields=tuple(PartitionField(key[1], key[2]) for key in partitions if key[1] is not None),
        unsupported=unsupported,
    )


def join_path(parent: str, path: str | None, relative: bool | None) -> str:
    """`path` as stored, below `parent` when it is relative; an absent path is the parent."""
    if path is None:
        return parent
    return path if relative is False else parent + path


def build_columns(rows: Sequence[Row]) -> tuple[tuple[LakeColumn, ...], tuple[tuple[str, str], ...]]:
    """Top-level columns from the rows of a type tree, and (name, type) of those that are not carried.

    Args:
        rows: (column_id, name, type, initial_default, nulls_allowed, parent_column), in column order.
    """
    children: defaultdict[int | None, list[Row]] = defaultdict(list)
    for row in rows:
        children[row[5]].append(row)
    carried: list[LakeColumn] = []
    unsupported: list[tuple[str, str]] = []
    for column_id, name, lake_type, initial, nullable, _ in children[None]:
        kind, ids = _resolve(column_id, lake_type, children)
        if kind is None:
            unsupported.append((name, lake_type))
        else:
            carried.append(LakeColumn(column_id, name, kind, nullable is not False, initial, ids))
    return tuple(carried), tuple(unsupported)


def _resolve(
    column_id: int, lake_type: str, children: defaultdict[int | None, list[Row]]
) -> tuple[ColumnType | None, tuple[int, ...]]:
    ids: list[int] = []
    kinds: list[ColumnType | None] = []
    for child in children[column_id]:
        kind, below = _resolve(child[0], child[2], children)
        kinds.append(kind)
        ids += [child[0], *below]
    return column_type(lake_type, kinds), tuple(ids)
