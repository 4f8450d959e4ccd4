# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Turning the delta of one table into files and row positions: what a commit needs.

New files do not depend on what else the table holds, so they are written once. Which rows go is found against the
newest snapshot, and again when another writer changed the table meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.file_cache import FileCache
from pgtrickle_assets.lake.locate import locate_rows
from pgtrickle_assets.lake.model import WEIGHT_COLUMN, LakeTable, NewDataFile, TableChange
from pgtrickle_assets.lake.parquet_write import WriteOptions
from pgtrickle_assets.lake.spark_collect import collect
from pgtrickle_assets.lake.write import write_rows
from pgtrickle_assets.refresh.relations import is_arrow

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.query.types import TableName


@dataclass(slots=True)
class TableWrite:
    """One table's part of a delivery.

    Attributes:
        lake: The lake.
        spark: Gives the session; called only when a job is needed.
        name: The table.
        rows: Z-set over the table's columns.
        key: Columns that narrow down where deleted rows are; empty for all.
        sort_by: Columns by which new files are sorted.
        small_rows: Up to this many changed rows the work is done on the driver.
        inserts_only: Known to hold no row that goes, so that a frame need not be looked at before it is written.
        files: The new files, once written.
        inserted: Rows that come in.
        deleted: Rows that go.
        jobs: Spark jobs started.
    """

    lake: Lake
    spark: Callable[[], SparkSession]
    name: TableName
    rows: pa.Table | DataFrame
    key: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    small_rows: int = 200_000
    inserts_only: bool = False
    files: tuple[NewDataFile, ...] = ()
    inserted: int = 0
    deleted: int = 0
    jobs: int = 0
    _gone: pa.Table | DataFrame | None = field(default=None, init=False)
    _cached: DataFrame | None = field(default=None, init=False)

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes; known after `write_files`."""
        return not self.inserted and not self.deleted

    @property
    def bytes(self) -> int:
        """Bytes in new files."""
        return sum(file.file_size_bytes for file in self.files)

    def write_files(self, delivery_id: str) -> None:
        """Write the rows that come in; no snapshot names the files yet."""
        options = WriteOptions(sort_by=self.sort_by)
        storage = self.lake.location.storage_options
        table = existing_table(self.lake, self.name)
        if self.inserts_only and not is_arrow(self.rows):
            self.jobs += 1
            self.files = write_rows(self.rows, table, delivery_id=delivery_id, options=options, storage_options=storage)
            self.inserted = sum(file.record_count for file in self.files)
            return
        self._settle()
        if self.inserted:
            self.jobs += 0 if is_arrow(self.rows) else 1
            rows = positive(self.rows)
            self.files = write_rows(rows, table, delivery_id=delivery_id, options=options, storage_options=storage)
        self._gone = negative(self.rows) if self.deleted else None

    def change(self, base: int) -> TableChange:
        """The change as planned on snapshot `base`.

        Raises:
            LakeError: The table does not hold rows that are to go.
        """
        if self._gone is None:
            return TableChange(self.name, added_files=self.files)
        table = existing_table(self.lake, self.name, base)
        narrowing = [column.id for column in table.columns if not self.key or column.name in self.key]
        scan = self.lake.scan(table, bounds_of=narrowing)
        options = self.lake.location.storage_options
        # In memory nothing is kept: the files are looked through once.
        cache = FileCache(0, self.lake.column_files)
        located = locate_rows(self._spark_for_job, scan, self._gone, self.key, storage_options=options, cache=cache)
        return TableChange(
            self.name,
            added_files=self.files,
            deletes=located.deletes,
            removed_inlined_rows=located.inlined_rows,
        )

    def _spark_for_job(self) -> SparkSession:
        self.jobs += 1
        return self.spark()

    def release(self) -> None:
        """Free what is cached."""
        if self._cached is not None:
            self._cached.unpersist()
            self._cached = None

    def _settle(self) -> None:
        """Count the changes, and bring them to the driver when they are few."""
        if not is_arrow(self.rows):
            self._cached = self.rows = self.rows.persist()
            self.jobs += 1
            self.inserted, self.deleted = changed_rows(self.rows)
            if self.inserted + self.deleted > self.small_rows:
                return
            self.jobs += 1
            self.rows = collect(self.rows)
        self.inserted, self.deleted = weight_sums(self.rows)


def existing_table(lake: Lake, name: TableName, at: int | None = None) -> LakeTable:
    """A lake table that must be there (default: as it is now).

    Raises:
        LakeError: Somebody dropped it.
    """
    table = lake.table(name, at)
    if table is None:
        raise LakeError(f"lake table {name} is gone.", hint="Run `pgtrickle apply` to make it again.")
    return table


def changed_rows(rows: pa.Table | DataFrame) -> tuple[int, int]:
    """How many rows a Z-set inserts and deletes; one Spark job for a frame."""
    if is_arrow(rows):
        return weight_sums(rows)
    from pyspark.sql import functions as f

    weight = f.col(WEIGHT_COLUMN)
    counts = rows.agg(
        f.sum(f.greatest(weight, f.lit(0))).alias("inserted"), f.sum(f.least(weight, f.lit(0))).alias("deleted")
    )
    row = counts.toArrow().to_pylist()[0]
    return row["inserted"] or 0, -(row["deleted"] or 0)


def weight_sums(rows: pa.Table) -> tuple[int, int]:
    """How many rows a Z-set inserts and deletes."""
    weights = rows.column(WEIGHT_COLUMN)
    inserted = pc.sum(pc.max_element_wise(weights, 0)).as_py() or 0
    deleted = pc.sum(pc.min_element_wise(weights, 0)).as_py() or 0
    return inserted, -deleted


def positive(rows: pa.Table | DataFrame) -> pa.Table | DataFrame:
    """The rows that come in."""
    if is_arrow(rows):
        return rows.filter(pc.greater(rows.column(WEIGHT_COLUMN), 0))
    return rows.where(f"{WEIGHT_COLUMN} > 0")


def negative(rows: pa.Table | DataFrame) -> pa.Table | DataFrame:
    """The rows that go, with positive counts."""
    if is_arrow(rows):
        gone = rows.filter(pc.less(rows.column(WEIGHT_COLUMN), 0))
        place = gone.column_names.index(WEIGHT_COLUMN)
        return gone.set_column(place, WEIGHT_COLUMN, pc.negate(gone.column(WEIGHT_COLUMN)))
    from pyspark.sql import functions as f

    return rows.where(f"{WEIGHT_COLUMN} < 0").withColumn(WEIGHT_COLUMN, -f.col(WEIGHT_COLUMN))
