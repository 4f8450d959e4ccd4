"""A project: stream tables, the sources they read, and the order in which they depend on each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from pgtrickle_assets.errors import ConfigurationError, PgTrickleError, QueryError, SourceLocationError
from pgtrickle_assets.names import NameSpace, TableReference
from pgtrickle_assets.option_block import SQL_FOLDER, read_stream_table
from pgtrickle_assets.partition_column import check_partition_column
from pgtrickle_assets.partitions import canonical_keys
from pgtrickle_assets.project_config import (
    PROJECT_FILE,
    LakeConfig,
    ProjectConfig,
    SourceConfig,
    read_project_config,
    variables_of,
)
from pgtrickle_assets.query.plan import QueryPlan
from pgtrickle_assets.query.types import ColumnSchema, TableName, TableSchema
from pgtrickle_assets.references import referenced_tables
from pgtrickle_assets.schedules import Schedule, effective_schedules
from pgtrickle_assets.schema_cache import KnownSchemas, cache_lock, read_cache, write_cache
from pgtrickle_assets.stream_table import StreamTable
from pgtrickle_assets.suggestions import did_you_mean
from pgtrickle_assets.type_names import parse_column, parse_numeric

PROJECT_VARIABLE: Final = "PGTRICKLE_PROJECT"
STATE_SCHEMA: Final = "pgtrickle_state"
"""Lake schema of the group states; not for users."""
SYSTEM_SCHEMAS: Final = ("information_schema", "pg_catalog")
"""Schemas in which a reader's engine shows tables of its own."""

_HOME: Final = ".pgtrickle"

Resolve = Callable[[tuple[str, ...]], TableSchema | None]


