"""Stream tables for any PostgreSQL: Spark computes, DuckLake stores, Dagster runs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgtrickle_assets.build import build_definitions
    from pgtrickle_assets.components import StreamTables
    from pgtrickle_assets.project import Project
    from pgtrickle_assets.stream_table import StreamTable

__all__ = ["Project", "StreamTable", "StreamTables", "build_definitions"]

_HOMES = {
    "Project": "pgtrickle_assets.project",
    "StreamTable": "pgtrickle_assets.stream_table",
    "StreamTables": "pgtrickle_assets.components",
    "build_definitions": "pgtrickle_assets.build",
}


def __getattr__(name: str) -> Any:
    # Importing Dagster takes a second; `pgtrickle version` and Spark's workers do without it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
