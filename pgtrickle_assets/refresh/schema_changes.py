"""Columns of sources and lake tables that are no longer what stream tables were built on, and what follows from it.

A source table is compared with its mirror, a lake table with itself at the frontier of its readers: both are in the
catalog, so it does not matter which process looked last. Nothing is changed here; the next refresh adapts mirrors and
stream tables, or stops with the error that is shown here first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pgtrickle_assets.control import capture_position, registry
from pgtrickle_assets.control import frontier as frontiers
from pgtrickle_assets.control.frontier import EVERY_PARTITION
from pgtrickle_assets.errors import (
    ConfigurationError,
    LakeHistoryExpiredError,
    SourcePrivilegeError,
    SourceTableError,
    UnsupportedTypeError,
)
from pgtrickle_assets.project import Project
from pgtrickle_assets.query.types import ColumnSchema, TableName, TableSchema
from pgtrickle_assets.refresh.model import SchemaChange

if TYPE_CHECKING:
    from pgtrickle_assets.refresh.workspace import Workspace
    from pgtrickle_assets.schema_cache import KnownSchemas

Columns = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Found:
    """A table as it is now: its schema, or why it cannot be read; and the columns that its readers were built on."""

    source: str
    table: TableName
    lake_table: TableName
    before: Columns
    now: TableSchema | None
    problem: str = ""


def schema_changes(workspace: Workspace) -> tuple[SchemaChange, ...]:
    """Tables that stream tables read and whose columns changed since.

    Raises:
        SourceUnavailableError: A source cannot be reached.
    """
    found = [*_sources(workspace), *_lake_tables(workspace)]
    project = workspace.project
    known = _known(project, found)
    # Left-out columns and types given for numerics are the mirror's business, so its columns are compared.
    mirrors = Project([], sources=project.sources, home=project.home, name=project.name, known=known)
    changes: list[SchemaChange] = []
    for item in found:
        added, dropped, retyped = difference(item.before, _columns(mirrors, item))
        if not (added or dropped or retyped or item.problem):
            continue
        readers = _readers(project, item.lake_table)
        if item.problem:
            broken = tuple((name, item.problem) for name in readers)
        else:
            broken = tuple(_planning_errors(project, known, readers))
        changes.append(SchemaChange(item.source, item.table, item.lake_table, added, dropped, retyped, readers, broken))
    return tuple(changes)


def difference(
    before: Columns, now: Columns
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, str, str], ...]]:
    """Added, dropped, and retyped columns (name, old type, new type)."""
    old, new = dict(before), dict(now)
    added = tuple(name for name in new if name not in old)
    dropped = tuple(name for name in old if name not in new)
    return added, dropped, tuple((n, old[n], new[n]) for n in new if n in old and old[n] != new[n])


def _sources(workspace: Workspace) -> Iterator[_Found]:
    with workspace.lake.connection() as connection:
        mirrors = {(row.source_name, row.source): row for row in capture_position.mirrors(connection)}
    for name, tables in workspace.project.source_tables.items():
        for table in tables:
            row = mirrors.get((name, table))
            if row is None:
                # Never captured: the first refresh looks at it.
                continue
            before = [(column["name"], column["type"]) for column in row.columns]
            try:
                schema = workspace.sources[name].describe([table])[table].schema
            except (SourceTableError, SourcePrivilegeError, UnsupportedTypeError) as error:
                yield _Found(name, table, row.mirror, before, None, str(error))
            else:
                yield _Found(name, table, row.mirror, before, schema)


def _lake_tables(workspace: Workspace) -> Iterator[_Found]:
    project, lake = workspace.project, workspace.lake
    for table in project.lake_tables:
        before = _at_frontier(workspace, table)
        if before is None:
            continue
        now = lake.table(table)
        if now is None:
            yield _Found("", table, table, before, None, f"lake table {table} is gone.")
            continue
        columns = tuple(ColumnSchema(column.name, column.type, column.nullable) for column in now.columns)
        yield _Found("", table, table, before, TableSchema(table, columns))


def _at_frontier(workspace: Workspace, table: TableName) -> Columns | None:
    """Columns of a lake table at the oldest frontier of its readers; None where nothing is known of it any more."""
    seen: list[int] = []
    with workspace.lake.connection() as connection:
        for name in _readers(workspace.project, table):
            row = registry.find(connection, workspace.project.stream_table(name).table)
            stored = {} if row is None else frontiers.frontiers(connection, row.pgt_id)
            if EVERY_PARTITION in stored:
                seen.append(stored[EVERY_PARTITION].inputs.get(str(table), 0))
    try:
        old = workspace.lake.table(table, min(seen)) if seen else None
    except LakeHistoryExpiredError:
        return None
    return None if old is None else [(column.name, str(column.type)) for column in old.columns]


def _known(project: Project, found: Sequence[_Found]) -> KnownSchemas:
    """What is known of tables, with what was seen just now."""
    sources = {name: dict(tables) for name, tables in project.known.sources.items()}
    lake = dict(project.known.lake or {})
    for item in found:
        if item.now is not None and item.source:
            sources.setdefault(item.source, {})[item.table] = item.now
        elif item.now is not None:
            lake[item.table] = item.now
    return replace(project.known, sources=sources, lake=lake)


def _columns(mirrors: Project, item: _Found) -> Columns:
    if item.now is None:
        return item.before
    schema = mirrors.mirror_schema(item.source, item.table) if item.source else item.now
    return [] if schema is None else [(column.name, str(column.type)) for column in schema.columns]


def _readers(project: Project, table: TableName) -> tuple[str, ...]:
    """Stream tables that read a lake table or mirror themselves."""
    return tuple(
        name
        for name in project.order
        if any(reference.table == table for reference in project.references[name].values())
    )


def _planning_errors(project: Project, known: KnownSchemas, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Stream tables whose query cannot be planned over what is known, with the error."""
    try:
        future = project.with_known(known)
    except ConfigurationError as error:
        # `refresh_mode: differential` on a query that cannot be maintained any more is an error of the project.
        yield from ((name, str(error)) for name in names)
        return
    for name in names:
        try:
            future.plan(name)
        except ConfigurationError as error:
            yield name, str(error)
