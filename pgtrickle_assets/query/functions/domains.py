"""Functions of double precision that are an error outside their domain, where the engines give NaN, NULL or infinity.

Source: PostgreSQL 18, src/backend/utils/adt/float.c (dsqrt, dlog1, dlog10, dexp, dpow, dacos, dasin).
"""

from __future__ import annotations

from pgtrickle_assets.query.functions.overflow import INFINITY
from pgtrickle_assets.query.functions.registry import Emission, register


def _guarded(name: str, wrong: str, message: str) -> None:
    """Register a function of one argument that is an error where a condition over {x} and the result {y} holds."""

    def emit(emission: Emission) -> str:
        def body(names: tuple[str, ...]) -> str:
            (x,) = names
            y = f"{name}({x})"
            condition = wrong.format(x=x, y=y, infinity=INFINITY)
            return f"(CASE WHEN {condition} THEN {_error(emission, message)} ELSE {y} END)"

        return emission.writer.let(emission.args, body)

    register(name, emit)


def _error(emission: Emission, message: str) -> str:
    return f"CAST({'raise_error' if emission.spark else 'error'}('{message}') AS DOUBLE)"


def _power(emission: Emission) -> str:
    def body(names: tuple[str, ...]) -> str:
        x, y = names
        # NaN is larger than infinity to both engines.
        finite = f"abs({x}) < {INFINITY} AND abs({y}) < {INFINITY}"
        result = f"power({x}, {y})"
        undefined = f"({x} = 0 AND {y} < 0) OR ({x} < 0 AND floor({y}) <> {y})"
        far = f"{result} = {INFINITY} OR {result} = -{INFINITY} OR ({result} = 0 AND {x} <> 0)"
        wrong = f"{finite} AND ({undefined} OR {far})"
        # Java alone has no number for 1 to the power of NaN.
        error = _error(emission, "a power is undefined or out of range")
        one = f"WHEN {x} = 1 AND isnan({y}) THEN CAST(1 AS DOUBLE)"
        return f"(CASE {one} WHEN {wrong} THEN {error} ELSE {result} END)"

    return emission.writer.let(emission.args, body)


_guarded("sqrt", "{x} < 0", "cannot take square root of a negative number")
_guarded("ln", "{x} <= 0", "cannot take logarithm of zero or a negative number")
_guarded("log10", "{x} <= 0", "cannot take logarithm of zero or a negative number")
_guarded("exp", "abs({x}) < {infinity} AND ({y} = {infinity} OR {y} = 0)", "value out of range in exp")
_guarded("acos", "abs({x}) > 1 AND NOT isnan({x})", "input is out of range")
_guarded("asin", "abs({x}) > 1 AND NOT isnan({x})", "input is out of range")
register("power", _power)
