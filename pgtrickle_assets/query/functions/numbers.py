"""Arithmetic with PostgreSQL's results: exact decimals, truncating integer division, its scale of a quotient.

Sources: PostgreSQL 18, src/backend/utils/adt/numeric.c (select_div_scale, numeric_round) and int.c; Spark 4
DecimalPrecision (adjustPrecisionScale), whose loss of digits is kept out by casting the operands first.
"""

from __future__ import annotations

from pgtrickle_assets.query.functions.quotients import (
    OWN_DIGITS_SCALE,
    checked_divisor,
    divide_decimal,
    own_digits,
    root_of_quotient,
)
from pgtrickle_assets.query.functions.registry import Emission, register
from pgtrickle_assets.query.plan import Literal
from pgtrickle_assets.query.types import MAX_DECIMAL_PRECISION, ColumnType, decimal

QUOTIENT_SCALE = 20
"""Digits after the point of a numeric quotient or average; PostgreSQL keeps more only below 0.0001."""
_SPARK_KEPT_SCALE = 6


def as_decimal(kind: ColumnType) -> ColumnType:
    """The decimal type that holds every value of an integer or decimal type."""
    if kind.name == "decimal":
        return kind
    return decimal({"int16": 5, "int32": 10, "int64": 19}[kind.name], 0)


def shows_own_digits(kind: ColumnType) -> bool:
    """Whether values of a decimal type have, in PostgreSQL, a scale each: quotients, and numerics without a scale."""
    return (kind.scale or 0) >= OWN_DIGITS_SCALE


def _digits(kind: ColumnType) -> tuple[int, int]:
    assert kind.precision is not None
    assert kind.scale is not None
    return kind.precision, kind.scale


def _exact_scale(precision: int, scale: int) -> int:
    """The scale Spark gives to a result that exactly needs (precision, scale)."""
    if precision <= MAX_DECIMAL_PRECISION:
        return scale
    return max(MAX_DECIMAL_PRECISION - (precision - scale), min(scale, _SPARK_KEPT_SCALE))


def _add(emission: Emission) -> str:
    sign, kind = emission.call.function, emission.call.type
    left, right = emission.args
    if kind.name != "decimal":
        return f"({left} {sign} {right})"
    precision, scale = _digits(kind)
    width = precision
    if emission.spark and _exact_scale(precision + 1, scale) != scale:
        width = MAX_DECIMAL_PRECISION - 1
    operand = decimal(width, scale)
    cast = emission.writer.cast
    left, right = (cast(text, t, operand) for text, t in zip(emission.args, emission.types, strict=True))
    natural = decimal(min(width + 1, MAX_DECIMAL_PRECISION), scale) if emission.spark else None
    text = f"({left} {sign} {right})"
    if natural == kind:
        return text
    # DuckDB grows a sum by one digit as well, so both engines end with a cast to the exact type.
    return f"CAST({text} AS DECIMAL({precision}, {scale}))"


