"""DuckDB connections whose extensions come from wheels; nothing is fetched at run time."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pgtrickle_assets.errors import ServiceError

if TYPE_CHECKING:
    import duckdb

EXTENSIONS = ("ducklake", "postgres_scanner", "httpfs")


def connect(
    database: str = ":memory:",
    *,
    extensions: Sequence[str] = EXTENSIONS,
    config: Mapping[str, str | bool | int | float] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Open DuckDB with its extensions loaded, its session in UTC and without access to an extension repository.

    Args:
        database: Path of a DuckDB file, or `:memory:`.
        extensions: Names of extensions to load, e.g. `ducklake`; each from the wheel `duckdb-extension-<name>`.
        config: DuckDB settings on top, e.g. `{"memory_limit": "1GB", "threads": 2}`.

    Raises:
        ServiceError: An extension's wheel is not installed or was made for another DuckDB version.
    """
    import duckdb

    paths = [extension_path(name) for name in extensions]
    settings: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    settings.update(config or {})
    connection = duckdb.connect(database, config=settings)
    try:
        for path in paths:
            connection.load_extension(str(path))
        connection.execute("SET TimeZone = 'UTC'")
    except duckdb.Error:
        connection.close()
        raise
    return connection


def extension_path(name: str) -> Path:
    """File of one extension for the installed DuckDB version.

    Raises:
        ServiceError: The wheel is missing or was made for another version.
    """
    import duckdb

    wheel = f"duckdb-extension-{name.replace('_', '-')}"
    version = f"v{duckdb.__version__}"
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    hint = f"Install it: pip install {wheel}=={duckdb.__version__}"
    if found is None or found.origin is None:
        raise ServiceError(f"The DuckDB extension {name} is not installed.", hint=hint)
    folder = Path(found.origin).parent / "extensions"
    path = folder / version / f"{name}.duckdb_extension"
    if not path.exists():
        held = ", ".join(sorted(entry.name for entry in folder.iterdir())) if folder.exists() else "none"
        raise ServiceError(f"The package {wheel} is made for DuckDB {held}, installed is {version}.", hint=hint)
    return path
