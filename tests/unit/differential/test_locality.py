"""Whether state rows belong to one partition each, by the column that the result is partitioned by."""

from __future__ import annotations

import pytest

from pgtrickle_assets.differential.derive import derive
from pgtrickle_assets.differential.locality import partition_columns
from tests.integration.query.engines import planned

LOCAL = {
    "no state": "SELECT id, a FROM t",
    "the result is the state": "SELECT a, count(*) AS n FROM t GROUP BY a",
    "grouped by it": "SELECT a, sum(b) AS s FROM t GROUP BY a HAVING count(*) > 1",
    "renamed": "SELECT x.c AS a, x.n FROM (SELECT a AS c, count(*) AS n FROM t GROUP BY a) x WHERE n > 1",
    "state of a state": "SELECT a, max(n) AS n FROM (SELECT a, b, count(*) AS n FROM t GROUP BY a, b) x GROUP BY a",
    "window": "SELECT a, rank() OVER (PARTITION BY a, b ORDER BY id) AS r FROM t",
    "joined by it": "SELECT t.a, t.id, x.n FROM t JOIN (SELECT a, count(*) AS n FROM t GROUP BY a) x ON x.a = t.a",
    "outer joined by it": "SELECT t.a, x.n FROM t LEFT JOIN (SELECT a, count(*) AS n FROM t GROUP BY a) x ON x.a = t.a",
    "union": "SELECT a, count(*) AS n FROM t GROUP BY a UNION ALL SELECT a, sum(b) FROM t GROUP BY a",
    "distinct": "SELECT DISTINCT a, b FROM t",
    "other side without state": "SELECT x.a, u.k FROM (SELECT a, count(*) AS n FROM t GROUP BY a) x "
    "JOIN u ON u.tid = x.n",
}
NOT_LOCAL = {
    "computed after grouping": "SELECT x.c + 1 AS a FROM (SELECT a AS c, count(*) AS n FROM t GROUP BY a) x "
    "WHERE n > 1",
    "grouped by less": "SELECT t.a, x.n FROM t JOIN (SELECT b, count(*) AS n FROM t GROUP BY b) x ON x.b = t.b",
    "one row for all": "SELECT t.a, x.n FROM t CROSS JOIN (SELECT count(*) AS n FROM t) x",
    "window over all": "SELECT a, rank() OVER (ORDER BY id) AS r FROM t",
    "window by another column": "SELECT a, rank() OVER (PARTITION BY b ORDER BY id) AS r FROM t",
    "top of all": "SELECT a FROM t ORDER BY id LIMIT 3",
    "made up by an outer join": "SELECT x.a, u.k FROM (SELECT a, count(*) AS n FROM t GROUP BY a) x "
    "RIGHT JOIN u ON u.tid = x.n",
    "another group below": "SELECT x.a, count(*) AS m FROM (SELECT b AS a, count(*) AS n FROM t GROUP BY b, id) x "
    "JOIN (SELECT b, max(a) AS z FROM t GROUP BY b) y ON y.z = x.a GROUP BY x.a",
}


@pytest.mark.parametrize("case", LOCAL)
def test_every_state_has_a_column_that_tells_the_partition(case: str) -> None:
    maintenance = derive(planned(LOCAL[case]))
    found = partition_columns(maintenance, "a")
    assert found is not None
    assert set(found) == {"result", *(state.relation for state in maintenance.state_tables)}
    for state in maintenance.state_tables:
        assert found[state.relation] in [column.name for column in state.columns]


@pytest.mark.parametrize("case", NOT_LOCAL)
def test_a_state_row_of_several_partitions_is_seen(case: str) -> None:
    assert partition_columns(derive(planned(NOT_LOCAL[case])), "a") is None
