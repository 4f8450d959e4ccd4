"""Which joins of a query need not be what they are written as."""

from __future__ import annotations

from collections import Counter

import pytest

from pgtrickle_assets.query.plan import Join
from pgtrickle_assets.query.rewrite import walk
from tests.integration.query.engines import planned


def kinds(sql: str) -> dict[str, int]:
    return dict(Counter(node.kind for node in walk(planned(sql).root) if isinstance(node, Join)))


@pytest.mark.parametrize(
    ("written", "where", "becomes"),
    [
        ("LEFT", "b.a > 1", "inner"),
        ("LEFT", "b.a + 1 <> t.a", "inner"),
        ("LEFT", "b.a::text LIKE '1%'", "inner"),
        ("LEFT", "b.a IN (1, 2)", "inner"),
        ("LEFT", "NOT b.a = 3", "inner"),
        ("LEFT", "b.a IS NOT NULL", "inner"),
        ("LEFT", "NOT b.a IS NULL", "inner"),
        ("LEFT", "b.a = 1 OR b.id > 2", "inner"),
        ("LEFT", "(b.a = 1 AND t.a = 2) OR b.a > 2", "inner"),
        ("RIGHT", "t.a > 1", "inner"),
        ("FULL", "t.a > b.a", "inner"),
        ("FULL", "t.a > 1", "left"),
        ("FULL", "b.a > 1", "right"),
        ("LEFT", "t.a > 1", "left"),
        ("LEFT", "b.a IS NULL", "left"),
        ("LEFT", "b.a = 1 OR t.a = 1", "left"),
        ("LEFT", "coalesce(b.a, 2) > 1", "left"),
        ("LEFT", "b.a IS DISTINCT FROM 1", "left"),
        ("LEFT", "(b.a > 1) IS NOT TRUE", "left"),
        ("LEFT", "CASE WHEN b.a > 1 THEN false ELSE true END", "left"),
        ("RIGHT", "b.a > 1", "right"),
        ("FULL", "t.a = 1 OR b.a = 1", "full"),
    ],
)
def test_an_outer_join_is_what_the_conditions_above_leave_of_it(written: str, where: str, becomes: str) -> None:
    assert kinds(f"SELECT t.id, b.id AS other FROM t {written} JOIN t b ON b.id = t.a WHERE {where}") == {becomes: 1}


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT t.id FROM t LEFT JOIN t b ON b.id = t.a JOIN t c ON c.id = b.a", {"inner": 2}),
        ("SELECT t.id FROM t LEFT JOIN t b ON b.id = t.a LEFT JOIN t c ON c.id = b.a WHERE c.a > 1", {"inner": 2}),
        ("SELECT t.id FROM t LEFT JOIN t b ON b.id = t.a LEFT JOIN t c ON c.id = b.a", {"left": 2}),
        ("SELECT t.id FROM t WHERE t.a > (SELECT sum(b.a) FROM t b WHERE b.a = t.id)", {"inner": 1}),
        ("SELECT t.id, (SELECT sum(b.a) FROM t b WHERE b.a = t.id) AS s FROM t", {"left": 1}),
        ("SELECT t.id FROM t WHERE t.a > (SELECT count(*) FROM t b WHERE b.a = t.id)", {"left": 1}),
        ("SELECT * FROM (SELECT b.a, count(*) AS n FROM t LEFT JOIN t b ON b.id = t.a GROUP BY b.a) g WHERE a > 1",
         {"inner": 1}),
        ("SELECT * FROM (SELECT t.a, count(b.a) AS n FROM t LEFT JOIN t b ON b.id = t.a GROUP BY t.a) g WHERE n > 1",
         {"left": 1}),
        ("SELECT * FROM (SELECT b.a FROM t LEFT JOIN t b ON b.id = t.a ORDER BY b.a LIMIT 3) g WHERE a > 1",
         {"left": 1}),
        ("SELECT * FROM (SELECT b.a, rank() OVER (ORDER BY b.a) AS r FROM t LEFT JOIN t b ON b.id = t.a) g WHERE a > 1",
         {"left": 1}),
    ],
)  # fmt: skip
def test_what_is_above_an_outer_join_counts_as_far_as_it_keeps_rows_apart(sql: str, found: dict[str, int]) -> None:
    assert kinds(sql) == found


@pytest.mark.parametrize(
    ("subquery", "kind"),
    [
        ("SELECT id FROM t", "inner"),
        ("SELECT id FROM t WHERE a > 1", "inner"),
        ("SELECT a FROM t GROUP BY a HAVING count(*) > 1", "inner"),
        ("SELECT DISTINCT a FROM t", "inner"),
        ("SELECT a FROM t UNION SELECT id FROM t", "inner"),
        ("SELECT a FROM t", "semi"),
        ("SELECT a FROM t GROUP BY a, b", "semi"),
        ("SELECT id FROM t UNION ALL SELECT id FROM t", "semi"),
        ("SELECT x.id FROM t x, t y", "semi"),
    ],
)
def test_a_semi_join_whose_right_side_has_no_two_rows_for_a_left_one_is_an_inner_join(subquery: str, kind: str) -> None:
    assert kind in kinds(f"SELECT id FROM t WHERE a IN ({subquery})")
    assert kinds(f"SELECT id FROM t WHERE a IN ({subquery})").get("semi", 0) == (kind == "semi")
