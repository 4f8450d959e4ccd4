"""Create schemas and tables inside a commit."""

from __future__ import annotations

from typing import Any

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.changes import created
from pgtrickle_assets.lake.commit_session import Answer, CommitSession
from pgtrickle_assets.lake.conflicts import conflict
from pgtrickle_assets.lake.model import LakeColumn, LakeTable, TableDefinition
from pgtrickle_assets.lake.naming import SCHEMA_NAMED, directory_of, planned_table, table_path
from pgtrickle_assets.lake.types import nodes

OBJECT_NAMED = """
SELECT 'table', t.table_id, t.table_name FROM {c}.ducklake_table t
JOIN {c}.ducklake_schema s ON s.schema_id = t.schema_id
WHERE lower(s.schema_name) = lower(%s) AND lower(t.table_name) = lower(%s)
  AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL
UNION ALL
SELECT 'view', v.view_id, v.view_name FROM {c}.ducklake_view v JOIN {c}.ducklake_schema s ON s.schema_id = v.schema_id
WHERE lower(s.schema_name) = lower(%s) AND lower(v.view_name) = lower(%s)
  AND v.end_snapshot IS NULL AND s.end_snapshot IS NULL
"""

INSERT_TABLE = "INSERT INTO {c}.ducklake_table VALUES (%s, gen_random_uuid(), %s, NULL, %s, %s, %s, true)"
INSERT_VERSION = "INSERT INTO {c}.ducklake_schema_versions VALUES (%s, %s, %s)"
INSERT_COMMENT = "INSERT INTO {c}.ducklake_tag VALUES (%s, %s, NULL, 'comment', %s)"

_INSERT_SCHEMA = "INSERT INTO {c}.ducklake_schema VALUES (%s, gen_random_uuid(), %s, NULL, %s, %s, true)"
_INSERT_PARTITION = "INSERT INTO {c}.ducklake_partition_info VALUES (%s, %s, %s, NULL)"
COLUMN_TYPES = (
    "bigint", "bigint", "bigint", "bigint", "bigint", "varchar", "varchar", "varchar", "varchar", "boolean", "bigint",
    "varchar", "varchar",
)  # fmt: skip


class TableCreation:
    """One table to create, and its schema where that is new."""

    def __init__(self, definition: TableDefinition, planned_path: str) -> None:
        self._definition = definition
        self._planned_path = planned_path
        self._schema: Answer | None = None
        self._existing: Answer | None = None

    def read(self, session: CommitSession) -> None:
        """Look for the schema and for anything of the same name."""
        name = self._definition.name
        self._schema = session.ask(SCHEMA_NAMED, (name.schema,))
        self._existing = session.ask(OBJECT_NAMED, (name.schema, name.name, name.schema, name.name))

    def stage(self, session: CommitSession) -> LakeTable:
        """Stage the table and return it with its ids.

        Raises:
            LakeConflictError: The name is taken.
        """
        if self._schema is None or self._existing is None:
            raise AssertionError("read comes before stage")
        name = self._definition.name
        existing = self._existing.row()
        if existing is not None:
            raise conflict(f"a {existing[0]} called {name.schema}.{existing[2]} exists already")
        schema_id, path = stage_schema(session, name.schema, self._schema.row(), self._definition)
        if path != self._planned_path:
            raise conflict(f"schema {name.schema} was created at another place than planned")
        session.shape_changed()
        table_id = session.new_catalog_id()
        at = session.snapshot_id
        directory = directory_of(name.schema, name.name)
        session.write(INSERT_TABLE, (table_id, at, schema_id, name.name, directory))
        session.write(INSERT_VERSION, (at, session.schema_version, table_id))
        table = planned_table(self._definition, path, at, session.schema_version)
        stage_columns(session, table_id, table.columns)
        if self._definition.comment:
            session.write(INSERT_COMMENT, (table_id, at, self._definition.comment))
        session.note(created("table", name.schema, name.name))
        partition_id = stage_partition(session, table_id, table) if table.partition_fields else None
        return LakeTable(
            table_id, name, table.columns, path, at, session.schema_version, partition_id, table.partition_fields
        )


def stage_schema(
    session: CommitSession, name: str, found: tuple[Any, ...] | None, definition: TableDefinition
) -> tuple[int, str]:
    """(schema id, full path of the table): of the schema as it is, or of a new one that is staged.

    Raises:
        LakeError: A schema whose name differs in case only exists; DuckDB could not tell them apart.
    """
    if found is not None:
        schema_id, existing, path, relative = found
        if existing != name:
            raise LakeError(f"schema {name} can't be created: {existing} exists, and case does not tell them apart")
        return schema_id, table_path(session.data_path, path, relative, definition)
    schema_id = new_schema(session, name)
    return schema_id, table_path(session.data_path, directory_of(name), True, definition)


def new_schema(session: CommitSession, name: str) -> int:
    """Stage a new schema, once for each commit; its id."""
    if name in session.new_schemas:
        return session.new_schemas[name]
    session.shape_changed()
    schema_id = session.new_catalog_id()
    session.write(_INSERT_SCHEMA, (schema_id, session.snapshot_id, name, directory_of(name)))
    session.note(created("schema", name))
    session.new_schemas[name] = schema_id
    return schema_id


def stage_columns(session: CommitSession, table_id: int, columns: tuple[LakeColumn, ...]) -> None:
    """Stage the rows of the columns' type trees."""
    rows = [row for column in columns for row in column_rows(column, table_id, session.snapshot_id)]
    session.write_rows("column", COLUMN_TYPES, rows)


def column_rows(column: LakeColumn, table_id: int, at: int) -> list[tuple[object, ...]]:
    """Rows of one column, its root first. An absent default is the text NULL; nested roots have no kind of default."""
    names = nodes(column.type)
    ids = (column.id, *column.child_ids)
    rows: list[tuple[object, ...]] = []
    for depth, (node, kind) in enumerate(zip(ids, names, strict=True)):
        root = depth == 0
        default = column.initial_default if root else None
        rows.append(
            (
                node, at, None, table_id, node, column.name if root else "element", kind, default,
                "NULL" if default is None else default, column.nullable if root else True,
                None if root else ids[depth - 1], "" if kind == "list" else "literal", "duckdb",
            )
        )  # fmt: skip
    return rows


def stage_partition(session: CommitSession, table_id: int, table: LakeTable) -> int:
    """Stage a partition spec; its id."""
    partition_id = session.new_catalog_id()
    session.write(_INSERT_PARTITION, (partition_id, table_id, session.snapshot_id))
    session.write_rows(
        "partition_column",
        ("bigint", "bigint", "bigint", "bigint", "varchar"),
        [
            (partition_id, table_id, index, field.column_id, field.transform)
            for index, field in enumerate(table.partition_fields)
        ],
    )
    return partition_id
