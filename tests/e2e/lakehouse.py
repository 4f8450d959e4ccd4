"""A whole system in small: a source database, a lake, the refresh engine, and DuckDB as an independent reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.lake.lint import lint
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.project import Project
from pgtrickle_assets.refresh.api import RefreshEngine
from pgtrickle_assets.refresh.model import RefreshResult
from pgtrickle_assets.services.duckdb import connect
from pgtrickle_assets.settings import Settings
from pgtrickle_assets.stream_table import StreamTable

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession


def _counted(rows: Sequence[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset; lists in them become tuples."""
    return Counter(tuple(tuple(value) if isinstance(value, list) else value for value in row) for row in rows)


@dataclass
class Lakehouse:
    """An open engine and ways to change and read what it works on."""

    engine: RefreshEngine
    source: str
    location: LakeLocation

    def with_stream_tables(
        self, stream_tables: Sequence[StreamTable], **settings: Any
    ) -> AbstractContextManager[Lakehouse]:
        """The same source and lake with other stream tables; open it when this one is closed."""
        spark = self.engine._workspace.spark()
        return _opened(self.source, self.location, self.engine.project.home, spark, stream_tables, settings)

    def execute(self, *statements: str) -> None:
        """Run statements on the source in one transaction."""
        with psycopg.connect(self.source) as connection:
            for statement in statements:
                connection.execute(statement)

    def refresh(self) -> dict[str, RefreshResult]:
        """Capture, then refresh every stream table at that cut."""
        cut = self.engine.capture("test").cut
        return {name: self.engine.refresh(name, cut=cut) for name in self.engine.project.order}

    def postgres_rows(self, query: str) -> Counter[tuple[Any, ...]]:
        """PostgreSQL's own answer."""
        with psycopg.connect(self.source) as connection:
            return _counted(connection.execute(query).fetchall())

    def lake_rows(self, table: str, at: int | None = None) -> Counter[tuple[Any, ...]]:
        """What DuckDB reads of a lake table."""
        with self.duckdb() as connection:
            version = "" if at is None else f" AT (VERSION => {at})"
            return _counted(connection.execute(f"SELECT * FROM lake.{table}{version}").fetchall())

    @contextmanager
    def duckdb(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """DuckDB with the lake attached for reading and writing."""
        with connect() as connection:
            attach(connection, self.location)
            yield connection

    def check(self) -> None:
        """Every stream table equals its recompute, and the catalog keeps its invariants."""
        for name in self.engine.project.order:
            report = self.engine.check_equals_full(name)
            assert report.passed, f"{name}: {report.detail} {report.differences}"
        findings = lint(self.engine._workspace.lake)
        assert findings == (), findings


@contextmanager
def lakehouse(
    new_database: Callable[[], str],
    folder: Path,
    spark: SparkSession,
    stream_tables: Sequence[StreamTable] | Mapping[str, str],
    setup: Sequence[str] = (),
    *,
    data_path: str | None = None,
    storage: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Lakehouse]:
    """Open a system whose source was set up by statements.

    Args:
        new_database: Gives the DSN of a new empty database.
        folder: For files.
        spark: The session.
        stream_tables: Stream tables, or queries by name.
        setup: Statements that make the source's tables.
        data_path: Where the lake's files go; in the folder by default.
        storage: Options of the object store.
        settings: Overrides.
    """
    source, catalog = new_database(), new_database()
    with psycopg.connect(source) as connection:
        for statement in setup:
            connection.execute(statement)
    if isinstance(stream_tables, Mapping):
        stream_tables = [StreamTable(name=name, query=query) for name, query in stream_tables.items()]
    location = LakeLocation(catalog, "main", data_path or str(folder / "lake"), storage or {})
    with _opened(source, location, folder, spark, stream_tables, settings) as system:
        yield system


@contextmanager
def _opened(
    source: str,
    location: LakeLocation,
    folder: Path,
    spark: SparkSession,
    stream_tables: Sequence[StreamTable],
    settings: Mapping[str, Any],
) -> Iterator[Lakehouse]:
    project = Project(
        stream_tables,
        sources={"shop": {"dsn": source}},
        lake={
            "catalog": location.catalog_dsn,
            "data_path": location.data_path,
            "storage": dict(location.storage_options),
        },
        home=folder,
        name="test",
    )
    used = Settings(**{"home": folder, "ducklake_sink_failure_mode": "error", **settings})
    with RefreshEngine.open(project, used, lambda: spark) as engine:
        engine.sync()
        yield Lakehouse(engine, source, location)


def no_spark() -> Any:
    """Given as the session where none is needed."""
    raise AssertionError("nothing here needs Spark")


def make_ready(folder: Path, source: str, catalog: str, stream_tables: Sequence[StreamTable]) -> set[str]:
    """Make source, lake and control schema fit a project; the stream tables that are then registered."""
    project = Project(
        stream_tables,
        sources={"shop": {"dsn": source}},
        lake={"catalog": catalog, "data_path": str(folder / "lake")},
        home=folder,
        name="test",
    )
    with RefreshEngine.open(project, Settings(home=folder), no_spark) as engine:
        engine.sync()
        return {str(row.name) for row in engine.status()}