def multiplication_operands(left: ColumnType, right: ColumnType) -> tuple[ColumnType, ColumnType, ColumnType] | None:
    """Operand types under which a product is exact, and its type; None when its scale leaves no room.

    Digits that do not fit are taken from the integer part of the wider operand, so that a value too large for it is an
    error and never a rounded product.
    """
    (p1, s1), (p2, s2) = _digits(left), _digits(right)
    scale = s1 + s2
    i1, i2 = p1 - s1, p2 - s2
    room = MAX_DECIMAL_PRECISION - 1 - scale
    if scale <= _SPARK_KEPT_SCALE:
        precision = min(i1 + i2 + scale, MAX_DECIMAL_PRECISION)
        return left, right, decimal(precision, scale)
    if i1 + i2 > room:
        if room < 2:
            return None
        small = min(i1, i2, room // 2)
        i1, i2 = (small, min(i2, room - small)) if i1 <= i2 else (min(i1, room - small), small)
    return decimal(i1 + s1, s1), decimal(i2 + s2, s2), decimal(max(i1 + i2 + scale, 1), scale)


def _multiply(emission: Emission) -> str:
    kind = emission.call.type
    left, right = emission.args
    if kind.name != "decimal":
        return f"({left} * {right})"
    precision, scale = _digits(kind)
    types = multiplication_operands(as_decimal(emission.types[0]), as_decimal(emission.types[1]))
    assert types is not None
    cast = emission.writer.cast
    a = cast(left, emission.types[0], types[0])
    b = cast(right, emission.types[1], types[1])
    if not emission.spark:
        # DuckDB keeps a product of two short decimals in 64 bits; the left operand carries the width of the result.
        a = f"CAST({a} AS DECIMAL({precision}, {types[0].scale}))"
    return f"CAST(({a} * {b}) AS DECIMAL({precision}, {scale}))"


def quotient_type(left: ColumnType, right: ColumnType) -> ColumnType:
    """The type of a numeric quotient: 20 digits after the point, and as many before it as fit.

    PostgreSQL's numeric has a scale per value: 16 significant digits, counted in groups of four. The value is rounded
    to that scale (see `_divide_decimal`); beyond 20 digits (quotients below 0.0001) it is rounded at 20.
    """
    (p1, s1), (_, s2) = _digits(left), _digits(right)
    scale = min(max(QUOTIENT_SCALE, s1, s2), 29)
    integers = max(p1 - s1 + s2, 1)
    return decimal(min(integers + scale, MAX_DECIMAL_PRECISION), scale)


def _divide(emission: Emission) -> str:
    kind = emission.call.type
    if kind.name == "decimal":
        return divide_decimal(emission)
    left, right = emission.args
    if emission.spark:
        return f"CAST({left} div {right} AS {_INTEGER_NAMES[kind.name]})" if kind.is_integer else f"({left} / {right})"
    checked = checked_divisor(left, right)
    if kind.is_integer:
        return f"CAST({left} // {checked} AS {_INTEGER_NAMES[kind.name]})"
    return f"({left} / {checked})"


_INTEGER_NAMES = {"int16": "SMALLINT", "int32": "INT", "int64": "BIGINT"}


def _modulo(emission: Emission) -> str:
    left, right = emission.args
    kind = emission.call.type
    if kind.name == "decimal":
        precision, scale = _digits(kind)
        common = decimal(MAX_DECIMAL_PRECISION, scale)
        left, right = (
            emission.writer.cast(text, t, common) for text, t in zip(emission.args, emission.types, strict=True)
        )
        if not emission.spark:
            right = checked_divisor(left, right)
        return f"CAST({left} % {right} AS DECIMAL({precision}, {scale}))"
    if emission.spark:
        return f"({left} % {right})"
    return f"({left} % {checked_divisor(left, right)})"


def _negate(emission: Emission) -> str:
    (text,) = emission.args
    argument = emission.call.args[0]
    if isinstance(argument, Literal):
        return f"(-{text})"
    return f"(- {text})"


def _round_decimal(emission: Emission) -> str:
    kind = emission.call.type
    digits = emission.call.args[1] if len(emission.call.args) > 1 else None
    places = str(digits.value) if isinstance(digits, Literal) else "0"
    text = emission.args[0]
    if not emission.spark and places.startswith("-"):
        power = f"1{'0' * int(places[1:])}"
        text = f"(round(CAST({text} AS DECIMAL(38, {emission.types[0].scale})) / {power}) * {power})"
        return f"CAST({text} AS DECIMAL({kind.precision}, {kind.scale}))"
    return f"CAST(round({text}, {places}) AS DECIMAL({kind.precision}, {kind.scale}))"


def _floor_ceil(name: str) -> None:
    def emit(emission: Emission) -> str:
        kind = emission.call.type
        if kind.name == "decimal":
            return f"CAST({name}({emission.args[0]}) AS DECIMAL({kind.precision}, {kind.scale}))"
        # Spark's floor of a double is a bigint, PostgreSQL's a double.
        return emission.args[0] if kind.is_integer else _double_integral(emission, name)

    register(name, emit)


def _double_integral(emission: Emission, name: str) -> str:
    (text,) = emission.args
    if not emission.spark:
        return f"{name}({text})"
    huge = f"abs({text}) >= 9007199254740992D OR isnan({text})"
    return f"(CASE WHEN {huge} THEN {text} ELSE CAST({name}({text}) AS DOUBLE) END)"


def _truncate(emission: Emission) -> str:
    kind, text = emission.call.type, emission.args[0]
    if kind.name == "decimal":
        digits = emission.call.args[1] if len(emission.call.args) > 1 else None
        places = int(digits.value) if isinstance(digits, Literal) and isinstance(digits.value, int) else 0
        target = f"DECIMAL({kind.precision}, {kind.scale})"
        source_scale = emission.types[0].scale or 0
        if places >= source_scale:
            return f"CAST({text} AS {target})"
        return f"CAST({_cut(text, places, source_scale, emission.spark)} AS {target})"
    if emission.spark:
        whole = f"CASE WHEN {text} < 0 THEN CAST(ceil({text}) AS DOUBLE) ELSE CAST(floor({text}) AS DOUBLE) END"
        return f"(CASE WHEN abs({text}) >= 9007199254740992D OR isnan({text}) THEN {text} ELSE {whole} END)"
    return f"trunc({text})"


def _cut(text: str, places: int, scale: int, spark: bool) -> str:
    """The text of a decimal without its last digits."""
    plain = f"CAST({text} AS {'STRING' if spark else 'VARCHAR'})"
    drop = scale - places + (1 if places == 0 else 0)
    return f"substring({plain}, 1, length({plain}) - {drop})"


register("+", _add)
register("-", _add)
register("*", _multiply)
register("/", _divide)
register("%", _modulo)
register("neg", _negate)
register("round_decimal", _round_decimal)
register("round_float", "rint({0})", "round_even({0}, 0)")
register("round_float_places", "round({0}, {1})")
_floor_ceil("floor")
_floor_ceil("ceil")
register("trunc", _truncate)
register("abs", "abs({0})")
register("bit_and", "({0} & {1})")
register("bit_or", "({0} | {1})")
register("bit_xor", "({0} ^ {1})", "xor({0}, {1})")
register("bit_not", "(~ {0})")
register("shift_left", "shiftleft({0}, {1})", "({0} << {1})")
register("shift_right", "shiftright({0}, {1})", "({0} >> {1})")
register("sqrt_quotient", root_of_quotient)
register("own_digits", lambda e: own_digits(e.args[0], e.types[0], spark=e.spark))
register("cbrt", "cbrt({0})")
register("pi", "pi()")
register("degrees", "degrees({0})")
register("radians", "radians({0})")
for _name in ("sin", "cos", "tan", "atan", "sinh", "cosh", "tanh"):
    register(_name, f"{_name}({{0}})")
register("atan2", "atan2({0}, {1})")
# PostgreSQL gives NaN the sign 0.
register("sign_float", "(CASE WHEN isnan({0}) THEN 0D ELSE signum({0}) END)", "CAST(sign({0}) AS DOUBLE)")
register("sign_decimal", "CAST(signum({0}) AS DECIMAL(1, 0))", "CAST(sign({0}) AS DECIMAL(1, 0))")
