"""`pgtrickle doctor` on real databases: it looks and leaves everything as it was."""

from __future__ import annotations

import psycopg
import pytest

from pgtrickle_assets.cli.diagnosis import diagnose
from pgtrickle_assets.control.migrations import migrate
from pgtrickle_assets.lake.catalog import Lake
from pgtrickle_assets.lake.location import LakeLocation


@pytest.fixture
def found(database, tmp_path, monkeypatch):
    """Findings by subject, for a project whose source, catalog and Dagster storage are one database."""
    monkeypatch.setenv("SHOP_DSN", database)
    monkeypatch.setenv("PGTRICKLE_CATALOG_DSN", database)
    monkeypatch.setenv("PGTRICKLE_DAGSTER_DSN", database)
    (tmp_path / "pgtrickle.yaml").write_text("sources:\n  shop:\n    dsn: ${SHOP_DSN}\n")
    return lambda: {finding.subject: finding for finding in diagnose(tmp_path)}


def relations(dsn):
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT oid FROM pg_class WHERE oid >= 16384 ORDER BY oid").fetchall()


def test_a_lake_that_is_not_there_is_not_made(found, database, tmp_path):
    before = relations(database)
    lake = found()["lake"]
    assert (lake.result, lake.hint) == ("warning", "`pgtrickle apply` makes it.")
    assert relations(database) == before
    assert [path.name for path in tmp_path.iterdir()] == ["pgtrickle.yaml"]


def test_a_lake_that_is_there_is_read(found, database, tmp_path):
    Lake.bootstrap(LakeLocation(database, "main", str(tmp_path / ".pgtrickle" / "lake"))).close()
    migrate(database)
    lake = found()["lake"]
    assert lake.result == "ok"
    assert "0 stream tables registered" in lake.detail
    assert found()["source shop"].result == "ok"
