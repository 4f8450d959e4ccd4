"""Comparing rows as multisets, value for value and bit for bit."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from uuid import UUID

import pyarrow as pa

WEIGHT = "__pgt_weight"


def key(value: object) -> object:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value.hex()
    if isinstance(value, list):
        return tuple(key(item) for item in value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def multiset(rows: pa.Table) -> Counter[tuple[object, ...]]:
    """Rows with their counts; a weight column counts instead of one each."""
    names = sorted(name for name in rows.column_names if name != WEIGHT)
    counts: Counter[tuple[object, ...]] = Counter()
    for row in rows.to_pylist():
        counts[tuple(key(row[name]) for name in names)] += row.get(WEIGHT, 1)
    return Counter({row: count for row, count in counts.items() if count})


def added(left: Counter[tuple[object, ...]], right: Counter[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    result = Counter(left)
    for row, count in right.items():
        result[row] += count
    return Counter({row: count for row, count in result.items() if count})
