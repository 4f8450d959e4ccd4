"""Subqueries inside expressions: scalar values, EXISTS, IN, ANY and ALL.

An expression gets a column that stands for the value; `unnesting` later joins the subquery in. Meaning and three-valued
logic: PostgreSQL 18 documentation 9.24 (subquery expressions) and 9.25 (row and array comparisons).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.coercion import common_type, convert, is_unknown_text, postgres_name
from pgtrickle_assets.query.context import PlannedQuery
from pgtrickle_assets.query.functions.numbers import as_decimal
from pgtrickle_assets.query.operators import (
    NEGATED_COMPARISON,
    comparison,
    constant_beside,
    row_comparison,
)
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Call, Column, Expression, Literal
from pgtrickle_assets.query.rewrite import negation, ref
from pgtrickle_assets.query.typenames import column_type
from pgtrickle_assets.query.types import BOOLEAN, UNKNOWN, VARCHAR, ColumnType, list_of

if TYPE_CHECKING:
    from pgtrickle_assets.query.expressions import Analyzer


def _inner(node: Any) -> Any:
    while isinstance(node, exp.Paren) or (isinstance(node, exp.Subquery) and _is_bare(node)):
        node = node.this
    return node


def _is_bare(node: exp.Subquery) -> bool:
    return not any(node.args.get(key) for key in ("with_", "order", "limit", "offset", "alias"))


def _planned(analyzer: Analyzer, node: Any) -> PlannedQuery:
    return analyzer.plan_subquery(node, analyzer.scope)


def _add(
    analyzer: Analyzer, kind: str, column: Column, planned: PlannedQuery, predicate: Expression | None
) -> Expression:
    from pgtrickle_assets.query.expressions import PendingSubquery

    analyzer.pending[column.id] = PendingSubquery(kind, column, planned.node, predicate)
    return ref(column)


def scalar(analyzer: Analyzer, node: Any) -> Expression:
    """A subquery used as a value: its only column of its only row, or NULL."""
    planned = _planned(analyzer, _inner(node))
    if len(planned.columns) != 1:
        raise QueryError("subquery must return only one column", line=line_of(node))
    source = planned.columns[0].column
    column = analyzer.context.ids.column(source.type, name=planned.columns[0].name)
    value = _add(analyzer, "scalar", column, planned, None)
    return convert(value, VARCHAR) if source.type.name == "unknown" else value


def exists(analyzer: Analyzer, node: exp.Exists) -> Expression:
    """EXISTS (subquery)."""
    planned = _planned(analyzer, _inner(node.this))
    return _add(analyzer, "any", analyzer.context.ids.column(BOOLEAN, nullable=False), planned, None)


def in_subquery(analyzer: Analyzer, node: exp.In) -> Expression:
    """`value IN (subquery)`, also for rows."""
    left = analyzer.row(node.this) or [analyzer.analyze(node.this)]
    return _any(analyzer, "=", left, _inner(node.args["query"]), line_of(node))


def quantified(analyzer: Analyzer, op: str, node: Any) -> Expression | None:
    """`value op ANY (...)` or `value op ALL (...)`; None when the right side is neither."""
    right = node.expression
    if isinstance(right, exp.Anonymous) and str(right.this).lower() in ("all", "any", "some"):
        return _over_array(analyzer, op, node.this, right.expressions[0], all_=str(right.this).lower() == "all")
    if not isinstance(right, (exp.Any, exp.All)):
        return None
    all_ = isinstance(right, exp.All)
    inner = _inner(right.this)
    if not isinstance(inner, exp.Query):
        return _over_array(analyzer, op, node.this, inner, all_=all_)
    left = analyzer.row(node.this) or [analyzer.analyze(node.this)]
    if all_:
        # x op ALL (S) is NOT (x negated-op ANY (S)), in three-valued logic too
        if len(left) > 1:
            raise QueryError("row comparison with ALL is not supported", line=line_of(node))
        return negation(_any(analyzer, NEGATED_COMPARISON[op], left, inner, line_of(node)))
    return _any(analyzer, op, left, inner, line_of(node))


def row_subquery(analyzer: Analyzer, op: str, left: Sequence[Expression], node: exp.Subquery) -> Expression:
    """`(a, b) = (subquery)`: refused, since nobody writes it and NULL rules differ from IN."""
    raise QueryError("comparing a row with a subquery is not supported", line=line_of(node), hint="Use IN or EXISTS.")


def _any(analyzer: Analyzer, op: str, left: Sequence[Expression], query: Any, line: int | None) -> Expression:
    planned = _planned(analyzer, query)
    right: list[Expression] = [ref(item.column) for item in planned.columns]
    if len(left) != len(right):
        raise QueryError(f"subquery has {len(right)} columns, {len(left)} expected", line=line)
    predicate = row_comparison(op, left, right, line) if len(left) > 1 else comparison(op, left[0], right[0], line)
    return _add(analyzer, "any", analyzer.context.ids.column(BOOLEAN), planned, predicate)


def _over_array(analyzer: Analyzer, op: str, left_node: Any, node: Any, *, all_: bool) -> Expression:
    """`value op ANY/ALL (array)`; a written-out array becomes single comparisons."""
    line = line_of(node)
    left = analyzer.analyze(left_node)
    inner = node.this if isinstance(node, exp.Paren) else node
    items = _array_items(analyzer, inner, line)
    if items is not None:
        tests = tuple(comparison(op, left, item, line) for item in items)
        if not tests:
            return Literal(all_, BOOLEAN)
        return Call("and" if all_ else "or", tests, BOOLEAN)
    array = analyzer.analyze(inner)
    if array.type.element is None:
        raise QueryError("op ANY/ALL (array) requires an array on the right side", line=line)
    if op != "=" or all_:
        raise QueryError("only = ANY is supported for an array that is not a constant", line=line)
    element = array.type.element
    value = constant_beside(left, element, line) if is_unknown_text(left) else left
    common = common_type([value.type, element])
    if common is None or not _widens(element, common) or not _widens(value.type, common):
        raise QueryError(
            f"{postgres_name(value.type)} = ANY ({postgres_name(array.type)}) is not supported",
            line=line,
            hint="The value must have the type of the elements.",
        )
    array, value = convert(array, list_of(common), line=line), convert(value, common, line=line)
    return Call("array_has", (array, value), BOOLEAN)


def _widens(kind: ColumnType, common: ColumnType) -> bool:
    """Whether every engine converts the values of one type to the other without a change, also inside an array."""
    if kind == common or (kind.is_integer and common.is_integer):
        return True
    if common.name != "decimal" or not (kind.is_integer or kind.name == "decimal"):
        return False
    (digits, scale), (common_digits, common_scale) = _digits(as_decimal(kind)), _digits(common)
    return scale <= common_scale and digits - scale <= common_digits - common_scale


def _digits(kind: ColumnType) -> tuple[int, int]:
    return kind.precision or 0, kind.scale or 0


_ITEM = re.compile(
    r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s",{}\\](?:[^",{}\\]*[^\s",{}\\])?))\s*(?:,(?=.)|$)', re.DOTALL
)
"""One element of an array constant."""


def _constant_items(text: str, line: int | None) -> list[str | None]:
    """The elements of the inside of '{...}'.

    Raises:
        QueryError: It is not a list of elements.
    """
    items: list[str | None] = []
    index = 0 if text.strip() else len(text)
    while index < len(text):
        match = _ITEM.match(text, index)
        if match is None:
            raise QueryError(f"the array constant '{{{text}}}' is malformed or not supported", line=line)
        quoted, plain = match["quoted"], match["plain"]
        if quoted is None:
            items.append(None if plain.upper() == "NULL" else plain)
        else:
            items.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        index = match.end()
    return items


def _array_items(analyzer: Analyzer, node: Any, line: int | None) -> list[Expression] | None:
    """The elements of a constant array: ARRAY[...] or '{...}'::type[]."""
    if isinstance(node, exp.Array):
        return [analyzer.analyze(item) for item in node.expressions]
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        kind, _ = column_type(node.args["to"])
        text = node.this.name.strip()
        if kind is None or kind.element is None or not (text.startswith("{") and text.endswith("}")):
            return None
        element = kind.element
        parts = _constant_items(text[1:-1], line)
        return [convert(Literal(part, UNKNOWN), element, line=line) for part in parts]
    if isinstance(node, exp.Cast):
        return _array_items(analyzer, node.this, line) if isinstance(node.this, exp.Array) else None
    return None
