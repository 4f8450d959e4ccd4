"""`pgtrickle down` stops an embedded PostgreSQL that nobody uses."""

import json

import psycopg
import pytest

from pgtrickle_assets.cli import main
from pgtrickle_assets.services.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder whose databases are all embedded."""
    for variable in ("PGTRICKLE_CATALOG_DSN", "PGTRICKLE_DAGSTER_DSN", "PGTRICKLE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "pgtrickle.yaml").write_text("name: shop\nsources:\n  shop: {}\n")
    return tmp_path


@pytest.fixture
def server(project):
    made = EmbeddedPostgres(project / ".pgtrickle" / "postgres", options={"fsync": "off", "shared_buffers": "16MB"})
    yield made
    made.stop()


def down(project, *arguments):
    return main.run(["down", "--project", str(project), *arguments])


def test_down_stops_a_server_that_nobody_uses_and_says_so(project, server, capsys):
    server.start()
    assert down(project) == 0
    assert capsys.readouterr().out == "Stopped the embedded PostgreSQL of shop.\n"
    assert server.running() is None


def test_down_without_a_server_does_nothing(project, capsys):
    assert down(project, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"stopped": False}
    assert not (project / ".pgtrickle" / "postgres").exists()


def test_down_names_who_is_connected_and_stops_only_when_forced(project, server, capsys):
    dsn = server.start()
    connection = psycopg.connect(dsn, application_name="the report", autocommit=True)
    try:
        assert down(project) == 1
        error = capsys.readouterr().err
        assert "the report (process" in error
        assert "--force" in error
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert down(project, "--force") == 0
    finally:
        connection.close()
    assert server.running() is None
