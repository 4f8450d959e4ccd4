"""Function calls: conditional functions, overloads from the registry, and where aggregates and windows branch off."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query import aggregate_calls, array_subquery, moments, patterns, special_calls
from pgtrickle_assets.query.casts import output_text
from pgtrickle_assets.query.coercion import convert, postgres_name
from pgtrickle_assets.query.functions import signatures
from pgtrickle_assets.query.functions.registry import lookup
from pgtrickle_assets.query.naming import function_name
from pgtrickle_assets.query.operators import call, comparison, unify
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Call, Case, Expression, Literal
from pgtrickle_assets.query.scope import nearest
from pgtrickle_assets.query.set_functions import refusal
from pgtrickle_assets.query.types import DATE, INT32, TIMESTAMP, TIMESTAMPTZ, VARCHAR, list_of

if TYPE_CHECKING:
    from pgtrickle_assets.query.expressions import Analyzer

_NEEDS_FLOAT = frozenset({"sqrt", "exp", "ln", "log", "log10", "power", "pow"})
"""Functions that PostgreSQL also has for numeric, with more digits than a double."""


_WITHOUT_SCALE = "scale() is not supported: how many digits a numeric shows is not kept with its value"
_FUNCTIONS_PAGE = "docs/sql-support.md lists the functions."


def _anonymous(analyzer: Analyzer, node: exp.Anonymous) -> Expression:
    name, line = function_name(node), line_of(node)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(analyzer, node)
    if name in aggregate_calls.AGGREGATES:
        return aggregate_calls.aggregate(analyzer, node)
    if name in aggregate_calls.WINDOW_ONLY:
        raise QueryError(f"window function {name} requires an OVER clause", line=line)
    if name == "grouping":
        return aggregate_calls.grouping(analyzer, node)
    args = [analyzer.analyze(arg) for arg in node.expressions]
    handler = special_calls.FUNCTIONS.get(name)
    if handler is not None:
        found = handler(analyzer, name, args, line)
        if found is not None:
            return found
    return resolved(analyzer, name, args, line)


def resolved(analyzer: Analyzer, name: str, args: list[Expression], line: int | None) -> Expression:
    """A call of the overload that fits the arguments."""
    kinds = [arg.type for arg in args]
    signature = signatures.resolve(name, kinds)
    numeric = name in _NEEDS_FLOAT and any(k.name == "decimal" for k in kinds) and not any(k.is_float for k in kinds)
    if signature is None or numeric:
        raise unknown_function(name, args, line)
    converted: list[Expression] = []
    for index, arg in enumerate(args):
        target = signature.target(index, arg.type)
        converted.append(arg if target is None else convert(arg, target, line=line))
    result = signature.result if not callable(signature.result) else signature.result(converted)
    analyzer.context.uses(f"{name}()", signature.volatility)
    function = lookup(signature.canonical)
    strict = function is None or function.strict
    nullable = any(arg.nullable for arg in converted) if strict else True
    return Call(signature.canonical, tuple(converted), result, nullable)


def unknown_function(name: str, args: list[Expression], line: int | None) -> QueryError:
    """The error for a call without a fitting overload, with what to do about it."""
    kinds = ", ".join(postgres_name(arg.type) for arg in args)
    known = [*signatures.names(), *_SPECIAL, *aggregate_calls.AGGREGATES, *special_calls.FUNCTIONS]
    if name in _NEEDS_FLOAT and any(arg.type.name == "decimal" for arg in args):
        return QueryError(
            f"{name}({kinds}) is not supported: Spark cannot give the digits of PostgreSQL's numeric result",
            line=line,
            hint="Cast the argument to double precision.",
        )
    if name == "scale":
        return QueryError(_WITHOUT_SCALE, line=line, hint="min_scale(x) counts the digits that the value needs.")
    refused = refusal(name, line, in_from=False)
    if refused is not None:
        return refused
    near = "" if name in known else nearest(name, known, cutoff=0.8)
    hint = f"{near} {_FUNCTIONS_PAGE}".strip()
    return QueryError(f"function {name}({kinds}) does not exist or is not supported", line=line, hint=hint)


def _coalesce(analyzer: Analyzer, node: exp.Anonymous) -> Expression:
    kind, args = unify([analyzer.analyze(arg) for arg in node.expressions], "COALESCE", line_of(node))
    if len(args) == 1:
        return args[0]
    return Call("coalesce", tuple(args), kind, all(arg.nullable for arg in args))


def _extreme(analyzer: Analyzer, node: exp.Anonymous) -> Expression:
    name = function_name(node)
    kind, args = unify([analyzer.analyze(arg) for arg in node.expressions], name.upper(), line_of(node))
    return Call(name, tuple(args), kind, all(arg.nullable for arg in args))


def _nullif(analyzer: Analyzer, node: exp.Anonymous) -> Expression:
    first, second = (analyzer.analyze(arg) for arg in node.expressions)
    same = comparison("=", first, second, line_of(node))
    result = convert(first, VARCHAR) if first.type.name == "unknown" else first
    return Case(((same, Literal(None, result.type)),), result, result.type)


def _concat(analyzer: Analyzer, node: exp.Anonymous) -> Expression:
    line, name = line_of(node), function_name(node)
    args = [output_text(analyzer.analyze(arg), line) for arg in node.expressions]
    return Call(name, tuple(args), VARCHAR, nullable=name == "concat_ws" and args[0].nullable)


def _row(analyzer: Analyzer, node: exp.Anonymous) -> Expression:
    raise QueryError("a row value is supported in comparisons only", line=line_of(node))


_SPECIAL: dict[str, Callable[[Analyzer, Any], Expression]] = {
    "coalesce": _coalesce,
    "greatest": _extreme,
    "least": _extreme,
    "nullif": _nullif,
    "concat": _concat,
    "concat_ws": _concat,
    "row": _row,
    "array": array_subquery.array_of_rows,
    **moments.SYNTAX,
}


def _array(analyzer: Analyzer, node: exp.Array) -> Expression:
    line = line_of(node)
    if not node.expressions:
        raise QueryError("cannot determine type of empty array", line=line, hint="Cast it, as in ARRAY[]::integer[].")
    kind, items = unify([analyzer.analyze(part) for part in node.expressions], "ARRAY", line)
    return Call("array", tuple(items), list_of(kind), nullable=False)


def _now(canonical: str, label: str) -> Callable[[Analyzer, Any], Expression]:
    kinds = {"now": TIMESTAMPTZ, "current_date": DATE, "localtimestamp": TIMESTAMP}

    def handle(analyzer: Analyzer, node: Any) -> Expression:
        if node.this is not None:
            raise QueryError(f"{label} with a precision is not supported", line=line_of(node))
        analyzer.context.uses(label, "stable")
        return Call(canonical, (), kinds[canonical], nullable=False)

    return handle


def _named(name: str, *keys: str) -> Callable[[Analyzer, Any], Expression]:
    """A construct with its own syntax that is a plain function underneath."""

    def handle(analyzer: Analyzer, node: Any) -> Expression:
        args = [analyzer.analyze(node.args[key]) for key in keys if node.args.get(key) is not None]
        return resolved(analyzer, name, args, line_of(node))

    return handle


def _trim(analyzer: Analyzer, node: exp.Trim) -> Expression:
    side = str(node.args.get("position") or "BOTH").upper()
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "btrim")
    args = [analyzer.analyze(node.this)]
    if node.expression is not None:
        args.append(analyzer.analyze(node.expression))
    return resolved(analyzer, name, args, line_of(node))


def _substring(analyzer: Analyzer, node: exp.Substring) -> Expression:
    line = line_of(node)
    args = [analyzer.analyze(node.this)]
    start, length = node.args.get("start"), node.args.get("length")
    if start is None and length is None and len(args) == 1:
        raise QueryError("this form of substring is not supported", line=line)
    args.append(analyzer.analyze(start) if start is not None else Literal(1, INT32))
    if length is not None:
        args.append(analyzer.analyze(length))
    if len(args) == 2 and args[1].type.name in ("unknown", "varchar"):
        return patterns.substring_pattern(args[0], args[1], line)
    return resolved(analyzer, "substring", args, line)


def _bitwise_not(analyzer: Analyzer, node: exp.BitwiseNot) -> Expression:
    inner = analyzer.analyze(node.this)
    if not inner.type.is_integer:
        raise QueryError("~ needs an integer", line=line_of(node))
    return call("bit_not", inner.type, inner)


def _parameter(_: Analyzer, node: exp.Expr) -> Expression:
    raise QueryError("a stream table's query cannot have parameters", line=line_of(node))


HANDLERS: dict[type, Callable[[Any, Any], Expression]] = {
    exp.Anonymous: _anonymous,
    exp.Array: _array,
    exp.CurrentTimestamp: _now("now", "current_timestamp"),
    exp.CurrentDate: _now("current_date", "current_date"),
    exp.Localtimestamp: _now("localtimestamp", "localtimestamp"),
    exp.StrPosition: _named("position", "this", "substr"),
    exp.Overlay: _named("overlay", "this", "expression", "from_", "for_"),
    exp.Trim: _trim,
    exp.Substring: _substring,
    exp.BitwiseNot: _bitwise_not,
    exp.Parameter: _parameter,
    exp.Placeholder: _parameter,
    **special_calls.HANDLERS,
    **aggregate_calls.HANDLERS,
}
