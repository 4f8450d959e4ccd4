"""Aggregate and window calls as SQL text.

Sources: PostgreSQL 18 documentation 9.21 (aggregates), 9.22 (window functions) and numeric.c for types of sums and
averages; Spark 4.3 and DuckDB 1.5 references for the spelling.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgtrickle_assets.query.functions import Emission, write
from pgtrickle_assets.query.functions.numbers import as_decimal, shows_own_digits
from pgtrickle_assets.query.functions.overflow import INFINITY, out_of_range
from pgtrickle_assets.query.plan import AggregateCall, Call, ColumnRef, Literal, SortKey, WindowCall
from pgtrickle_assets.query.render_expressions import ExpressionWriter
from pgtrickle_assets.query.rewrite import columns_of
from pgtrickle_assets.query.types import INT32, INT64, ColumnType, decimal

SUM_PRECISION = 28
"""Spark's sum adds ten digits to its argument; a sum of at least 28 digits is then a decimal of 38."""

_PLAIN = frozenset(
    {
        "min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor", "covar_pop", "covar_samp", "regr_avgx",
        "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_sxx", "regr_sxy", "regr_syy",
    }
)  # fmt: skip
_SPREADS = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
_ORDERED = frozenset(
    {"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "nth_value"}
)


@dataclass(frozen=True, slots=True)
class _Written:
    """The pieces of a call that its function is put together from."""

    writer: ExpressionWriter
    function: str
    type: ColumnType
    args: tuple[str, ...]
    types: tuple[ColumnType, ...]
    distinct: bool
    suffix: str
    order_by: tuple[SortKey, ...]
    call: AggregateCall | WindowCall

    @property
    def spark(self) -> bool:
        return self.writer.dialect == "spark"

    def plain(self, function: str, *args: str) -> str:
        """`function([DISTINCT] args)` with FILTER and OVER."""
        distinct = "DISTINCT " if self.distinct else ""
        return f"{function}({distinct}{', '.join(args)}){self.suffix}"


def aggregate_text(call: AggregateCall, writer: ExpressionWriter) -> str:
    """The text of an aggregate call."""
    suffix = "" if call.filter is None else f" FILTER (WHERE {writer.expression(call.filter)})"
    return _text(_written(call, writer, suffix, distinct=call.distinct))


def window_text(call: WindowCall, writer: ExpressionWriter) -> str:
    """The text of a window call."""
    over: list[str] = []
    if call.partition_by:
        over.append("PARTITION BY " + ", ".join(writer.expression(part) for part in call.partition_by))
    if call.order_by:
        over.append("ORDER BY " + writer.sort_keys(call.order_by))
    elif writer.dialect == "spark" and call.function in _ORDERED:
        # To Spark it is an error to number rows without an order; under a constant all of them are peers.
        over.append("ORDER BY 1")
    if call.frame:
        over.append(call.frame)
    suffix = "" if call.filter is None else f" FILTER (WHERE {writer.expression(call.filter)})"
    suffix += f" OVER ({' '.join(over)})"
    written = _written(call, writer, suffix, distinct=False)
    if call.function in ("row_number", "rank", "dense_rank"):
        return f"CAST({written.plain(call.function)} AS BIGINT)"
    if call.function in ("ntile",):
        return f"CAST({written.plain(call.function, written.args[0])} AS INT)"
    if call.function in ("percent_rank", "cume_dist", "lag", "lead", "first_value", "last_value", "nth_value"):
        return written.plain(call.function, *written.args)
    return _text(written)


def _written(call: AggregateCall | WindowCall, writer: ExpressionWriter, suffix: str, *, distinct: bool) -> _Written:
    return _Written(
        writer=writer,
        function=call.function,
        type=call.type,
        args=tuple(writer.expression(arg) for arg in call.args),
        types=tuple(arg.type for arg in call.args),
        distinct=distinct,
        suffix=suffix,
        order_by=call.order_by if isinstance(call, AggregateCall) else call.values_by,
        call=call,
    )


def _text(w: _Written) -> str:
    if w.function in _SPREADS:
        return _in_range(w, w.plain(w.function, *w.args))
    if w.function in _PLAIN:
        return w.plain(w.function, *w.args)
    match w.function:
        case "corr":
            # NULL where one side does not vary; the engines' own functions give NaN or an error then.
            spreads = (f"nullif({w.plain(name, *w.args)}, 0)" for name in ("regr_sxx", "regr_syy"))
            return f"({w.plain('regr_sxy', *w.args)} / sqrt({' * '.join(spreads)}))"
        case "regr_slope":
            return f"({w.plain('regr_sxy', *w.args)} / nullif({w.plain('regr_sxx', *w.args)}, 0))"
        case "count":
            return w.plain("count", *w.args) if w.args else f"count(*){w.suffix}"
        case "sum":
            return _sum(w)
        case "avg":
            return _average(w)
        case "any_value":
            return w.plain("min", *w.args)
        case "string_agg":
            return _string_agg(w)
        case "array_agg":
            return _array_agg(w)
        case "json_agg":
            return _json_agg(w)
        case "json_object_agg":
            return _json_object(w)
        case "jsonb_object_agg":
            return _jsonb_object(w)
        case "percentile_cont":
            return _percentile_cont(w)
        case "percentile_disc":
            return _percentile_disc(w)
        case "mode":
            return (
                f"mode({w.args[0]}, true){w.suffix}" if w.spark else f"mode({w.args[0]} ORDER BY {w.args[0]}){w.suffix}"
            )
        case _:
            raise KeyError(f"no aggregate {w.function!r}")


def _sum(w: _Written) -> str:
    (text,), (kind,) = w.args, w.types
    if w.type.name == "decimal":
        source = as_decimal(kind)
        width = max(source.precision or 0, SUM_PRECISION)
        text = w.writer.cast(text, kind, decimal(width, source.scale or 0))
        return w.writer.cast(w.plain("sum", text), decimal(38, source.scale or 0), w.type)
    total = w.plain("sum", text)
    if not w.spark or w.type.name == "float32":
        total = f"CAST({total} AS {w.writer.type_name(w.type)})"
    return _in_range(w, total) if w.type.is_float else total


def _in_range(w: _Written, total: str) -> str:
    """A total of floating point, which is an error where it is infinite and no value is."""
    infinite = f"coalesce(bool_or(abs({w.args[0]}) = {INFINITY}){w.suffix}, FALSE)"
    error = out_of_range(w.writer, w.type, "overflow")
    return f"(CASE WHEN abs({total}) = {INFINITY} AND NOT {infinite} THEN {error} ELSE {total} END)"


def _average(w: _Written) -> str:
    (text,), (kind,) = w.args, w.types
    if w.type.name != "decimal":
        return _in_range(w, w.plain("avg", text))
    source = as_decimal(kind)
    total_type = decimal(38, source.scale or 0)
    width = max(source.precision or 0, SUM_PRECISION)
    total = w.plain("sum", w.writer.cast(text, kind, decimal(width, source.scale or 0)))
    count = f"nullif({w.plain('count', text)}, 0)"
    operands = [ColumnRef("", total_type), ColumnRef("", INT64)]
    texts = [total, count]
    if shows_own_digits(kind):
        digits = Emission(Call("own_digits", (ColumnRef("", kind),), INT32), (text,), w.writer)
        operands.append(ColumnRef("", INT32))
        texts.append(w.plain("max", write(digits)))
    return write(Emission(Call("/", tuple(operands), w.type), tuple(texts), w.writer))


def _ordered(w: _Written) -> str:
    # DuckDB refuses to order by a constant.
    keys = [key for key in w.order_by if columns_of(key.expression)]
    return f" ORDER BY {w.writer.sort_keys(keys)}" if keys else ""


def _string_agg(w: _Written) -> str:
    if w.spark:
        # Spark's listagg(DISTINCT) fails beside another DISTINCT aggregate.
        return f"array_join({_sorted_values(w, keep_nulls=False)}, {w.args[1]})"
    distinct = "DISTINCT " if w.distinct else ""
    return f"string_agg({distinct}{w.args[0]}, {w.args[1]}{_ordered(w)}){w.suffix}"


def _array_agg(w: _Written) -> str:
    if not w.spark:
        distinct = "DISTINCT " if w.distinct else ""
        return f"array_agg({distinct}{w.args[0]}{_ordered(w)}){w.suffix}"
    return _sorted_values(w, keep_nulls=True)


def _sorted_values(w: _Written, *, keep_nulls: bool) -> str:
    """The values of a group in ORDER BY order, NULL for an empty group; collect_list alone drops NULLs."""
    rows = _sorted_rows(w, w.args[0], keep_nulls=keep_nulls)
    return f"nullif(transform({rows}, s -> s.v), array())"


def _sorted_rows(w: _Written, value: str, *, keep_nulls: bool = True) -> str:
    """Structs of a value (v) and its sort keys, in order."""
    keys = [w.writer.expression(key.expression) for key in w.order_by]
    fields = ", ".join([f"'v', {value}", *(f"'k{i}', {key}" for i, key in enumerate(keys))])
    collect = "collect_set" if w.distinct else "collect_list"
    row = f"named_struct({fields})"
    if not keep_nulls:
        row = f"CASE WHEN {value} IS NOT NULL THEN {row} END"
    rows = f"{collect}({row}){w.suffix}"
    return f"array_sort({rows}, (l, r) -> {_comparator(w.order_by)})" if keys else rows


def _comparator(keys: tuple[SortKey, ...]) -> str:
    text = "0"
    for index in range(len(keys) - 1, -1, -1):
        key = keys[index]
        left, right = f"l.k{index}", f"r.k{index}"
        lower, higher = ("1", "-1") if key.descending else ("-1", "1")
        first, last = ("-1", "1") if key.nulls_first else ("1", "-1")
        text = (
            f"CASE WHEN {left} <=> {right} THEN {text} "
            f"WHEN {left} IS NULL THEN {first} WHEN {right} IS NULL THEN {last} "
            f"WHEN {left} < {right} THEN {lower} ELSE {higher} END"
        )
    return text


def _json_agg(w: _Written) -> str:
    if w.spark:
        values = f"transform({_sorted_values(w, keep_nulls=True)}, j -> coalesce(j, 'null'))"
        return f"concat('[', array_join({values}, ', '), ']')"
    distinct = "DISTINCT " if w.distinct else ""
    values = f"string_agg({distinct}coalesce(CAST({w.args[0]} AS VARCHAR), 'null'), ', '{_ordered(w)}){w.suffix}"
    return f"CAST('[' || {values} || ']' AS JSON)"


def _json_object(w: _Written) -> str:
    if w.spark:
        return f"concat('{{ ', array_join({_sorted_values(w, keep_nulls=True)}, ', '), ' }}')"
    return f"CAST('{{ ' || string_agg({w.args[0]}, ', '{_ordered(w)}){w.suffix} || ' }}' AS JSON)"


def _jsonb_object(w: _Written) -> str:
    """Members in the order of their keys, of those with one key the last."""
    member, key = w.args
    if w.spark:
        rows = _sorted_rows(w, f"named_struct('m', {member}, 'k', {key})")

        def written(names: tuple[str, ...]) -> str:
            (r,) = names
            last = f"filter({r}, (x, i) -> i + 1 = size({r}) OR {r}[i + 1].k <> x.k)"
            return f"concat('{{', array_join(transform({last}, x -> x.m), ', '), '}}')"

        return w.writer.let((f"nullif(transform({rows}, s -> s.v), array())",), written)

    def read(names: tuple[str, ...]) -> str:
        (r,) = names
        last = f"list_filter({r}, lambda x, i: i = len({r}) OR {r}[i + 1].k <> x.k)"
        return f"CAST('{{' || array_to_string(list_transform({last}, lambda x: x.m), ', ') || '}}' AS JSON)"

    return w.writer.let((f"list({{'m': {member}, 'k': {key}}}{_ordered(w)}){w.suffix}",), read)


def _percentile_cont(w: _Written) -> str:
    fraction, value = w.args[0], w.args[1]
    descending = w.call.order_by[0].descending
    if w.spark:
        direction = " DESC" if descending else ""
        return f"percentile_cont({fraction}) WITHIN GROUP (ORDER BY {value}{direction}){w.suffix}"
    fraction = f"(1 - {fraction})" if descending else fraction
    return f"quantile_cont({value}, {fraction}){w.suffix}"


def _percentile_disc(w: _Written) -> str:
    value, fraction = w.args[1], w.call.args[0]
    assert isinstance(fraction, Literal)
    share = str(fraction.value)
    key = w.call.order_by[0]
    if not w.spark:
        direction = " DESC" if key.descending else ""
        return f"percentile_disc({w.args[0]}) WITHIN GROUP (ORDER BY {value}{direction}){w.suffix}"
    values = f"filter(collect_list({value}){w.suffix}, x -> x IS NOT NULL)"
    ordered = f"sort_array({values}, {'false' if key.descending else 'true'})"

    def pick(names: tuple[str, ...]) -> str:
        (v,) = names
        return f"CASE WHEN size({v}) > 0 THEN element_at({v}, greatest(1, CAST(ceil({share}D * size({v})) AS INT))) END"

    return w.writer.let((ordered,), pick)
