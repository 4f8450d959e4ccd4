"""The lake: one object to open it, look at its tables at any snapshot, and plan what to read.

All answers come from the catalog in PostgreSQL, in one read-only transaction each, with a number of queries that does
not depend on the number of tables or files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.errors import LakeError, LakeHistoryExpiredError
from pgtrickle_assets.lake.bootstrap import create_lake
from pgtrickle_assets.lake.connections import Connections
from pgtrickle_assets.lake.delete_dating import DeleteDating, DeleteHistory, read_history
from pgtrickle_assets.lake.delete_facts import RowFacts
from pgtrickle_assets.lake.delta_planning import build_delta, read_delta
from pgtrickle_assets.lake.file_cache import ColumnFiles
from pgtrickle_assets.lake.file_columns import FileColumns
from pgtrickle_assets.lake.file_listing import read_bounds
from pgtrickle_assets.lake.location import LakeLocation, same_place, with_slash
from pgtrickle_assets.lake.model import DeltaPlan, InlinedRows, LakeTable, ScanPlan, TableDefinition
from pgtrickle_assets.lake.naming import SCHEMA_NAMED, directory_of, planned_table, table_path
from pgtrickle_assets.lake.scan_planning import RawScan, build_scan, read_scan
from pgtrickle_assets.lake.schema_ddl import VERSION
from pgtrickle_assets.lake.sqltext import statement
from pgtrickle_assets.lake.table_reading import OLDEST_SNAPSHOT, SNAPSHOT_COLUMNS, Snapshot, read_tables
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    from pgtrickle_assets.lake.connections import CatalogConnection

_METADATA: Final = "SELECT key, value FROM {c}.ducklake_metadata WHERE scope IS NULL"
_HEAD: Final = "SELECT {columns} FROM {c}.ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1".replace(
    "{columns}", SNAPSHOT_COLUMNS
)
_SNAPSHOT: Final = "SELECT {columns} FROM {c}.ducklake_snapshot WHERE snapshot_id = %s".replace(
    "{columns}", SNAPSHOT_COLUMNS
)
_SCHEMAS: Final = "SELECT s.schema_name FROM {c}.ducklake_schema s WHERE {visible:s} ORDER BY 1"
_VIEWS: Final = """
SELECT s.schema_name, v.view_name FROM {c}.ducklake_view v JOIN {c}.ducklake_schema s ON s.schema_id = v.schema_id
WHERE {visible:v} AND {visible:s} ORDER BY 1, 2
"""

_CACHED_TABLES: Final = 4096


class Lake:
    """An open lake of spec 1.0.

    Attributes:
        location: Where it is.
        data_path: Root of the files, as the catalog stores it.
        connections: Connections to the catalog database.
        column_files: Keeps what is read of data files on the local disk; None keeps nothing.
    """

    def __init__(
        self,
        location: LakeLocation,
        data_path: str,
        connections: Connections,
        column_files: ColumnFiles | None = None,
    ) -> None:
        self.location = location
        self.data_path = data_path
        self.connections = connections
        self.column_files = column_files
        self.row_facts = RowFacts(location.storage_options)
        self._file_columns = FileColumns(location.storage_options)
        self._tables: dict[tuple[TableName, int], LakeTable | None] = {}
        self._versions: dict[int, int] = {}

    @classmethod
    def open(cls, location: LakeLocation, column_files: ColumnFiles | None = None) -> Lake:
        """Open an existing lake, made by us or by DuckDB.

        Raises:
            LakeUnavailableError: The catalog database cannot be reached.
            LakeError: There is no lake, or it has another version, is encrypted or lies elsewhere.
        """
        connections = Connections(location.catalog_dsn)
        metadata = dict(
            connections.read(lambda c: c.execute(statement(_METADATA, location.catalog_schema), ()).fetchall())
        )
        check_metadata(metadata, location)
        return cls(location, with_slash(metadata["data_path"]), connections, column_files)

    @classmethod
    def bootstrap(cls, location: LakeLocation, column_files: ColumnFiles | None = None) -> Lake:
        """Create the lake if there is none in the catalog schema, and open it; safe when many processes do it at once.

        Raises:
            LakeError: `data_path` is empty, or a lake is there that we can't open.
        """
        connections = Connections(location.catalog_dsn)
        create_lake(connections, location)
        connections.close()
        return cls.open(location, column_files)

    @contextmanager
    def connection(self) -> Iterator[CatalogConnection]:
        """An autocommit connection to the catalog database."""
        with self.connections.checkout() as connection:
            yield connection

    def close(self) -> None:
        """Close idle connections."""
        self.connections.close()

    def head(self) -> int:
        """Id of the newest snapshot."""
        return self.snapshot().id

    def oldest(self) -> int:
        """Id of the oldest snapshot that is kept."""
        return self.connections.fetch(self.sql(OLDEST_SNAPSHOT), ())[0][0]

    def snapshot(self, at: int | None = None) -> Snapshot:
        """The newest snapshot, or the one with an id.

        Raises:
            LakeHistoryExpiredError: The snapshot is no longer kept.
            LakeError: No such snapshot yet.
        """
        if at is None and (rows := self.connections.fetch(self.sql(_HEAD), ())):
            return self._remember(Snapshot(*rows[0]))
        return self.connections.read(lambda connection: self._snapshot(connection, at))

    def schemas(self, at: int | None = None) -> tuple[str, ...]:
        """Names of the schemas at a snapshot (default: newest)."""

        def work(connection: CatalogConnection) -> list[tuple[Any, ...]]:
            snapshot = self._snapshot(connection, at)
            return connection.execute(self.sql(_SCHEMAS), {"at": snapshot.id}).fetchall()

        return tuple(row[0] for row in self.connections.read(work))

    def views(self, at: int | None = None) -> tuple[TableName, ...]:
        """Names of the views at a snapshot (default: newest)."""

        def work(connection: CatalogConnection) -> list[tuple[Any, ...]]:
            snapshot = self._snapshot(connection, at)
            return connection.execute(self.sql(_VIEWS), {"at": snapshot.id}).fetchall()

        return tuple(TableName(*row) for row in self.connections.read(work))

    def tables(self, at: int | None = None) -> tuple[LakeTable, ...]:
        """All tables at a snapshot (default: newest), by name."""

        def work(connection: CatalogConnection) -> tuple[LakeTable, ...]:
            snapshot = self._snapshot(connection, at)
            return read_tables(connection, self.location.catalog_schema, self.data_path, snapshot)

        return self.connections.read(work)

    def table(self, name: TableName, at: int | None = None) -> LakeTable | None:
        """A table at a snapshot (default: newest), or None when there is none of that name."""
        return self.tables_named([name], at)[0]

    def tables_named(self, names: Sequence[TableName], at: int | None = None) -> tuple[LakeTable | None, ...]:
        """Several tables at one snapshot (default: newest); descriptions are kept by schema version."""

        def work(connection: CatalogConnection) -> tuple[LakeTable | None, ...]:
            snapshot = self._snapshot(connection, at)
            version = snapshot.schema_version
            unknown = [name for name in names if (name, version) not in self._tables]
            if unknown:
                schema = self.location.catalog_schema
                found = read_tables(connection, schema, self.data_path, snapshot, unknown)
                by_name = {table.name: table for table in found}
                if len(self._tables) > _CACHED_TABLES:
                    self._tables.clear()
                self._tables.update({(name, version): by_name.get(name) for name in unknown})
            kept = [self._tables[name, version] for name in names]
            return tuple(table and replace(table, at=snapshot.id) for table in kept)

        return self.connections.read(work)

    def tables_planned_on(self, names: Sequence[TableName], base: int) -> tuple[LakeTable | None, ...]:
        """Several tables at a snapshot that this object has seen; asks nothing when all are known.

        Only for callers that check by themselves whether the snapshot is still kept, as a commit does.
        """
        version = self._versions.get(base)
        if version is None or any((name, version) not in self._tables for name in names):
            return self.tables_named(names, base)
        kept = [self._tables[name, version] for name in names]
        return tuple(table and replace(table, at=base) for table in kept)

    def plan_table(self, definition: TableDefinition) -> LakeTable:
        """A table that is to be created, as its writers must know it: column ids and path, but no table id (-1)."""
        name = definition.name

        def work(connection: CatalogConnection) -> tuple[Snapshot, Any]:
            found = connection.execute(self.sql(SCHEMA_NAMED), (name.schema,))
            return self._snapshot(connection, None), found.fetchone()

        snapshot, found = self.connections.read(work)
        path, relative = (directory_of(name.schema), True) if found is None else found[2:4]
        place = table_path(self.data_path, path, relative, definition)
        return planned_table(definition, place, snapshot.id, snapshot.schema_version)

    def scan(self, table: LakeTable, *, bounds_of: Sequence[int] = ()) -> ScanPlan:
        """What to read for the table at its snapshot `table.at`.

        Args:
            table: The table version.
            bounds_of: Column ids whose file statistics are wanted for pruning.

        Raises:
            LakeHistoryExpiredError: The snapshot is no longer kept.
            LakeDeletesUndatedError: What was deleted by then cannot be told (see `delete_dating`).
        """

        def work(connection: CatalogConnection) -> tuple[int, RawScan]:
            snapshot = self._snapshot(connection, table.at)
            return snapshot.next_file_id, read_scan(connection, self.location.catalog_schema, table)

        next_file_id, raw = self.connections.read(work)
        plan = build_scan(table, raw, self._dating(table, {table.at: next_file_id}), self._file_columns)
        return self.with_bounds(plan, bounds_of) if bounds_of else plan

    def with_bounds(self, scan: ScanPlan, column_ids: Sequence[int]) -> ScanPlan:
        """The scan with file statistics of some columns (nested columns: ids of their leaves); one query."""
        if not scan.files or not column_ids:
            return scan
        schema = self.location.catalog_schema
        found = self.connections.read(lambda c: read_bounds(c, schema, scan.table, scan.files, column_ids))
        files = tuple(
            replace(file, bounds={**file.bounds, **found[file.id]}) if file.id in found else file for file in scan.files
        )
        return replace(scan, files=files)

    def delta(self, table: LakeTable, since: int) -> DeltaPlan:
        """What changed in the table after snapshot `since` up to `table.at`.

        Raises:
            ValueError: `since` is after `table.at`.
            LakeHistoryExpiredError: Snapshot `since` is no longer kept.
            LakeTableReplacedError: Another table had the name at `since`.
            LakeDeletesUndatedError: What was deleted by one end or the other cannot be told (see `delete_dating`).
        """
        if since > table.at:
            raise ValueError(f"a delta goes forward: {since} is after {table.at}")
        if since == table.at:
            return DeltaPlan(table, since, since, (), (), (), InlinedRows(), InlinedRows())
        schema = self.location.catalog_schema
        raw = self.connections.read(lambda connection: read_delta(connection, schema, table, since))
        return build_delta(table, since, raw, self._dating(table, raw.next_file_ids), self._file_columns)

    def _dating(self, table: LakeTable, next_file_ids: Mapping[int, int]) -> DeleteDating:
        schema = self.location.catalog_schema

        def load() -> DeleteHistory:
            return self.connections.read(lambda connection: read_history(connection, schema, table, self.data_path))

        return DeleteDating(table, self.row_facts, next_file_ids, load)

    def sql(self, template: str) -> bytes:
        """Catalog SQL with the quoted schema filled in (see `sqltext.statement`)."""
        return statement(template, self.location.catalog_schema)

    def _snapshot(self, connection: CatalogConnection, at: int | None) -> Snapshot:
        if at is None:
            row = connection.execute(self.sql(_HEAD), ()).fetchone()
        else:
            row = connection.execute(self.sql(_SNAPSHOT), (at,)).fetchone()
        if row is not None:
            return self._remember(Snapshot(*row))
        newest = connection.execute(self.sql(_HEAD), ()).fetchone()
        if newest is None:
            raise LakeError("the lake's catalog has no snapshot at all", hint="Restore it from a backup.")
        if at is not None and at < newest[0]:
            raise LakeHistoryExpiredError(f"snapshot {at} of the lake is no longer kept", hint="Use a newer one.")
        raise LakeError(f"the lake has no snapshot {at} yet; the newest is {newest[0]}")

    def _remember(self, snapshot: Snapshot) -> Snapshot:
        if len(self._versions) > _CACHED_TABLES:
            self._versions.clear()
        self._versions[snapshot.id] = snapshot.schema_version
        return snapshot


def check_metadata(metadata: dict[str, str], location: LakeLocation) -> None:
    """Refuse lakes that we can't read and write safely.

    Raises:
        LakeError: Wrong version, encrypted, no data path, or a data path that is not the configured one.
    """
    version = metadata.get("version")
    if version is None or "data_path" not in metadata:
        raise LakeError(
            f"schema {location.catalog_schema!r} of the catalog database holds no DuckLake",
            hint="Run `pgtrickle apply`.",
        )
    if version != VERSION:
        raise LakeError(
            f"the lake has DuckLake version {version}, and only {VERSION} can be read and written",
            hint=_version_hint(version),
        )
    if metadata.get("encrypted", "false").lower() == "true":
        raise LakeError("the lake is encrypted, which is not supported", hint="Use an unencrypted lake.")
    if location.data_path and not same_place(location.data_path, metadata["data_path"]):
        raise LakeError(
            f"the lake's files are at {metadata['data_path']}, but the setting says {location.data_path}",
            hint=f"A lake keeps its path: set PGTRICKLE_DATA_PATH to {metadata['data_path']}, or use another catalog.",
        )


def _version_hint(version: str) -> str:
    if version.startswith("0."):
        return "Open it once with DuckDB 1.5.2 or newer and AUTOMATIC_MIGRATION to bring it to 1.0."
    return "There is no downgrade: create a 1.0 lake and copy the tables, or use a release that supports this version."
