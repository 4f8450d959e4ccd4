# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Finding the few rows of a query's scans that matter.

Constants tell, and rows that are on the driver: keys of a delta lead to rows of a table, and these to another table.
What is expected to be few rows is read first, so that few keys are left for the next; and rows that are there leave out
those of others that have no partner among them, in both directions along each join.

Source: Bernstein and Chiu, Using Semi-Joins to Solve Relational Queries, JACM 1981 (full reducers).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pgtrickle_assets.differential.restrictions import restrictions, value_ranges
from pgtrickle_assets.differential.simplify import simplify
from pgtrickle_assets.query.plan import Scan
from pgtrickle_assets.query.rewrite import scans
from pgtrickle_assets.refresh.key_filter import KeyFilter, ScanFilter

if TYPE_CHECKING:
    from pgtrickle_assets.differential.steps import KeyPart, Restriction
    from pgtrickle_assets.query.plan import Node
    from pgtrickle_assets.refresh.relations import Relations

_PRUNING_VALUES = 100_000
"""More key values than this are not worth testing against statistics and rows."""

_IN_RANGE = 4
"""One in so many rows is expected to pass a comparison with constants."""

_STEP_ROWS = 100_000
"""Rows of the unknown table that the keys which a step puts out are taken to be from."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a query needs of a scan.

    Attributes:
        filters: Outside of which the scan's rows do not matter.
        rows: Those of the scan's rows that matter, where they are on the driver.
    """

    filters: tuple[ScanFilter, ...] = ()
    rows: pa.Table | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it is known that no row matters."""
        return self.rows is not None and not self.rows.num_rows


class ScanFilterSearch:
    """Finds what matters of the scans of one refresh's queries.

    Args:
        relations: What the scans read.
    """

    def __init__(self, relations: Relations) -> None:
        self._relations = relations
        self._made: dict[object, tuple[pa.Table, KeyFilter | None]] = {}

    def simplified(self, query: Node, is_empty: Callable[[Scan], bool]) -> tuple[Node | None, Mapping[Scan, Reading]]:
        """A query without what yields nothing, None when that is all of it, and what is needed of each scan.

        Args:
            query: The query.
            is_empty: Whether a scan is known to yield nothing at all.
        """
        found = simplify(query, is_empty)
        while found is not None:
            readings = self.readings(found)
            found = simplify(found, lambda scan, readings=readings: readings[scan].is_empty)
            # What is left may read fewer columns, which makes another scan.
            if found is not None and all(scan in readings for scan in scans(found)):
                return found, readings
        return None, {}

    def readings(self, query: Node) -> dict[Scan, Reading]:
        """What is needed of each scan of a query."""
        search = _Search(query, self._relations)
        while (scan := search.cheapest()) is not None:
            search.reach(scan, self._filters(search, scan))
        return {scan: self._reading(search, scan) for scan in search.scans}

    def _reading(self, search: _Search, scan: Scan) -> Reading:
        # A table that is too much for the driver is read by Spark, with what is known by now.
        filters = search.used.get(scan)
        if filters is None or scan not in search.rows:
            filters = self._filters(search, scan)
        rows = self._relations.local_rows(scan, filters) if filters or scan in search.rows else None
        return Reading(filters, None if rows is None else search.reduced(scan, rows))

    def _filters(self, search: _Search, scan: Scan) -> tuple[ScanFilter, ...]:
        """The filters of a scan by constants and by the rows that are there."""
        found: list[ScanFilter] = list(search.ranges.get(scan, ()))
        if self._relations.is_stored(scan):
            for restriction in search.restricting[scan]:
                rows = search.rows.get(restriction.by)
                own = None if rows is None else self._key_filter(restriction, rows)
                if own is not None and own not in found:
                    found.append(own)
        return tuple(found)

    def _key_filter(self, restriction: Restriction, rows: pa.Table) -> KeyFilter | None:
        """The filter that the rows of one relation make; the same rows make the same filter."""
        parts = tuple(
            part
            for part in restriction.key
            if part.by_column in rows.column_names and not pa.types.is_list(rows.schema.field(part.by_column).type)
        )
        if not parts:
            return None
        key = (id(rows), parts)
        if key not in self._made:
            keys = pa.table({part.column: rows.column(part.by_column) for part in parts})
            for part in parts:
                if not part.null_safe:
                    keys = keys.filter(pc.is_valid(keys.column(part.column)))
            distinct = keys.group_by(keys.column_names).aggregate([])
            small = distinct.num_rows <= _PRUNING_VALUES
            # The rows are kept too, so that nothing else gets their identity.
            self._made[key] = (rows, KeyFilter(distinct) if small else None)
        return self._made[key][1]


class _Search:
    """The scans of one query and what is known of them.

    Attributes:
        scans: The scans.
        restricting: By scan, what other scans say about it.
        ranges: By scan, what constants say about it.
        rows: Rows that hold all that matter, in any state of a stored relation, of scans that are on the driver.
        used: By stored scan that was looked for, the filters with which.
    """

    def __init__(self, query: Node, relations: Relations) -> None:
        self.scans = tuple(dict.fromkeys(scans(query)))
        self.restricting: defaultdict[Scan, list[Restriction]] = defaultdict(list)
        self._restricted: defaultdict[Scan, list[Restriction]] = defaultdict(list)
        for found in restrictions(query):
            self.restricting[found.scan].append(found)
            self._restricted[found.by].append(found)
        self.ranges: defaultdict[Scan, list[ScanFilter]] = defaultdict(list)
        for limits in value_ranges(query):
            if (own := relations.range_filter(limits)) is not None:
                self.ranges[limits.scan].append(own)
        self.used: dict[Scan, tuple[ScanFilter, ...]] = {}
        self._relations = relations
        self.rows: dict[Scan, pa.Table] = {}
        for scan in self.scans:
            rows = None if relations.is_stored(scan) else relations.local_rows(scan, tuple(self.ranges.get(scan, ())))
            if rows is not None:
                self._add(scan, rows)

    def cheapest(self) -> Scan | None:
        """Of the tables that were not looked for and of which something is known, the one where that is fewest rows."""
        open_ = [
            scan
            for scan in self.scans
            if self._relations.is_stored(scan)
            and scan not in self.used
            and (scan in self.ranges or any(found.by in self.rows for found in self.restricting[scan]))
        ]
        return min(open_, key=self._expected_rows, default=None)

    def _expected_rows(self, scan: Scan) -> float:
        """How many rows a search would find, if each key of a table has its share of the rows of another."""
        size = self._relations.stored_rows(scan.relation)
        found = [size / _IN_RANGE if scan in self.ranges else size]
        for restriction in self.restricting[scan]:
            by = restriction.by
            if by in self.rows:
                others = self._relations.stored_rows(by.relation) if self._relations.is_table(by) else _STEP_ROWS
                found.append(self.rows[by].num_rows * max(1.0, size / max(others, 1)))
        return min(found)

    def reach(self, scan: Scan, filters: tuple[ScanFilter, ...]) -> None:
        """Look for the rows of a stored relation."""
        self.used[scan] = filters
        rows = self._relations.reached(scan, filters)
        if rows is not None:
            self._add(scan, rows)

    def reduced(self, scan: Scan, rows: pa.Table) -> pa.Table:
        """Those of some rows of a scan that have partners among the rows of other scans."""
        for restriction in self.restricting[scan]:
            by = self.rows.get(restriction.by)
            if by is not None:
                rows = _with_partners(rows, by, restriction.key)
        return rows

    def _add(self, scan: Scan, rows: pa.Table) -> None:
        self.rows[scan] = self.reduced(scan, rows)
        shrunk = [scan]
        while shrunk:
            by = shrunk.pop()
            for restriction in self._restricted[by]:
                before = self.rows.get(restriction.scan)
                if before is None:
                    continue
                after = _with_partners(before, self.rows[by], restriction.key)
                if after.num_rows < before.num_rows:
                    self.rows[restriction.scan] = after
                    shrunk.append(restriction.scan)


def _with_partners(rows: pa.Table, by: pa.Table, key: Sequence[KeyPart]) -> pa.Table:
    """Rows without those that, by one part of a key alone, equal no row of another table.

    Only where both have the same type, whose equal values have equal bits.
    """
    for part in key:
        if part.column not in rows.column_names or part.by_column not in by.column_names:
            continue
        kind = rows.schema.field(part.column).type
        inexact = pa.types.is_floating(kind) or pa.types.is_nested(kind)
        if inexact or kind != by.schema.field(part.by_column).type or not rows.num_rows:
            continue
        values = pc.unique(by.column(part.by_column))
        found = pc.is_in(rows.column(part.column), value_set=values, skip_nulls=not part.null_safe)
        if not pc.all(found).as_py():
            rows = rows.filter(found)
    return rows