class Project:
    """Stream tables and their sources, checked as far as is possible without a database.

    Args:
        stream_tables: The stream tables.
        sources: PostgreSQL databases by name, as `SourceConfig` or as a mapping with its fields; one embedded source
            called `postgres` by default.
        lake: Where the lake is.
        settings: Overrides of settings.
        name: Name of the project.
        root: The project folder, if it has one.
        home: Folder for what the project keeps on this machine; `.pgtrickle` in the project folder by default.
        known: Columns of sources and lake tables; read from `home` by default.

    Raises:
        ConfigurationError: For duplicate names, reserved schemas, unknown tables, cycles, and
            `refresh_mode: differential` where it cannot be. It is a `SourceLocationError` where the mistake is in a
            file.
    """

    def __init__(
        self,
        stream_tables: Iterable[StreamTable],
        *,
        sources: Mapping[str, SourceConfig | Mapping[str, Any]] | None = None,
        lake: LakeConfig | Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        name: str | None = None,
        root: Path | None = None,
        home: Path | None = None,
        known: KnownSchemas | None = None,
    ) -> None:
        self.root = root
        self.home = home or (root or Path.cwd()) / _HOME
        self.name = name or (root.resolve().name if root else "project")
        self.sources: dict[str, SourceConfig] = {
            key: value if isinstance(value, SourceConfig) else SourceConfig.model_validate(value)
            for key, value in (sources or {"postgres": SourceConfig()}).items()
        }
        self.lake = lake if isinstance(lake, LakeConfig) else LakeConfig.model_validate(lake or {})
        self.settings: dict[str, Any] = dict(settings or {})
        self.known = known if known is not None else read_cache(self.home)
        self._tables = _by_name(stream_tables, {source.mirror_schema for source in self.sources.values()})
        self.references: dict[str, dict[tuple[str, ...], TableReference]] = {
            table.name: self._resolve_references(table) for table in self._tables.values()
        }
        self.order: tuple[str, ...] = self._dependency_order()
        self._check_mirrors()
        self._check_lake_names()
        self._check_refresh_modes()

    @classmethod
    def load(cls, path: str | Path, *, known: KnownSchemas | None = None) -> Project:
        """Reads a project folder.

        Args:
            path: The folder that holds `pgtrickle.yaml`.
            known: Columns of sources and lake tables; what the last `apply` or refresh saw by default. See `believing`.

        Raises:
            ConfigurationError: For any mistake, with file and line.
        """
        root = Path(path).expanduser().resolve()
        config: ProjectConfig = read_project_config(root)
        defaults = config.defaults.model_dump(exclude_unset=True)
        files = sorted((root / SQL_FOLDER).glob("*/*.sql"))
        misplaced = sorted(set((root / SQL_FOLDER).rglob("*.sql")) - set(files))
        if misplaced:
            raise SourceLocationError(
                "the file is not in a schema folder.",
                path=misplaced[0].relative_to(root).as_posix(),
                hint=f"Put it at {SQL_FOLDER}/<schema>/<name>.sql.",
            )
        tables = [read_stream_table(file, root, defaults) for file in files]
        known = read_cache(root / _HOME) if known is None else known

        def project_of(stream_tables: Iterable[StreamTable]) -> Project:
            return cls(
                stream_tables,
                sources=config.sources,
                lake=config.lake,
                settings=config.settings,
                name=config.name,
                root=root,
                known=known,
            )

        from_sql = _from_sql(known, {table.name for table in tables})
        try:
            return project_of([*tables, *from_sql])
        except ConfigurationError:
            if not from_sql:
                raise
        # What was made from SQL keeps no project from loading; the next registration says what is wrong with it.
        return project_of(tables)

    @property
    def stream_tables(self) -> tuple[StreamTable, ...]:
        """The stream tables, upstream before downstream."""
        return tuple(self._tables[name] for name in self.order)

    def stream_table(self, name: str) -> StreamTable:
        """The stream table called `name` (`schema.table`).

        Raises:
            ConfigurationError: When there is none, naming the nearest.
        """
        table = self._tables.get(name)
        if table is None:
            raise ConfigurationError(f"there is no stream table {name!r}.", hint=did_you_mean(name, self._tables))
        return table

    @cached_property
    def names(self) -> NameSpace:
        """All names that queries of this project may use."""
        return NameSpace(frozenset(table.table for table in self._tables.values()), self.sources, self.known)

    @cached_property
    def upstream(self) -> dict[str, tuple[str, ...]]:
        """Stream tables that each stream table reads directly."""
        return {
            name: tuple(dict.fromkeys(str(r.table) for r in references.values() if r.kind == "stream_table"))
            for name, references in self.references.items()
        }

    @cached_property
    def downstream(self) -> dict[str, tuple[str, ...]]:
        """Stream tables that read each stream table directly."""
        readers: dict[str, list[str]] = {name: [] for name in self.order}
        for name in self.order:
            for read in self.upstream[name]:
                readers[read].append(name)
        return {name: tuple(found) for name, found in readers.items()}

    @cached_property
    def schedules(self) -> dict[str, Schedule]:
        """Schedule of each stream table, with `calculated` resolved over its readers."""
        return effective_schedules({name: self._tables[name].parsed_schedule for name in self.order}, self.downstream)

    @cached_property
    def source_tables(self) -> dict[str, tuple[TableName, ...]]:
        """Tables to capture, by source: those that stream tables read and those that `tables` lists."""
        tables: dict[str, set[TableName]] = {
            source: {config.table_name(text) for text in config.tables} for source, config in self.sources.items()
        }
        for references in self.references.values():
            for reference in references.values():
                if reference.source is not None and reference.source_table is not None:
                    tables[reference.source].add(reference.source_table)
        return {source: tuple(sorted(found)) for source, found in tables.items()}

    @cached_property
    def lake_tables(self) -> tuple[TableName, ...]:
        """Lake tables that stream tables read and that something else writes."""
        found = {r.table for references in self.references.values() for r in references.values() if r.kind == "lake"}
        return tuple(sorted(found))

    @cached_property
    def environment_variables(self) -> frozenset[str]:
        """Variables that connection strings and storage options of the project take values from."""
        lake = [self.lake.catalog, *self.lake.storage.values()]
        texts = [source.dsn for source in self.sources.values()] + lake
        return frozenset(name for text in texts for name in variables_of(text.get_secret_value()))

    def closure(self, names: Iterable[str]) -> tuple[str, ...]:
        """The named stream tables and everything upstream of them, in dependency order."""
        wanted: set[str] = set()
        pending = [self.stream_table(name).name for name in names]
        while pending:
            name = pending.pop()
            if name not in wanted:
                wanted.add(name)
                pending.extend(self.upstream[name])
        return tuple(name for name in self.order if name in wanted)

    def partition_keys(self, name: str, keys: Sequence[str]) -> tuple[str, ...]:
        """The partitions of a stream table that a user named, each once and spelled as they are stored.

        Raises:
            ConfigurationError: For a key that is none of its partitions, naming the nearest.
        """
        table, kind = self.stream_table(name), None
        if table.partitioning is not None and (plan := self.plan(name)) is not None:
            kind = next(column.type for column in plan.output if column.name == table.partitioning.column)
        return canonical_keys(table.partitioning, keys, stream_table=name, kind=kind)

    def mirror_schema(self, source: str, table: TableName) -> TableSchema | None:
        """Columns of the mirror of a source table under the mirror's name, or None when they are unknown."""
        config = self.sources[source]
        schema = self.known.sources.get(source, {}).get(table) or _declared(config, table)
        if schema is None:
            return None
        excluded = config.excluded_columns(table)
        columns = tuple(
            self._with_override(source, table, column) for column in schema.columns if column.name not in excluded
        )
        key = schema.key if not excluded.intersection(schema.key) else ()
        return TableSchema(config.mirror_of(table), columns, key)

    def resolver(self, name: str) -> Resolve:
        """The `resolve` argument of `plan_query` for the query of one stream table.

        A schema it returns is named as the lake table that is read: the mirror for a source.
        """
        table = self.stream_table(name)

        def resolve(parts: tuple[str, ...]) -> TableSchema | None:
            reference = self.references[name].get(parts) or self.names.resolve(parts, reader=table.table)
            return None if reference is None else self.schema_of(reference)

        return resolve

    def schema_of(self, reference: TableReference) -> TableSchema | None:
        """Columns of what a name means, or None when they are not known yet."""
        if reference.kind == "stream_table":
            plan = self.plan(str(reference.table))
            return None if plan is None else TableSchema(reference.table, plan.output)
        if reference.source is not None and reference.source_table is not None:
            return self.mirror_schema(reference.source, reference.source_table)
        return (self.known.lake or {}).get(reference.table)

    def plan(self, name: str) -> QueryPlan | None:
        """The plan of a stream table's query, or None while the columns of something it reads are unknown.

        Raises:
            ConfigurationError: When the query cannot be planned, with file and line.
        """
        if name not in self._plans:
            self._plans[name] = self._make_plan(self.stream_table(name))
        return self._plans[name]

    def with_known(self, known: KnownSchemas) -> Project:
        """The same project with other knowledge of sources and lake."""
        return self._with(known=known)

    def with_stream_tables(self, stream_tables: Iterable[StreamTable], *, known: KnownSchemas | None = None) -> Project:
        """The same project with other stream tables, and perhaps other knowledge of sources and lake.

        Raises:
            ConfigurationError: See the class.
        """
        return self._with(stream_tables, known=known)

    def with_storage(self, options: Mapping[str, str]) -> Project:
        """The same project with these storage options on top of those that its lake has."""
        added = {name: SecretStr(value) for name, value in options.items()}
        return self._with(lake=self.lake.model_copy(update={"storage": {**self.lake.storage, **added}}))

    def _with(
        self,
        stream_tables: Iterable[StreamTable] | None = None,
        *,
        lake: LakeConfig | None = None,
        known: KnownSchemas | None = None,
    ) -> Project:
        return Project(
            self._tables.values() if stream_tables is None else stream_tables,
            sources=self.sources,
            lake=self.lake if lake is None else lake,
            settings=self.settings,
            name=self.name,
            root=self.root,
            home=self.home,
            known=self.known if known is None else known,
        )

    def remember(self, change: Callable[[KnownSchemas], KnownSchemas]) -> None:
        """Keeps what was seen of sources and lake for the next load.

        Args:
            change: What is known from what was; it gets what the last writer left, which may be another process.
        """
        with cache_lock(self.home):
            before = read_cache(self.home)
            after = change(before)
            if after != before:
                write_cache(self.home, after)

    def located(self, table: StreamTable, error: PgTrickleError) -> ConfigurationError:
        """An error of a query, placed in the file that holds it."""
        line = error.line if isinstance(error, QueryError) else None
        if table.path is None:
            return ConfigurationError(f"stream table {table.name}: {error.message}", hint=error.hint)
        at = table.query_line + (line or 1) - 1
        return SourceLocationError(error.message, path=table.path, line=at, hint=error.hint)

    @cached_property
    def _plans(self) -> dict[str, QueryPlan | None]:
        return {}

    def _make_plan(self, table: StreamTable) -> QueryPlan | None:
        schemas = [self.schema_of(reference) for reference in self.references[table.name].values()]
        if any(schema is None for schema in schemas):
            return None
        # The planner is big; a project without known columns loads without it.
        from pgtrickle_assets.query.planner import plan_query

        try:
            plan = plan_query(
                table.query,
                resolve=self.resolver(table.name),
                dialect=table.dialect,
                known_names=self.names.known_names(),
            )
            if table.partitioning is not None:
                check_partition_column(plan, table.partitioning)
            if table.refresh_mode == "differential":
                _check_differential(plan)
        except QueryError as error:
            raise self.located(table, error) from error
        return plan

    def _resolve_references(self, table: StreamTable) -> dict[tuple[str, ...], TableReference]:
        try:
            found: dict[tuple[str, ...], TableReference] = {}
            for named in referenced_tables(table.query, table.dialect):
                reference = self.names.resolve(named.parts, reader=table.table)
                if reference is None:
                    raise self.names.unknown(named.parts, named.line)
                found[named.parts] = reference
        except QueryError as error:
            raise self.located(table, error) from error
        return found

    def _dependency_order(self) -> tuple[str, ...]:
        try:
            # Sorted input makes the order the same in every process.
            graph = {name: sorted(self.upstream[name]) for name in sorted(self._tables)}
            return tuple(TopologicalSorter(graph).static_order())
        except CycleError as error:
            cycle: Sequence[str] = list(reversed(error.args[1]))
            table = self._tables[cycle[0]]
            problem = QueryError(
                f"stream tables read each other in a circle: {' -> '.join(cycle)}.",
                hint="Take one of them out of the circle.",
            )
            raise self.located(table, problem) from error

    def _check_mirrors(self) -> None:
        schemas: dict[str, str] = {}
        for source, config in self.sources.items():
            first = schemas.setdefault(config.mirror_schema.lower(), source)
            other = self.sources[first].mirror_schema
            if other != config.mirror_schema:
                raise self._in_project_file(
                    f"the mirror schemas {other!r} of source {first!r} and {config.mirror_schema!r} of source "
                    f"{source!r} differ only in case, and the lake cannot hold both.",
                    hint="Spell them alike, or give one of them another name.",
                )
        taken: dict[TableName, tuple[str, TableName]] = {}
        for source, tables in self.source_tables.items():
            for table in tables:
                mirror = self.sources[source].mirror_of(table)
                first, other = taken.setdefault(mirror.folded, (source, table))
                if (first, other) != (source, table):
                    raise self._two_mirrors(first, other, source, table)

    def _check_lake_names(self) -> None:
        there = {name.folded: name for name in self.known.lake or ()}
        for table in self._tables.values():
            other = there.get(table.table.folded)
            if other is not None and other != table.table:
                raise _in_file(
                    table.path,
                    f"stream table {table.name} and the lake table {other}, which is another writer's, differ only in "
                    "case; the lake cannot hold both.",
                    hint="Rename one of them.",
                )

    def _two_mirrors(self, first: str, other: TableName, source: str, table: TableName) -> ConfigurationError:
        mirror, taken = self.sources[source].mirror_of(table), self.sources[first].mirror_of(other)
        both = f"the mirror of {first}.{other} and the mirror of {source}.{table} would"
        message = f"{both} both be lake table {mirror}."
        if taken != mirror:
            message = f"{both} be lake tables {taken} and {mirror}, which differ only in case."
        hint = f"Set another mirror_schema for source {source!r}."
        if first == source:
            hint = "Read one of them through a second source of the same database, with another mirror_schema."
        for name in self.order:
            if any(reference.table == mirror for reference in self.references[name].values()):
                return self.located(self._tables[name], QueryError(message, hint=hint))
        return self._in_project_file(message, hint=hint)

    def _in_project_file(self, message: str, *, hint: str) -> ConfigurationError:
        return _in_file(None if self.root is None else PROJECT_FILE, message, hint=hint)

    def _check_refresh_modes(self) -> None:
        # Other queries are planned when they are asked for; what this option demands must not wait for a refresh.
        for name in self.order:
            if self._tables[name].refresh_mode == "differential":
                self.plan(name)

    def _with_override(self, source: str, table: TableName, column: ColumnSchema) -> ColumnSchema:
        config = self.sources[source]
        for text, kind in config.numeric.items():
            owner, _, name = text.rpartition(".")
            if name == column.name and config.table_name(owner) == table:
                return replace(column, type=parse_numeric(text, kind))
        return column


