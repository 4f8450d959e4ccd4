"""Change the catalog's shape: schemas, tables, columns and comments, each an operation of a commit.

Rows and counters are those that DuckDB 1.5.5 writes for the same statement. An operation looks at the table as it is
under the catalog lock, so it needs no conflict check of its own. Run one or several with `alter`, or together with
table changes through `commit(..., operations=...)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake import table_creation as creation
from pgtrickle_assets.lake.changes import created, touched
from pgtrickle_assets.lake.commit import CommitPolicy, CommitResult, run_commit
from pgtrickle_assets.lake.commit_session import Answer, CatalogOperation, CommitSession, Operation
from pgtrickle_assets.lake.inline_layout import inline_table_columns
from pgtrickle_assets.lake.model import LakeColumn
from pgtrickle_assets.lake.naming import SCHEMA_NAMED
from pgtrickle_assets.lake.sqltext import quoted
from pgtrickle_assets.lake.types import nodes
from pgtrickle_assets.query.types import ColumnSchema, TableName

if TYPE_CHECKING:
    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.lake.commit_rounds import Within

_TABLE: Final = """
SELECT t.table_id, t.schema_id, t.table_uuid, t.path, t.path_is_relative, t.table_name,
  (SELECT coalesce(max(c.column_id), 0) FROM {c}.ducklake_column c WHERE c.table_id = t.table_id),
  (SELECT count(*) FROM {c}.ducklake_inlined_data_tables i WHERE i.table_id = t.table_id),
  (SELECT array_agg(k.column_id) FROM {c}.ducklake_partition_info p JOIN {c}.ducklake_partition_column k
     ON k.partition_id = p.partition_id WHERE p.table_id = t.table_id AND p.end_snapshot IS NULL),
  (SELECT count(*) FROM {c}.ducklake_sort_info o WHERE o.table_id = t.table_id AND o.end_snapshot IS NULL),
  EXISTS (SELECT 1 FROM {c}.ducklake_data_file f WHERE f.table_id = t.table_id AND f.end_snapshot IS NULL)
FROM {c}.ducklake_table t JOIN {c}.ducklake_schema s ON s.schema_id = t.schema_id
WHERE s.schema_name = %s AND t.table_name = %s AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL
"""
_COLUMNS: Final = """
SELECT column_id, column_order, column_name, column_type, initial_default, default_value, nulls_allowed, parent_column,
  default_value_type, default_value_dialect
FROM {c}.ducklake_column c WHERE end_snapshot IS NULL AND table_id IN (
  SELECT t.table_id FROM {c}.ducklake_table t JOIN {c}.ducklake_schema s ON s.schema_id = t.schema_id
  WHERE s.schema_name = %s AND t.table_name = %s AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL)
