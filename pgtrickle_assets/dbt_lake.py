"""A plugin for dbt-duckdb that attaches a project's lake, so that dbt models and stream tables live in one catalog.

In `profiles.yml`, for the project that `PGTRICKLE_PROJECT` names:

    plugins:
      - module: pgtrickle_assets.dbt_lake

Models with `database: lake` are tables of the lake. Needs the extra `dbt`.
"""

from __future__ import annotations

from typing import Any

from dbt.adapters.duckdb.plugins import BasePlugin  # pyright: ignore[reportMissingImports]

from pgtrickle_assets.connections import Connections, project_settings
from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.project import load_configured_project
from pgtrickle_assets.services.duckdb import extension_path

ALIAS = "lake"
"""Name of the lake in dbt's DuckDB."""

_EXTENSIONS = ("ducklake", "postgres_scanner", "httpfs")


class Plugin(BasePlugin):  # pyright: ignore[reportUntypedBaseClass]
    """Loads the extensions from the packages that came with this one, and attaches the lake."""

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        """Nothing is connected to before dbt opens DuckDB."""

    def configure_connection(self, conn: Any) -> None:
        """Called once for dbt's DuckDB.

        Raises:
            LakeError: There is no lake yet, or it cannot be attached.
        """
        for name in _EXTENSIONS:
            conn.load_extension(str(extension_path(name)))
        conn.execute("SET TimeZone = 'UTC'")
        project = load_configured_project()
        attach(conn, Connections(project, project_settings(project)).lake_location(), ALIAS)
