"""Bringing the registry to what a project defines.

A project's definitions, from files, Python and SQL, are the truth for the stream tables it owns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle_assets.control.database import as_json, run
from pgtrickle_assets.control.registry import StreamTableDefinition, StreamTableRow, dependencies, readers, stored
from pgtrickle_assets.control.statuses import SourceType
from pgtrickle_assets.errors import ControlError
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    from pgtrickle_assets.control.database import Handle

# Serializes synchronizations of a catalog; any fixed number that no one else locks.
_LOCK_KEY = 0x7067747269636B72


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a synchronization changed.

    Attributes:
        ids: `pgt_id` of every stream table of the project.
        inserted: New stream tables.
        altered: Changed in their options alone; their content stays right.
        redefined: Changed in query or partitioning: the next refresh is full.
        removed: No longer defined: name, `pgt_id` and the state tables that the lake holds for them.
        abandoned: State tables that the new definition of a changed stream table does not have.
        redescribed: Changed in their description.
    """

    ids: Mapping[TableName, int]
    inserted: tuple[TableName, ...]
    altered: tuple[TableName, ...]
    redefined: tuple[TableName, ...]
    removed: tuple[tuple[TableName, int, tuple[str, ...]], ...]
    abandoned: tuple[str, ...] = ()
    redescribed: tuple[TableName, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was different."""
        return bool(self.inserted or self.altered or self.redefined or self.removed)


def sync(
    handle: Handle, project: str, definitions: Sequence[StreamTableDefinition], *, kept: Collection[TableName] = ()
) -> SyncResult:
    """Make the registry hold exactly these definitions for a project. All of it or, on an error, none.

    Reads only when nothing changed. Removed stream tables lose their frontier, history and deliveries here; dropping
    their lake tables is the caller's part, in the same transaction or afterwards.

    Args:
        handle: Connection or cursor; commit afterwards.
        project: Owner of the definitions.
        definitions: All stream tables of the project, in any order.
        kept: Registered stream tables without a usable definition that stay as they are.

    Raises:
        ControlError: A name belongs to another project, or what is removed is read from another project.
    """
    if _is_current(handle, project, definitions, kept):
        rows = stored(handle, project=project)
        return SyncResult({row.name: row.pgt_id for row in rows}, (), (), (), ())
    run(handle, "SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))
    everything = {row.name: row for row in stored(handle)}
    for definition in definitions:
        _require_free(everything.get(definition.name), project)
    removed = _remove(handle, everything, project, {*kept, *(definition.name for definition in definitions)})
    inserted, altered, redefined, redescribed = [], [], [], []
    abandoned: list[str] = []
    for definition in definitions:
        row = everything.get(definition.name)
        if row is None:
            _insert(handle, project, definition)
            inserted.append(definition.name)
        elif _facts(row) != _wanted(definition):
            _update(handle, row, definition)
            (altered if row.defining_query_hash == definition.query_hash else redefined).append(definition.name)
            abandoned += [state for state in row.state_tables if state not in definition.state_tables]
            if row.description != definition.description:
                redescribed.append(definition.name)
    ids = {row.name: row.pgt_id for row in stored(handle)}
    for definition in definitions:
        _write_dependencies(handle, ids, definition)
    own = {definition.name: ids[definition.name] for definition in definitions}
    return SyncResult(
        own, tuple(inserted), tuple(altered), tuple(redefined), removed, tuple(abandoned), tuple(redescribed)
    )


def _is_current(
    handle: Handle, project: str, definitions: Sequence[StreamTableDefinition], kept: Collection[TableName]
) -> bool:
    rows = {row.name: row for row in stored(handle, project=project) if row.name not in kept}
    if rows.keys() != {definition.name for definition in definitions}:
        return False
    reads = dependencies(handle)
    return all(
        _facts(rows[definition.name]) == _wanted(definition)
        and set(reads.get(rows[definition.name].pgt_id, ())) == set(definition.dependencies)
        for definition in definitions
    )


def _facts(row: StreamTableRow) -> dict[str, object]:
    return {
        "origin": row.origin,
        "origin_path": row.origin_path,
        "original_query": row.original_query,
        "defining_query": row.defining_query,
        "defining_query_hash": row.defining_query_hash,
        "dialect": row.dialect,
        "schedule": row.schedule,
        "refresh_mode": row.refresh_mode,
        "effective_refresh_mode": row.effective_refresh_mode,
        "mode_reasons": list(row.mode_reasons),
        "state_tables": list(row.state_tables),
        "partition_by": row.partition_by,
        "options": dict(row.options),
        "description": row.description,
        "owners": list(row.owners),
        "tags": dict(row.tags),
    }


def _wanted(definition: StreamTableDefinition) -> dict[str, object]:
    return {
        "origin": str(definition.origin),
        "origin_path": definition.origin_path,
        "original_query": definition.original_query,
        "defining_query": definition.defining_query,
        "defining_query_hash": definition.query_hash,
        "dialect": definition.dialect,
        "schedule": definition.schedule,
        "refresh_mode": definition.refresh_mode,
        "effective_refresh_mode": definition.effective_refresh_mode,
        "mode_reasons": [dict(reason) for reason in definition.mode_reasons],
        "state_tables": list(definition.state_tables),
        "partition_by": definition.partition_by,
        "options": dict(definition.options),
        "description": definition.description,
        "owners": list(definition.owners),
        "tags": dict(definition.tags),
    }


_JSON_FACTS = ("mode_reasons", "state_tables", "options", "tags")


def _bound(definition: StreamTableDefinition) -> list[object]:
    return [as_json(value) if name in _JSON_FACTS else value for name, value in _wanted(definition).items()]


def _require_free(row: StreamTableRow | None, project: str) -> None:
    if row is None or row.project == project:
        return
    raise ControlError(
        f"Stream table {row.name} belongs to project {row.project!r}, so project {project!r} cannot define it.",
        hint="Rename one of them, or drop the other one first.",
    )


def _remove(
    handle: Handle, everything: Mapping[TableName, StreamTableRow], project: str, kept: set[TableName]
) -> tuple[tuple[TableName, int, tuple[str, ...]], ...]:
    gone = [row for name, row in everything.items() if row.project == project and name not in kept]
    for row in gone:
        # Readers in this project are written anew below; a reader elsewhere would be left without its source.
        foreign = [reader for reader in readers(handle, row.pgt_id) if reader.project != project]
        if foreign:
            raise ControlError(
                f"Stream table {row.name} is not in project {project!r} any more, but {foreign[0].name} of project "
                f"{foreign[0].project!r} reads it.",
                hint=f"Change or drop {foreign[0].name} first.",
            )
    for row in gone:
        run(handle, "DELETE FROM pgtrickle.pgt_stream_tables WHERE pgt_id = %s", (row.pgt_id,))
    return tuple((row.name, row.pgt_id, tuple(row.state_tables)) for row in gone)


def _insert(handle: Handle, project: str, definition: StreamTableDefinition) -> None:
    run(
        handle,
        """
        INSERT INTO pgtrickle.pgt_stream_tables
            (pgt_schema, pgt_name, project, origin, origin_path, original_query, defining_query, defining_query_hash,
             dialect, schedule, refresh_mode, effective_refresh_mode, mode_reasons, state_tables, partition_by,
             options, description, owners, tags)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
        """,
        [definition.name.schema, definition.name.name, project, *_bound(definition)],
    )


def _update(handle: Handle, row: StreamTableRow, definition: StreamTableDefinition) -> None:
    run(
        handle,
        """
        UPDATE pgtrickle.pgt_stream_tables
        SET origin = %s, origin_path = %s, original_query = %s, defining_query = %s, defining_query_hash = %s,
            dialect = %s, schedule = %s, refresh_mode = %s, effective_refresh_mode = %s, mode_reasons = %s,
            state_tables = %s, partition_by = %s, options = %s, description = %s, owners = %s, tags = %s,
            updated_at = clock_timestamp()
        WHERE pgt_id = %s
        """,
        [*_bound(definition), row.pgt_id],
    )
    if row.defining_query_hash != definition.query_hash:
        # A new query may have mended what made the old one fail; a pause is an operator's decision and stays.
        run(
            handle,
            """
            UPDATE pgtrickle.pgt_stream_tables
            SET needs_reinit = is_populated, consecutive_errors = 0, last_error_message = NULL, last_error_at = NULL,
                status = CASE WHEN status = 'PAUSED' THEN status ELSE 'INITIALIZING' END
            WHERE pgt_id = %s
            """,
            (row.pgt_id,),
        )


def _write_dependencies(handle: Handle, ids: Mapping[TableName, int], definition: StreamTableDefinition) -> None:
    by_text = {str(name): pgt_id for name, pgt_id in ids.items()}
    pgt_id = ids[definition.name]
    run(handle, "DELETE FROM pgtrickle.pgt_dependencies WHERE pgt_id = %s", (pgt_id,))
    for dependency in definition.dependencies:
        upstream = by_text.get(dependency.source_name) if dependency.source_type is SourceType.STREAM_TABLE else None
        if dependency.source_type is SourceType.STREAM_TABLE and upstream is None:
            raise ControlError(
                f"Stream table {definition.name} reads {dependency.source_name}, which is not registered."
            )
        run(
            handle,
            """
            INSERT INTO pgtrickle.pgt_dependencies
                (pgt_id, source_type, source_name, source_database, source_pgt_id, columns_used, schema_fingerprint)
            VALUES (%s, %s, %s, %s, %s, %s, %s)
            """,
            (
                pgt_id,
                dependency.source_type,
                dependency.source_name,
                dependency.source_database,
                upstream,
                list(dependency.columns_used),
                dependency.schema_fingerprint,
            ),
        )
