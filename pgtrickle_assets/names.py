"""What a table name in a query means: a stream table, a source, or a lake table, in this order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.project_config import SourceConfig
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.schema_cache import KnownSchemas
from pgtrickle_assets.suggestions import did_you_mean

LAKE: Literal["lake"] = "lake"
"""First part of a three-part name that means the lake."""

DEFAULT_LAKE_SCHEMA = "main"


@dataclass(frozen=True, slots=True)
class TableReference:
    """The meaning of a table name.

    Attributes:
        kind: What it is.
        table: The lake table that is read: the stream table, the mirror, or the lake table itself.
        source: Name of the source database, for a source.
        source_table: The table in that database, for a source.
        assumed: True when the columns of its database or lake were never read, so that the name may not exist.
    """

    kind: Literal["stream_table", "source", "lake"]
    table: TableName
    source: str | None = None
    source_table: TableName | None = None
    assumed: bool = False

    def __str__(self) -> str:
        if self.kind == "source":
            return f"source table {self.source}.{self.source_table}"
        return f"{'stream table' if self.kind == 'stream_table' else 'lake table'} {self.table}"


@dataclass(frozen=True, slots=True)
class NameSpace:
    """All names that a query of a project may use."""

    stream_tables: frozenset[TableName]
    sources: Mapping[str, SourceConfig]
    known: KnownSchemas

    def resolve(self, parts: tuple[str, ...], *, reader: TableName | None = None) -> TableReference | None:
        """The meaning of a name.

        An unqualified name does not mean the stream table that is being defined, so that `silver.orders` can be
        `SELECT ... FROM orders`.

        Args:
            parts: One to three parts, folded as PostgreSQL folds.
            reader: The stream table whose query has the name.

        Returns:
            None when the name means nothing.

        Raises:
            QueryError: When it means two things; both are shown.
        """
        candidates = list(dict.fromkeys(self._candidates(parts, reader)))
        certain = [candidate for candidate in candidates if not candidate.assumed]
        chosen = certain or candidates[:1]
        if len(chosen) > 1:
            shown = " and ".join(str(candidate) for candidate in chosen)
            raise QueryError(f"{'.'.join(parts)!r} means {shown}.", hint=f"Write {_qualified(chosen)}.")
        return chosen[0] if chosen else None

    def known_names(self) -> list[str]:
        """Every name that is sure to exist, for suggestions."""
        names = {str(table) for table in self.stream_tables}
        for source, config in self.sources.items():
            tables = self._tables_of(source)
            names.update(table.name if table.schema in config.schemas else str(table) for table in tables)
        names.update(str(table) for table in self.known.lake or ())
        return sorted(names)

    def unknown(self, parts: tuple[str, ...], line: int | None) -> QueryError:
        """The error for a name that means nothing."""
        name = ".".join(parts)
        hint = f"{did_you_mean(name, self.known_names())} A new source table is known after `pgtrickle apply`."
        return QueryError(f"there is no table {name!r}.", line=line, hint=hint.strip())

    def _candidates(self, parts: tuple[str, ...], reader: TableName | None) -> Iterator[TableReference]:
        match parts:
            case (name,):
                matches = (table for table in sorted(self.stream_tables) if table.name == name and table != reader)
                yield from (TableReference("stream_table", table) for table in matches)
                for source in self.sources:
                    yield from self._on_search_path(source, name)
                yield from self._in_lake(TableName(DEFAULT_LAKE_SCHEMA, name), may_assume=False)
            case (schema, name):
                table = TableName(schema, name)
                if table in self.stream_tables:
                    yield TableReference("stream_table", table)
                for source in self.sources:
                    yield from self._in_source(source, table)
                yield from self._in_lake(table, may_assume=True)
            case (database, schema, name) if database == LAKE:
                table = TableName(schema, name)
                if table in self.stream_tables:
                    yield TableReference("stream_table", table)
                yield from self._in_lake(table, may_assume=True)
            case (database, schema, name) if database in self.sources:
                yield from self._in_source(database, TableName(schema, name))
            case _:
                return

    def _on_search_path(self, source: str, name: str) -> Iterator[TableReference]:
        config, tables = self.sources[source], self._tables_of(source)
        for schema in config.schemas:
            if TableName(schema, name) in tables:
                yield self._source(source, TableName(schema, name))
                return
        if source not in self.known.sources:
            yield self._source(source, TableName(config.schemas[0], name), assumed=True)

    def _in_source(self, source: str, table: TableName) -> Iterator[TableReference]:
        config, tables = self.sources[source], self._tables_of(source)
        named = [known for known in tables if table in (known, config.mirror_of(known))]
        yield from (self._source(source, known) for known in named)
        if named or source in self.known.sources:
            return
        if table.schema in config.schemas:
            yield self._source(source, table, assumed=True)
        elif table.schema == config.mirror_schema:
            yield self._source(source, TableName(config.schemas[0], table.name), assumed=True)

    def _in_lake(self, table: TableName, *, may_assume: bool) -> Iterator[TableReference]:
        if table in self.stream_tables:
            # The lake table is the stream table's own.
            return
        if self.known.lake is None:
            if may_assume:
                yield TableReference("lake", table, assumed=True)
        elif table in self.known.lake:
            yield TableReference("lake", table)

    def _source(self, source: str, table: TableName, *, assumed: bool = False) -> TableReference:
        return TableReference("source", self.sources[source].mirror_of(table), source, table, assumed)

    def _tables_of(self, source: str) -> frozenset[TableName]:
        """The tables of a source that are sure to exist: those declared and those read."""
        declared = {self.sources[source].table_name(text) for text in self.sources[source].columns}
        return frozenset(declared | set(self.known.sources.get(source, ())))


def _qualified(references: list[TableReference]) -> str:
    full = [
        f"{reference.source}.{reference.source_table}" if reference.kind == "source" else f"{LAKE}.{reference.table}"
        for reference in references
    ]
    return " or ".join(full)
