"""Which groupings are restricted to what a join beside them leaves."""

from __future__ import annotations

import pytest

from pgtrickle_assets.query.plan import Aggregate, Join
from pgtrickle_assets.query.rewrite import walk
from tests.integration.query.engines import planned

SUMS = "(SELECT tid, sum(v) AS s FROM u GROUP BY tid) g"


def restricted(sql: str) -> list[str]:
    """The groupings with a join below them, by their aggregate functions."""
    groupings = [node for node in walk(planned(sql).root) if isinstance(node, Aggregate)]
    return [g.aggregates[0][1].function for g in groupings if any(isinstance(node, Join) for node in walk(g.child))]


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT t.id, g.s FROM t JOIN {SUMS} ON g.tid = t.id WHERE t.k = 'x'",
        f"SELECT t.id, g.s FROM t LEFT JOIN {SUMS} ON g.tid = t.id WHERE t.k IN ('x', 'y')",
        f"SELECT t.id, g.s FROM t JOIN {SUMS} ON g.tid = t.id AND g.s > 1 WHERE t.s LIKE 'a%'",
        f"SELECT v.id, g.s FROM t JOIN t v ON v.a = t.id JOIN {SUMS} ON g.tid = v.a WHERE t.k = 'x'",
        "SELECT id FROM t WHERE k = 'x' AND c > (SELECT sum(u.v) FROM u WHERE u.tid = t.id)",
        "SELECT id, (SELECT sum(u.v) FROM u WHERE u.tid = t.id) AS s FROM t WHERE k = 'x'",
    ],
)
def test_groups_are_restricted_by_a_filtered_table_with_that_key(sql: str) -> None:
    assert restricted(sql) == ["sum"]


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT t.id, g.s FROM t JOIN {SUMS} ON g.tid = t.id",
        f"SELECT t.id, g.s FROM t JOIN {SUMS} ON g.tid = t.id WHERE t.c > 1",
        f"SELECT t.id, g.s FROM t JOIN {SUMS} ON g.s = t.id WHERE t.k = 'x'",
        f"SELECT t.id, g.s FROM t JOIN {SUMS} ON g.tid = t.a WHERE t.k = 'x'",
        f"SELECT t.id, g.s FROM t FULL JOIN {SUMS} ON g.tid = t.id AND t.k = 'x'",
        f"SELECT t.id, g.s FROM {SUMS} LEFT JOIN t ON g.tid = t.id AND t.k = 'x'",
        f"SELECT t.id, g.s FROM t JOIN {SUMS} ON g.tid > t.id WHERE t.k = 'x'",
        "SELECT t.id, g.s FROM t JOIN (SELECT a, sum(b) AS s FROM t GROUP BY a) g ON g.a = t.id WHERE t.k = 'x'",
    ],
)
def test_groups_that_others_need_are_not(sql: str) -> None:
    assert restricted(sql) == []


def test_what_only_matches_of_an_outer_join_have_in_common_says_nothing_about_other_rows() -> None:
    found = restricted(
        "SELECT v.id, l.s FROM t v"
        " LEFT JOIN (SELECT tid, min(v) AS s FROM u GROUP BY tid) l ON l.tid = v.a AND l.tid = v.id"
        f" JOIN {SUMS} ON g.tid = v.a JOIN t w ON w.id = v.id WHERE w.k = 'x'"
    )
    assert found == ["min"]
