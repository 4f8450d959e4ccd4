"""Names of stream tables, mirrors and sources inside Dagster."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

import dagster as dg

if TYPE_CHECKING:
    from pgtrickle_assets.query.types import TableName

ENGINE: Final = "pgtrickle"
"""Resource key of the refresh engine."""

IO_MANAGER: Final = "ducklake_io_manager"
"""Resource key of the IO manager that delivers into the lake."""

RUN_PLAN: Final = "pgtrickle_run_plan"
"""Resource key of the in-memory IO manager that carries a run's plan to its steps."""

SPARK: Final = "spark"
"""Resource key of Spark."""

SPARK_POOL: Final = "spark"
"""Concurrency pool of every step that makes Spark work; its limit protects the machine's memory."""

_PLAIN: Final = re.compile(r"[^A-Za-z0-9_]")


def lake_key(table: TableName) -> dg.AssetKey:
    """Asset key of a lake table: schema and name."""
    return dg.AssetKey([table.schema, table.name])


def source_key(source: str, table: TableName) -> dg.AssetKey:
    """Asset key of a source table: source, schema and name."""
    return dg.AssetKey([source, table.schema, table.name])


def identifier(*parts: str) -> str:
    """A Dagster name (letters, digits, underscores) that no other parts give."""
    text = "__".join(parts)
    plain = _PLAIN.sub("_", text)
    if plain == text:
        return plain
    return f"{plain}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
