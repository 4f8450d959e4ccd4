# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Z-sets in Arrow: equal rows added up, zeros gone."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgtrickle_assets.lake.model import WEIGHT_COLUMN


def consolidate(rows: pa.Table) -> pa.Table:
    """Sum the weights of equal rows and drop those that come to zero.

    NULLs are equal to each other, so are NaNs; -0.0 and 0.0 stay apart, because they are different values to a reader.

    Args:
        rows: Columns of the relation plus BIGINT `__pgt_weight`, in any order.

    Returns:
        The same columns in the same order; the order of the rows has no meaning.
    """
    names = [name for name in rows.column_names if name != WEIGHT_COLUMN]
    weights = rows.column(WEIGHT_COLUMN)
    if rows.num_rows == 0:
        return rows
    if not names:
        total = pc.sum(weights).as_py()
        return pa.table({WEIGHT_COLUMN: pa.array([total] if total else [], pa.int64())})
    keys = pa.table([_group_key(rows.column(name)) for name in names], names=[f"k{n}" for n in range(len(names))])
    keys = keys.append_column("w", weights).append_column("i", pa.array(np.arange(rows.num_rows, dtype=np.int64)))
    grouped = keys.group_by([f"k{n}" for n in range(len(names))], use_threads=False).aggregate(
        [("w", "sum"), ("i", "min")]
    )
    kept = grouped.filter(pc.not_equal(grouped.column("w_sum"), 0))
    result = rows.take(kept.column("i_min"))
    at = result.column_names.index(WEIGHT_COLUMN)
    return result.set_column(at, rows.schema.field(WEIGHT_COLUMN), kept.column("w_sum"))


def one_zero(rows: pa.Table) -> pa.Table:
    """The rows with 0.0 in place of -0.0, for comparing as SQL does; zeros inside lists stay as they are."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            rows = rows.set_column(place, field, pc.add(rows.column(place), pa.scalar(0.0, field.type)))
    return rows


def _group_key(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """What Arrow can group by: lists as codes of their content, NaNs with one bit pattern."""
    if pa.types.is_list(values.type):
        codes: dict[Hashable, int] = {}
        return pa.chunked_array(
            [pa.array([codes.setdefault(_hashable(value), len(codes)) for value in values.to_pylist()], pa.int64())]
        )
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)
    return values


def _hashable(value: object) -> Hashable:
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, float):
        return "nan" if value != value else value.hex()
    return value if isinstance(value, Hashable) else repr(value)


def union_weighted(parts: Sequence[tuple[pa.Table, int]], schema: pa.Schema) -> pa.Table:
    """One Z-set out of tables that come in with one weight each, not consolidated; `schema` is without the weight."""
    full = schema.append(pa.field(WEIGHT_COLUMN, pa.int64()))
    tables = [
        table.append_column(full.field(WEIGHT_COLUMN), pa.repeat(pa.scalar(weight, pa.int64()), table.num_rows))
        for table, weight in parts
    ]
    return pa.concat_tables(tables) if tables else full.empty_table()
