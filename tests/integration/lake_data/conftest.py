"""A lake that the official DuckLake extension made, changes and reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pgtrickle_assets.lake.catalog import Lake
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.services.duckdb import connect

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from pgtrickle_assets.lake.model import DeltaPlan, LakeTable, ScanPlan


class DuckLake:
    """One lake seen from both sides: DuckDB's (`sql`, `rows`) and ours (`scan`, `delta`)."""

    def __init__(self, dsn: str, data_path: Path) -> None:
        self.path = data_path
        self.duckdb: duckdb.DuckDBPyConnection = connect()
        self.duckdb.execute(
            f"ATTACH 'ducklake:postgres:{dsn}' AS lake (DATA_PATH '{data_path}/', METADATA_SCHEMA 'main')"
        )
        self.duckdb.execute("USE lake")
        self.lake = Lake.open(LakeLocation(dsn))

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.duckdb.execute(statement)

    def head(self) -> int:
        return self.lake.head()

    def rows(self, table: str, at: int, columns: str = "*") -> pa.Table:
        return self.duckdb.execute(f"SELECT {columns} FROM {table} AT (VERSION => {at})").to_arrow_table()

    def table(self, name: str, at: int | None = None) -> LakeTable:
        found = self.lake.table(TableName("main", name), at)
        assert found is not None
        return found

    def scan(self, name: str, at: int | None = None, *, bounds: bool = False) -> ScanPlan:
        table = self.table(name, at)
        ids = [(column.child_ids or (column.id,))[-1] for column in table.columns] if bounds else []
        return self.lake.scan(table, bounds_of=ids)

    def delta(self, name: str, since: int, until: int | None = None) -> DeltaPlan:
        return self.lake.delta(self.table(name, until), since)

    def register(self, table: LakeTable, files: object) -> None:
        """Have DuckDB take over files that we wrote, by its own function."""
        for file in files:  # type: ignore[attr-defined]
            self.duckdb.execute(f"CALL ducklake_add_data_files('lake', '{table.name.name}', '{table.path}{file.path}')")


@pytest.fixture
def lake(database: str, tmp_path: Path) -> Iterator[DuckLake]:
    made = DuckLake(database, tmp_path / "data")
    yield made
    made.duckdb.close()
    made.lake.close()
