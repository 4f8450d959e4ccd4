"""A project folder on real databases, and the command that works on it."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle_assets.cli import main
from pgtrickle_assets.lake.catalog import Lake
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.settings import Settings

_names = itertools.count(1)

TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, day date NOT NULL, price numeric(10, 2) NOT NULL, note text);
CREATE TABLE lines (id bigint PRIMARY KEY, order_id bigint NOT NULL, quantity int NOT NULL);
INSERT INTO orders VALUES (1, '2024-07-01', 1.50, 'a'), (2, '2024-07-01', 2, NULL), (3, '2024-07-02', 4, 'c');
INSERT INTO lines VALUES (1, 1, 2), (2, 1, 3), (3, 3, 1);
"""


@dataclass
class Command:
    """Runs `pgtrickle` in this process and keeps what it printed."""

    folder: Path
    source: str
    catalog: str
    capsys: Any

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, output and errors of a command."""
        self.capsys.readouterr()
        status = main.run([*arguments, "--project", str(self.folder)])
        printed = self.capsys.readouterr()
        return status, printed.out, printed.err

    def json(self, *arguments: str) -> Any:
        """The document of a command that succeeds."""
        status, out, err = self.run(*arguments, "--json")
        assert status == 0, err
        return json.loads(out)

    def file(self, name: str) -> Path:
        """The SQL file of a stream table."""
        schema, table = name.split(".")
        return self.folder / "stream_tables" / schema / f"{table}.sql"

    def ask(self, query: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        """Rows from the catalog's database."""
        with psycopg.connect(self.catalog) as connection:
            return connection.execute(query, parameters).fetchall()

    def triggers(self) -> set[str]:
        """Source tables that are captured."""
        with psycopg.connect(self.source) as connection:
            rows = connection.execute(
                "SELECT DISTINCT c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
                " JOIN pg_proc p ON p.oid = t.tgfoid WHERE p.pronamespace = to_regnamespace('pgtrickle_changes')"
            ).fetchall()
        return {row[0] for row in rows}

    def lake_tables(self) -> dict[str, int]:
        """Id by name of the tables that the lake has now."""
        lake = Lake.open(LakeLocation(self.catalog, "main", str(self.folder / "lake")))
        try:
            return {str(table.name): table.id for table in lake.tables()}
        finally:
            lake.close()

    def lake_columns(self, name: str) -> list[str]:
        """Columns of a lake table."""
        lake = Lake.open(LakeLocation(self.catalog, "main", str(self.folder / "lake")))
        try:
            return [column.name for column in lake.table(TableName(*name.split("."))).columns]
        finally:
            lake.close()


@pytest.fixture
def command(postgres_server, tmp_path, monkeypatch, capsys):
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PGTRICKLE_{name.upper()}", raising=False)
    monkeypatch.delenv("PGTRICKLE_PROJECT", raising=False)
    names = [f"cli_{os.getpid()}_{next(_names)}" for _ in range(3)]
    source, catalog, dagster = (postgres_server.create_database(name) for name in names)
    with psycopg.connect(source) as connection:
        connection.execute(TABLES)
    monkeypatch.setenv("SHOP_DSN", source)
    monkeypatch.setenv("LAKE_DSN", catalog)
    monkeypatch.setenv("PGTRICKLE_DAGSTER_DSN", dagster)
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "pgtrickle.yaml").write_text(
        "name: shop\nsources:\n  shop:\n    dsn: ${SHOP_DSN}\n"
        "lake:\n  catalog: ${LAKE_DSN}\n  data_path: lake\ndefaults:\n  schedule: manual\n"
    )
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "dagster.yaml").write_text((Path(__file__).parents[3] / "dagster.yaml").read_text())
    yield Command(folder, source, catalog, capsys)
    for name in names:
        postgres_server.drop_database(name)
