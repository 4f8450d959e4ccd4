"""Which comparisons become comparisons with a constant, and which constant that is."""

from __future__ import annotations

import pytest

from pgtrickle_assets.query.plan import Call, ColumnRef, Filter, Literal
from pgtrickle_assets.query.rewrite import walk
from tests.integration.query.engines import planned


def compared(where: str) -> tuple[str, object] | None:
    """The comparison and the constant of a condition on one column, None where it is not like that."""
    (found,) = [
        node.predicate for node in walk(planned(f"SELECT id FROM t WHERE {where}").root) if isinstance(node, Filter)
    ]
    if isinstance(found, Call) and isinstance(found.args[0], ColumnRef) and isinstance(found.args[1], Literal):
        return found.function, found.args[1].value
    return None


@pytest.mark.parametrize(
    ("where", "comparison"),
    [
        ("d < DATE '1996-01-01' + INTERVAL '3' MONTH", ("<", "1996-04-01")),
        ("d >= DATE '1996-01-31' + INTERVAL '1 month'", (">=", "1996-02-29")),
        ("d >= DATE '1996-02-29' - INTERVAL '1 year'", (">=", "1995-02-28")),
        ("d <> DATE '2024-03-31' - INTERVAL '1 month 1 day'", ("<>", "2024-02-28")),
        ("d = DATE '2024-12-31' + 1", ("=", "2025-01-01")),
        ("d = DATE '2024-01-01' - 1", ("=", "2023-12-31")),
        ("d < TIMESTAMP '2024-01-01 00:00:01'", ("<=", "2024-01-01")),
        ("d <= TIMESTAMP '2024-01-01 23:59:59'", ("<=", "2024-01-01")),
        ("d > TIMESTAMP '2024-01-01 00:00:01'", (">", "2024-01-01")),
        ("d >= TIMESTAMP '2024-01-01 00:00:01'", (">", "2024-01-01")),
        ("TIMESTAMP '2024-01-01 12:00:00' > d", ("<=", "2024-01-01")),
        ("DATE '2024-01-01' + INTERVAL '1 day' >= d", ("<=", "2024-01-02")),
        ("ts > TIMESTAMP '1996-01-01 10:00:00.5' - INTERVAL '1 day 2 hours'", (">", "1995-12-31 08:00:00.500000")),
        ("ts > DATE '2024-01-31' + INTERVAL '1 month -1 day'", (">", "2024-02-28 00:00:00")),
    ],
)
def test_constant_dates_and_times_are_computed(where: str, comparison: tuple[str, object]) -> None:
    assert compared(where) == comparison


@pytest.mark.parametrize(
    "where",
    [
        "d = TIMESTAMP '2024-01-01 01:00:00'",
        "d < DATE '9999-12-31' + INTERVAL '1 year'",
        "d > DATE '0001-01-01' - 1",
        "tz >= TIMESTAMPTZ '2024-01-01 00:00:00+00' - INTERVAL '1 day'",
        "d + INTERVAL '1 month' < DATE '2024-04-01'",
    ],
)
def test_what_is_not_known_here_is_left_to_the_engine(where: str) -> None:
    assert compared(where) is None
