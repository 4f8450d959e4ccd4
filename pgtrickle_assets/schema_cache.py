"""What is known of source and lake tables without asking a database.

Loading a project needs neither PostgreSQL nor the lake. `pgtrickle apply` and each refresh leave here what they saw:
the columns of the sources and of foreign lake tables, and how far the data of time-partitioned stream tables reaches.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.query.types import ColumnSchema, TableName, TableSchema
from pgtrickle_assets.services.filelock import file_lock
from pgtrickle_assets.type_names import parse_type

CACHE_FILE: Final = "schemas.json"
_VERSION: Final = 1
_LOCK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """Least and greatest value of a time partition column (wall clock, UTC for columns with a zone)."""

    lower: datetime
    upper: datetime


@dataclass(frozen=True, slots=True)
class KnownSchemas:
    """Tables whose columns are known.

    Attributes:
        sources: By source name, the tables of that database under their own names. A source that is not a key has
            never been read: its tables are unknown, which is not the same as none.
        lake: Lake tables that neither mirror a source nor belong to a stream table; None when never read.
        bounds: By stream table, how far the values of its time partition column reach.
        sql_tables: Query and options of the stream tables that were made from SQL, by name.
    """

    sources: Mapping[str, Mapping[TableName, TableSchema]] = field(default_factory=dict)
    lake: Mapping[TableName, TableSchema] | None = None
    bounds: Mapping[str, TimeBounds] = field(default_factory=dict)
    sql_tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_cache(home: Path) -> KnownSchemas:
    """The cache of a project; nothing known when there is none yet or it is of another version.

    Raises:
        ConfigurationError: When the file is damaged.
    """
    file = home / CACHE_FILE
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data.get("version") != _VERSION:
            return KnownSchemas()
        lake = data.get("lake")
        return KnownSchemas(
            sources={name: _tables_from(tables) for name, tables in data["sources"].items()},
            lake=None if lake is None else _tables_from(lake),
            bounds={
                name: TimeBounds(datetime.fromisoformat(lower), datetime.fromisoformat(upper))
                for name, (lower, upper) in data["bounds"].items()
            },
            sql_tables=dict(data.get("sql_tables", {})),
        )
    except FileNotFoundError:
        return KnownSchemas()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"the schema cache {file} is damaged.", hint="Delete it and run `pgtrickle apply`."
        ) from error


@contextmanager
def cache_lock(home: Path) -> Iterator[None]:
    """Holds off other processes that would change the cache of `home`."""
    home.mkdir(parents=True, exist_ok=True)
    with file_lock(home / ".schemas.lock", seconds=_LOCK_SECONDS):
        yield


def write_cache(home: Path, known: KnownSchemas) -> None:
    """Replaces the cache in one step, so that a reader never sees half of it."""
    home.mkdir(parents=True, exist_ok=True)
    data = {
        "version": _VERSION,
        "sources": {name: _tables_as(tables) for name, tables in known.sources.items()},
        "lake": None if known.lake is None else _tables_as(known.lake),
        "bounds": {name: [b.lower.isoformat(), b.upper.isoformat()] for name, b in known.bounds.items()},
        "sql_tables": {name: dict(definition) for name, definition in known.sql_tables.items()},
    }
    descriptor, temporary = tempfile.mkstemp(dir=home, prefix=".schemas-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, ensure_ascii=False)
    Path(temporary).replace(home / CACHE_FILE)


def _tables_as(tables: Mapping[TableName, TableSchema]) -> list[dict[str, Any]]:
    return [
        {
            "schema": name.schema,
            "name": name.name,
            "columns": [[c.name, str(c.type), c.nullable] for c in table.columns],
            "key": list(table.key),
        }
        for name, table in sorted(tables.items())
    ]


def _tables_from(items: list[dict[str, Any]]) -> dict[TableName, TableSchema]:
    tables: dict[TableName, TableSchema] = {}
    for item in items:
        name = TableName(item["schema"], item["name"])
        columns = tuple(ColumnSchema(column, parse_type(kind), nullable) for column, kind, nullable in item["columns"])
        tables[name] = TableSchema(name, columns, tuple(item["key"]))
    return tables
