"""Leave out data files that cannot hold what is looked for, by the statistics in the catalog."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.model import ColumnBounds, DataFile, LakeColumn, ScanPlan
from pgtrickle_assets.lake.values import parse_text
from pgtrickle_assets.query.types import ColumnType

_UNKNOWN: Final = object()
_UNLIKE_TEXT: Final = ("timestamptz", "uuid")
"""Types whose values are not compared as they come."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a column is looked for: single values, or all between two ends, or NULL."""

    values: tuple[Any, ...] | None
    minimum: Any = None
    maximum: Any = None
    null: bool = False
    nan: bool = False


def prune(
    scan: ScanPlan,
    column: str,
    *,
    minimum: object = None,
    maximum: object = None,
    values: Iterable[object] | None = None,
) -> ScanPlan:
    """The scan without the files that hold no row with the wanted values in `column`.

    Args:
        scan: The planned scan.
        column: Column name; a list column prunes nothing.
        minimum: Least value wanted, inclusive; None is no limit.
        maximum: Greatest value wanted, inclusive; None is no limit.
        values: The values wanted, None among them meaning NULL; with this, `minimum` and `maximum` are not used.

    Returns:
        A scan that yields every wanted row and usually fewer others. Rows that live in the catalog stay.

    Raises:
        LakeError: The table has no such column.
    """
    found = scan.table.column(column)
    if found is None:
        raise LakeError(f"table {scan.table.name} has no column {column!r} at snapshot {scan.table.at}")
    if found.type.element is not None or (values is None and minimum is None and maximum is None):
        return scan
    wanted = _wanted(found.type, minimum, maximum, values)
    return replace(scan, files=tuple(file for file in scan.files if _may_hold(file, found, wanted)))


def bounds_of(file: DataFile, column: LakeColumn) -> tuple[Any, Any] | None:
    """Least and greatest value of a column in a file as Python values, or None when unknown."""
    bounds = file.bounds.get(column.id)
    if bounds is None or column.id in file.missing:
        return None
    low, high = _parsed(bounds.minimum, column.type, upper=False), _parsed(bounds.maximum, column.type, upper=True)
    return None if low is _UNKNOWN or high is _UNKNOWN else (low, high)


def _wanted(kind: ColumnType, minimum: object, maximum: object, values: Iterable[object] | None) -> _Wanted:
    if values is None:
        # Above every number comes NaN, so an open end may mean it.
        nan = kind.is_float and (maximum is None or _is_nan(maximum))
        high = None if _is_nan(maximum) else _comparable(maximum, kind)
        return _Wanted(None, _comparable(minimum, kind), high, nan=nan)
    given = set(values)
    plain: set[Any] = given - {None}
    nan = False
    if kind.is_float:
        plain = {value for value in plain if not _is_nan(value)}
        nan = len(plain) + (None in given) < len(given)
    elif kind.name in _UNLIKE_TEXT:
        plain = {_comparable(value, kind) for value in plain}
    return _Wanted(tuple(sorted(plain)), null=None in given, nan=nan)


def _may_hold(file: DataFile, column: LakeColumn, wanted: _Wanted) -> bool:
    bounds = file.bounds.get(column.id)
    if bounds is None or column.id in file.missing:
        return True
    if wanted.null and bounds.null_count != 0:
        return True
    if bounds.value_count == 0:
        return False
    if wanted.nan and bounds.contains_nan is not False:
        return True
    return _overlaps(bounds, column.type, wanted)


def _overlaps(bounds: ColumnBounds, kind: ColumnType, wanted: _Wanted) -> bool:
    low, high = _parsed(bounds.minimum, kind, upper=False), _parsed(bounds.maximum, kind, upper=True)
    if wanted.values is not None:
        at = 0 if low is _UNKNOWN else bisect_left(wanted.values, low)
        return at < len(wanted.values) and (high is _UNKNOWN or wanted.values[at] <= high)
    below = wanted.maximum is not None and low is not _UNKNOWN and low > wanted.maximum
    above = wanted.minimum is not None and high is not _UNKNOWN and high < wanted.minimum
    return not (below or above)


def _parsed(text: str | None, kind: ColumnType, *, upper: bool) -> Any:
    if text is None:
        return _UNKNOWN
    try:
        value = bytes.fromhex(text) if kind.name == "blob" else parse_text(text, kind)
    except (ValueError, ArithmeticError):
        return _UNKNOWN
    if kind.name == "float64" and isinstance(value, float) and math.isfinite(value):
        # After a promotion from float32 DuckDB leaves the bound's shorter text, which is not the widened value.
        narrow = float(np.float32(value))
        return max(value, narrow) if upper else min(value, narrow)
    return _UNKNOWN if _is_nan(value) else value


def _comparable(value: object, kind: ColumnType) -> Any:
    if isinstance(value, datetime) and kind.name == "timestamptz" and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return str(value).lower() if kind.name == "uuid" and value is not None else value


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
