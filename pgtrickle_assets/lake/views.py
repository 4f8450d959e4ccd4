"""Views in the lake: SQL that DuckDB runs when the view is read.

The text is DuckDB's dialect. In it, `{DUCKLAKE_CATALOG}` stands for the name under which the lake is attached, so that
`{DUCKLAKE_CATALOG}.gold.orders` means this lake's table wherever the view is read; DuckDB 1.5.5 stores views that way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake import table_creation as creation
from pgtrickle_assets.lake.changes import created, touched
from pgtrickle_assets.lake.commit_session import Answer, CatalogOperation, CommitSession
from pgtrickle_assets.lake.naming import SCHEMA_NAMED
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    from pgtrickle_assets.lake.catalog import Lake

CATALOG_PLACEHOLDER: Final = "{DUCKLAKE_CATALOG}"

_INSERT: Final = "INSERT INTO {c}.ducklake_view VALUES (%s, gen_random_uuid(), %s, NULL, %s, %s, 'duckdb', %s, '')"
_END: Final = "UPDATE {c}.ducklake_view SET end_snapshot = %s WHERE view_id = %s AND end_snapshot IS NULL"
_END_TAGS: Final = "UPDATE {c}.ducklake_tag SET end_snapshot = %s WHERE object_id = %s AND end_snapshot IS NULL"
_STORED: Final = """
SELECT s.schema_name, v.view_name, v.sql, t.value FROM {c}.ducklake_view v
JOIN {c}.ducklake_schema s ON s.schema_id = v.schema_id AND s.end_snapshot IS NULL
LEFT JOIN {c}.ducklake_tag t ON t.object_id = v.view_id AND t.key = 'comment' AND t.end_snapshot IS NULL
WHERE v.end_snapshot IS NULL
"""


class _OfView(CatalogOperation):
    def __init__(self, view: TableName) -> None:
        self._name = view
        self._schema: Answer | None = None
        self._existing: Answer | None = None

    def read(self, session: CommitSession) -> None:
        """Look for the schema and for anything of the same name."""
        name = self._name
        self._schema = session.ask(SCHEMA_NAMED, (name.schema,))
        self._existing = session.ask(creation.OBJECT_NAMED, (name.schema, name.name, name.schema, name.name))

    def _found(self) -> tuple[Any, ...] | None:
        return self._existing.row() if self._existing else None

    def _end(self, session: CommitSession, view_id: int) -> None:
        session.write(_END, (session.snapshot_id, view_id))
        session.write(_END_TAGS, (session.snapshot_id, view_id))
        session.note(touched("dropped_view", view_id))


class CreateView(_OfView):
    """Create a view, and its schema where that is new.

    Args:
        view: Name of the view.
        query: SELECT statement in DuckDB's dialect; see the module's text for naming tables.
        replace: Replace a view of the same name; a table of that name is always an error.
        comment: Comment of the view; empty for none.
    """

    def __init__(self, view: TableName, query: str, *, replace: bool = True, comment: str = "") -> None:
        super().__init__(view)
        self._query = query
        self._replace = replace
        self._comment = comment

    def stage(self, session: CommitSession) -> None:
        """Stage the view."""
        existing = self._found()
        if existing is not None and (existing[0] != "view" or not self._replace):
            raise LakeError(f"a {existing[0]} called {self._name.schema}.{existing[2]} exists already")
        session.shape_changed()
        if existing is not None:
            self._end(session, existing[1])
        found = self._schema.row() if self._schema else None
        schema_id = creation.new_schema(session, self._name.schema) if found is None else found[0]
        view_id = session.new_catalog_id()
        session.write(_INSERT, (view_id, session.snapshot_id, schema_id, self._name.name, self._query))
        if self._comment:
            session.write(creation.INSERT_COMMENT, (view_id, session.snapshot_id, self._comment))
        session.note(created("view", self._name.schema, self._name.name))


class DropView(_OfView):
    """End a view.

    Args:
        view: Name of the view.
        missing_ok: Do nothing when there is none; for use beside other operations, as a commit must change something.
    """

    def __init__(self, view: TableName, *, missing_ok: bool = False) -> None:
        super().__init__(view)
        self._missing_ok = missing_ok

    def stage(self, session: CommitSession) -> None:
        """Stage the end of the view."""
        existing = self._found()
        if existing is None or existing[0] != "view":
            if self._missing_ok:
                return
            raise LakeError(f"there is no view {self._name} in the lake")
        session.shape_changed()
        self._end(session, existing[1])


@dataclass(frozen=True, slots=True)
class StoredView:
    """A view as the lake has it."""

    query: str
    comment: str


def stored_views(lake: Lake) -> dict[TableName, StoredView]:
    """All views of the newest snapshot."""
    rows = lake.connections.fetch(lake.sql(_STORED), ())
    return {TableName(schema, name): StoredView(query, comment or "") for schema, name, query, comment in rows}


def lake_relation(table: TableName) -> str:
    """How the text of a view names a table of its own lake."""
    quoted = ('"' + part.replace('"', '""') + '"' for part in (table.schema, table.name))
    return ".".join((CATALOG_PLACEHOLDER, *quoted))
