"""Several small tables as one, since handing a table to Spark takes as long for one row as for some thousand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

NUMBER_COLUMN: Final = "__pgt_number"
"""Column with the number of the table that a row is from."""


def stacked(tables: Sequence[pa.Table]) -> tuple[pa.Table, list[list[str]]]:
    """Tables under each other, with the number of each row's table; and for each table the columns that its own became.

    The n-th column of a type is in the n-th column for that type, which is NULL for tables with fewer.
    """
    places: list[list[str]] = []
    holders: dict[tuple[pa.DataType, int], str] = {}
    for table in tables:
        times: Counter[pa.DataType] = Counter()
        own: list[str] = []
        for kind in table.schema.types:
            own.append(holders.setdefault((kind, times[kind]), f"c{len(holders)}"))
            times[kind] += 1
        places.append(own)
    columns: dict[str, pa.ChunkedArray] = {}
    for (kind, _), name in holders.items():
        parts = [
            table.column(own.index(name)) if name in own else pa.chunked_array([pa.nulls(table.num_rows, kind)])
            for table, own in zip(tables, places, strict=True)
        ]
        columns[name] = pa.chunked_array([chunk for part in parts for chunk in part.chunks], kind)
    numbers = np.repeat(np.arange(len(tables), dtype=np.int32), [table.num_rows for table in tables])
    return pa.table({NUMBER_COLUMN: pa.array(numbers), **columns}), places
