"""Making sources, lake and control schema fit a project. Cheap when they do already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.control import capture_position, frontier, registry, sql_definitions
from pgtrickle_assets.control.capture_position import MirrorRow
from pgtrickle_assets.control.registry import Dependency, StreamTableDefinition
from pgtrickle_assets.control.registry_sync import sync
from pgtrickle_assets.control.statuses import Origin, SourceType
from pgtrickle_assets.errors import (
    ConfigurationError,
    LakeConflictError,
    LakeError,
    QueryError,
    SourceBusyError,
    SourceTableError,
)
from pgtrickle_assets.lake.commit import commit
from pgtrickle_assets.lake.ddl import Comment, DropTable, alter
from pgtrickle_assets.lake.model import LakeTable, TableChange, TableDefinition
from pgtrickle_assets.project import STATE_SCHEMA
from pgtrickle_assets.query.types import TableName, TableSchema
from pgtrickle_assets.references import referenced_tables
from pgtrickle_assets.refresh.definition import Definition
from pgtrickle_assets.refresh.lake_views import keep_views
from pgtrickle_assets.refresh.model import Effect
from pgtrickle_assets.refresh.sql_tables import TakenUp, take_up
from pgtrickle_assets.schema_cache import KnownSchemas
from pgtrickle_assets.version import VERSION

if TYPE_CHECKING:
    from psycopg import Cursor

    from pgtrickle_assets.control.sql_definitions import SqlDefinition
    from pgtrickle_assets.project import Project
    from pgtrickle_assets.refresh.workspace import Workspace

_AUTHOR = f"pg_trickle/{VERSION}/apply"


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of the world around a project.

    Attributes:
        known: Columns of sources and foreign lake tables, and the stream tables that SQL adds.
        from_sql: All definitions that were made from SQL.
        refused: Why some of them were not taken up.
    """

    known: KnownSchemas
    from_sql: Sequence[SqlDefinition] = ()
    refused: Mapping[TableName, str] = field(default_factory=dict)


def observe(workspace: Workspace) -> Observation:
    """Look at sources, lake and what SQL has defined, and let the project's queries mean what is there.

    Before its first look a project takes every unknown name for a source table; a lake table may turn out to be meant.

    Raises:
        SourceError: A source cannot be reached, or a table that a stream table reads is missing, cannot be captured, or
            has a column without an exact type.
    """
    project = workspace.project
    sources: dict[str, dict[TableName, TableSchema]] = {}
    refused: list[SourceTableError] = []
    for name, source in workspace.sources.items():
        found = source.describe()
        for table in project.source_tables[name]:
            try:
                # By name, so that what cannot be captured of it is an error.
                found.update(source.describe([table]))
            except SourceTableError as error:
                refused.append(error)
        sources[name] = {table: described.schema for table, described in found.items()}
    with workspace.lake.connection() as connection:
        from_sql = sql_definitions.definitions(connection, project.name)
        registered = {row.name for row in registry.stored(connection, project=project.name)}
    own = {table.table for table in project.stream_tables}.union(definition.name for definition in from_sql)
    gone = registered - own
    _require_definitions(project, gone.difference(*sources.values()))
    mirror_schemas = {config.mirror_schema for config in project.sources.values()}
    lake = {
        table.name: TableSchema(table.name, _schemas(table))
        for table in workspace.lake.tables()
        if table.name not in own | gone and table.name.schema not in (STATE_SCHEMA, *mirror_schemas)
    }
    known = KnownSchemas(sources, lake)
    try:
        taken = _with_sql(project, known, from_sql)
    except ConfigurationError:
        if refused:
            raise refused[0] from None
        raise
    _require_schemas(taken.project, workspace.lake.schemas())
    workspace.project = taken.project
    sql_tables = {
        str(definition.name): {"query": definition.query, **definition.options}
        for definition in from_sql
        if definition.name not in taken.refused
    }
    return Observation(replace(known, sql_tables=sql_tables), from_sql, taken.refused)


