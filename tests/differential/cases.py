"""The worked examples of tests/cases: tables, stream tables, batches of statements and the rows expected after each."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from pgtrickle_assets.query.types import (
    BOOLEAN,
    INT32,
    VARCHAR,
    ColumnSchema,
    ColumnType,
    TableName,
    TableSchema,
    decimal,
)

FOLDER = Path(__file__).parents[1] / "cases"
_TYPES = {"INT": INT32, "VARCHAR": VARCHAR, "BOOLEAN": BOOLEAN}


@dataclass(frozen=True)
class Case:
    """One worked example; `expected[i]` are the rows per stream table after batch i."""

    id: str
    mode: str
    tables: dict[str, TableSchema]
    rows: dict[str, list[list[Any]]]
    stream_tables: dict[str, str]
    batches: list[list[str]]
    expected: list[dict[str, list[list[Any]]]]


def load() -> list[Case]:
    """All cases, by id."""
    return [_case(yaml.safe_load(path.read_text())) for path in sorted(FOLDER.glob("*.yaml"))]


def _case(data: dict[str, Any]) -> Case:
    tables: dict[str, TableSchema] = {}
    for name, table in data["tables"].items():
        columns = [_column(part) for part in re.split(r",\s*(?![^(]*\))", table["columns"])]
        key = (table["key"],) if table["key"] else ()
        columns = [ColumnSchema(c.name, c.type, c.name not in key) for c in columns]
        tables[name] = TableSchema(TableName("public", name), tuple(columns), key)
    return Case(
        id=data["id"],
        mode=data["mode"],
        tables=tables,
        rows=data["rows"],
        stream_tables=data["stream_tables"],
        batches=[batch["statements"] for batch in data["batches"]],
        expected=[batch["expected"] for batch in data["batches"]],
    )


def _column(text: str) -> ColumnSchema:
    name, kind = text.split(maxsplit=1)
    return ColumnSchema(name, _type(kind))


def _type(text: str) -> ColumnType:
    match = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", text)
    return decimal(int(match[1]), int(match[2])) if match else _TYPES[text]


def normal(rows: Any) -> Counter[tuple[Any, ...]]:
    """A multiset in which numbers compare by value, whether written as text, float or decimal."""
    return Counter(tuple(map(_value, row)) for row in rows)


def _value(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value):
        return Decimal(value)
    if isinstance(value, float):
        return "NaN" if value != value else Decimal(str(value))
    return value
