"""A `defs.yaml` in a user's own dg project serves stream tables."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.core.package_entry import DG_PLUGIN_ENTRY_POINT_GROUP, get_package_objects_in_module

from pgtrickle_assets import StreamTables
from pgtrickle_assets.errors import ConfigurationError


@pytest.fixture
def dg_project(tmp_path, monkeypatch):
    """A dg project, as `create-dagster project` lays it out, beside a project folder of stream tables."""
    lake = tmp_path / "lake_project"
    (lake / "stream_tables" / "gold").mkdir(parents=True)
    (lake / "pgtrickle.yaml").write_text("name: shop\n")
    (lake / "stream_tables" / "gold" / "days.sql").write_text("/*---\nschedule: 5m\n---*/\nSELECT 1 AS one")
    root = tmp_path / "my_dagster"
    defs = root / "src" / "my_dagster_shop" / "defs"
    (defs / "shop").mkdir(parents=True)
    for folder in (defs.parent, defs):
        (folder / "__init__.py").write_text("")
    (root / "pyproject.toml").write_text(
        '[project]\nname = "my-dagster-shop"\nversion = "0"\n\n'
        '[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "my_dagster_shop"\n'
    )
    monkeypatch.syspath_prepend(str(root / "src"))
    yield root, defs / "shop" / "defs.yaml"
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_dagster_shop"]:
        del sys.modules[name]


def test_a_defs_yaml_serves_the_stream_tables_of_a_project_folder(dg_project):
    root, file = dg_project
    # Relative to the component's own folder.
    file.write_text("type: pgtrickle_assets.StreamTables\n\nattributes:\n  project: ../../../../../lake_project\n")
    definitions = dg.load_from_defs_folder(path_within_project=root)
    keys = {key.to_user_string() for key in definitions.resolve_all_asset_keys()}
    assert "gold/days" in keys
    assert definitions.resolve_job_def("refresh").name == "refresh"
    assert definitions.resolve_sensor_def("due_refreshes").name == "due_refreshes"


def test_a_project_folder_that_is_none_is_our_error_and_names_the_way_out(dg_project):
    root, file = dg_project
    file.write_text("type: pgtrickle_assets.StreamTables\n\nattributes:\n  project: ../nowhere\n")
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Dagster puts its own error around ours
        dg.load_from_defs_folder(path_within_project=root)
    error = caught.value
    while error is not None and not isinstance(error, ConfigurationError):
        error = error.__cause__
    assert error is not None
    assert "pgtrickle init" in error.hint


def test_dg_finds_the_component_by_the_entry_point():
    document = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    modules = document["project"]["entry-points"][DG_PLUGIN_ENTRY_POINT_GROUP]
    found = dict(get_package_objects_in_module(importlib.import_module(modules["pgtrickle_assets"])))
    assert found == {"StreamTables": StreamTables}
