# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Values outside of which the rows of a scan do not matter, and how they are looked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pgtrickle_assets.lake.parquet_read import Wanted
from pgtrickle_assets.lake.prune import prune
from pgtrickle_assets.lake.spark_columns import quoted_name
from pgtrickle_assets.lake.types import arrow_type
from pgtrickle_assets.lake.values import parse_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pgtrickle_assets.differential.steps import ValueRange
    from pgtrickle_assets.lake.model import LakeColumn, LakeTable, ScanPlan
    from pgtrickle_assets.query.plan import Literal
    from pgtrickle_assets.query.types import ColumnType

_ORDERED = frozenset(("int16", "int32", "int64", "date", "timestamp", "timestamptz", "varchar"))
"""Types whose values Python, Arrow and PostgreSQL order alike."""

_EXACT_VALUES = 10
"""Up to this many values Spark tests row groups value by value; beyond, by their range."""


@dataclass(frozen=True, eq=False)
class KeyFilter:
    """Rows of a scan that do not matter are those that equal none of `keys`.

    Attributes:
        keys: Distinct combinations of values, under the names of the scan's columns; NULL stands for NULL.
    """

    keys: pa.Table

    def within(self, other: ScanFilter) -> bool:
        """Whether every key is one of the other filter's; False where that is not seen at once."""
        if self is other:
            return True
        if isinstance(other, RangeFilter):
            return False
        mine, theirs = self.keys, other.keys
        if mine.num_rows > theirs.num_rows or mine.schema != theirs.schema:
            return False
        return not mine.join(theirs, mine.column_names, join_type="left anti", use_threads=False).num_rows

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the scan that are looked at."""
        return tuple(self.keys.column_names)

    def pruned(self, plan: ScanPlan) -> ScanPlan:
        """The scan without the files that hold no row that matters."""
        for name in self.columns:
            plan = prune(plan, name, values=self.values[name])
        return plan

    @cached_property
    def values(self) -> Mapping[str, list[object]]:
        """The values of each column."""
        return {name: pc.unique(self.keys.column(name)).to_pylist() for name in self.columns}


@dataclass(frozen=True, slots=True)
class RangeFilter:
    """Rows of a scan do not matter where a column is NULL, outside of two values, or none of some values.

    Attributes:
        column: Its name.
        minimum: Least value that matters; None is no limit.
        maximum: Greatest value that matters; None is no limit.
        values: The values that matter, where only these do.
    """

    column: str
    minimum: Any
    maximum: Any
    values: frozenset[Any] | None = None

    @classmethod
    def of(cls, found: ValueRange, kind: ColumnType) -> RangeFilter | None:
        """The filter of a range; None where its values do not order as Python's do."""
        if kind.name not in _ORDERED:
            return None
        try:
            values = [[None if end is None else _plain(end, kind) for end in limits] for limits in found.limits]
        except ValueError:
            # Such as infinity, or a year before Christ.
            return None
        lows, highs = zip(*values, strict=True)
        minimum = None if None in lows else min(lows)
        maximum = None if None in highs else max(highs)
        if minimum is None and maximum is None:
            return None
        are_single = None not in lows and lows == highs
        return cls(found.column, minimum, maximum, frozenset(lows) if are_single else None)

    def within(self, other: KeyFilter | RangeFilter) -> bool:
        """Whether every row that matters matters by the other filter too; False where that is not seen at once."""
        return self == other

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the scan that are looked at."""
        return (self.column,)

    def pruned(self, plan: ScanPlan) -> ScanPlan:
        """The scan without the files that hold no row that matters."""
        if self.values is not None:
            return prune(plan, self.column, values=list(self.values))
        return prune(plan, self.column, minimum=self.minimum, maximum=self.maximum)

    def only(self, rows: pa.Table) -> pa.Table:
        """The rows that matter."""
        column = rows.column(self.column)
        if self.values is not None:
            return rows.filter(pc.is_in(column, value_set=pa.array(list(self.values), column.type)))
        for end, compare in ((self.minimum, pc.greater_equal), (self.maximum, pc.less_equal)):
            if end is not None:
                rows = rows.filter(compare(rows.column(self.column), pa.scalar(end, column.type)))
        return rows


def _plain(end: Literal, kind: ColumnType) -> object:
    return int(end.value) if kind.is_integer and end.value is not None else parse_text(str(end.value), kind)


ScanFilter = KeyFilter | RangeFilter


def wanted_rows(table: LakeTable, filters: tuple[ScanFilter, ...]) -> Wanted:
    """What to look for, as far as values can be found by their bits."""
    values: dict[str, pa.Array] = {}
    combinations: list[pa.Table] = []
    for key_filter in filters:
        if isinstance(key_filter, RangeFilter):
            continue
        own: dict[str, pa.Array] = {}
        for name in key_filter.keys.column_names:
            column = table.column(name)
            if column is not None and not column.type.is_float and column.type.element is None:
                typed = _typed(column, key_filter.keys.column(name))
                if typed is not None:
                    own[name] = typed
        for name, typed in own.items():
            distinct = pc.unique(typed)
            if name not in values or len(distinct) < len(values[name]):
                values[name] = distinct
        if len(own) > 1 and not any(typed.null_count for typed in own.values()):
            together = pa.table(own)
            combinations.append(together.group_by(together.column_names).aggregate([]))
    return Wanted(values, tuple(combinations))


def _typed(column: LakeColumn, values: pa.ChunkedArray) -> pa.Array | None:
    try:
        return values.cast(arrow_type(column.type)).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        # Keys of another type that are compared after a cast, or beyond this one's range.
        return None


def matching(frame: DataFrame, key_filter: ScanFilter) -> DataFrame:
    """Rows that may match, as far as Parquet row groups can tell."""
    from pyspark.sql import functions as f

    if isinstance(key_filter, RangeFilter):
        # The query has it, and Spark brings it to the files.
        return frame
    for name in key_filter.keys.column_names:
        values = key_filter.values[name]
        if not values or any(value is None or isinstance(value, float) for value in values):
            continue
        column = f.col(quoted_name(name))
        if len(values) <= _EXACT_VALUES:
            frame = frame.where(column.isin(values))
        else:
            frame = frame.where(column.between(min(values), max(values)))  # type: ignore[type-var]
    return frame
