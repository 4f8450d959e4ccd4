"""Stream tables that were made from SQL, and refreshes that were asked for there.

The functions of the schema write definitions; registering a project takes them up. What is wrong with one is recorded
beside it, so that it neither stops the others nor is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.control.database import fetch, run
from pgtrickle_assets.control.scrub import scrub
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    from datetime import datetime

    from pgtrickle_assets.control.database import Handle


@dataclass(frozen=True, slots=True)
class SqlDefinition:
    """One row of `pgt_sql_definitions`; fields are its columns.

    Attributes:
        pgt_schema: Schema of the lake table.
        pgt_name: Name of the lake table.
        query: The query as the user wrote it.
        options: Options of the stream table.
        requested_at: When it was made or changed last.
        applied_at: When it was last taken up.
        refused_at: When it was last refused; None when it was not, since it was changed.
        error_message: Why.
    """

    pgt_schema: str
    pgt_name: str
    query: str
    options: Mapping[str, Any]
    requested_at: datetime
    applied_at: datetime | None
    refused_at: datetime | None
    error_message: str | None

    @property
    def name(self) -> TableName:
        """The lake table."""
        return TableName(self.pgt_schema, self.pgt_name)

    @property
    def waits(self) -> bool:
        """Whether it was made or changed since a registration looked at it."""
        seen = [moment for moment in (self.applied_at, self.refused_at) if moment is not None]
        return not seen or max(seen) < self.requested_at


def add_project(handle: Handle, project: str) -> None:
    """Make a project known, so that SQL may make stream tables of it."""
    run(handle, "INSERT INTO pgtrickle.pgt_projects (project) VALUES (%s) ON CONFLICT DO NOTHING", (project,))


def definitions(handle: Handle, project: str) -> list[SqlDefinition]:
    """Stream tables of a project that were made from SQL, by name."""
    return fetch(
        handle,
        SqlDefinition,
        """
        SELECT pgt_schema, pgt_name, query, options, requested_at, applied_at, refused_at, error_message
        FROM pgtrickle.pgt_sql_definitions WHERE project = %s ORDER BY pgt_schema, pgt_name
        """,
        (project,),
    )


def note_outcomes(handle: Handle, seen: Sequence[SqlDefinition], refused: Mapping[TableName, str]) -> None:
    """Record which definitions were taken up and which were not, and why; writes only what is new.

    Args:
        handle: Connection or cursor.
        seen: The definitions that were looked at; one that changed meanwhile is left for the next time.
        refused: Error by name.
    """
    for definition in seen:
        error = refused.get(definition.name)
        text = None if error is None else scrub(error) or "unknown error"
        if not definition.waits and text == definition.error_message:
            continue
        run(
            handle,
            """
            UPDATE pgtrickle.pgt_sql_definitions
            SET applied_at = CASE WHEN %s::text IS NULL THEN clock_timestamp() ELSE applied_at END,
                refused_at = CASE WHEN %s::text IS NULL THEN NULL ELSE clock_timestamp() END, error_message = %s
            WHERE pgt_schema = %s AND pgt_name = %s AND requested_at = %s
            """,
            (text, text, text, definition.pgt_schema, definition.pgt_name, definition.requested_at),
        )


@dataclass(frozen=True, slots=True)
class SqlRequests:
    """What SQL has asked for and nobody has done yet.

    Attributes:
        refreshes: Stream tables to refresh.
        definitions: Stream tables that were made, changed or dropped.
        refused: Why definitions that were looked at were not taken up, by name.
    """

    refreshes: tuple[str, ...]
    definitions: tuple[str, ...]
    refused: Mapping[str, str]


def waiting(handle: Handle, project: str) -> SqlRequests:
    """Requests of a project that wait."""
    asked = fetch(
        handle,
        _Named,
        """
        SELECT DISTINCT stream_table AS name FROM pgtrickle.pgt_requests
        WHERE project = %s AND status = 'WAITING' ORDER BY 1
        """,
        (project,),
    )
    dropped = fetch(
        handle,
        _Named,
        """
        SELECT s.pgt_schema || '.' || s.pgt_name AS name FROM pgtrickle.pgt_stream_tables AS s
        WHERE s.project = %s AND s.origin = 'sql' AND NOT EXISTS (
            SELECT FROM pgtrickle.pgt_sql_definitions AS d
            WHERE d.pgt_schema = s.pgt_schema AND d.pgt_name = s.pgt_name AND d.project = s.project)
        """,
        (project,),
    )
    stored = definitions(handle, project)
    changed = [str(definition.name) for definition in stored if definition.waits]
    return SqlRequests(
        tuple(row.name for row in asked),
        tuple(sorted({*changed, *(row.name for row in dropped)})),
        {str(definition.name): definition.error_message for definition in stored if definition.error_message},
    )


def prune_requests(handle: Handle, *, retention_days: int) -> int:
    """Remove requests that are older than the history; returns how many."""
    return run(
        handle,
        """
        DELETE FROM pgtrickle.pgt_refresh_requests
        WHERE requested_at < clock_timestamp() - make_interval(days => %s)
        """,
        (retention_days,),
    )


@dataclass(frozen=True, slots=True)
class _Named:
    name: str
