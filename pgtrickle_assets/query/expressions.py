"""Expressions of a query as typed expressions of a plan."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query import calls, subquery_tests
from pgtrickle_assets.query.casts import cast_to
from pgtrickle_assets.query.coercion import convert, is_unknown_text, number_literal, postgres_name
from pgtrickle_assets.query.context import PlannedQuery, PlanningContext
from pgtrickle_assets.query.functions.overflow import CHECKED
from pgtrickle_assets.query.intervals import parse_interval
from pgtrickle_assets.query.naming import fold
from pgtrickle_assets.query.operators import (
    arithmetic,
    call,
    comparison,
    concatenation,
    in_list,
    row_comparison,
    unify,
)
from pgtrickle_assets.query.parse import class_of, line_of
from pgtrickle_assets.query.plan import (
    AggregateCall,
    Call,
    Case,
    Column,
    ColumnRef,
    Expression,
    Literal,
    Node,
    SortKey,
    WindowCall,
)
from pgtrickle_assets.query.rewrite import conjunction, disjunction, negation
from pgtrickle_assets.query.scope import Scope
from pgtrickle_assets.query.types import BOOLEAN, INT32, INT64, INTERVAL, UNKNOWN, VARCHAR, decimal


@dataclass(frozen=True, slots=True)
class PendingSubquery:
    """A subquery in an expression, not yet joined; `column` stands for its value.

    `kind` scalar: the value of the only column of `node`. `kind` any: whether `predicate` (over columns of `node` and
    of the query around it) is true for some row, in three-valued logic; None: whether there is any row.
    """

    kind: str
    column: Column
    node: Node
    predicate: Expression | None = None


class CallSink(Protocol):
    """Where aggregate and window calls of an expression go."""

    def aggregate(self, call: AggregateCall, line: int | None) -> ColumnRef:
        """The column that will hold the aggregate."""
        ...

    def window(self, call: WindowCall, line: int | None) -> ColumnRef:
        """The column that will hold the window function."""
        ...

    def grouping(self, args: tuple[Expression, ...], line: int | None) -> Expression:
        """The value of GROUPING(args)."""
        ...


@dataclass(slots=True)
class Analyzer:
    """Types the expressions of one query block.

    `clause` names the clause for errors; `sink` takes aggregates and windows, None where they are not allowed.
    `windows` are the named windows of the block.
    """

    context: PlanningContext
    scope: Scope
    plan_subquery: Callable[[exp.Expr, Scope], PlannedQuery]
    clause: str
    sink: CallSink | None = None
    inside_aggregate: bool = False
    windows: dict[str, exp.Expr] = field(default_factory=lambda: dict[str, exp.Expr]())
    pending: dict[str, PendingSubquery] = field(default_factory=lambda: dict[str, PendingSubquery]())

    def nested(self) -> Analyzer:
        """An analyzer for the arguments of an aggregate: the same names, no further aggregates."""
        return Analyzer(
            self.context, self.scope, self.plan_subquery, self.clause, None, True, self.windows, self.pending
        )

    def analyze(self, node: Any) -> Expression:
        """The typed expression of a tree; constants in quotes stay of unknown type.

        Raises:
            QueryError: Unknown name, wrong type or a construct that is not supported.
        """
        handler = _HANDLERS.get(class_of(node))
        if handler is None:
            raise QueryError(f"{type(node).__name__.upper()} is not supported here", line=line_of(node))
        return handler(self, node)

    def predicate(self, node: Any) -> Expression:
        """A condition: an expression of type boolean."""
        expression = self.analyze(node)
        if is_unknown_text(expression):
            return convert(expression, BOOLEAN, line=line_of(node))
        if expression.type != BOOLEAN:
            raise QueryError(
                f"argument of {self.clause} must be type boolean, not type {postgres_name(expression.type)}",
                line=line_of(node),
            )
        return expression

    def value(self, node: Any) -> Expression:
        """An expression whose unknown constants have become text."""
        expression = self.analyze(node)
        return convert(expression, VARCHAR) if expression.type == UNKNOWN else expression

    def row(self, node: Any) -> list[Expression] | None:
        """The fields of a row constructor, or None."""
        if isinstance(node, exp.Paren):
            return self.row(node.this)
        if isinstance(node, exp.Tuple):
            return [self.analyze(part) for part in node.expressions]
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "row":
            return [self.analyze(part) for part in node.expressions]
        return None

    def sort_keys(self, items: list[Any]) -> tuple[SortKey, ...]:
        """ORDER BY items inside a call or window."""
        keys: list[SortKey] = []
        for item in items:
            inner = item.this if isinstance(item, exp.Ordered) else item
            keys.append(sort_key(self.value(inner), item))
        return tuple(keys)


def sort_key(expression: Expression, item: Any) -> SortKey:
    """A sort key with the direction of an ORDER BY item; NULLs count as larger than anything unless said otherwise."""
    descending = isinstance(item, exp.Ordered) and bool(item.args.get("desc"))
    nulls_first = item.args.get("nulls_first") if isinstance(item, exp.Ordered) else None
    return SortKey(expression, descending, descending if nulls_first is None else bool(nulls_first))


def _column(analyzer: Analyzer, node: exp.Column) -> Expression:
    if isinstance(node.this, exp.Star):
        raise QueryError("* is allowed in a SELECT list and in count(*) only", line=line_of(node))
    parts = [fold(part) for part in (node.args.get("db"), node.args.get("table"), node.this) if part]
    return analyzer.scope.resolve(parts[-2:], line_of(node))


def _literal(_: Analyzer, node: exp.Literal) -> Expression:
    if node.is_string:
        return Literal(node.name, UNKNOWN)
    return number_literal(node.name)


def _escape_string(_: Analyzer, node: exp.Expr) -> Expression:
    text = node.name
    if isinstance(node, exp.ByteString):
        text = (
            text.replace("\\n", "\n")
            .replace("\\t", "\t")
            .replace("\\r", "\r")
            .replace("\\'", "'")
            .replace("\\\\", "\\")
        )
    return Literal(text, UNKNOWN)


def _arithmetic(op: str) -> Callable[[Analyzer, Any], Expression]:
    def handle(analyzer: Analyzer, node: Any) -> Expression:
        left, right = analyzer.analyze(node.this), analyzer.analyze(node.expression)
        result = arithmetic(op, left, right, line_of(node))
        if isinstance(result, Call) and result.type.is_float and result.function in CHECKED:
            return replace(result, function=CHECKED[result.function])
        return result

    return handle


def _bitwise(function: str) -> Callable[[Analyzer, Any], Expression]:
    def handle(analyzer: Analyzer, node: Any) -> Expression:
        line = line_of(node)
        kind, (left, right) = unify([analyzer.analyze(node.this), analyzer.analyze(node.expression)], "operator", line)
        if function.startswith("shift"):
            kind, right = left.type, convert(right, INT32)
        if not kind.is_integer:
            raise QueryError(f"bitwise operators need integers, not {postgres_name(kind)}", line=line)
        return call(function, kind, left, right)

    return handle


def _comparison(op: str) -> Callable[[Analyzer, Any], Expression]:
    def handle(analyzer: Analyzer, node: Any) -> Expression:
        line = line_of(node)
        quantified = subquery_tests.quantified(analyzer, op, node)
        if quantified is not None:
            return quantified
        left, right = analyzer.row(node.this), analyzer.row(node.expression)
        if left is not None and right is not None:
            return row_comparison(op, left, right, line)
        if left is not None and isinstance(node.expression, exp.Subquery):
            return subquery_tests.row_subquery(analyzer, op, left, node.expression)
        return comparison(op, analyzer.analyze(node.this), analyzer.analyze(node.expression), line)

    return handle


def _and(analyzer: Analyzer, node: exp.Expr) -> Expression:
    return conjunction([analyzer.predicate(node.this), analyzer.predicate(node.expression)]) or Literal(True, BOOLEAN)


def _or(analyzer: Analyzer, node: exp.Expr) -> Expression:
    return disjunction([analyzer.predicate(node.this), analyzer.predicate(node.expression)]) or Literal(True, BOOLEAN)


def _not(analyzer: Analyzer, node: exp.Not) -> Expression:
    inner = analyzer.predicate(node.this)
    if isinstance(inner, Call) and inner.function in _NEGATED_TESTS:
        return Call(_NEGATED_TESTS[inner.function], inner.args, BOOLEAN, nullable=False)
    return negation(inner)


_NEGATED_TESTS = {
    "is_null": "is_not_null",
    "is_not_null": "is_null",
    "is_true": "is_not_true",
    "is_false": "is_not_false",
    "is_distinct_from": "is_not_distinct_from",
    "is_not_distinct_from": "is_distinct_from",
}


def _is(analyzer: Analyzer, node: exp.Is) -> Expression:
    negate = bool(node.args.get("negate"))
    right = node.expression
    if isinstance(right, exp.Null):
        fields = analyzer.row(node.this)
        if fields is not None:
            tests = [Call("is_not_null" if negate else "is_null", (f,), BOOLEAN, nullable=False) for f in fields]
            return conjunction(tests) or Literal(True, BOOLEAN)
        inner = analyzer.analyze(node.this)
        return Call("is_not_null" if negate else "is_null", (inner,), BOOLEAN, nullable=False)
    if isinstance(right, exp.Boolean):
        name = "is_true" if right.this else "is_false"
        test = Call(name, (analyzer.predicate(node.this),), BOOLEAN, nullable=False)
        return Call(_NEGATED_TESTS[name], test.args, BOOLEAN, nullable=False) if negate else test
    raise QueryError("this IS test is not supported", line=line_of(node))


def _between(analyzer: Analyzer, node: exp.Between) -> Expression:
    line = line_of(node)
    value, low, high = (analyzer.analyze(node.args[part]) for part in ("this", "low", "high"))

    def inside(a: Expression, b: Expression) -> Expression:
        return conjunction([comparison(">=", value, a, line), comparison("<=", value, b, line)]) or a

    if node.args.get("symmetric"):
        return disjunction([inside(low, high), inside(high, low)]) or low
    return inside(low, high)


def _in(analyzer: Analyzer, node: exp.In) -> Expression:
    line = line_of(node)
    if node.args.get("query") is not None:
        return subquery_tests.in_subquery(analyzer, node)
    if node.args.get("unnest") is not None:
        raise QueryError("IN UNNEST is not PostgreSQL", line=line)
    fields = analyzer.row(node.this)
    if fields is not None:
        rows = [analyzer.row(item) for item in node.expressions]
        tests = [row_comparison("=", fields, row, line) for row in rows if row is not None]
        return disjunction(tests) or Literal(False, BOOLEAN)
    return in_list(analyzer.analyze(node.this), [analyzer.analyze(item) for item in node.expressions], line)


def _case(analyzer: Analyzer, node: exp.Case) -> Expression:
    line = line_of(node)
    conditions: list[Expression] = []
    results: list[Expression] = []
    subject = analyzer.analyze(node.this) if node.this is not None else None
    for branch in node.args["ifs"]:
        if subject is None:
            conditions.append(analyzer.predicate(branch.this))
        else:
            conditions.append(comparison("=", subject, analyzer.analyze(branch.this), line))
        results.append(analyzer.analyze(branch.args["true"]))
    default = node.args.get("default")
    results.append(analyzer.analyze(default) if default is not None else Literal(None, UNKNOWN))
    kind, results = unify(results, "CASE", line)
    *branches, otherwise = results
    nullable = any(result.nullable for result in results)
    return Case(
        tuple(zip(conditions, branches, strict=True)), otherwise if default is not None else None, kind, nullable
    )


def _neg(analyzer: Analyzer, node: exp.Neg) -> Expression:
    inner = analyzer.analyze(node.this)
    if isinstance(inner, Literal) and inner.value is not None:
        if inner.type == INTERVAL:
            return Literal((-parse_interval(str(inner.value))).text(), INTERVAL)
        if inner.type in (INT32, INT64, decimal(19, 0)) and isinstance(node.this, exp.Literal):
            # The sign belongs to the constant: -2147483648 is an integer.
            return number_literal(node.this.name, negative=True)
        if inner.type.is_integer and isinstance(inner.value, int):
            return Literal(-inner.value, inner.type)
        if inner.type.is_numeric:
            text = str(inner.value)
            return Literal(text[1:] if text.startswith("-") else f"-{text}", inner.type)
    if not inner.type.is_numeric:
        raise QueryError(f"operator does not exist: - {postgres_name(inner.type)}", line=line_of(node))
    return call("neg", inner.type, inner)


def _interval(_: Analyzer, node: exp.Interval) -> Expression:
    if not isinstance(node.this, exp.Literal):
        raise QueryError("INTERVAL needs a constant", line=line_of(node))
    unit = node.args.get("unit")
    text = node.this.name
    if unit is not None and not re.fullmatch(r"\s*[+-]?\d+(\.\d+)?\s*", text):
        raise QueryError("a field after INTERVAL needs a plain number in the quotes", line=line_of(node))
    try:
        return Literal(parse_interval(text, unit.name if unit is not None else None).text(), INTERVAL)
    except ValueError as error:
        raise QueryError(str(error), line=line_of(node)) from error


def _collate(analyzer: Analyzer, node: exp.Collate) -> Expression:
    name = node.expression.name
    if name not in ("C", "POSIX", "default", "ucs_basic"):
        raise QueryError(f'collation "{name}" is not supported: text is compared bytewise', line=line_of(node))
    return analyzer.analyze(node.this)


def _bracket(analyzer: Analyzer, node: exp.Bracket) -> Expression:
    array = analyzer.analyze(node.this)
    if array.type.element is None or len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        raise QueryError("only one subscript of an array is supported", line=line_of(node))
    index = convert(analyzer.analyze(node.expressions[0]), INT32)
    return Call("element", (array, index), array.type.element, nullable=True)


def _cast(analyzer: Analyzer, node: exp.Cast) -> Expression:
    if isinstance(node.this, exp.Array) and not node.this.expressions:
        return cast_to(Literal("{}", UNKNOWN), node.args["to"])
    return cast_to(analyzer.analyze(node.this), node.args["to"])


_HANDLERS: dict[type, Callable[[Analyzer, Any], Expression]] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.ByteString: _escape_string,
    exp.RawString: _escape_string,
    exp.National: _escape_string,
    exp.Null: lambda analyzer, node: Literal(None, UNKNOWN),
    exp.Boolean: lambda analyzer, node: Literal(bool(node.this), BOOLEAN),
    exp.Paren: lambda analyzer, node: analyzer.analyze(node.this),
    exp.Alias: lambda analyzer, node: analyzer.analyze(node.this),
    exp.Add: _arithmetic("+"),
    exp.Sub: _arithmetic("-"),
    exp.Mul: _arithmetic("*"),
    exp.Div: _arithmetic("/"),
    exp.Mod: _arithmetic("%"),
    exp.Pow: _arithmetic("^"),
    exp.Neg: _neg,
    exp.BitwiseAnd: _bitwise("bit_and"),
    exp.BitwiseOr: _bitwise("bit_or"),
    exp.BitwiseXor: _bitwise("bit_xor"),
    exp.BitwiseLeftShift: _bitwise("shift_left"),
    exp.BitwiseRightShift: _bitwise("shift_right"),
    exp.EQ: _comparison("="),
    exp.NEQ: _comparison("<>"),
    exp.LT: _comparison("<"),
    exp.LTE: _comparison("<="),
    exp.GT: _comparison(">"),
    exp.GTE: _comparison(">="),
    exp.NullSafeEQ: _comparison("is_not_distinct_from"),
    exp.NullSafeNEQ: _comparison("is_distinct_from"),
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Case: _case,
    exp.Interval: _interval,
    exp.Collate: _collate,
    exp.Bracket: _bracket,
    exp.Cast: _cast,
    exp.DPipe: lambda analyzer, node: concatenation(
        analyzer.analyze(node.this), analyzer.analyze(node.expression), line_of(node)
    ),
    exp.Exists: subquery_tests.exists,
    exp.Subquery: subquery_tests.scalar,
    exp.Select: subquery_tests.scalar,
    **calls.HANDLERS,
}
