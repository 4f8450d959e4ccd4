"""Aggregate and window calls: argument conversion and result types.

Sources: PostgreSQL 18 documentation 9.21, 9.22 and 4.2.7-4.2.8 (syntax of calls).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query import numeric_statistics
from pgtrickle_assets.query.coercion import convert, postgres_name
from pgtrickle_assets.query.composed_calls import row_text
from pgtrickle_assets.query.exclusions import Part, kept_rows, over_kept
from pgtrickle_assets.query.frames import Frame, exclusion, window_frame
from pgtrickle_assets.query.functions.numbers import as_decimal, quotient_type
from pgtrickle_assets.query.json_calls import json_text
from pgtrickle_assets.query.naming import fold, function_name
from pgtrickle_assets.query.object_calls import object_members
from pgtrickle_assets.query.operators import unify
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import (
    AggregateCall,
    Call,
    Case,
    Cast,
    ColumnRef,
    Expression,
    Literal,
    SortKey,
    WindowCall,
)
from pgtrickle_assets.query.rewrite import is_not_null
from pgtrickle_assets.query.types import (
    BOOLEAN,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    JSON,
    MAX_DECIMAL_PRECISION,
    UNKNOWN,
    VARCHAR,
    ColumnType,
    decimal,
    list_of,
)

if TYPE_CHECKING:
    from pgtrickle_assets.query.expressions import Analyzer

STATISTICS = ("var_pop", "var_samp", "variance", "stddev_pop", "stddev_samp", "stddev")
PAIRED = (
    "covar_pop", "covar_samp", "corr", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2",
    "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
)  # fmt: skip
LISTS = ("string_agg", "array_agg", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg")
ORDERED_SET = ("percentile_cont", "percentile_disc", "mode")
AGGREGATES = frozenset(
    {
        "count", "sum", "avg", "min", "max", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor",
        "any_value", *LISTS, *STATISTICS, *PAIRED, *ORDERED_SET,
    }
)  # fmt: skip
WINDOW_ONLY = frozenset(
    {
        "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "first_value",
        "last_value", "nth_value",
    }
)  # fmt: skip

_FRAMED = ("first_value", "last_value", "nth_value")
"""The other functions of WINDOW_ONLY do not look at the frame."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """A call as written, before its type is known."""

    name: str
    args: tuple[Expression, ...]
    distinct: bool
    order_by: tuple[SortKey, ...]
    filter: Expression | None
    line: int | None


def aggregate(analyzer: Analyzer, node: Any, condition: Any = None, within: Any = None) -> Expression:
    """An aggregate call; its value becomes a column of the Aggregate below."""
    line = line_of(node)
    if analyzer.inside_aggregate:
        raise QueryError("aggregate function calls cannot be nested", line=line)
    if analyzer.sink is None:
        raise QueryError(f"aggregate functions are not allowed in {analyzer.clause}", line=line)
    parts = _parts(analyzer.nested(), node, condition, within)
    sink = analyzer.sink
    return _computed(parts, lambda call: sink.aggregate(call, line))


def _computed(parts: _Parts, add: numeric_statistics.Add) -> Expression:
    """The value of a call, given how one aggregate is computed."""
    return _expanded(parts, add) or add(_typed(parts))


def _expanded(parts: _Parts, add: numeric_statistics.Add) -> Expression | None:
    """A statistic of exact numbers as an expression over sums; None for any other call."""
    if parts.name in STATISTICS and not parts.args[0].type.is_float:
        return numeric_statistics.expand(parts, add)
    if parts.name in ("percentile_cont", "percentile_disc") and parts.args[0].type.element is not None:
        return _percentiles(parts, add)
    if parts.name in PAIRED and numeric_statistics.is_exact_pair(parts):
        return numeric_statistics.expand_pair(parts, add)
    return None


def _parts(analyzer: Analyzer, node: Any, condition: Any, within: Any) -> _Parts:
    name, line = function_name(node), line_of(node)
    items = list(node.expressions)
    distinct, order_items = False, []
    if items and isinstance(items[-1], exp.Order):
        order_items = items[-1].expressions
        items[-1] = items[-1].this
    if len(items) == 1 and isinstance(items[0], exp.Distinct):
        distinct = True
        items = list(items[0].expressions)
    order_by = analyzer.sort_keys(order_items)
    if len(items) == 1 and isinstance(items[0], exp.Star):
        items = []
    fields = analyzer.row(items[0]) if name == "count" and len(items) == 1 else None
    if fields is not None:
        args: tuple[Expression, ...] = (row_text(_countable(fields, line), line),)
    else:
        args = tuple(analyzer.analyze(item) for item in items)
    if within is not None:
        order_by = analyzer.sort_keys(within.expressions)
        args = (*args, *(key.expression for key in order_by))
    condition = None if condition is None else analyzer.predicate(condition)
    if not args and name != "count":
        raise QueryError(f"{name}(*) or {name}() does not exist", line=line)
    if (name in ORDERED_SET) != (within is not None):
        needs = "requires" if name in ORDERED_SET else "does not take"
        raise QueryError(f"aggregate function {name} {needs} WITHIN GROUP (ORDER BY ...)", line=line)
    return _Parts(name, args, distinct, order_by, condition, line)


def _countable(fields: list[Expression], line: int | None) -> list[Expression]:
    """The fields of a row that is counted; floating point has several texts for equal values."""
    if any(field.type.is_float or field.type.element is not None or field.type == JSON for field in fields):
        raise QueryError("counting rows of floating point, arrays or JSON is not supported", line=line)
    return fields


def _typed(parts: _Parts) -> AggregateCall:
    handler = _TYPE_RULES.get(parts.name)
    if handler is None:
        raise QueryError(f"aggregate function {parts.name} is not supported", line=parts.line)
    return handler(parts)


def _make(
    parts: _Parts, function: str, args: Sequence[Expression], kind: ColumnType, *, nullable: bool = True
) -> AggregateCall:
    return AggregateCall(function, tuple(args), kind, parts.distinct, parts.filter, (), nullable)


def _wrong(parts: _Parts) -> QueryError:
    kinds = ", ".join(postgres_name(arg.type) for arg in parts.args)
    return QueryError(f"function {parts.name}({kinds}) does not exist", line=parts.line)


def _one(parts: _Parts) -> Expression:
    if len(parts.args) != 1:
        raise _wrong(parts)
    (arg,) = parts.args
    return convert(arg, VARCHAR) if arg.type == UNKNOWN else arg


def _count(parts: _Parts) -> AggregateCall:
    if not parts.args:
        return _make(parts, "count", (), INT64, nullable=False)
    return _make(parts, "count", (_one(parts),), INT64, nullable=False)


def sum_type(kind: ColumnType) -> ColumnType | None:
    """The type of SUM over a type: int8 for int2 and int4, numeric for int8 and numeric, floats as they are."""
    if kind.name in ("int16", "int32"):
        return INT64
    if kind.name in ("int64", "decimal"):
        return decimal(MAX_DECIMAL_PRECISION, as_decimal(kind).scale or 0)
    return kind if kind.is_float else None


def average_type(kind: ColumnType) -> ColumnType | None:
    """The type of AVG over a type: numeric for integers and numeric, double precision for floats."""
    if kind.is_float:
        return FLOAT64
    if kind.is_integer or kind.name == "decimal":
        return quotient_type(as_decimal(kind), decimal(1, 0))
    return None


def _sum(parts: _Parts) -> AggregateCall:
    arg = _one(parts)
    kind = sum_type(arg.type)
    if kind is None:
        raise _wrong(parts)
    return _make(parts, "sum", (arg,), kind)


def _avg(parts: _Parts) -> AggregateCall:
    arg = _one(parts)
    kind = average_type(arg.type)
    if kind is None:
        raise _wrong(parts)
    if (as_decimal(arg.type).scale or 0) > 29 if not arg.type.is_float else False:
        raise QueryError("AVG of a numeric with more than 29 digits after the point is not supported", line=parts.line)
    return _make(parts, "avg", (convert(arg, FLOAT64) if arg.type == FLOAT32 else arg,), kind)


def _extreme(parts: _Parts) -> AggregateCall:
    arg = _one(parts)
    odd = arg.type.name in ("boolean", "json", "uuid") or arg.type.element is not None
    if arg.type.name == "interval" or (odd and parts.name != "any_value"):
        raise _wrong(parts)
    return replace(_make(parts, parts.name, (arg,), arg.type), distinct=False)


def _boolean(parts: _Parts) -> AggregateCall:
    arg = convert(_one(parts), BOOLEAN) if parts.args[0].type == UNKNOWN else _one(parts)
    if arg.type != BOOLEAN:
        raise _wrong(parts)
    return replace(_make(parts, "bool_or" if parts.name == "bool_or" else "bool_and", (arg,), BOOLEAN), distinct=False)


def _bits(parts: _Parts) -> AggregateCall:
    arg = _one(parts)
    if not arg.type.is_integer:
        raise _wrong(parts)
    return _make(parts, parts.name, (arg,), arg.type)


def _string_agg(parts: _Parts) -> AggregateCall:
    if len(parts.args) != 2:
        raise _wrong(parts)
    value, separator = (convert(arg, VARCHAR) for arg in parts.args)
    if not isinstance(separator, Literal):
        raise QueryError("the separator of string_agg must be a constant", line=parts.line)
    if parts.args[0].type not in (VARCHAR, UNKNOWN):
        raise _wrong(parts)
    return replace(_make(parts, "string_agg", (value, separator), VARCHAR), order_by=_total_order(parts, value))


def _total_order(parts: _Parts, value: Expression) -> tuple[SortKey, ...]:
    """The order of a list, made total by the value itself, so that equal content gives equal text."""
    if any(key.expression == value for key in parts.order_by):
        return parts.order_by
    return (*parts.order_by, SortKey(value))


def _array_agg(parts: _Parts) -> AggregateCall:
    arg = _one(parts)
    if arg.type.element is not None or arg.type.name in ("interval", "json"):
        raise QueryError(f"array_agg of {postgres_name(arg.type)} is not supported", line=parts.line)
    return replace(_make(parts, "array_agg", (arg,), list_of(arg.type)), order_by=_total_order(parts, arg))


def _json_agg(parts: _Parts) -> AggregateCall:
    arg = _one(parts)
    text = json_text(arg, parts.line)
    order = _total_order(parts, arg) if arg.type != JSON else parts.order_by
    return replace(_make(parts, "json_agg", (text,), JSON), order_by=order)


def _object_agg(parts: _Parts) -> AggregateCall:
    if len(parts.args) != 2:
        raise _wrong(parts)
    if parts.distinct:
        raise QueryError(f"{parts.name}(DISTINCT ...) is not supported", line=parts.line)
    members, order = object_members(parts.name, parts.args, parts.filter, parts.order_by, parts.line)
    return replace(_make(parts, parts.name, members, JSON), order_by=order)


def _paired(parts: _Parts) -> AggregateCall:
    if len(parts.args) != 2 or not all(arg.type.is_numeric for arg in parts.args):
        raise _wrong(parts)
    args = tuple(convert(arg, FLOAT64) for arg in parts.args)
    kind = INT64 if parts.name == "regr_count" else FLOAT64
    return _make(parts, parts.name, args, kind, nullable=kind == FLOAT64)


def _statistics(parts: _Parts) -> AggregateCall:
    name = {"variance": "var_samp", "stddev": "stddev_samp"}.get(parts.name, parts.name)
    return _make(parts, name, (convert(_one(parts), FLOAT64),), FLOAT64)


def _fraction(parts: _Parts) -> Literal:
    fraction = convert(parts.args[0], FLOAT64)
    if not isinstance(fraction, Literal) or not 0 <= float(str(fraction.value)) <= 1:
        raise QueryError(f"the fraction of {parts.name} must be a constant between 0 and 1", line=parts.line)
    return fraction


def _percentile(parts: _Parts) -> AggregateCall:
    if len(parts.args) != 2:
        raise _wrong(parts)
    value, kind = parts.args[1], parts.args[1].type
    if parts.name == "percentile_cont":
        if not kind.is_numeric:
            raise _wrong(parts)
        value, kind = convert(value, FLOAT64), FLOAT64
    key = replace(parts.order_by[0], expression=value)
    return replace(_make(parts, parts.name, (_fraction(parts), value), kind), order_by=(key,))


def _percentiles(parts: _Parts, add: numeric_statistics.Add) -> Expression:
    """One array for an array of fractions: NULL without values, and with NULL where a fraction is."""
    fractions, value = parts.args
    written = fractions.arg if isinstance(fractions, Cast) else fractions
    if not isinstance(written, Call) or written.function != "array" or not written.args:
        raise QueryError(f"the fractions of {parts.name} must be an array of constants", line=parts.line)
    given = [arg for arg in written.args if not (isinstance(arg, Literal) and arg.value is None)]
    found = {arg: add(_percentile(replace(parts, args=(arg, value)))) for arg in given}
    if not found:
        raise QueryError(f"the fractions of {parts.name} must not all be NULL", line=parts.line)
    one = next(iter(found.values()))
    items = tuple(found[arg] if arg in found else Literal(None, one.type) for arg in written.args)
    array = Call("array", items, list_of(one.type), nullable=False)
    return Case(((is_not_null(one), array),), None, array.type)


def _mode(parts: _Parts) -> AggregateCall:
    arg = _one(parts)
    if parts.order_by[0].descending:
        raise QueryError("mode() with ORDER BY ... DESC is not supported", line=parts.line)
    return replace(_make(parts, "mode", (arg,), arg.type), order_by=parts.order_by)


_TYPE_RULES: dict[str, Callable[[_Parts], AggregateCall]] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "min": _extreme,
    "max": _extreme,
    "any_value": _extreme,
    "bool_and": _boolean,
    "every": _boolean,
    "bool_or": _boolean,
    "bit_and": _bits,
    "bit_or": _bits,
    "bit_xor": _bits,
    "string_agg": _string_agg,
    "array_agg": _array_agg,
    "json_agg": _json_agg,
    "jsonb_agg": _json_agg,
    "json_object_agg": _object_agg,
    "jsonb_object_agg": _object_agg,
    "percentile_cont": _percentile,
    "percentile_disc": _percentile,
    "mode": _mode,
    **dict.fromkeys(PAIRED, _paired),
    **dict.fromkeys(STATISTICS, _statistics),
}


def grouping(analyzer: Analyzer, node: exp.Anonymous) -> Expression:
    """GROUPING(columns)."""
    line = line_of(node)
    if analyzer.sink is None:
        raise QueryError(f"GROUPING is not allowed in {analyzer.clause}", line=line)
    args = tuple(analyzer.nested().analyze(arg) for arg in node.expressions)
    return analyzer.sink.grouping(args, line)


def _filter(analyzer: Analyzer, node: exp.Filter) -> Expression:
    inner = node.this
    condition = node.expression.this
    if isinstance(inner, exp.WithinGroup):
        return aggregate(analyzer, inner.this, condition, inner.expression)
    return aggregate(analyzer, inner, condition)


def _within_group(analyzer: Analyzer, node: exp.WithinGroup) -> Expression:
    return aggregate(analyzer, node.this, None, node.expression)


def _window(analyzer: Analyzer, node: exp.Window) -> Expression:
    line = line_of(node)
    if analyzer.sink is None:
        raise QueryError(f"window functions are not allowed in {analyzer.clause}", line=line)
    inner, condition = node.this, None
    if isinstance(inner, exp.Filter):
        condition, inner = inner.expression.this, inner.this
    if not isinstance(inner, exp.Anonymous):
        raise QueryError("IGNORE NULLS and RESPECT NULLS are not supported in PostgreSQL", line=line)
    partition, order_items, spec = _specification(analyzer, node)
    partition_by = tuple(analyzer.value(part) for part in partition)
    order_by = analyzer.sort_keys(order_items)
    sink = analyzer.sink

    name = function_name(inner)

    def number(function: str, keys: tuple[SortKey, ...]) -> Expression:
        return sink.window(WindowCall(function, (), INT64, partition_by, keys, nullable=False), line)

    def over(call: WindowCall, part: Part) -> ColumnRef:
        call = replace(call, partition_by=part.partition_by, order_by=part.frame.order_by, frame=part.frame.text)
        return sink.window(call, line)

    if name in WINDOW_ONLY and name not in _FRAMED:
        return over(_window_only(analyzer, inner, line), Part(partition_by, Frame(order_by)))
    excluded = exclusion(spec)
    if name in WINDOW_ONLY:
        if excluded:
            raise QueryError(f"{name} over a frame with EXCLUDE is not supported", line=line)
        frame = window_frame(spec, order_by, lambda keys: number("dense_rank", keys), line)
        return over(_window_only(analyzer, inner, line), Part(partition_by, frame))
    parts = _windowed_parts(analyzer, inner, condition, order_by, line)

    def windowed(call: AggregateCall, part: Part) -> ColumnRef:
        plain = WindowCall(call.function, call.args, call.type, filter=call.filter, nullable=call.nullable)
        return over(replace(plain, values_by=call.order_by), part)

    if excluded:
        kept = kept_rows(spec, excluded, partition_by, order_by, number, line)
        return _computed(parts, lambda call: over_kept(call, kept, windowed, line))
    frame = window_frame(spec, order_by, lambda keys: number("dense_rank", keys), line)
    return _computed(parts, lambda call: windowed(call, Part(partition_by, frame)))


def _windowed_parts(
    analyzer: Analyzer, inner: exp.Anonymous, condition: Any, order_by: tuple[SortKey, ...], line: int | None
) -> _Parts:
    """An aggregate that is called over a window."""
    parts = _parts(analyzer, inner, condition, None)
    if parts.distinct or parts.order_by or parts.name in ORDERED_SET:
        raise QueryError("DISTINCT and ORDER BY inside a window aggregate are not supported", line=line)
    if parts.name not in AGGREGATES:
        raise QueryError(f"{parts.name} is not a window function", line=line)
    # PostgreSQL adds the values of a frame in the order of the window.
    return replace(parts, order_by=order_by) if parts.name in LISTS else parts


def _specification(analyzer: Analyzer, node: Any, depth: int = 0) -> tuple[list[Any], list[Any], Any]:
    """PARTITION BY, ORDER BY and frame of an OVER clause, with a named window filled in."""
    partition = list(node.args.get("partition_by") or [])
    order = node.args.get("order")
    spec = node.args.get("spec")
    alias = node.args.get("alias")
    if depth == 0 or alias is not None:
        base_name = fold(alias) if alias is not None else None
        if base_name is not None:
            base = analyzer.windows.get(base_name)
            if base is None or depth > len(analyzer.windows):
                raise QueryError(f'window "{base_name}" does not exist', line=line_of(node))
            base_partition, base_order, base_spec = _specification(analyzer, base, depth + 1)
            return (
                base_partition or partition,
                list(order.expressions) if order is not None else base_order,
                spec if spec is not None else base_spec,
            )
    return partition, list(order.expressions) if order is not None else [], spec


def _window_only(analyzer: Analyzer, node: exp.Anonymous, line: int | None) -> WindowCall:
    name = function_name(node)
    args = [analyzer.analyze(arg) for arg in node.expressions]
    args = [convert(arg, VARCHAR) if arg.type == UNKNOWN and i == 0 else arg for i, arg in enumerate(args)]
    counts = {
        "ntile": (1, 1),
        "lag": (1, 3),
        "lead": (1, 3),
        "first_value": (1, 1),
        "last_value": (1, 1),
        "nth_value": (2, 2),
    }
    low, high = counts.get(name, (0, 0))
    if not low <= len(args) <= high:
        raise QueryError(f"{name} takes {low} to {high} arguments", line=line)
    if name in ("row_number", "rank", "dense_rank"):
        return WindowCall(name, (), INT64, nullable=False)
    if name in ("percent_rank", "cume_dist"):
        return WindowCall(name, (), FLOAT64, nullable=False)
    if name == "ntile":
        return WindowCall(name, (_offset(args[0], line),), INT32, nullable=False)
    kind = args[0].type
    if len(args) > 1:
        args[1] = _offset(args[1], line)
    if len(args) > 2:
        kind, (args[0], args[2]) = unify([args[0], args[2]], name.upper(), line)
    return WindowCall(name, tuple(args), kind)


def _offset(expression: Expression, line: int | None) -> Expression:
    expression = convert(expression, INT32, line=line)
    if not isinstance(expression, Literal):
        raise QueryError("the count of a window function must be a constant", line=line)
    return expression


HANDLERS: dict[type, Callable[[Any, Any], Expression]] = {
    exp.Filter: _filter,
    exp.WithinGroup: _within_group,
    exp.Window: _window,
}