def _require_definitions(project: Project, gone: AbstractSet[TableName]) -> None:
    """No stream table reads one whose definition was removed: its lake table is about to be dropped.

    Raises:
        ConfigurationError: One does.
    """
    names = {(name.schema, name.name) for name in gone}
    for table in project.stream_tables if names else ():
        for named in referenced_tables(table.query, table.dialect):
            if named.parts[-2:] not in names:
                continue
            problem = QueryError(
                f"stream table {'.'.join(named.parts)} is read here, but its definition is gone.",
                line=named.line,
                hint=f"Put its definition back, or change or remove {table.name} too.",
            )
            raise project.located(table, problem)


def _require_schemas(project: Project, there: Sequence[str]) -> None:
    """No stream table or mirror is in a schema that the lake has in other case only, even if it is empty.

    Raises:
        ConfigurationError: One is.
    """
    known = {schema.lower(): schema for schema in there}
    for table in project.stream_tables:
        other = known.get(table.table.schema.lower(), table.table.schema)
        if other != table.table.schema:
            problem = QueryError(
                f"the lake has a schema {other!r}, which differs from that of {table.name} only in case.",
                hint=f"Use {other!r}, or drop it from the lake.",
            )
            raise project.located(table, problem)
    for name, config in project.sources.items():
        other = known.get(config.mirror_schema.lower(), config.mirror_schema)
        if other != config.mirror_schema:
            raise ConfigurationError(
                f"the lake has a schema {other!r}, which differs from mirror_schema {config.mirror_schema!r} of "
                f"source {name!r} only in case.",
                hint=f"Use {other!r}, or drop it from the lake.",
            )


def _with_sql(project: Project, known: KnownSchemas, from_sql: Sequence[SqlDefinition]) -> TakenUp:
    if not from_sql and not any(table.from_sql for table in project.stream_tables):
        return TakenUp(project.with_known(known), {})
    return take_up(project, known, from_sql)


def register(workspace: Workspace, observed: Observation) -> None:
    """Register the project's stream tables and make every lake table and trigger that it needs.

    Raises:
        ConfigurationError: A query cannot be planned.
        ControlError: A stream table belongs to another project.
        SourceError: Capture cannot be installed.
    """
    definitions = [workspace.definition(name) for name in workspace.project.order]
    # Tables that another process makes from here on are seen as conflicts, and not taken for left ones.
    base = workspace.lake.head()
    with workspace.lake.connection() as connection, connection.transaction():
        sql_definitions.add_project(connection, workspace.project.name)
        wanted = [_registered(workspace, definition) for definition in definitions]
        # One that was good before and is not now keeps its content until it is mended or dropped.
        broken = observed.refused.keys() - {definition.name for definition in definitions}
        result = sync(connection, workspace.project.name, wanted, kept=broken)
        sql_definitions.note_outcomes(connection, observed.from_sql, observed.refused)
    removed = [name for name, _, _ in result.removed]
    texts = [text for _, _, states in result.removed for text in states]
    states = [TableName(STATE_SCHEMA, text.removeprefix(f"{STATE_SCHEMA}.")) for text in (*texts, *result.abandoned)]
    _drop(workspace, [*removed, *states], base)
    # First, so that a mirror that nothing reads any more leaves its name to one that differs from it only in case.
    _release_capture(workspace)
    _make_mirrors(workspace, base)
    for definition in definitions:
        _make_tables(workspace, definition, result.ids[definition.name], base)
        if definition.name in result.redescribed:
            comment = Comment(definition.name, definition.stream_table.description)
            alter(workspace.lake, comment, author=_AUTHOR, message=f"Describe table {definition.name}")
    _install_capture(workspace)
    keep_views(workspace.lake, definitions, removed)


def effect_of(workspace: Workspace, name: str) -> Effect:
    """What registering a stream table as the project now has it would do; nothing is changed.

    Raises:
        ConfigurationError: Its query cannot be planned.
    """
    definition = workspace.definition(name)
    wanted = _registered(workspace, definition)
    with workspace.lake.connection() as connection:
        row = registry.find(connection, definition.name)
    if row is None:
        return Effect.CREATED
    if not _fits(workspace, definition.table_definitions[0]):
        return Effect.REBUILT
    states_fit = all(_fits(workspace, state) for state in definition.table_definitions[1:])
    return Effect.UNCHANGED if states_fit and row.defining_query_hash == wanted.query_hash else Effect.RECOMPUTED


