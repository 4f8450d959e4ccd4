"""Where the conditions of a query end up: below what treats the rows of different values apart, and nowhere else."""

from __future__ import annotations

import pytest

from pgtrickle_assets.differential.restrictions import value_ranges
from pgtrickle_assets.query.plan import Filter, Scan, UnionAll
from pgtrickle_assets.query.rewrite import walk
from tests.integration.query.engines import planned


def reaches_a_scan(sql: str) -> bool:
    return any(isinstance(node, Filter) and isinstance(node.child, Scan) for node in walk(planned(sql).root))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, count(*) AS n FROM t GROUP BY id HAVING id > 1",
        "SELECT * FROM (SELECT id, sum(a) AS s FROM t GROUP BY id) g WHERE id = 1",
        "SELECT * FROM (SELECT DISTINCT id, a FROM t) g WHERE a = 1",
        "SELECT * FROM (SELECT id, a FROM t UNION ALL SELECT a, id FROM t) g WHERE id = 1",
        "SELECT * FROM (SELECT id, rank() OVER (PARTITION BY id ORDER BY a) AS r FROM t) g WHERE id = 1",
        "SELECT * FROM (SELECT id, x FROM t, generate_series(1, 3) AS g(x)) g WHERE id = 1",
    ],
)
def test_a_condition_on_what_keeps_rows_apart_goes_to_the_scan(sql: str) -> None:
    assert reaches_a_scan(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, count(*) AS n FROM t GROUP BY id HAVING count(*) > 1",
        "SELECT * FROM (SELECT count(*) AS n FROM t) g WHERE n = 1",
        "SELECT * FROM (SELECT a, rank() OVER (PARTITION BY id ORDER BY a) AS r FROM t) g WHERE a = 1",
        "SELECT * FROM (SELECT id, rank() OVER (ORDER BY a) AS r FROM t) g WHERE id = 1",
        "SELECT * FROM (SELECT id, a FROM t ORDER BY a LIMIT 3) g WHERE id = 1",
        "SELECT * FROM (SELECT DISTINCT ON (id) id, a FROM t ORDER BY id, a) g WHERE a = 1",
    ],
)
def test_a_condition_that_would_change_what_others_see_stays(sql: str) -> None:
    assert not reaches_a_scan(sql)


@pytest.mark.parametrize(
    ("where", "ranges"),
    [
        ("id = 1", {"id": [(1, 1)]}),
        ("id > 1 AND id <= 5", {"id": [(1, 5)]}),
        ("1 > id", {"id": [(None, 1)]}),
        ("id = 1 OR id = 7", {"id": [(1, 1), (7, 7)]}),
        ("id BETWEEN 1 AND 5 OR (id = 7 AND a = 3)", {"id": [(1, 5), (7, 7)]}),
        ("d = '2024-01-02' AND id = 1", {"d": [("2024-01-02", "2024-01-02")], "id": [(1, 1)]}),
        ("id IN (4, 2)", {"id": [(4, 4), (2, 2)]}),
        ("id IN (4, 2) AND a IN (1, a)", {"id": [(4, 4), (2, 2)]}),
        ("NOT id IN (4, 2)", {}),
        ("id = 1 OR a = 1", {}),
        ("id = 1 OR id IS NULL", {}),
        ("NOT id = 1", {}),
        ("id <> 1", {}),
        ("id = a", {}),
        ("id + 1 = 2", {}),
        ("id = NULL", {}),
    ],
)
def test_comparisons_with_constants_bound_a_column(where: str, ranges: dict[str, list[tuple[object, object]]]) -> None:
    found = value_ranges(planned(f"SELECT id, a, d FROM t WHERE {where}").root)
    shown = {one.column: [(low and low.value, high and high.value) for low, high in one.limits] for one in found}
    assert shown == ranges


def test_a_scan_that_is_read_without_the_condition_too_is_not_bound() -> None:
    (scan,) = {node for node in walk(planned("SELECT id FROM t").root) if isinstance(node, Scan)}
    bound = next(node for node in walk(planned("SELECT id FROM t WHERE id = 1").root) if isinstance(node, Filter))
    assert value_ranges(bound)
    assert value_ranges(UnionAll((bound, bound.child), scan.columns)) == ()


@pytest.mark.parametrize(
    ("where", "left", "right"),
    [
        ("(t.a = 1 AND u.a = 2) OR (t.a = 3 AND u.a = 4)", [(1, 1), (3, 3)], [(2, 2), (4, 4)]),
        ("(t.a = 1 AND u.a = 2) OR t.a = 3", [(1, 1), (3, 3)], []),
        ("(t.a = 1 AND u.a = 2) OR (t.a = 3 AND u.a = 4 + t.a)", [(1, 1), (3, 3)], []),
        ("(t.a = 1 AND u.a = 2) OR (t.a IN (3, 5) AND u.a < 4)", [(1, 1), (3, 3), (5, 5)], [(2, 2), (None, 4)]),
        ("(10 / t.a = 1 AND u.a = 2) OR (t.a = 3 AND 10 / u.a = 4)", [], []),
        ("(t.a = 1 AND u.a = 2) OR (t.d IS NULL AND u.d IS NULL)", [], []),
    ],
)
def test_alternatives_over_both_sides_of_a_join_bound_each_of_them(
    where: str, left: list[tuple[object, object]], right: list[tuple[object, object]]
) -> None:
    root = planned(f"SELECT t.id FROM t JOIN t u ON t.id = u.id WHERE {where}").root
    found = {
        one.scan: [(low and low.value, high and high.value) for low, high in one.limits] for one in value_ranges(root)
    }
    scans = [node for node in walk(root) if isinstance(node, Scan)]
    assert [found.get(scan, []) for scan in scans] == [left, right]
