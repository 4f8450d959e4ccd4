# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import)
"""Finding values outside of which the rows of a query's scans do not matter.

Constants tell, and rows that are on the driver: keys of a delta lead to rows of a table, and these to another table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pgtrickle_assets.differential.restrictions import restrictions, value_ranges
from pgtrickle_assets.refresh.key_filter import KeyFilter, ScanFilter

if TYPE_CHECKING:
    from pgtrickle_assets.differential.steps import Restriction
    from pgtrickle_assets.query.plan import Node, Scan
    from pgtrickle_assets.refresh.relations import Relations

_PRUNING_VALUES = 100_000
"""More key values than this are not worth testing against statistics and rows."""


class ScanFilterSearch:
    """Finds the filters of the scans of one refresh's queries.

    Args:
        relations: What the scans read.
    """

    def __init__(self, relations: Relations) -> None:
        self._relations = relations
        self._made: dict[object, tuple[pa.Table, KeyFilter | None]] = {}

    def filters(self, query: Node) -> dict[Scan, tuple[ScanFilter, ...]]:
        """The filters of each scan that has some."""
        open_ = [found for found in restrictions(query) if self._relations.is_stored(found.scan)]
        filters: defaultdict[Scan, list[ScanFilter]] = defaultdict(list)
        for found in value_ranges(query):
            if (own := self._relations.range_filter(found)) is not None:
                filters[found.scan].append(own)
        known: dict[Scan, pa.Table] = {}
        while True:
            open_ = self._applied(open_, filters, known)
            reached = self._reached(filters, known)
            if not reached:
                return {scan: tuple(own) for scan, own in filters.items()}
            known |= reached

    def _applied(
        self,
        restrictions: Sequence[Restriction],
        filters: defaultdict[Scan, list[ScanFilter]],
        known: Mapping[Scan, pa.Table],
    ) -> list[Restriction]:
        """Add the filters of those restrictions whose rows are there; gives back the others."""
        rest: list[Restriction] = []
        for restriction in restrictions:
            rows = self._rows_of(restriction.by, filters, known)
            if rows is None:
                rest.append(restriction)
            elif restriction.scan not in known:
                own = self._key_filter(restriction, rows)
                if own is not None and own not in filters[restriction.scan]:
                    filters[restriction.scan].append(own)
        return rest

    def _reached(
        self, filters: Mapping[Scan, Sequence[ScanFilter]], known: Mapping[Scan, pa.Table]
    ) -> dict[Scan, pa.Table]:
        """The rows of further scans that are few by now."""
        found: dict[Scan, pa.Table] = {}
        for scan, own in filters.items():
            if self._relations.is_stored(scan) and scan not in known:
                rows = self._relations.reached(scan, tuple(own))
                if rows is not None:
                    found[scan] = rows
        return found

    def _rows_of(
        self, scan: Scan, filters: Mapping[Scan, Sequence[ScanFilter]], known: Mapping[Scan, pa.Table]
    ) -> pa.Table | None:
        if self._relations.is_stored(scan):
            return known.get(scan)
        return self._relations.local_rows(scan, tuple(filters.get(scan, ())))

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
