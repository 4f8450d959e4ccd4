"""ORDER BY, LIMIT, OFFSET and FETCH.

Source: PostgreSQL 18 documentation, SELECT. Where the order leaves ties PostgreSQL may return any of the tied rows; we
order by all columns then, so that every evaluation picks the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.context import PlanningContext
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Call, Filter, Literal, Node, Project, SortKey, TopK, Window, WindowCall
from pgtrickle_assets.query.rewrite import ref
from pgtrickle_assets.query.types import BOOLEAN, INT64

ORDER_WITHOUT_EFFECT = "ORDER BY without LIMIT has no effect: a table has no order."


def limited(context: PlanningContext, node: Node, query: Any, keys: Sequence[SortKey]) -> Node:
    """The first rows of a plan as LIMIT, OFFSET and FETCH of a query say; the plan itself when they say nothing."""
    limit, ties = _limit(query.args.get("limit"))
    offset = _count(query.args["offset"].expression, "OFFSET") if query.args.get("offset") is not None else 0
    if limit is None and not offset:
        if keys:
            context.note(ORDER_WITHOUT_EFFECT)
        return node
    if not keys:
        context.note(
            "LIMIT without ORDER BY: PostgreSQL may return any rows; the first in the order of all columns are taken."
        )
    if ties and limit is not None:
        return _with_ties(context, node, keys, limit, offset or 0)
    return TopK(node, total_order(keys, node), limit, offset or 0)


def total_order(keys: Sequence[SortKey], node: Node) -> tuple[SortKey, ...]:
    """Sort keys that leave no ties but between equal rows."""
    have = {key.expression for key in keys}
    rest = [SortKey(ref(c)) for c in node.output if ref(c) not in have and c.type.name not in ("interval", "unknown")]
    return (*keys, *rest)


def _limit(clause: Any) -> tuple[int | None, bool]:
    if clause is None:
        return None, False
    if isinstance(clause, exp.Fetch):
        options = clause.args.get("limit_options")
        if options is not None and options.args.get("percent"):
            raise QueryError("FETCH ... PERCENT is not PostgreSQL", line=line_of(clause))
        count = clause.args.get("count")
        ties = options is not None and bool(options.args.get("with_ties"))
        return (1 if count is None else _count(count, "FETCH")), ties
    return _count(clause.expression, "LIMIT"), False


def _count(node: Any, clause: str) -> int | None:
    if isinstance(node, exp.Paren):
        return _count(node.this, clause)
    if isinstance(node, exp.Null) or (isinstance(node, exp.Column) and node.name.lower() == "all"):
        return None
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        return int(node.name)
    raise QueryError(f"{clause} must be a constant whole number", line=line_of(node))


def _with_ties(context: PlanningContext, node: Node, keys: Sequence[SortKey], limit: int, offset: int) -> Node:
    """FETCH FIRST n ROWS WITH TIES: every row whose rank is within the limit."""
    if not keys:
        raise QueryError("WITH TIES cannot be specified without ORDER BY clause")
    if offset:
        raise QueryError("WITH TIES with OFFSET is not supported")
    rank = context.ids.column(INT64, nullable=False, name="rank")
    ranked = Window(node, ((rank, WindowCall("rank", (), INT64, (), tuple(keys), nullable=False)),))
    within = Call("<=", (ref(rank), Literal(limit, INT64)), BOOLEAN, nullable=False)
    return Project(Filter(ranked, within), tuple((c, ref(c)) for c in node.output))
