"""Dagster's storage in PostgreSQL: the database that the environment names, or the project's embedded one.

`dagster.yaml` itself cannot say "this variable, or else", and an instance must be usable before a database is set up.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import yaml
from dagster import Field
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._serdes import ConfigurableClassData
from dagster_postgres import DagsterPostgresStorage

from pgtrickle_assets.connections import DAGSTER_DSN_VARIABLE, Connections, project_settings
from pgtrickle_assets.project import load_configured_project

if TYPE_CHECKING:
    from dagster._core.storage.base_storage import DagsterStorage

_VALIDATION_VARIABLE: Final = "DAGSTER_IS_DEFS_VALIDATION_CLI"


class PostgresStorage(DagsterPostgresStorage):
    """dagster-postgres, with a connection string from an environment variable that may be missing."""

    @classmethod
    def config_type(cls) -> Mapping[str, Any]:
        """Configuration: the environment variable that holds the connection string."""
        return {"variable": Field(str, is_required=False, default_value=DAGSTER_DSN_VARIABLE)}

    @classmethod
    def from_config_value(  # pyright: ignore[reportIncompatibleMethodOverride] - as in dagster-postgres itself
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> DagsterStorage:
        """The storage: PostgreSQL, or nothing lasting when only definitions are validated without a database."""
        variable = config_value["variable"]
        if not os.environ.get(variable):
            if os.environ.get(_VALIDATION_VARIABLE):
                return _passing_storage()
            project = load_configured_project()
            # Processes that Dagster starts inherit it and find the same database.
            os.environ[variable] = Connections(project, project_settings(project)).dagster_dsn().get_secret_value()
        data = ConfigurableClassData(
            "dagster_postgres", "DagsterPostgresStorage", yaml.safe_dump({"postgres_url": {"env": variable}})
        )
        return DagsterPostgresStorage(os.environ[variable], inst_data=data)


def _passing_storage() -> DagsterStorage:
    folder = tempfile.mkdtemp(prefix="dagster-validation-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    data = ConfigurableClassData(
        "dagster._core.storage.sqlite_storage", "DagsterSqliteStorage", yaml.safe_dump({"base_dir": folder})
    )
    return DagsterSqliteStorage(folder, inst_data=data)
