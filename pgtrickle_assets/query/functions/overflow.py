"""Arithmetic of floating point that is an error where a result leaves the range; the engines give infinity or zero.

Source: PostgreSQL 18, src/include/utils/float.h (float8_pl, float8_mi, float8_mul, float8_div).
"""

from __future__ import annotations

from typing import Final

from pgtrickle_assets.query.functions.quotients import checked_divisor
from pgtrickle_assets.query.functions.registry import Emission, Writer, register
from pgtrickle_assets.query.plan import Literal
from pgtrickle_assets.query.types import ColumnType

CHECKED: Final = {"+": "float_sum", "-": "float_difference", "*": "float_product", "/": "float_quotient"}
"""The checked function of each operator."""
INFINITY: Final = "CAST('Infinity' AS DOUBLE)"


def out_of_range(writer: Writer, kind: ColumnType, what: str) -> str:
    """PostgreSQL's error in the type of a call."""
    function = "raise_error" if writer.dialect == "spark" else "error"
    return writer.cast(f"{function}('value out of range: {what}')", kind, kind)


def _checked(op: str) -> None:
    def emit(emission: Emission) -> str:
        computed = [i for i, arg in enumerate(emission.call.args) if not isinstance(arg, Literal)]

        def over_values(names: tuple[str, ...]) -> str:
            texts = list(emission.args)
            for index, name in zip(computed, names, strict=True):
                texts[index] = name
            return _guarded(op, texts[0], texts[1], emission)

        return emission.writer.let(tuple(emission.args[i] for i in computed), over_values)

    register(CHECKED[op], emit)


def _guarded(op: str, left: str, right: str, emission: Emission) -> str:
    divisor = checked_divisor(left, right) if op == "/" and not emission.spark else right
    result = f"({left} {op} {divisor})"
    finite = [f"abs({left}) < {INFINITY}", *([f"abs({right}) < {INFINITY}"] if op != "/" else [])]
    large = f"abs({result}) = {INFINITY} AND {' AND '.join(finite)}"
    checks = f"WHEN {large} THEN {out_of_range(emission.writer, emission.call.type, 'overflow')}"
    if op in "*/":
        other = f"{right} <> 0" if op == "*" else f"abs({right}) < {INFINITY}"
        small = f"{result} = 0 AND {left} <> 0 AND {other}"
        checks += f" WHEN {small} THEN {out_of_range(emission.writer, emission.call.type, 'underflow')}"
    return f"(CASE {checks} ELSE {result} END)"


for _op in CHECKED:
    _checked(_op)