def _registered(workspace: Workspace, definition: Definition) -> StreamTableDefinition:
    table = definition.stream_table
    options = {"partition_start": table.partition_start, "partition_end": table.partition_end, "view": table.view}
    return StreamTableDefinition(
        name=definition.name,
        origin=Origin.SQL if table.from_sql else Origin.FILE if table.path else Origin.PYTHON,
        origin_path=table.path,
        original_query=table.query,
        defining_query=definition.plan.sql,
        dialect=table.dialect,
        schedule=table.schedule,
        refresh_mode=table.refresh_mode,
        effective_refresh_mode="differential" if _is_differential(definition) else "full",
        mode_reasons=tuple({"code": code, "detail": detail} for code, detail in definition.reasons),
        state_tables=tuple(str(name) for name in definition.tables.values() if name != definition.name),
        partition_by=table.partition_by,
        options={name: value for name, value in options.items() if value is not None},
        description=table.description,
        owners=tuple(table.owners),
        tags=dict(table.tags),
        dependencies=tuple(_dependencies(workspace, definition)),
        state_content=definition.maintenance.state_content,
    )


def _is_differential(definition: Definition) -> bool:
    return definition.maintenance.differential and definition.stream_table.refresh_mode != "full"


def _dependencies(workspace: Workspace, definition: Definition) -> list[Dependency]:
    kinds = {"stream_table": SourceType.STREAM_TABLE, "source": SourceType.TABLE, "lake": SourceType.LAKE_TABLE}
    columns = {table.name: table.columns for table in definition.plan.inputs.values()}
    found = {
        reference.table: Dependency(
            kinds[reference.kind], str(reference.table), reference.source, tuple(columns.get(reference.table, ()))
        )
        for reference in workspace.project.references[str(definition.name)].values()
    }
    return [found[name] for name in sorted(found)]


def _make_mirrors(workspace: Workspace, base: int) -> None:
    """Mirror tables and their registry rows; a mirror whose columns changed is made anew and copied again."""
    project = workspace.project
    with workspace.lake.connection() as connection:
        known = {(row.source_name, row.source): row for row in capture_position.mirrors(connection)}
    _drop_left_mirrors(workspace, {row.mirror for row in known.values()}, base)
    for source, tables in project.source_tables.items():
        for table in tables:
            schema = project.mirror_schema(source, table)
            if schema is None:
                continue
            # The source enforces NOT NULL; a mirror that did too would only refuse what the source has accepted.
            definition = TableDefinition(
                schema.name, tuple(replace(column, nullable=True) for column in schema.columns)
            )
            columns = [{"name": column.name, "type": str(column.type)} for column in schema.columns]
            row = MirrorRow(source, table.schema, table.name, schema.name.schema, schema.name.name, columns)
            before = known.get((source, table))
            if before is not None and list(before.columns) == columns and _fits(workspace, definition):
                continue
            _replace(workspace, definition, partial(_put_mirror, row), base)


def _drop_left_mirrors(workspace: Workspace, registered: AbstractSet[TableName], base: int) -> None:
    """Tables of mirror schemas that no registry row knows, where a mirror needs their name in other case.

    One of the very same name is replaced when the mirror is made.
    """
    project = workspace.project
    mirrors = {
        project.sources[source].mirror_of(table) for source, tables in project.source_tables.items() for table in tables
    }
    new = mirrors - registered
    if not new:
        # Every refresh comes by here.
        return
    folded = {name.folded for name in new}
    left = [table.name for table in workspace.lake.tables() if table.name.folded in folded]
    _drop(workspace, [name for name in left if name not in mirrors | registered], base)


def _put_mirror(row: MirrorRow, cursor: Cursor[tuple[Any, ...]], _: int) -> None:
    capture_position.put_mirror(cursor, row)