def believing(path: str | Path) -> KnownSchemas:
    """What to load a project folder with, so that every table name is believed until a database is asked."""
    return KnownSchemas(sql_tables=read_cache(Path(path).expanduser().resolve() / _HOME).sql_tables)


def load_configured_project() -> Project:
    """The project that `PGTRICKLE_PROJECT` names, or the bundled example.

    Raises:
        ConfigurationError: When the folder is not a project or has a mistake in it.
    """
    configured = os.environ.get(PROJECT_VARIABLE)
    if configured:
        return Project.load(configured)
    from pgtrickle_assets.bundled_example import example_folder

    return Project.load(example_folder())


def _from_sql(known: KnownSchemas, taken: set[str]) -> list[StreamTable]:
    """The stream tables that the last registration had from SQL; files of the same name win."""
    return [
        StreamTable(name=name, from_sql=True, **definition)
        for name, definition in known.sql_tables.items()
        if name not in taken
    ]


def _by_name(stream_tables: Iterable[StreamTable], mirror_schemas: set[str]) -> dict[str, StreamTable]:
    # DuckDB compares names without case, and cannot read a lake where two differ in nothing else.
    reserved = {schema.lower(): "mirrors" for schema in mirror_schemas}
    reserved |= {STATE_SCHEMA: "states", **dict.fromkeys(SYSTEM_SCHEMAS, "the tables of the system")}
    tables: dict[TableName, StreamTable] = {}
    schemas: dict[str, StreamTable] = {}
    for table in stream_tables:
        schema = table.table.schema
        if schema.lower() in reserved:
            raise _in_file(
                table.path,
                f"stream table {table.name} is in schema {schema!r}, which is kept for {reserved[schema.lower()]}.",
                hint="Move it to another schema.",
            )
        other = tables.setdefault(table.table.folded, table)
        if other is not table:
            message = f"stream tables {_placed(other)} and {table.name} differ only in case; the lake cannot hold both."
            if other.name == table.name:
                message = f"there are two stream tables called {table.name}."
            raise _in_file(table.path, message, hint="Rename one of them.")
        other = schemas.setdefault(schema.lower(), table)
        if other.table.schema != schema:
            raise _in_file(
                table.path,
                f"the schemas of stream tables {_placed(other)} and {table.name} differ only in case; the lake cannot "
                "hold both.",
                hint="Move both to one schema, or rename one of the schemas.",
            )
    return {table.name: table for table in tables.values()}


def _placed(table: StreamTable) -> str:
    return table.name if table.path is None else f"{table.name} ({table.path})"


def _in_file(path: str | None, message: str, *, hint: str) -> ConfigurationError:
    if path is None:
        return ConfigurationError(message, hint=hint)
    return SourceLocationError(message, path=path, hint=hint)


def _check_differential(plan: QueryPlan) -> None:
    from pgtrickle_assets.differential.reasons import obstacle, reasons_against

    for reason in reasons_against(plan):
        raise QueryError(
            f"refresh_mode is differential, but the query cannot be: {reason.detail}.",
            hint=f"{obstacle(reason.code).advice} Or use refresh_mode: auto.",
        )


def _declared(config: SourceConfig, table: TableName) -> TableSchema | None:
    for text, columns in config.columns.items():
        if config.table_name(text) == table:
            return TableSchema(table, tuple(parse_column(name, kind) for name, kind in columns.items()))
    return None
