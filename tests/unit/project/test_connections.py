"""Where a project's databases and files are."""

from __future__ import annotations

from pgtrickle_assets.connections import Connections, project_settings
from pgtrickle_assets.project import Project
from pgtrickle_assets.services import postgres


def test_the_embedded_server_takes_the_options_of_the_settings(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(postgres, "EmbeddedPostgres", lambda folder, options: made.append((folder, options)))
    options = {"shared_buffers": "1GB"}
    project = Project([], home=tmp_path, settings={"embedded_postgres_options": options})
    Connections(project, project_settings(project)).embedded  # noqa: B018 - a property that makes the server
    assert made == [(tmp_path / "postgres", options)]