ORDER BY column_order, column_id
"""
_END_COLUMNS: Final = """
UPDATE {c}.ducklake_column SET end_snapshot = %s WHERE table_id = %s AND column_id = ANY(%s) AND end_snapshot IS NULL
"""
_INSERT_COLUMN: Final = "INSERT INTO {c}.ducklake_column VALUES (%s, %s, NULL, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_END_TAG: Final = """
UPDATE {c}.ducklake_tag SET end_snapshot = %s WHERE object_id = %s AND key = 'comment' AND end_snapshot IS NULL
"""
_END_COLUMN_TAG: Final = """
UPDATE {c}.ducklake_column_tag SET end_snapshot = %s
WHERE table_id = %s AND column_id = %s AND key = 'comment' AND end_snapshot IS NULL
"""
_INSERT_COLUMN_TAG: Final = "INSERT INTO {c}.ducklake_column_tag VALUES (%s, %s, %s, NULL, 'comment', %s)"
_END_TABLE: Final = "UPDATE {c}.ducklake_table SET end_snapshot = %s WHERE table_id = %s AND end_snapshot IS NULL"
_INSERT_RENAMED: Final = "INSERT INTO {c}.ducklake_table VALUES (%s, %s, %s, NULL, %s, %s, %s, %s)"
_END_OF_TABLE: Final = (
    "partition_info", "sort_info", "column", "column_tag", "data_file", "delete_file",
)  # fmt: skip
_END_TAGS: Final = "UPDATE {c}.ducklake_tag SET end_snapshot = %s WHERE object_id = %s AND end_snapshot IS NULL"
_END_SCHEMA: Final = "UPDATE {c}.ducklake_schema SET end_snapshot = %s WHERE schema_id = %s AND end_snapshot IS NULL"
_IN_SCHEMA: Final = """
SELECT t.table_name FROM {c}.ducklake_table t JOIN {c}.ducklake_schema s ON s.schema_id = t.schema_id
WHERE s.schema_name = %s AND s.end_snapshot IS NULL AND t.end_snapshot IS NULL
UNION ALL SELECT v.view_name FROM {c}.ducklake_view v JOIN {c}.ducklake_schema s ON s.schema_id = v.schema_id
WHERE s.schema_name = %s AND s.end_snapshot IS NULL AND v.end_snapshot IS NULL
LIMIT 1
"""
_REGISTER_INLINE: Final = "INSERT INTO {c}.ducklake_inlined_data_tables VALUES (%s, %s, %s)"


def alter(
    lake: Lake,
    *operations: Operation,
    author: str = "",
    message: str = "",
    extra_info: Mapping[str, object] | None = None,
    within: Within | None = None,
    policy: CommitPolicy | None = None,
) -> CommitResult:
    """Commit operations on the catalog's shape as one snapshot, on whatever the newest state is.

    Raises:
        LakeError: An operation does not fit the newest state, e.g. the table does not exist.
        LakeUnavailableError: The catalog could not be reached, or the race was lost too often.
    """
    return run_commit(
        lake,
        base=lake.head(),
        operations=operations,
        author=author,
        message=message,
        extra_info=extra_info,
        within=within,
        policy=policy,
    )


class CreateSchema(CatalogOperation):
    """Create a schema; an error when there is one of that name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._found: Answer | None = None

    def read(self, session: CommitSession) -> None:
        """Look for the name."""
        self._found = session.ask(SCHEMA_NAMED, (self._name,))

    def stage(self, session: CommitSession) -> None:
        """Stage the schema."""
        if self._found is not None and self._found.row() is not None:
            raise LakeError(f"schema {self._name} exists already in the lake")
        creation.new_schema(session, self._name)


