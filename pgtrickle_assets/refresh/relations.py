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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgtrickle_assets.differential.steps import InputChange
from pgtrickle_assets.lake.arrow_read import (
    find_rows_arrow,
    fits_driver,
    fits_lookup,
    is_small,
    read_delta_arrow,
    read_table_arrow,
)
from pgtrickle_assets.lake.consolidate import consolidate
from pgtrickle_assets.lake.file_cache import FileCache
from pgtrickle_assets.lake.model import WEIGHT_COLUMN, DeltaPlan, LakeTable, ScanPlan
from pgtrickle_assets.lake.parquet_read import Wanted
from pgtrickle_assets.lake.spark_collect import collect
from pgtrickle_assets.lake.spark_columns import quoted_name
from pgtrickle_assets.lake.spark_read import read_delta, read_table
from pgtrickle_assets.lake.types import from_arrow, spark_type
from pgtrickle_assets.query.plan import Scan, Version
from pgtrickle_assets.refresh.key_filter import RangeFilter, ScanFilter, matching, wanted_rows
from pgtrickle_assets.refresh.one_task import SMALL_SCAN_BYTES, TaskPlanning
from pgtrickle_assets.refresh.stacking import NUMBER_COLUMN, stacked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from pgtrickle_assets.differential.steps import ValueRange
    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.refresh.scan_filters import Reading

_VIEW_NUMBERS = itertools.count(1)
_KEY = "__pgt_key"
_TOGETHER_ROWS = 2_000
"""Tables of up to this many rows are given to Spark together: it takes as long for one as for some thousand rows."""

FEW_ROWS = 64
"""A table of up to this many rows is given to Spark once and whole, rather than once for every set of keys."""

_CACHED_BYTES = 384 << 20
"""Columns that a refresh reads are kept in memory up to this size."""

_LOOKED_UP_PER_ROW = 4
"""Spark looks for values by column; so many times the rows that may stay come to the driver to be looked at closer."""


@dataclass(frozen=True, slots=True)
class StoredRelation:
    """A lake table at the frontier (`old`, None when it was not read yet) and at the end of the window (`new`)."""

    old: LakeTable | None
    new: LakeTable


_LocalKey = tuple[str, Version, bool, tuple[ScanFilter, ...]]


