# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Exact statistics of what we write, in DuckLake's text forms.

They are counted on the values themselves and not taken from Parquet footers, which don't say whether a NaN occurs and
may be truncated. Source of the forms: DuckLake specification 1.0, file column statistics, and what DuckDB 1.5.5 writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgtrickle_assets.lake.model import ColumnBounds, LakeColumn
from pgtrickle_assets.lake.parquet_columns import leaf_id
from pgtrickle_assets.query.types import ColumnType

MAX_BOUND_BYTES: Final = 256
_LAST_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


class FileStatistics:
    """Collects the statistics of one file while its rows pass by."""

    def __init__(self, columns: Sequence[LakeColumn]) -> None:
        self._leaves = [(place, leaf_id(column), _Leaf(column.type)) for place, column in enumerate(columns)]

    def add(self, rows: pa.Table) -> None:
        """Count rows whose columns are those given at the start, in the in-memory types."""
        for place, _, leaf in self._leaves:
            for chunk in rows.column(place).chunks:
                leaf.add(chunk)

    def bounds(self) -> Mapping[int, ColumnBounds]:
        """Statistics by leaf column id."""
        return {column_id: leaf.bounds() for _, column_id, leaf in self._leaves}


class _Leaf:
    def __init__(self, kind: ColumnType) -> None:
        self._depth = 0
        while kind.element is not None:
            kind = kind.element
            self._depth += 1
        self._kind = kind
        self._values = 0
        self._nulls = 0
        self._has_nan = False
        self._minimum: Any = None
        self._maximum: Any = None

    def add(self, values: pa.Array) -> None:
        for _ in range(self._depth):
            # Like a Parquet footer and DuckDB: a list that is NULL or empty counts as a NULL of the leaf.
            self._nulls += pc.sum(pc.equal(pc.fill_null(pc.list_value_length(values), 0), 0)).as_py() or 0
            values = values.flatten()
        self._nulls += values.null_count
        self._values += len(values) - values.null_count
        if self._kind.name == "uuid":
            values = pc.utf8_lower(values)
        if self._kind.is_float:
            nan = pc.fill_null(pc.is_nan(values), fill_value=False)
            if pc.any(nan).as_py():
                self._has_nan = True
                values = values.filter(pc.invert(nan))
        found = pc.min_max(values)
        low, high = found["min"].as_py(), found["max"].as_py()
        if low is not None:
            self._minimum = low if self._minimum is None else min(self._minimum, low)
            self._maximum = high if self._maximum is None else max(self._maximum, high)

    def bounds(self) -> ColumnBounds:
        minimum = None if self._minimum is None else lower_bound(self._minimum, self._kind)
        maximum = None if self._maximum is None else upper_bound(self._maximum, self._kind)
        contains_nan = self._has_nan if self._kind.is_float else None
        return ColumnBounds(minimum, maximum, self._values, self._nulls, contains_nan)


def lower_bound(value: Any, kind: ColumnType) -> str | None:
    """Text of a value that no value of the column is below, or None when there is no exact or shorter one."""
    text = value_text(value, kind)
    if text is None or kind.name not in ("varchar", "json"):
        return text
    return _without_nul(_cut(text))


def upper_bound(value: Any, kind: ColumnType) -> str | None:
    """Text of a value that no value of the column is above, or None when there is no exact or shorter one."""
    text = value_text(value, kind)
    if text is None or kind.name not in ("varchar", "json"):
        return text
    cut = _cut(text)
    return _without_nul(cut if cut == text else _next_text(cut))


def value_text(value: Any, kind: ColumnType) -> str | None:
    """DuckLake's text of a value; None when it can't be a bound (long blobs)."""
    if kind.name == "boolean":
        return "1" if value else "0"
    if kind.name == "float32":
        return str(np.float32(value))
    if kind.is_float:
        return repr(float(value))
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        zone = "+00" if kind.name == "timestamptz" else ""
        return f"{value:%Y-%m-%d}".rjust(10, "0") + " " + _time_text(value.time()) + zone
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, time):
        return _time_text(value)
    if isinstance(value, bytes):
        return value.hex().upper() if len(value) <= MAX_BOUND_BYTES else None
    return str(value)


def _time_text(value: time) -> str:
    text = value.isoformat()
    return text.rstrip("0") if value.microsecond else text


def _cut(text: str) -> str:
    """The longest start of `text` that fits the limit in UTF-8."""
    return text.encode()[:MAX_BOUND_BYTES].decode(errors="ignore") if len(text) > MAX_BOUND_BYTES // 4 else text


def _next_text(start: str) -> str | None:
    """A short text above every text that begins with `start`; None when there is none."""
    while start:
        code = ord(start[-1]) + 1
        if code in _SURROGATES:
            code = _SURROGATES.stop
        if code <= _LAST_CODE_POINT:
            return start[:-1] + chr(code)
        start = start[:-1]
    return None


def _without_nul(text: str | None) -> str | None:
    # PostgreSQL, which keeps the catalog, cannot store the character.
    return None if text is None or "\0" in text else text
