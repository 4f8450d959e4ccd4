"""Arithmetic with PostgreSQL's results: exact decimals, truncating integer division, its scale of a quotient.

Sources: PostgreSQL 18, src/backend/utils/adt/numeric.c (select_div_scale, numeric_round) and int.c; Spark 4
DecimalPrecision (adjustPrecisionScale), whose loss of digits is kept out by casting the operands first.
"""

from __future__ import annotations

from pgtrickle_assets.query.functions.registry import Emission, register
from pgtrickle_assets.query.plan import Literal
from pgtrickle_assets.query.types import MAX_DECIMAL_PRECISION, ColumnType, decimal

_MIN_SIGNIFICANT_DIGITS = 16
QUOTIENT_SCALE = 20
"""Digits after the point of a numeric quotient or average; PostgreSQL keeps more only below 0.0001."""
_SPARK_KEPT_SCALE = 6


def as_decimal(kind: ColumnType) -> ColumnType:
    """The decimal type that holds every value of an integer or decimal type."""
    if kind.name == "decimal":
        return kind
    return decimal({"int16": 5, "int32": 10, "int64": 19}[kind.name], 0)


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


def _unscaled(emission: Emission, index: int, up: int) -> str:
    """The argument times 10^(its scale + up) as an integer of up to 38 digits."""
    kind = emission.types[index]
    text, scale = emission.args[index], kind.scale or 0
    if not emission.spark:
        if kind.name != "decimal":
            return f"(CAST({text} AS HUGEINT) * 1{'0' * up})"
        plain = f"replace(CAST({text} AS VARCHAR), '.', '')" if scale else text
        return f"(CAST({plain} AS HUGEINT) * 1{'0' * up})"
    plain = f"replace(CAST({text} AS STRING), '.', '')" if scale else text
    shifted = f"CAST({plain} AS DECIMAL(38, 0))"
    return f"CAST({shifted} * 1{'0' * up}BD AS DECIMAL(38, 0))" if up else shifted