class Relations:
    """Gives each scan of a refresh its temporary view.

    Args:
        spark: Session in which the views live.
        lake: Where stored relations are.
        stored: Stored relations by relation key.
        needed: Columns that any step reads, by relation key.
        small_delta_rows: Up to this many rows a delta is read on the driver.
        deltas: Deltas of stored relations that are planned already.
        new_scans: Scans of their new states that are.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        stored: Mapping[str, StoredRelation],
        needed: Mapping[str, frozenset[str]],
        small_delta_rows: int,
        *,
        deltas: Mapping[str, DeltaPlan] | None = None,
        new_scans: Mapping[str, ScanPlan] | None = None,
    ) -> None:
        self._spark = spark
        self.planning = TaskPlanning(spark)
        self._lake = lake
        self._options = lake.location.storage_options
        self._stored = dict(stored)
        self._needed = needed
        self._small_delta_rows = small_delta_rows
        self._deltas = dict(deltas or {})
        self._scans = {(relation, False): scan for relation, scan in (new_scans or {}).items()}
        self._bounded: set[tuple[str, bool]] = set()
        self._cache = FileCache(_CACHED_BYTES, lake.column_files)
        self._rows: dict[str, pa.Table | DataFrame] = {}
        self.jobs = 0
        self._local: dict[_LocalKey, dict[Version | None, pa.Table] | None] = {}
        self._within: dict[tuple[int, tuple[ScanFilter, ...]], tuple[pa.Table, pa.Table]] = {}
        self._outputs: set[str] = set()
        self._views: dict[object, tuple[str, pa.Table | None]] = {}
        self._names: list[str] = []
        self._cached: list[DataFrame] = []
        self._large_views: set[str] = set()

    def is_stored(self, scan: Scan) -> bool:
        """Whether a scan reads files of the lake, and not a delta or the output of a step."""
        return not self._reads_rows(scan)

    def is_table(self, scan: Scan) -> bool:
        """Whether a scan reads a stored relation or its delta, and not the output of a step."""
        return scan.relation in self._stored

    def stored_rows(self, relation: str) -> int:
        """Rows of a stored relation at the end of its window, by the catalog."""
        return self.scan_plan(relation, Version.NEW).row_count

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

    def range_filter(self, found: ValueRange) -> RangeFilter | None:
        """What a range of values leaves of a stored relation or its delta; None where that is not seen here."""
        stored = self._stored.get(found.scan.relation)
        column = None if stored is None else stored.new.column(found.column)
        return None if column is None else RangeFilter.of(found, column.type)

    def rows(self, relation: str) -> pa.Table | DataFrame:
        """The output of an earlier step, or the Z-set of a stored relation over the needed columns."""
        if relation not in self._rows:
            plan, columns = self.delta_plan(relation), self._columns(relation)
            if is_small(plan, self._small_delta_rows):
                self._rows[relation] = read_delta_arrow(plan, columns, storage_options=self._options, cache=self._cache)
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

    def local_rows(self, scan: Scan, filters: tuple[ScanFilter, ...] = ()) -> pa.Table | None:
        """The rows of a scan that can matter, where they are few enough for the driver, else None.

        Both states of a relation come out of one read: the other one is that and the delta between them.
        """
        if self._reads_rows(scan):
            return self._rows_within(scan.relation, filters)
        read = self._read(scan, filters)
        if read is None:
            return None
        if scan.version not in read:
            read[scan.version] = self._other_state(scan, filters, read)
        return read[scan.version]

    def reached(self, scan: Scan, filters: tuple[ScanFilter, ...]) -> pa.Table | None:
        """Every row that matters in any state of a stored scan's relation: what other scans may be restricted by."""
        read = self._read(scan, filters)
        if read is None:
            return None
        if None not in read:
            rows, delta = read[self._read_version(scan)], self._delta_between(scan.relation)
            if delta is not None:
                delta = self._only_wanted(scan.relation, delta, filters).select(rows.column_names).cast(rows.schema)
            read[None] = rows if delta is None else pa.concat_tables([rows, delta])
        return read[None]

    def views(self, readings: Mapping[Scan, Reading]) -> dict[Scan, str]:
        """What stands for each scan after FROM: a temporary view, or a part of one that several small tables share."""
        local = {scan: self._given(scan, reading) for scan, reading in readings.items()}
        small = {
            id(rows): rows
            for rows in local.values()
            if rows is not None and id(rows) not in self._views and 0 < rows.num_rows <= _TOGETHER_ROWS
        }
        if len(small) > 1:
            self._give_together(tuple(small.values()))
        return {scan: self._view(scan, reading.filters, local[scan]) for scan, reading in readings.items()}

    def _given(self, scan: Scan, reading: Reading) -> pa.Table | None:
        """The rows on the driver that Spark gets for a scan; other scans may need the same, but not the same few."""
        if not self._reads_rows(scan) and self.scan_plan(scan.relation, scan.version).row_count <= FEW_ROWS:
            return self.local_rows(scan)
        rows = self.local_rows(scan, reading.filters)
        is_less = rows is not None and reading.rows is not None and reading.rows.num_rows * 2 <= rows.num_rows
        return reading.rows if is_less else rows

    def _view(self, scan: Scan, filters: tuple[ScanFilter, ...], local: pa.Table | None) -> str:
        # The same rows are given to Spark once, whoever asks for them.
        key = (scan.relation, scan.version, filters) if local is None else id(local)
        if key not in self._views:
            frame, is_little = self._frame(scan, filters) if local is None else (as_frame(self._spark, local), True)
            view = self._named(frame.coalesce(1) if is_little else frame)
            self._views[key] = view, local
            if not is_little:
                self._large_views.add(view)
        return self._views[key][0]

    def _named(self, frame: DataFrame) -> str:
        name = f"pgt_relation_{next(_VIEW_NUMBERS)}"
        frame.createOrReplaceTempView(name)
        self._names.append(name)
        return quoted_name(name)

    def _give_together(self, tables: Sequence[pa.Table]) -> None:
        """Give small tables to Spark as one, in which columns of the same type share a column."""
        together, places = stacked(tables)
        view = self._named(as_frame(self._spark, together).coalesce(1))
        for number, (table, columns) in enumerate(zip(tables, places, strict=True)):
            items = ", ".join(
                f"{quoted_name(place)} AS {quoted_name(name)}"
                for name, place in zip(table.column_names, columns, strict=True)
            )
            part = f"(SELECT {items} FROM {view} WHERE {NUMBER_COLUMN} = {number})"  # noqa: S608 - names are quoted
            self._views[id(table)] = part, table

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
        for name in self._names:
            self._spark.catalog.dropTempView(name)
        self._names.clear()
        self._views.clear()
        self._cached.clear()

    def _reads_rows(self, scan: Scan) -> bool:
        return scan.relation not in self._stored or scan.version is Version.DELTA

    def _columns(self, relation: str) -> list[str]:
        needed = self._needed.get(relation, frozenset())
        names = [column.name for column in self._stored[relation].new.columns]
        # Arrow cannot say how many rows there are where no column is read, as for count(*).
        return [name for name in names if name in needed] or names[:1]

    def _frame(self, scan: Scan, filters: tuple[ScanFilter, ...]) -> tuple[DataFrame, bool]:
        """What a scan reads that is too much for the driver, and whether it is still little."""
        if self._reads_rows(scan):
            return as_frame(self._spark, self.rows(scan.relation)), False
        plan = self._pruned(scan, filters)
        frame = read_table(self._spark, plan, self._columns(scan.relation), storage_options=self._options)
        for key_filter in filters:
            frame = matching(frame, key_filter)
        if scan.version is Version.NEW and scan.relation in self._outputs:
            frame = self._with_pending(frame, scan.relation)
        return frame, plan.bytes <= SMALL_SCAN_BYTES

    def _rows_within(self, relation: str, filters: tuple[ScanFilter, ...]) -> pa.Table | None:
        """The output of an earlier step or the Z-set of a stored relation within ranges, if it is on the driver."""
        rows = self.rows(relation)
        if not is_arrow(rows):
            return None
        key = (id(rows), filters)
        if key not in self._within:
            # The rows are kept too, so that nothing else gets their identity.
            self._within[key] = rows, _in_ranges(rows, filters)
        return self._within[key][1]

    def _read(self, scan: Scan, filters: tuple[ScanFilter, ...]) -> dict[Version | None, pa.Table] | None:
        """States of a relation, restricted, that are on the driver by now; None where they are too much for it."""
        first = self._read_version(scan)
        # What a step adds to a state relation later makes another new state of it.
        key = (scan.relation, first, scan.relation in self._outputs, filters)
        if key not in self._local:
            read = self._wider(key, filters)
            rows = self._read_local(replace(scan, version=first), filters) if read is None else read[first]
            if rows is not None and read is not None:
                rows = self._only_wanted(scan.relation, rows, filters)
            self._local[key] = None if rows is None else {first: rows}
        return self._local[key]

    def _wider(self, key: _LocalKey, filters: tuple[ScanFilter, ...]) -> dict[Version | None, pa.Table] | None:
        """Rows on the driver of the same state that hold all that the filters ask for."""
        for known, read in self._local.items():
            covers = known[:3] == key[:3] and known[3] and read is not None
            if covers and all(any(own.within(other) for own in filters) for other in known[3]):
                return read
        return None

    def _read_version(self, scan: Scan) -> Version:
        """The state of the scan's relation that is read from files."""
        if scan.relation in self._outputs:
            return Version.OLD if self._delta_between(scan.relation) is not None else scan.version
        known = scan.version is Version.OLD and self._delta_between(scan.relation) is not None
        return Version.NEW if known else scan.version

    def _delta_between(self, relation: str) -> pa.Table | None:
        """The delta between both states of a stored relation, where it is on the driver and exact to the bit."""
        delta = self._rows.get(relation)
        if delta is None or not is_arrow(delta) or not set(self._columns(relation)) <= set(delta.column_names):
            return None
        inexact = (pa.types.is_floating(field.type) or pa.types.is_list(field.type) for field in delta.schema)
        return None if any(inexact) else delta

    def _other_state(
        self, scan: Scan, filters: tuple[ScanFilter, ...], read: Mapping[Version | None, pa.Table]
    ) -> pa.Table:
        rows, delta = read[self._read_version(scan)], self._delta_between(scan.relation)
        if delta is None:
            raise ValueError(f"relation {scan.relation} has no delta on the driver")
        delta = self._only_wanted(scan.relation, delta, filters)
        if not delta.num_rows:
            return rows
        if scan.version is Version.OLD:
            place = delta.column_names.index(WEIGHT_COLUMN)
            delta = delta.set_column(place, WEIGHT_COLUMN, pc.negate(delta.column(WEIGHT_COLUMN)))
        return _with_pending_rows(rows, delta)

    def _only_wanted(self, relation: str, rows: pa.Table, filters: tuple[ScanFilter, ...]) -> pa.Table:
        """Those of some rows of a relation, or of its delta, that the filters ask for."""
        return _in_ranges(wanted_rows(self._stored[relation].new, filters).only(rows), filters)

    def _read_local(self, scan: Scan, filters: tuple[ScanFilter, ...]) -> pa.Table | None:
        has_pending = scan.version is Version.NEW and scan.relation in self._outputs
        pending = self._rows[scan.relation] if has_pending else None
        if pending is not None and not is_arrow(pending):
            return None
        plan = self._pruned(scan, filters)
        wanted = wanted_rows(plan.table, filters)
        columns, limit = self._columns(scan.relation), self._small_delta_rows
        if wanted.values:
            if not fits_lookup(plan):
                rows = self._looked_up(plan, columns, wanted, limit)
            else:
                rows = find_rows_arrow(plan, columns, wanted, limit, storage_options=self._options, cache=self._cache)
        elif fits_driver(plan) and plan.row_count <= limit:
            rows = read_table_arrow(plan, columns, storage_options=self._options)
        else:
            return None
        if rows is None:
            return None
        rows = _in_ranges(rows, filters)
        return rows if pending is None else _with_pending_rows(rows, pending)

    def _looked_up(self, plan: ScanPlan, columns: list[str], wanted: Wanted, limit: int) -> pa.Table | None:
        """The wanted rows of a large table, found by Spark; None where there are more than the limit."""
        from pyspark.sql import functions as f

        names = list(dict.fromkeys([*columns, *wanted.values]))
        frame = read_table(self._spark, plan, names, storage_options=self._options)
        for name, values in wanted.values.items():
            keys = as_frame(self._spark, pa.table({_KEY: values}))
            frame = frame.join(f.broadcast(keys), f.col(quoted_name(name)).eqNullSafe(f.col(_KEY)), "left_semi")
        self.jobs += 1
        self.planning.plan(one_task=False)
        found = collect(frame.limit(_LOOKED_UP_PER_ROW * limit + 1))
        if found.num_rows > _LOOKED_UP_PER_ROW * limit:
            return None
        found = wanted.only(found)
        return found.select(columns) if found.num_rows <= limit else None

    def _pruned(self, scan: Scan, filters: tuple[ScanFilter, ...]) -> ScanPlan:
        plan = self.scan_plan(scan.relation, scan.version)
        key = (scan.relation, scan.version is Version.OLD)
        if filters and key not in self._bounded:
            columns = [plan.table.column(name) for name in self._columns(scan.relation)]
            plan = self._lake.with_bounds(plan, [column.id for column in columns if column is not None])
            self._scans[key] = plan
            self._bounded.add(key)
        for own in filters:
            plan = own.pruned(plan)
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


