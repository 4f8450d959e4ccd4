"""Rows that cannot matter are left out in both directions along the joins, and few rows are looked for first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pgtrickle_assets.query.plan import Column, Join, JoinKind, Node, Scan, UnionAll, Version
from pgtrickle_assets.query.rewrite import EQUALITY, NULL_SAFE_EQUALITY, conjunction
from pgtrickle_assets.query.types import INT32
from pgtrickle_assets.refresh.key_filter import KeyFilter, ScanFilter
from pgtrickle_assets.refresh.relations import Relations
from pgtrickle_assets.refresh.scan_filters import ScanFilterSearch
from tests.unit.differential.trees import column, equal, scan


@dataclass
class Tables:
    """Tables in memory, of which those with more rows than `limit` are not read whole; a delta is a table, too."""

    rows: Mapping[str, pa.Table]
    limit: int = 1000
    looked_for: list[str] = field(default_factory=list)

    def is_stored(self, scan: Scan) -> bool:
        return scan.version is not Version.DELTA and self.is_table(scan)

    def is_table(self, scan: Scan) -> bool:
        return not scan.relation.startswith("step")

    def stored_rows(self, relation: str) -> int:
        return self.rows[relation].num_rows

    def range_filter(self, found: object) -> None:
        return None

    def local_rows(self, scan: Scan, filters: tuple[ScanFilter, ...] = ()) -> pa.Table | None:
        rows = self.rows["d" if scan.version is Version.DELTA else scan.relation]
        for own in filters:
            assert isinstance(own, KeyFilter)
            for name in own.keys.column_names:
                rows = rows.filter(pc.is_in(rows.column(name), value_set=pc.unique(own.keys.column(name))))
        return rows if rows.num_rows <= self.limit else None

    def reached(self, scan: Scan, filters: tuple[ScanFilter, ...]) -> pa.Table | None:
        self.looked_for.append(scan.relation)
        return self.local_rows(scan, filters)


def _numbers(**columns: list[int | None]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.int32()) for name, values in columns.items()})


def _join(left: Node, right: Node, *pairs: tuple[str, str], kind: JoinKind = "inner") -> Join:
    return Join(kind, left, right, conjunction([equal(column(left, a), column(right, b)) for a, b in pairs]))


def _search(tables: Tables) -> ScanFilterSearch:
    return ScanFilterSearch(cast(Relations, tables))


DELTA = replace(scan("l", "lp", "ls"), version=Version.DELTA)
LINES = {
    # Lines of parts 1 to 100 by suppliers 1 to 200; only part 7 is one that the query wants.
    "d": _numbers(lp=list(range(1, 101)), ls=list(range(101, 201))),
    "l": _numbers(lp=[1] * 6000, ls=[1] * 6000),
    "p": _numbers(pk=[7]),
    "s": _numbers(sk=list(range(1, 10_001)), sn=[n % 25 for n in range(10_000)]),
}


def test_rows_without_a_partner_ask_for_nothing_elsewhere() -> None:
    tables = Tables(LINES)
    parts, suppliers = scan("p", "pk"), scan("s", "sk", "sn")
    query = _join(_join(DELTA, parts, ("lp", "pk")), suppliers, ("ls", "sk"))
    readings = _search(tables).readings(query)
    assert tables.looked_for == ["p", "s"]
    assert [own.keys.to_pydict() for own in readings[suppliers].filters if isinstance(own, KeyFilter)] == [
        {"sk": [107]}
    ]
    assert readings[DELTA].rows == _numbers(lp=[7], ls=[107])
    assert not readings[DELTA].is_empty


def test_a_query_whose_rows_have_no_partners_is_seen_to_be_empty() -> None:
    parts = scan("p", "pk")
    readings = _search(Tables({**LINES, "p": _numbers(pk=[999])})).readings(_join(DELTA, parts, ("lp", "pk")))
    assert readings[DELTA].is_empty
    assert readings[parts].is_empty


@pytest.mark.parametrize(
    ("kind", "left", "right"), [("left", 100, 1), ("anti", 100, 1), ("semi", 1, 1), ("full", 100, None)]
)
def test_sides_that_are_kept_whole_lose_no_rows(kind: JoinKind, left: int, right: int | None) -> None:
    tables = Tables({**LINES, "p": _numbers(pk=[7, *range(1000, 1100)])})
    parts = scan("p", "pk")
    readings = _search(tables).readings(_join(DELTA, parts, ("lp", "pk"), kind=kind))
    given = readings[DELTA].rows
    assert given is not None
    assert given.num_rows == left
    if right is None:
        assert not readings[parts].filters
    else:
        found = tables.local_rows(parts, readings[parts].filters)
        assert found is not None
        assert found.num_rows == right


def test_a_scan_that_stands_in_two_places_keeps_what_either_needs() -> None:
    parts = scan("p", "pk")
    narrow = _join(DELTA, parts, ("lp", "pk"))
    both = UnionAll((narrow, _join(DELTA, scan("s", "sk", "sn"), ("ls", "sk"))), (Column("x", INT32),))
    assert _search(Tables(LINES)).readings(both)[DELTA].rows == LINES["d"]


def test_null_matches_null_only_where_the_join_says_so() -> None:
    rows = {**LINES, "d": _numbers(lp=[None, *range(1, 101)], ls=list(range(101))), "p": _numbers(pk=[None, 7])}
    parts = scan("p", "pk")
    for function, expected in ((EQUALITY, [7]), (NULL_SAFE_EQUALITY, [None, 7])):
        query = Join("inner", DELTA, parts, equal(column(DELTA, "lp"), column(parts, "pk"), function))
        given = _search(Tables(rows)).readings(query)[DELTA].rows
        assert given is not None
        assert given.column("lp").to_pylist() == expected
