"""Exact comparison of a stored table with the defining query, run in full on Spark.

Both sides are bags: each row of the recomputed result counts +1, each row of the stored table -1, and what does not add
up to zero differs. NULLs are equal, NaN is equal to NaN and 0.0 to -0.0, as in PostgreSQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgtrickle_assets.lake.consolidate import consolidate, one_zero, union_weighted
from pgtrickle_assets.lake.model import WEIGHT_COLUMN

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

SAMPLE_ROWS = 20
"""Differing rows that a report shows."""


def difference(stored: DataFrame, expected: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The Z-set that turns `stored` into `expected`: +n for missing, -n for surplus rows.

    Args:
        stored: Rows of the table as it is.
        expected: Rows of the table as it should be, with the same column names and types.
        columns: Names of the columns, in the table's order.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

    quoted = [F.col(_quote(name)) for name in columns]
    weighted_stored = stored.select(*quoted, F.lit(-1).cast("bigint").alias(WEIGHT_COLUMN))
    weighted_expected = expected.select(*quoted, F.lit(1).cast("bigint").alias(WEIGHT_COLUMN))
    summed = weighted_expected.unionAll(weighted_stored).groupBy(*quoted).agg(F.sum(WEIGHT_COLUMN).alias(WEIGHT_COLUMN))
    return summed.where(F.col(WEIGHT_COLUMN) != 0)


def difference_on_driver(stored: pa.Table, expected: pa.Table) -> pa.Table:
    """The same Z-set for rows that are on the driver; both with the same columns, none a list of floats."""
    schema = stored.schema
    parts = [(one_zero(expected.cast(schema)), 1), (one_zero(stored), -1)]
    return consolidate(union_weighted(parts, schema).combine_chunks())


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