class DropSchema(CatalogOperation):
    """End an empty schema."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._found: Answer | None = None
        self._content: Answer | None = None

    def read(self, session: CommitSession) -> None:
        """Look for the schema and for what is in it."""
        self._found = session.ask(SCHEMA_NAMED, (self._name,))
        self._content = session.ask(_IN_SCHEMA, (self._name, self._name))

    def stage(self, session: CommitSession) -> None:
        """Stage the end of the schema."""
        found = self._found.row() if self._found else None
        content = self._content.row() if self._content else None
        if found is None:
            raise LakeError(f"there is no schema {self._name} in the lake")
        if content is not None:
            raise LakeError(f"schema {self._name} still holds {content[0]}", hint="Drop what is in it first.")
        session.write(_END_SCHEMA, (session.snapshot_id, found[0]))
        session.write(_END_TAGS, (session.snapshot_id, found[0]))
        session.shape_changed()
        session.note(touched("dropped_schema", found[0]))


class _OfTable(CatalogOperation):
    """An operation on one existing table; subclasses stage their rows in `_apply`."""

    def __init__(self, table: TableName) -> None:
        self._name = table
        self._table: Answer | None = None
        self._columns: Answer | None = None
        self._row: tuple[Any, ...] = ()
        self._column_rows: list[tuple[Any, ...]] = []

    def read(self, session: CommitSession) -> None:
        """Ask for the table as it is."""
        key = (self._name.schema, self._name.name)
        self._table = session.ask(_TABLE, key)
        self._columns = session.ask(_COLUMNS, key)

    def stage(self, session: CommitSession) -> None:
        """Stage the rows of the operation."""
        row = self._table.row() if self._table else None
        if row is None:
            raise LakeError(f"there is no table {self._name} in the lake")
        self._row = row
        self._column_rows = self._columns.rows() if self._columns else []
        session.shape_changed()
        self._apply(session)

    def _apply(self, session: CommitSession) -> None:
        raise NotImplementedError

    @property
    def _id(self) -> int:
        return self._row[0]

    def _column(self, name: str) -> tuple[Any, ...]:
        found = [row for row in self._column_rows if row[7] is None and row[2].lower() == name.lower()]
        if not found:
            raise LakeError(f"table {self._name} has no column {name}")
        return found[0]

    def _require_new_column(self, name: str) -> None:
        if any(row[7] is None and row[2].lower() == name.lower() for row in self._column_rows):
            raise LakeError(f"table {self._name} has a column {name} already")

    def _subtree(self, column_id: int) -> list[int]:
        below = [row[0] for row in self._column_rows if row[7] == column_id]
        return [column_id, *(node for child in below for node in self._subtree(child))]

    def _altered(self, session: CommitSession, *, columns: Sequence[tuple[str, str]] | None = None) -> None:
        """Note the change; with new (name, type) of top-level columns, also what goes with a new column shape."""
        session.note(touched("altered_table", self._id))
        if columns is not None:
            self._new_shape(session, columns)

    def _new_shape(self, session: CommitSession, columns: Sequence[tuple[str, str]]) -> None:
        version = session.schema_version
        session.write(creation.INSERT_VERSION, (session.snapshot_id, version, self._id))
        if self._row[7]:
            # A table with inlined rows needs an inline table for each shape, or DuckDB's next small insert is lost.
            name = f"ducklake_inlined_data_{self._id}_{version}"
            session.write(f"CREATE TABLE {{c}}.{quoted(name)} ({inline_table_columns(columns)})", ())
            session.write(_REGISTER_INLINE, (self._id, name, version))

    def _top_level(self) -> list[tuple[int, str, str]]:
        return [(row[0], row[2], row[3]) for row in self._column_rows if row[7] is None]

    def _refuse_sorted(self, what: str) -> None:
        if self._row[9]:
            raise LakeError(f"table {self._name} has a sort order, so {what}", hint="Remove the sort order in DuckDB.")


class DropTable(_OfTable):
    """End a table with its files, columns, comments and partition spec."""

    def _apply(self, session: CommitSession) -> None:
        at = session.snapshot_id
        session.write(_END_TABLE, (at, self._id))
        for table in _END_OF_TABLE:
            session.write(
                f"UPDATE {{c}}.ducklake_{table} SET end_snapshot = %s WHERE table_id = %s AND end_snapshot IS NULL",  # noqa: S608
                (at, self._id),
            )
        session.write(_END_TAGS, (at, self._id))
        session.note(touched("dropped_table", self._id))


class RenameTable(_OfTable):
    """Give a table another name in the same schema."""

    def __init__(self, table: TableName, new_name: str) -> None:
        super().__init__(table)
        self._new_name = new_name
        self._existing: Answer | None = None

    def read(self, session: CommitSession) -> None:
        """Also look for the new name."""
        super().read(session)
        names = (self._name.schema, self._new_name)
        self._existing = session.ask(creation.OBJECT_NAMED, (*names, *names))

    def _apply(self, session: CommitSession) -> None:
        existing = self._existing.row() if self._existing else None
        if existing is not None:
            raise LakeError(f"a {existing[0]} called {self._name.schema}.{existing[2]} exists already")
        table_id, schema_id, uuid, path, relative = self._row[:5]
        at = session.snapshot_id
        session.write(_END_TABLE, (at, table_id))
        session.write(_INSERT_RENAMED, (table_id, uuid, at, schema_id, self._new_name, path, relative))
        session.note(created("table", self._name.schema, self._new_name))
        self._new_shape(session, [(name, kind) for _, name, kind in self._top_level()])


class AddColumn(_OfTable):
    """Add a column at the end; existing rows read as the default.

    Args:
        table: Name of the table.
        column: The column; NOT NULL needs a default when the table has files.
        default: Literal in DuckLake's text form, or None for NULL.
    """

    def __init__(self, table: TableName, column: ColumnSchema, default: str | None = None) -> None:
        super().__init__(table)
        self._column_schema = column
        self._default = default

    def _apply(self, session: CommitSession) -> None:
        column = self._column_schema
        self._require_new_column(column.name)
        if not column.nullable and self._default is None and self._row[10]:
            raise LakeError(
                f"column {column.name} can't be added as NOT NULL to {self._name}, which has rows",
                hint="Give a default.",
            )
        first = self._row[6] + 1
        names = nodes(column.type)
        children = tuple(range(first + 1, first + len(names)))
        added = LakeColumn(first, column.name, column.type, column.nullable, self._default, children)
        creation.stage_columns(session, self._id, (added,))
        shape = [(name, kind) for _, name, kind in self._top_level()]
        self._altered(session, columns=[*shape, (column.name, names[0])])


class DropColumn(_OfTable):
    """End a column; its values stay readable in older snapshots."""

    def __init__(self, table: TableName, column: str) -> None:
        super().__init__(table)
        self._column_name = column

    def _apply(self, session: CommitSession) -> None:
        column_id = self._column(self._column_name)[0]
        if column_id in (self._row[8] or []):
            raise LakeError(f"column {self._column_name} partitions {self._name} and can't be dropped")
        self._refuse_sorted(f"column {self._column_name} can't be dropped")
        rest = [(name, kind) for node, name, kind in self._top_level() if node != column_id]
        if not rest:
            raise LakeError(f"column {self._column_name} is the only one of {self._name} and can't be dropped")
        at = session.snapshot_id
        session.write(_END_COLUMNS, (at, self._id, self._subtree(column_id)))
        session.write(_END_COLUMN_TAG, (at, self._id, column_id))
        self._altered(session, columns=rest)


class RenameColumn(_OfTable):
    """Give a column another name."""

    def __init__(self, table: TableName, column: str, new_name: str) -> None:
        super().__init__(table)
        self._column_name = column
        self._new_name = new_name

    def _apply(self, session: CommitSession) -> None:
        row = self._column(self._column_name)
        if self._new_name.lower() != self._column_name.lower():
            self._require_new_column(self._new_name)
        self._refuse_sorted(f"column {self._column_name} can't be renamed")
        column_id, order, _, *rest = row
        at = session.snapshot_id
        session.write(_END_COLUMNS, (at, self._id, [column_id]))
        session.write(_INSERT_COLUMN, (column_id, at, self._id, order, self._new_name, *rest))
        shape = [(self._new_name if node == column_id else name, kind) for node, name, kind in self._top_level()]
        self._altered(session, columns=shape)


class Comment(_OfTable):
    """Set the comment of a table, or of one of its columns; an empty text removes it."""

    def __init__(self, table: TableName, text: str, *, column: str | None = None) -> None:
        super().__init__(table)
        self._text = text or None
        self._column_name = column

    def _apply(self, session: CommitSession) -> None:
        at = session.snapshot_id
        if self._column_name is None:
            session.write(_END_TAG, (at, self._id))
            session.write(creation.INSERT_COMMENT, (self._id, at, self._text))
        else:
            column_id = self._column(self._column_name)[0]
            session.write(_END_COLUMN_TAG, (at, self._id, column_id))
            session.write(_INSERT_COLUMN_TAG, (self._id, column_id, at, self._text))
        self._altered(session)
