# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Keys outside of which the rows of a scan do not matter, and how they are looked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pgtrickle_assets.lake.parquet_read import Wanted
from pgtrickle_assets.lake.spark_columns import quoted_name
from pgtrickle_assets.lake.types import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pgtrickle_assets.lake.model import LakeColumn, LakeTable

_EXACT_VALUES = 10
"""Up to this many values Spark tests row groups value by value; beyond, by their range."""


@dataclass(frozen=True, eq=False)
class KeyFilter:
    """Rows of a scan that do not matter are those that equal none of `keys`.

    Attributes:
        keys: Distinct combinations of values, under the names of the scan's columns; NULL stands for NULL.
    """

    keys: pa.Table

    def within(self, other: KeyFilter) -> bool:
        """Whether every key is one of the other filter's; False where that is not seen at once."""
        if self is other:
            return True
        mine, theirs = self.keys, other.keys
        if mine.num_rows > theirs.num_rows or mine.schema != theirs.schema:
            return False
        return not mine.join(theirs, mine.column_names, join_type="left anti", use_threads=False).num_rows

    def values(self, column: str) -> list[object]:
        """The values of one column."""
        return pc.unique(self.keys.column(column)).to_pylist()


def wanted_rows(table: LakeTable, filters: tuple[KeyFilter, ...]) -> Wanted:
    """What to look for, as far as values can be found by their bits."""
    values: dict[str, pa.Array] = {}
    combinations: list[pa.Table] = []
    for key_filter in filters:
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


def matching(frame: DataFrame, key_filter: KeyFilter) -> DataFrame:
    """Rows that may match, as far as Parquet row groups can tell."""
    from pyspark.sql import functions as f

    for name in key_filter.keys.column_names:
        values = key_filter.values(name)
        if not values or any(value is None or isinstance(value, float) for value in values):
            continue
        column = f.col(quoted_name(name))
        if len(values) <= _EXACT_VALUES:
            frame = frame.where(column.isin(values))
        else:
            frame = frame.where(column.between(min(values), max(values)))  # type: ignore[type-var]
    return frame