def _group_number(n: str, scale: int, spark: bool) -> str:
    """Weight and first digit of |n| / 10^scale in base 10000 as one number: weight * 10000 + digit (zero for zero)."""
    branches: list[str] = []
    for weight in range((MAX_DECIMAL_PRECISION - scale - 1) // 4, -((scale + 3) // 4) - 1, -1):
        power = 4 * weight + scale
        suffix = "BD" if spark else ""
        if power >= 0:
            divide = "div" if spark else "//"
            digit = f"({n} {divide} 1{'0' * power}{suffix})"
            threshold = f"1{'0' * power}{suffix}"
        else:
            digit = f"({n} * 1{'0' * -power})"
            threshold = "1"
        branches.append(f"WHEN {n} >= {threshold} THEN {weight * 10000} + CAST({digit} AS INT)")
    return f"(CASE {' '.join(branches)} ELSE 0 END)"


def _rounded_to_scale_of_quotient(value: str, groups: str, kept: int, scale: int, kind: ColumnType) -> str:
    """Round `value` as select_div_scale says, given the difference of the group numbers of the operands."""
    target = f"DECIMAL({kind.precision}, {kind.scale})"
    weight = f"CAST(floor(({groups} - 1) / 10000.0) AS INT)"
    branches: list[str] = []
    for exponent in range(-1, 5):
        digits = max(_MIN_SIGNIFICANT_DIGITS - 4 * exponent, kept, 0)
        if digits < scale:
            branches.append(f"WHEN {weight} = {exponent} THEN CAST(round({value}, {digits}) AS {target})")
    above = max(_MIN_SIGNIFICANT_DIGITS - 20, kept, 0)
    branches.append(f"WHEN {weight} > 4 THEN CAST(round({value}, {above}) AS {target})")
    return f"(CASE {' '.join(branches)} ELSE CAST({value} AS {target}) END)"


def _wide(text: str, spark: bool) -> str:
    return f"CAST({text} AS DECIMAL(38, 0))" if spark else text


def _divide_decimal(emission: Emission) -> str:
    """Long division in two steps, cut after one digit more than can count, then rounded half away from zero."""
    kind, writer, spark = emission.call.type, emission.writer, emission.spark
    _, scale = _digits(kind)
    s1, s2 = (t.scale or 0 for t in emission.types)
    first, second = (scale + 2) // 2, scale + 1 - (scale + 2) // 2
    up1, up2 = max(s2 - s1, 0), max(s1 - s2, 0)
    aligned = max(s1, s2)
    divide = "div" if spark else "//"
    one, two = (f"1{'0' * n}{'BD' if spark else ''}" for n in (first, second))
    text = "STRING" if spark else "VARCHAR"

    def steps(names: tuple[str, ...]) -> str:
        a, b = names
        n, d = f"abs({a})", f"abs({b})"
        if not spark:
            d = f"(CASE WHEN {b} = 0 THEN error('division by zero') ELSE abs({b}) END)"

        def digits(inner: tuple[str, ...]) -> str:
            (t1,) = inner

            def rest(last: tuple[str, ...]) -> str:
                (t2,) = last
                whole, high, low = (f"CAST({t} {divide} {d} AS {text})" for t in (n, t1, t2))
                number = f"concat({whole}, '.', lpad({high}, {first}, '0'), lpad({low}, {second}, '0'))"
                signed = f"CASE WHEN ({a} < 0) <> ({b} < 0) THEN concat('-', {number}) ELSE {number} END"
                exact = f"CAST({signed} AS DECIMAL(38, {scale + 1}))"
                return f"CASE WHEN {a} IS NULL OR {b} IS NULL THEN NULL ELSE {exact} END"

            return writer.let((f"{_wide(f'({t1} % {d})', spark)} * {two}",), rest)

        quotient = writer.let((f"{_wide(f'({n} % {d})', spark)} * {one}",), digits)
        groups = f"({_group_number(n, aligned, spark)} - {_group_number(f'abs({b})', aligned, spark)})"
        return writer.let(
            (quotient, groups),
            lambda bound: _rounded_to_scale_of_quotient(bound[0], bound[1], max(s1, s2), scale, kind),
        )

    return writer.let((_unscaled(emission, 0, up1), _unscaled(emission, 1, up2)), steps)


def _divide(emission: Emission) -> str:
    left, right = emission.args
    kind = emission.call.type
    if kind.name == "decimal":
        return _divide_decimal(emission)
    if emission.spark:
        return f"CAST({left} div {right} AS {_INTEGER_NAMES[kind.name]})" if kind.is_integer else f"({left} / {right})"
    checked = f"(CASE WHEN {right} = 0 THEN error('division by zero') ELSE {right} END)"
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
            right = f"(CASE WHEN {right} = 0 THEN error('division by zero') ELSE {right} END)"
        return f"CAST({left} % {right} AS DECIMAL({precision}, {scale}))"
    if emission.spark:
        return f"({left} % {right})"
    return f"({left} % (CASE WHEN {right} = 0 THEN error('division by zero') ELSE {right} END))"


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


def _square_root(emission: Emission) -> str:
    """The root of a quotient with the quotient's own scale, as numeric.c computes a standard deviation.

    A double root to eight digits is corrected by three terms of the binomial series over the exact residue.
    """
    kind, spark = emission.call.type, emission.spark
    s1, s2 = (t.scale or 0 for t in emission.types[1:])
    scale = kind.scale or 0
    operands = (_unscaled(emission, 1, max(s2 - s1, 0)), _unscaled(emission, 2, max(s1 - s2, 0)))

    def corrected(names: tuple[str, ...]) -> str:
        value, root = names
        square = f"CAST({root} * {root} AS DECIMAL(37, 16))"
        wide = f"CAST({value} AS DECIMAL(37, {scale}))"
        residue = f"CAST({wide} - CAST({square} AS DECIMAL(37, {scale})) AS DOUBLE)"
        first = f"({residue} / (2.0 * CAST({root} AS DOUBLE)))"
        double_root = f"CAST({root} AS DOUBLE)"
        second = f"{first} * {first} / (2.0 * {double_root})"
        third = f"{first} * {first} * {first} / (2.0 * {double_root} * {double_root})"
        series = f"({first} - {second} + {third})"
        fix = f"CAST({series} AS DECIMAL(37, {scale + 1}))"
        exact = f"CAST(CAST({root} AS DECIMAL(37, {scale + 1})) + {fix} AS DECIMAL(38, {scale + 1}))"
        return f"(CASE WHEN {root} = 0 THEN CAST(0 AS DECIMAL(38, {scale + 1})) ELSE {exact} END)"

    root = f"CAST(round(sqrt(CAST({emission.args[0]} AS DOUBLE)), 8) AS DECIMAL(18, 8))"
    value = emission.writer.let((emission.args[0], root), corrected)

    def rounded(names: tuple[str, ...]) -> str:
        a, b, result = names
        aligned = max(s1, s2)
        groups = f"({_group_number(f'abs({a})', aligned, spark)} - {_group_number(f'abs({b})', aligned, spark)})"
        return emission.writer.let(
            (groups,), lambda bound: _rounded_to_scale_of_quotient(result, bound[0], aligned, scale, kind)
        )

    return emission.writer.let((*operands, value), rounded)


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
register("sqrt", "sqrt({0})")
register("sqrt_quotient", _square_root)
register("cbrt", "cbrt({0})")
register("exp", "exp({0})")
register("ln", "ln({0})")
register("log10", "log10({0})")
register("power", "power({0}, {1})")
register("pi", "pi()")
register("degrees", "degrees({0})")
register("radians", "radians({0})")
for _name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"):
    register(_name, f"{_name}({{0}})")
register("atan2", "atan2({0}, {1})")
register("sign_float", "signum({0})", "CAST(sign({0}) AS DOUBLE)")
register("sign_decimal", "CAST(signum({0}) AS DECIMAL(1, 0))", "CAST(sign({0}) AS DECIMAL(1, 0))")
