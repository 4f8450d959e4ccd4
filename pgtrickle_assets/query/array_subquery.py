"""ARRAY(subquery) as array_agg over the same rows.

Source: PostgreSQL 18 documentation 4.2.12 (array constructors): without rows the array is empty, not NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.aggregate_calls import AGGREGATES
from pgtrickle_assets.query.naming import function_name
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Call, Expression

if TYPE_CHECKING:
    from pgtrickle_assets.query.expressions import Analyzer

_CHANGES_ROWS = ("group", "distinct", "having", "limit", "offset", "windows", "with_")


def array_of_rows(analyzer: Analyzer, node: exp.Anonymous) -> Expression:
    """The values of the only column of a plain SELECT, in its order.

    Raises:
        QueryError: The subquery groups, limits or combines rows.
    """
    query: Any = node.expressions[0].copy()
    if not _is_plain(query):
        raise QueryError(
            "ARRAY(subquery) is supported for a plain SELECT of one column only",
            line=line_of(node),
            hint="Write (SELECT array_agg(x ORDER BY y) FROM (...) q); it is NULL where ARRAY() would be empty.",
        )
    (item,) = query.expressions
    value, order = item.unalias(), query.args.get("order")
    query.set("order", None)
    if order is not None:
        for key in order.expressions:
            if key.this.is_int or (isinstance(key.this, exp.Column) and key.this.name == item.alias):
                key.set("this", value.copy())
        value = exp.Order(this=value, expressions=order.expressions)
    query.set("expressions", [exp.Anonymous(this="array_agg", expressions=[value])])
    listed = analyzer.analyze(exp.Subquery(this=query))
    empty = Call("array", (), listed.type, nullable=False)
    return Call("coalesce", (listed, empty), listed.type, nullable=False)


def _is_plain(query: Any) -> bool:
    if not isinstance(query, exp.Select) or len(query.expressions) != 1:
        return False
    if any(query.args.get(part) for part in _CHANGES_ROWS):
        return False
    inside: list[Any] = list(query.expressions[0].find_all(exp.Window, exp.WithinGroup, exp.Anonymous))
    return all(isinstance(part, exp.Anonymous) and function_name(part) not in AGGREGATES for part in inside)
