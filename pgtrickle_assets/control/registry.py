"""The registry of stream tables and what they read.

A stream table made from SQL and one made from a file are the same kind of row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.control.database import fetch, fetch_one, run, scalar
from pgtrickle_assets.control.statuses import Origin, SourceType, StreamTableStatus
from pgtrickle_assets.errors import ControlError
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    from datetime import datetime

    from pgtrickle_assets.control.database import Handle


@dataclass(frozen=True, slots=True)
class Dependency:
    """Something a stream table reads.

    Attributes:
        source_type: Kind of table.
        source_name: The lake table that is read (a mirror, for a source table), as `schema.table`.
        source_database: Source as named in the project, for `TABLE`; else None.
        columns_used: Columns that the query reads.
        schema_fingerprint: Identity of the columns' names and types as planned.
    """

    source_type: SourceType
    source_name: str
    source_database: str | None = None
    columns_used: tuple[str, ...] = ()
    schema_fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class StreamTableDefinition:
    """A stream table as a project, or SQL, defines it.

    Attributes:
        name: Lake table.
        origin: Where it is defined.
        origin_path: File, relative to the project; None for the other origins.
        original_query: The query as the user wrote it.
        defining_query: The query as it is planned.
        dialect: `postgres` or `spark`.
        schedule: Duration, cron expression, `calculated` or `manual`.
        refresh_mode: `auto`, `differential` or `full`, as the user set it.
        effective_refresh_mode: `differential` or `full`, as the query allows.
        mode_reasons: Why not better, as `{"code": ..., "detail": ...}`.
        state_tables: State tables of the lake that belong to it.
        partition_by: As the user wrote it; None for one partition.
        options: All other options.
        description: Text for people.
        owners: As the user wrote them.
        tags: As the user wrote them.
        dependencies: What it reads.
        state_content: What its state tables hold; another version of the engine may keep something else in them.
    """

    name: TableName
    origin: Origin
    original_query: str
    defining_query: str
    origin_path: str | None = None
    dialect: str = "postgres"
    schedule: str = "calculated"
    refresh_mode: str = "auto"
    effective_refresh_mode: str | None = None
    mode_reasons: tuple[Mapping[str, str], ...] = ()
    state_tables: tuple[str, ...] = ()
    partition_by: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    dependencies: tuple[Dependency, ...] = ()
    state_content: str = ""

    @property
    def query_hash(self) -> str:
        """Identity of what decides the content, also of state tables: query, dialect and partitioning."""
        parts = (self.defining_query, self.dialect, self.partition_by or "", *filter(None, [self.state_content]))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class StreamTableRow:
    """One row of `pgt_stream_tables`; fields are its columns."""

    pgt_id: int
    pgt_schema: str
    pgt_name: str
    project: str
    origin: str
    origin_path: str | None
    original_query: str
    defining_query: str
    defining_query_hash: str
    dialect: str
    schedule: str
    refresh_mode: str
    effective_refresh_mode: str | None
    mode_reasons: Sequence[Mapping[str, str]]
    state_tables: Sequence[str]
    partition_by: str | None
    options: Mapping[str, Any]
    description: str
    owners: Sequence[str]
    tags: Mapping[str, str]
    status: StreamTableStatus
    is_populated: bool
    needs_reinit: bool
    data_timestamp: datetime | None
    last_refresh_at: datetime | None
    consecutive_errors: int
    last_error_message: str | None
    last_error_at: datetime | None
    created_at: datetime
    updated_at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", StreamTableStatus(self.status))

    @property
    def name(self) -> TableName:
        """The lake table."""
        return TableName(self.pgt_schema, self.pgt_name)


def stored(handle: Handle, *, project: str | None = None) -> list[StreamTableRow]:
    """Registered stream tables of a project, or all, by name."""
    return fetch(
        handle,
        StreamTableRow,
        """
        SELECT s.* FROM pgtrickle.pgt_stream_tables AS s
        WHERE %s::text IS NULL OR project = %s ORDER BY pgt_schema, pgt_name
        """,
        (project, project),
    )


def find(handle: Handle, name: TableName) -> StreamTableRow | None:
    """A registered stream table, or None."""
    return fetch_one(
        handle,
        StreamTableRow,
        "SELECT s.* FROM pgtrickle.pgt_stream_tables AS s WHERE pgt_schema = %s AND pgt_name = %s",
        (name.schema, name.name),
    )


def dependencies(handle: Handle, pgt_id: int | None = None) -> dict[int, tuple[Dependency, ...]]:
    """What stream tables read, by `pgt_id`; of one or of all."""
    rows = fetch(
        handle,
        _DependencyRow,
        """
        SELECT pgt_id, source_type, source_name, source_database, columns_used, schema_fingerprint
        FROM pgtrickle.pgt_dependencies
        WHERE %s::bigint IS NULL OR pgt_id = %s ORDER BY pgt_id, source_name
        """,
        (pgt_id, pgt_id),
    )
    found: dict[int, tuple[Dependency, ...]] = {}
    for row in rows:
        found[row.pgt_id] = (*found.get(row.pgt_id, ()), row.dependency())
    return found


def readers(handle: Handle, pgt_id: int) -> list[StreamTableRow]:
    """Stream tables that read this one directly, by name."""
    return fetch(
        handle,
        StreamTableRow,
        """
        SELECT s.* FROM pgtrickle.pgt_stream_tables AS s JOIN pgtrickle.pgt_dependencies AS d USING (pgt_id)
        WHERE d.source_pgt_id = %s ORDER BY pgt_schema, pgt_name
        """,
        (pgt_id,),
    )


def pause(handle: Handle, pgt_id: int) -> None:
    """Stop the refreshes of a stream table until `resume`."""
    _set_status(handle, pgt_id, StreamTableStatus.PAUSED)


def resume(handle: Handle, pgt_id: int) -> StreamTableStatus:
    """Let a paused, suspended or failed stream table refresh again, its errors forgotten.

    Returns:
        ACTIVE, or INITIALIZING when it was never filled.
    """
    populated = scalar(handle, "SELECT is_populated FROM pgtrickle.pgt_stream_tables WHERE pgt_id = %s", (pgt_id,))
    status = StreamTableStatus.ACTIVE if populated else StreamTableStatus.INITIALIZING
    _set_status(handle, pgt_id, status)
    run(
        handle,
        """
        UPDATE pgtrickle.pgt_stream_tables
        SET consecutive_errors = 0, last_error_message = NULL, last_error_at = NULL WHERE pgt_id = %s
        """,
        (pgt_id,),
    )
    return status


def paused(handle: Handle, project: str) -> frozenset[TableName]:
    """Stream tables of a project that an operator has paused."""
    rows = stored(handle, project=project)
    return frozenset(row.name for row in rows if row.status is StreamTableStatus.PAUSED)


def request_reinit(handle: Handle, pgt_id: int) -> None:
    """Make the next refresh of a stream table full."""
    run(handle, "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true WHERE pgt_id = %s", (pgt_id,))


@dataclass(frozen=True, slots=True)
class _DependencyRow:
    pgt_id: int
    source_type: str
    source_name: str
    source_database: str | None
    columns_used: list[str]
    schema_fingerprint: str | None

    def dependency(self) -> Dependency:
        return Dependency(
            SourceType(self.source_type),
            self.source_name,
            self.source_database,
            tuple(self.columns_used),
            self.schema_fingerprint,
        )


def _set_status(handle: Handle, pgt_id: int, status: StreamTableStatus) -> None:
    touched = run(
        handle,
        "UPDATE pgtrickle.pgt_stream_tables SET status = %s, updated_at = clock_timestamp() WHERE pgt_id = %s",
        (status, pgt_id),
    )
    if touched != 1:
        raise ControlError(f"There is no stream table with id {pgt_id}.")
