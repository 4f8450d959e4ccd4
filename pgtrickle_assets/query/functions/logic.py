"""Comparison, logic and conditional functions.

Source: PostgreSQL 18 documentation, 9.1 (three-valued logic), 9.2 (comparison) and 9.18 (conditional expressions).
"""

from __future__ import annotations

from pgtrickle_assets.query.functions.registry import Emission, register
from pgtrickle_assets.query.plan import Literal


def _comparison(symbol: str) -> None:
    register(symbol, f"({{0}} {symbol} {{1}})")


def _nary(word: str) -> None:
    def emit(emission: Emission) -> str:
        return f"({f' {word} '.join(emission.args)})"

    register(word.lower(), emit, strict=False)


def _in_list(emission: Emission) -> str:
    first, *rest = emission.args
    return f"({first} IN ({', '.join(rest)}))"


def _raise(emission: Emission) -> str:
    """An error with a fixed message, typed as the call."""
    message = emission.call.args[0]
    assert isinstance(message, Literal)
    text = emission.args[0]
    function = "raise_error" if emission.spark else "error"
    return emission.writer.cast(f"{function}({text})", emission.call.type, emission.call.type)


def _extreme(spark: str, duckdb: str, emission: Emission) -> str:
    if len(emission.args) == 1:
        return emission.args[0]
    return f"{spark if emission.spark else duckdb}({', '.join(emission.args)})"


for _symbol in ("=", "<>", "<", "<=", ">", ">="):
    _comparison(_symbol)
register("is_not_distinct_from", "({0} <=> {1})", "({0} IS NOT DISTINCT FROM {1})", strict=False)
register("is_distinct_from", "(NOT ({0} <=> {1}))", "({0} IS DISTINCT FROM {1})", strict=False)
_nary("AND")
_nary("OR")
register("not", "(NOT {0})")
register("is_null", "({0} IS NULL)", strict=False)
register("is_not_null", "({0} IS NOT NULL)", strict=False)
register("is_true", "({0} IS TRUE)", strict=False)
register("is_not_true", "({0} IS NOT TRUE)", strict=False)
register("is_false", "({0} IS FALSE)", strict=False)
register("is_not_false", "({0} IS NOT FALSE)", strict=False)
register("in", _in_list, strict=False)
register("coalesce", "coalesce({args})", strict=False)
register("nullif", "nullif({0}, {1})", strict=False)
register("greatest", lambda e: _extreme("greatest", "greatest", e), strict=False)
register("least", lambda e: _extreme("least", "least", e), strict=False)
register("raise", _raise, strict=False)
