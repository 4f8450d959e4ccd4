# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Relations that the steps of one refresh read, as Spark temporary views.

A step names a relation and a version of it. Stored relations are read from the lake at pinned snapshots. What is
little is read on the driver first: small deltas, small tables, and the few rows of a larger table that can matter. So
its rows are known when the rest is planned: an empty delta drops out of the plan, files that cannot hold one of its
keys are not read, and Spark gets the rows themselves instead of files to open.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgtrickle_assets.differential.steps import InputChange
from pgtrickle_assets.lake.arrow_read import fits_driver, read_delta_arrow, read_matching_arrow
from pgtrickle_assets.lake.consolidate import consolidate
from pgtrickle_assets.lake.model import WEIGHT_COLUMN, DeltaPlan, LakeColumn, LakeTable, ScanPlan
from pgtrickle_assets.lake.prune import prune
from pgtrickle_assets.lake.spark_columns import quoted_name, schema_ddl
from pgtrickle_assets.lake.spark_read import read_delta, read_table
from pgtrickle_assets.lake.types import arrow_type, from_arrow, spark_type
from pgtrickle_assets.query.plan import Scan, Version
from pgtrickle_assets.refresh.one_task import SMALL_SCAN_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pgtrickle_assets.lake.catalog import Lake

_VIEW_NUMBERS = itertools.count(1)
_EXACT_VALUES = 10
"""Up to this many values Spark tests row groups value by value; beyond, by their range."""


