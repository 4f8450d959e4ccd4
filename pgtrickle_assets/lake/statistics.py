"""Table-wide column statistics: how bounds are compared and merged.

DuckDB uses them to drop filters and to answer MIN and MAX, at every snapshot, so a bound that is too narrow gives wrong
rows without an error. The rule is: exact or absent, never narrowed while old snapshots are kept. Source: DuckLake
specification 1.0 (`ducklake_table_column_stats`), and how DuckDB 1.5.5 reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pgtrickle_assets.lake.model import ColumnBounds, LakeColumn
from pgtrickle_assets.lake.values import parse_text
from pgtrickle_assets.query.types import ColumnType

_INFINITE: Final = {"infinity": 1, "-infinity": -1}


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """A row of `ducklake_table_column_stats`. Both bounds NULL means that no row has a value so far."""

    contains_null: bool | None
    contains_nan: bool | None
    minimum: str | None
    maximum: str | None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column node that has values: a scalar column, or the innermost element of a list."""

    id: int
    type: ColumnType
    nullable: bool
    name: str


def leaves(columns: Sequence[LakeColumn]) -> tuple[Leaf, ...]:
    """The nodes that statistics are kept for."""
    found: list[Leaf] = []
    for column in columns:
        kind, node, nullable = column.type, column.id, column.nullable
        if kind.element is not None:
            # NOT NULL is said of the list, not of what is in it.
            nullable = True
            while kind.element is not None:
                kind = kind.element
            node = column.child_ids[-1]
        found.append(Leaf(node, kind, nullable, column.name))
    return tuple(found)


def bound_key(text: str, kind: ColumnType) -> tuple[int, Any] | None:
    """A sort key for a bound's text; None when we can't place it (years before 1).

    Text sorts by code point, which is the order of its UTF-8 bytes and DuckDB's order.
    """
    if kind.name in ("date", "timestamp", "timestamptz") and text in _INFINITE:
        return _INFINITE[text], None
    if kind.name == "blob":
        return 0, text
    try:
        return 0, parse_text(text, kind)
    except (ValueError, ArithmeticError):
        return None


def summarize(files: Sequence[ColumnBounds | None], kind: ColumnType) -> ColumnStatistics | None:
    """Statistics of the rows of several files; None when one of the files leaves them unknown."""
    merged = ColumnStatistics(False, False if kind.is_float else None, None, None)
    for bounds in files:
        if bounds is None or bounds.null_count is None or bounds.value_count is None:
            return None
        no_values = bounds.value_count == 0
        if not no_values and (bounds.minimum is None or bounds.maximum is None) and not _only_nan(bounds):
            return None
        nan = bounds.contains_nan if kind.is_float else None
        one = ColumnStatistics(bounds.null_count > 0, nan, bounds.minimum, bounds.maximum)
        together = _merge_two(merged, one, kind)
        if together is None:
            return None
        merged = together
    return merged


def _only_nan(bounds: ColumnBounds) -> bool:
    return bounds.contains_nan is True and bounds.minimum is None and bounds.maximum is None


def merge(old: ColumnStatistics, new: ColumnStatistics, kind: ColumnType) -> ColumnStatistics | None:
    """Statistics of old and new rows together; None when they can't be known."""
    if old.contains_null is None or (old.minimum is None) != (old.maximum is None):
        return None
    return _merge_two(old, new, kind)


def _merge_two(old: ColumnStatistics, new: ColumnStatistics, kind: ColumnType) -> ColumnStatistics | None:
    minimum = _outer(old.minimum, new.minimum, kind, smaller=True)
    maximum = _outer(old.maximum, new.maximum, kind, smaller=False)
    if minimum is _UNKNOWN or maximum is _UNKNOWN:
        return None
    nan = None if old.contains_nan is None or new.contains_nan is None else old.contains_nan or new.contains_nan
    return ColumnStatistics(bool(old.contains_null or new.contains_null), nan, minimum, maximum)


_UNKNOWN: Final = "\0"


def _outer(old: str | None, new: str | None, kind: ColumnType, *, smaller: bool) -> str | None:
    if old is None or new is None:
        return new if old is None else old
    old_key, new_key = bound_key(old, kind), bound_key(new, kind)
    if old_key is None or new_key is None:
        return _UNKNOWN
    keep_old = old_key <= new_key if smaller else old_key >= new_key
    return old if keep_old else new
