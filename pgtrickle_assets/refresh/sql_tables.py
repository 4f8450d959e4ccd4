"""Taking up stream tables that were made from SQL: what is wrong with one stops neither the others nor the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.stream_table import StreamTable

if TYPE_CHECKING:
    from pgtrickle_assets.control.sql_definitions import SqlDefinition
    from pgtrickle_assets.project import Project
    from pgtrickle_assets.query.types import TableName
    from pgtrickle_assets.schema_cache import KnownSchemas

    Build = Callable[[Sequence[StreamTable]], Project]


@dataclass(frozen=True, slots=True)
class TakenUp:
    """A project with what SQL adds to it.

    Attributes:
        project: Its own stream tables, and those from SQL that it can have.
        refused: Why it cannot have the others.
    """

    project: Project
    refused: Mapping[TableName, str]


def take_up(project: Project, known: KnownSchemas, definitions: Sequence[SqlDefinition]) -> TakenUp:
    """Add stream tables from SQL to a project; its own win where both define one.

    Args:
        project: The project; stream tables that it has from SQL are forgotten.
        known: What is known of sources and lake.
        definitions: The definitions.

    Raises:
        ConfigurationError: The project's own stream tables do not load, whatever SQL adds.
    """

    def build(tables: Sequence[StreamTable]) -> Project:
        return project.with_stream_tables(tables, known=known)

    own = {table.name: table for table in project.stream_tables if not table.from_sql}
    refused: dict[TableName, str] = {}
    offered: list[StreamTable] = []
    for definition in definitions:
        there = own.get(str(definition.name))
        if there is not None:
            place = there.path or "Python"
            refused[definition.name] = f"{place} defines it too, and wins; drop or rename one of them."
            continue
        try:
            options = dict(definition.options)
            offered.append(StreamTable(name=str(definition.name), query=definition.query, from_sql=True, **options))
        except ConfigurationError as error:
            refused[definition.name] = str(error)
    try:
        return TakenUp(_planned(build, [*own.values(), *offered], offered), refused)
    except ConfigurationError as error:
        if not offered:
            raise
        return _one_by_one(build, list(own.values()), offered, refused, error)


def _one_by_one(
    build: Build,
    accepted: list[StreamTable],
    offered: list[StreamTable],
    refused: dict[TableName, str],
    problem: ConfigurationError,
) -> TakenUp:
    """Adds each stream table that fits to those before, until none does any more."""
    errors: dict[str, str] = {}
    found: Project | None = None
    try:
        found = build(accepted)
    except ConfigurationError as error:
        # The files may read what SQL makes.
        problem = error
    added = True
    while offered and added:
        added = False
        for table in list(offered):
            try:
                found = _planned(build, [*accepted, table], [table])
            except ConfigurationError as error:
                errors[table.name] = str(error)
                continue
            accepted.append(table)
            offered.remove(table)
            added = True
    if found is None:
        raise problem
    return TakenUp(found, {**refused, **{table.table: errors[table.name] for table in offered}})


def _planned(build: Build, tables: Sequence[StreamTable], new: Sequence[StreamTable]) -> Project:
    """The project with these stream tables; the new ones can be planned.

    Raises:
        ConfigurationError: It cannot be.
    """
    candidate = build(tables)
    for table in new:
        if candidate.plan(table.name) is None:
            raise ConfigurationError(f"stream table {table.name}: the columns of what it reads are not known.")
    return candidate