@dataclass(frozen=True, slots=True)
class StoredRelation:
    """A lake table at the frontier (`old`, None when it was not read yet) and at the end of the window (`new`)."""

    old: LakeTable | None
    new: LakeTable


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Values of a column outside of which the rows of a scan do not matter; None among them stands for NULL."""

    column: str
    values: tuple[object, ...]


class Relations:
    """Gives each scan of a refresh its temporary view.

    Args:
        spark: Session in which the views live.
        lake: Where stored relations are.
        stored: Stored relations by relation key.
        needed: Columns that any step reads, by relation key.
        small_delta_rows: Up to this many rows a delta is read on the driver.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        stored: Mapping[str, StoredRelation],
        needed: Mapping[str, frozenset[str]],
        small_delta_rows: int,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._options = lake.location.storage_options
        self._stored = dict(stored)
        self._needed = needed
        self._small_delta_rows = small_delta_rows
        self._deltas: dict[str, DeltaPlan] = {}
        self._scans: dict[tuple[str, bool], ScanPlan] = {}
        self._rows: dict[str, pa.Table | DataFrame] = {}
        self._local: dict[object, pa.Table | None] = {}
        self._outputs: set[str] = set()
        self._views: dict[object, str] = {}
        self._cached: list[DataFrame] = []
        self._large_views: set[str] = set()

    def is_stored(self, scan: Scan) -> bool:
        """Whether a scan reads files of the lake, and not a delta or the output of a step."""
        return not self._reads_rows(scan)

    def delta_plan(self, relation: str) -> DeltaPlan:
        """What changed in a stored relation over its window, by the catalog."""
        if relation not in self._deltas:
            stored = self._stored[relation]
            if stored.old is None:
                raise ValueError(f"relation {relation} has no old state")
            self._deltas[relation] = self._lake.delta(stored.new, stored.old.at)
        return self._deltas[relation]

    def scan_plan(self, relation: str, version: Version) -> ScanPlan:
        """Files of a stored relation at one end of its window."""
        is_old = version is Version.OLD
        if (relation, is_old) not in self._scans:
            stored = self._stored[relation]
            table = stored.old if is_old else stored.new
            if table is None:
                raise ValueError(f"relation {relation} has no old state")
            self._scans[relation, is_old] = self._lake.scan(table)
        return self._scans[relation, is_old]

    def rows(self, relation: str) -> pa.Table | DataFrame:
        """The output of an earlier step, or the Z-set of a stored relation over the needed columns."""
        if relation not in self._rows:
            plan, columns = self.delta_plan(relation), self._columns(relation)
            if plan.inserted_rows + plan.deleted_rows <= self._small_delta_rows:
                self._rows[relation] = read_delta_arrow(plan, columns, storage_options=self._options)
            else:
                frame = read_delta(self._spark, plan, columns, storage_options=self._options)
                self._rows[relation] = self.keep(frame)
        return self._rows[relation]

    def add(self, relation: str, rows: pa.Table | DataFrame) -> None:
        """Make a step's output readable by later steps."""
        self._rows[relation] = rows
        self._outputs.add(relation)

    def is_empty(self, scan: Scan) -> bool:
        """Whether a scan is known to yield nothing; opens the files of small deltas."""
        if not self._reads_rows(scan):
            # The new state of a relation with pending rows is only known by reading it.
            pending = scan.relation in self._outputs and scan.version is not Version.OLD
            return not pending and self.scan_plan(scan.relation, scan.version).row_count == 0
        if scan.relation not in self._rows and self.delta_plan(scan.relation).is_empty:
            return True
        rows = self.rows(scan.relation)
        return is_arrow(rows) and rows.num_rows == 0

    def local_rows(self, scan: Scan, filters: tuple[KeyFilter, ...] = ()) -> pa.Table | None:
        """The rows of a stored scan that can matter, where they are few enough to be read on the driver, else None.

        Read once: a scan of the same relation, version and filters gets the same rows.
        """
        key = (scan.relation, scan.version, filters)
        if key not in self._local:
            self._local[key] = self._read_local(scan, filters)
        return self._local[key]

    def view(self, scan: Scan, filters: tuple[KeyFilter, ...] = ()) -> str:
        """Quoted name of the temporary view for a scan."""
        key = (scan.relation, "rows") if self._reads_rows(scan) else (scan.relation, scan.version, filters)
        if key not in self._views:
            name = f"pgt_relation_{next(_VIEW_NUMBERS)}"
            frame, is_small = self._frame(scan, filters)
            (frame.coalesce(1) if is_small else frame).createOrReplaceTempView(name)
            self._views[key] = name
            if not is_small:
                self._large_views.add(quoted_name(name))
        return quoted_name(self._views[key])

    def is_large(self, view: str) -> bool:
        """Whether a view that `view` named reads more than one task should."""
        return view in self._large_views

    def keep(self, frame: DataFrame) -> DataFrame:
        """Cache a frame that is read more than once, until `close`."""
        kept = frame.persist()
        self._cached.append(kept)
        return kept

    def close(self) -> None:
        """Drop the views and free what was cached."""
        # Over Spark Connect a frame still names the views it reads, so they go last.
        for frame in self._cached:
            frame.unpersist()
        for name in self._views.values():
            self._spark.catalog.dropTempView(name)
        self._views.clear()
        self._cached.clear()

    def _reads_rows(self, scan: Scan) -> bool:
        return scan.relation not in self._stored or scan.version is Version.DELTA

    def _columns(self, relation: str) -> list[str]:
        needed = self._needed.get(relation, frozenset())
        return [column.name for column in self._stored[relation].new.columns if column.name in needed]

    def _frame(self, scan: Scan, filters: tuple[KeyFilter, ...]) -> tuple[DataFrame, bool]:
        """What a scan reads, and whether it is little."""
        if self._reads_rows(scan):
            rows = self.rows(scan.relation)
            return as_frame(self._spark, rows), is_arrow(rows)
        local = self.local_rows(scan, filters)
        if local is not None:
            return as_frame(self._spark, local), True
        plan = self._pruned(scan, filters)
        frame = read_table(self._spark, plan, self._columns(scan.relation), storage_options=self._options)
        for key_filter in filters:
            frame = _matching(frame, key_filter)
        if scan.version is Version.NEW and scan.relation in self._outputs:
            frame = self._with_pending(frame, scan.relation)
        return frame, plan.bytes <= SMALL_SCAN_BYTES

    def _read_local(self, scan: Scan, filters: tuple[KeyFilter, ...]) -> pa.Table | None:
        has_pending = scan.version is Version.NEW and scan.relation in self._outputs
        pending = self._rows[scan.relation] if has_pending else None
        if pending is not None and not is_arrow(pending):
            return None
        plan = self._pruned(scan, filters)
        values = _exact_values(plan.table, filters)
        if not fits_driver(plan) or (not values and plan.row_count > self._small_delta_rows):
            return None
        columns = self._columns(scan.relation)
        rows = read_matching_arrow(plan, columns, values, storage_options=self._options)
        if rows.num_rows > self._small_delta_rows:
            return None
        return rows if pending is None else _with_pending_rows(rows, pending)

    def _pruned(self, scan: Scan, filters: tuple[KeyFilter, ...]) -> ScanPlan:
        plan = self.scan_plan(scan.relation, scan.version)
        ids = [column.id for f in filters if (column := plan.table.column(f.column)) is not None]
        if ids:
            plan = self._lake.with_bounds(plan, ids)
        for key_filter in filters:
            plan = prune(plan, key_filter.column, values=key_filter.values)
        return plan

    def _with_pending(self, frame: DataFrame, relation: str) -> DataFrame:
        """The state of a relation after the delta that this refresh found for it."""
        from pyspark.sql import functions as f

        names = self._columns(relation)
        columns = [quoted_name(name) for name in names]
        pending = as_frame(self._spark, self.rows(relation)).select(*columns, WEIGHT_COLUMN)
        both = frame.select(*columns, f.lit(1).cast("bigint").alias(WEIGHT_COLUMN)).unionAll(pending)
        summed = both.groupBy(*columns).agg(f.sum(WEIGHT_COLUMN).alias(WEIGHT_COLUMN)).where(f.col(WEIGHT_COLUMN) > 0)
        copies = f.explode(f.sequence(f.lit(1), f.col(WEIGHT_COLUMN))).alias(WEIGHT_COLUMN)
        return summed.select(*columns, copies).select(*columns)