def _in_ranges(rows: pa.Table, filters: tuple[ScanFilter, ...]) -> pa.Table:
    found = rows
    for own in filters:
        if isinstance(own, RangeFilter):
            found = own.only(found)
    return rows if found.num_rows == rows.num_rows else found


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
    from pyspark.sql.types import StructField, StructType

    fields = [StructField(field.name, _data_type(spark_type(from_arrow(field.type)))) for field in rows.schema]
    # Spark stops reading at the first chunk without rows, whatever follows it.
    return spark.createDataFrame(rows.combine_chunks(), StructType(fields))


@cache
def _data_type(name: str) -> DataType:
    """A type by its name in SQL, which Spark is asked for once."""
    from pyspark.sql.types import DataType

    return DataType.fromDDL(name)


def _with_pending_rows(rows: pa.Table, pending: pa.Table) -> pa.Table:
    """The rows after a delta for their relation."""
    stored = rows.append_column(WEIGHT_COLUMN, pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
    after = consolidate(pa.concat_tables([stored, pending.select(stored.column_names).cast(stored.schema)]))
    copies = after.column(WEIGHT_COLUMN).to_numpy()
    places = np.repeat(np.arange(len(copies)), np.maximum(copies, 0))
    return after.select(rows.column_names).take(pa.array(places))