def _make_tables(workspace: Workspace, definition: Definition, pgt_id: int, base: int) -> None:
    """Result and state tables; those that do not fit are made anew, and the next refresh is full.

    A result whose columns stay is kept, whatever becomes of the states: its readers and its history go on.
    """
    is_kept = _fits(workspace, definition.table_definitions[0])
    for wanted in definition.table_definitions:
        if not _fits(workspace, wanted):
            _replace(workspace, wanted, partial(_ask_rebuild if is_kept else _start_anew, pgt_id), base)


def _ask_rebuild(pgt_id: int, cursor: Cursor[tuple[Any, ...]], _: int) -> None:
    registry.request_reinit(cursor, pgt_id)


def _start_anew(pgt_id: int, cursor: Cursor[tuple[Any, ...]], _: int) -> None:
    frontier.forget(cursor, pgt_id)


def _fits(workspace: Workspace, wanted: TableDefinition) -> bool:
    table = workspace.lake.table(wanted.name)
    if table is None:
        return False
    have = [(column.name, column.type) for column in table.columns]
    names = {column.id: column.name for column in table.columns}
    fields = tuple((names.get(field.column_id, ""), field.transform) for field in table.partition_fields)
    return have == [(column.name, column.type) for column in wanted.columns] and fields == wanted.partition_by


def _replace(workspace: Workspace, wanted: TableDefinition, within: Any, base: int) -> None:
    """Make a table, in place of one that was there at `base` and does not fit.

    Raises:
        LakeConflictError: Another process did so after `base`.
    """
    dropped = _drop(workspace, [wanted.name], base)
    commit(
        workspace.lake,
        base=base if dropped is None else dropped,
        changes=[TableChange(wanted.name, create=wanted)],
        author=_AUTHOR,
        message=f"Make table {wanted.name}",
        within=within,
    )


def _drop(workspace: Workspace, names: Sequence[TableName], base: int) -> int | None:
    """Drop those tables that were there at `base`; the snapshot of the last drop.

    Raises:
        LakeConflictError: Another process dropped one meanwhile.
    """
    snapshot = None
    for name in names:
        before = workspace.lake.table(name, base)
        if before is None:
            continue
        gone = LakeConflictError(f"lake table {name} was changed by another process", hint="Try again.")
        now = workspace.lake.table(name)
        if now is None or now.id != before.id:
            raise gone
        try:
            dropped = alter(workspace.lake, DropTable(name), author=_AUTHOR, message=f"Drop table {name}")
        except LakeError as error:
            if workspace.lake.table(name) is None:
                raise gone from error
            raise
        snapshot = dropped.snapshot_id
    return snapshot


def _release_capture(workspace: Workspace) -> None:
    """Triggers, buffers and mirrors of source tables that no stream table of any project reads any more."""
    with workspace.lake.connection() as connection:
        mirrors = capture_position.mirrors(connection)
        read = {
            dependency.source_name
            for reads in registry.dependencies(connection).values()
            for dependency in reads
            if dependency.source_type is SourceType.TABLE
        }
    for row in mirrors:
        captured = workspace.project.source_tables.get(row.source_name)
        if captured is None or row.source in captured or str(row.mirror) in read:
            continue
        try:
            workspace.sources[row.source_name].uninstall([row.source])
        except SourceBusyError:
            # Dropping a trigger waits for every reader of the table; the next registration tries again.
            continue
        _drop(workspace, [row.mirror], workspace.lake.head())
        with workspace.lake.connection() as connection:
            capture_position.remove_mirror(connection, row.source_name, row.source)


def _install_capture(workspace: Workspace) -> None:
    for name, source in workspace.sources.items():
        tables = workspace.project.source_tables[name]
        if not tables:
            continue
        outcomes = source.install(list(tables))
        started = {table for table, outcome in outcomes.items() if outcome in ("created", "rebuilt")}
        with workspace.lake.connection() as connection:
            for row in capture_position.mirrors(connection, name):
                if row.source in started and row.ducklake_snapshot_id is not None:
                    capture_position.put_mirror(connection, replace(row, ducklake_snapshot_id=None))


def _schemas(table: LakeTable) -> tuple[Any, ...]:
    from pgtrickle_assets.query.types import ColumnSchema

    return tuple(ColumnSchema(column.name, column.type, column.nullable) for column in table.columns)