def signs(rows: pa.Table) -> InputChange:
    """Which kinds of rows a Z-set holds."""
    weights = rows.column(WEIGHT_COLUMN)
    bounds = pc.min_max(weights)
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    return InputChange(inserts=(most or 0) > 0, deletes=(least or 0) < 0)


def is_arrow(rows: pa.Table | DataFrame) -> TypeGuard[pa.Table]:
    """Whether the rows are on the driver already."""
    return isinstance(rows, pa.Table)


def as_frame(spark: SparkSession, rows: pa.Table | DataFrame) -> DataFrame:
    """The rows as a Spark frame of exactly their types."""
    if not is_arrow(rows):
        return rows
    # Left to itself, Spark makes a time zone up for a timestamp that has none.
    columns = [(field.name, spark_type(from_arrow(field.type))) for field in rows.schema]
    # Spark stops reading at the first chunk without rows, whatever follows it.
    return spark.createDataFrame(rows.combine_chunks(), schema_ddl(columns))


def _exact_values(table: LakeTable, filters: tuple[KeyFilter, ...]) -> dict[str, pa.Array]:
    """The values to look for by column, where a column's values can be found by their bits."""
    found: dict[str, pa.Array] = {}
    for key_filter in filters:
        column = table.column(key_filter.column)
        if column is None or column.type.is_float or column.type.element is not None or column.name in found:
            continue
        values = _values_of(column, key_filter.values)
        if values is not None:
            found[column.name] = values
    return found


def _values_of(column: LakeColumn, values: tuple[object, ...]) -> pa.Array | None:
    try:
        return pa.array(values, arrow_type(column.type))
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # Keys of another type that are compared after a cast, or beyond this one's range.
        return None


def _with_pending_rows(rows: pa.Table, pending: pa.Table) -> pa.Table:
    """The rows after a delta for their relation."""
    stored = rows.append_column(WEIGHT_COLUMN, pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
    after = consolidate(pa.concat_tables([stored, pending.select(stored.column_names).cast(stored.schema)]))
    copies = after.column(WEIGHT_COLUMN).to_numpy()
    places = np.repeat(np.arange(len(copies)), np.maximum(copies, 0))
    return after.select(rows.column_names).take(pa.array(places))


def _matching(frame: DataFrame, key_filter: KeyFilter) -> DataFrame:
    """Rows that may match, as far as Parquet row groups can tell."""
    from pyspark.sql import functions as f

    values = [value for value in key_filter.values if value is not None]
    if len(values) < len(key_filter.values) or not values or any(isinstance(value, float) for value in values):
        return frame
    column = f.col(quoted_name(key_filter.column))
    if len(values) <= _EXACT_VALUES:
        return frame.where(column.isin(values))
    return frame.where(column.between(min(values), max(values)))  # type: ignore[type-var]
