"""Numeric quotients digit by digit, with the scale that PostgreSQL would give to each value.

Source: PostgreSQL 18, src/backend/utils/adt/numeric.c: select_div_scale, div_var, numeric_stddev_internal. Neither
engine divides decimals that way: DuckDB goes through double precision, Spark rounds to a fixed scale.
"""

from __future__ import annotations

from pgtrickle_assets.query.functions.registry import Emission
from pgtrickle_assets.query.types import ColumnType

_MIN_SIGNIFICANT_DIGITS = 16
_INT64_MAX = 2**63 - 1
OWN_DIGITS_SCALE = 18
"""From this scale on a decimal holds a quotient or a numeric without scale, whose values have a scale each."""


def checked_divisor(dividend: str, divisor: str, text: str = "") -> str:
    """DuckDB's `text` (the divisor itself, if empty), or an error where it is 0; NULL / 0 is NULL, as in PostgreSQL."""
    test = f"{divisor} = 0 AND {dividend} IS NOT NULL"
    return f"(CASE WHEN {test} THEN error('division by zero') ELSE {text or divisor} END)"


def whole_number(text: str, kind: ColumnType, up: int, *, spark: bool) -> str:
    """A number times 10^(its scale + up) as a whole number of up to 38 digits."""
    string = "STRING" if spark else "VARCHAR"
    plain = f"replace(CAST({text} AS {string}), '.', '')" if kind.scale else text
    if not spark:
        return f"(CAST({plain} AS HUGEINT) * 1{'0' * up})" if up else f"CAST({plain} AS HUGEINT)"
    whole = f"CAST({plain} AS DECIMAL(38, 0))"
    return f"CAST({whole} * 1{'0' * up}BD AS DECIMAL(38, 0))" if up else whole


def _group_number(n: str, scale: int, *, spark: bool) -> str:
    """Weight and first digit of n / 10^scale (n >= 0) in base 10000 as one number: weight * 10000 + digit; 0 for 0."""
    text = f"CAST({n} AS {'STRING' if spark else 'VARCHAR'})"
    exponent = f"(length({text}) - {scale + 1})"
    weight = f"CAST(floor({exponent} / 4.0) AS INT)"
    rest = f"pmod({exponent}, 4)" if spark else f"(({exponent} % 4 + 4) % 4)"
    digit = f"CAST(substring(concat({text}, '000'), 1, CAST({rest} + 1 AS INT)) AS INT)"
    return f"(CASE WHEN {n} = 0 THEN 0 ELSE {weight} * 10000 + {digit} END)"


def own_digits(text: str, kind: ColumnType, *, spark: bool) -> str:
    """The scale that a value most likely has in PostgreSQL, where its type does not say it.

    Zeros at the end are lost. A numeric without scale then counts as written without them; a quotient has at least the
    digits that its size asks for.
    """
    string = f"CAST({text} AS {'STRING' if spark else 'VARCHAR'})"
    fraction = f"split_part({string}, '.', 2)"
    trimmed = f"rtrim('0', {fraction})" if spark else f"rtrim({fraction}, '0')"
    trimmed = f"CAST(length({trimmed}) AS INT)"
    if (kind.scale or 0) == OWN_DIGITS_SCALE:
        return trimmed
    steps = " ".join(f"WHEN abs({text}) <= 1{'0' * 4 * n} THEN greatest({20 - 4 * n}, {trimmed})" for n in range(5))
    return f"(CASE {steps} ELSE {trimmed} END)"


def _kept_digits(emission: Emission, names: tuple[str, ...], first: int) -> int | str:
    """The larger scale of two operands; as SQL text where the values decide it, or a third operand says it."""
    if len(names) > 2 and first == 0:
        return f"coalesce({names[2]}, 0)"
    kinds = emission.types[first : first + 2]
    if max(kind.scale or 0 for kind in kinds) < OWN_DIGITS_SCALE:
        return max(kind.scale or 0 for kind in kinds)
    parts = [
        f"coalesce({own_digits(name, kind, spark=emission.spark)}, 0)"
        if (kind.scale or 0) >= OWN_DIGITS_SCALE
        else str(kind.scale or 0)
        for kind, name in zip(kinds, names, strict=True)
    ]
    return f"greatest({', '.join(parts)})"


def _rounded_to_values(value: str, groups: str, kept: str, kind: ColumnType) -> str:
    """As `_rounded`, where the values of the operands say how many digits are kept."""
    target = f"DECIMAL({kind.precision}, {kind.scale})"
    weight = f"CAST(floor(({groups} - 1) / 10000.0) AS INT)"
    digits = f"greatest({_MIN_SIGNIFICANT_DIGITS} - 4 * {weight}, {kept})"
    cases = " ".join(f"WHEN {n} THEN CAST(round({value}, {n}) AS {target})" for n in range(kind.scale or 0))
    return f"(CASE {digits} {cases} ELSE CAST({value} AS {target}) END)"


def _rounded(value: str, groups: str, kept: int | str, kind: ColumnType) -> str:
    """Round `value` to the scale of a quotient, given the difference of the group numbers of its operands.

    select_div_scale takes the weight of the quotient from weights and first digits alone; `kept` is the larger scale of
    the operands, below which it never goes.
    """
    if isinstance(kept, str):
        return _rounded_to_values(value, groups, kept, kind)
    target = f"DECIMAL({kind.precision}, {kind.scale})"
    branches: list[str] = []
    for weight in range(-1, 5):
        digits = max(_MIN_SIGNIFICANT_DIGITS - 4 * weight, kept)
        if digits < (kind.scale or 0):
            branches.append(f"WHEN {weight} THEN CAST(round({value}, {digits}) AS {target})")
    cases = " ".join(branches)
    large = f"WHEN {groups} > 50000 THEN CAST(round({value}, {kept}) AS {target})"
    otherwise = f"CASE {large} ELSE CAST({value} AS {target}) END"
    if not branches:
        return f"({otherwise})"
    return f"(CASE CAST(floor(({groups} - 1) / 10000.0) AS INT) {cases} ELSE {otherwise} END)"


def _operands(emission: Emission, names: tuple[str, ...], first: int) -> tuple[str, str, int]:
    """Dividend and divisor as whole numbers of one scale, without sign, and that scale."""
    kinds = emission.types[first : first + 2]
    s1, s2 = (kind.scale or 0 for kind in kinds)
    spark = emission.spark
    n = f"abs({whole_number(names[0], kinds[0], max(s2 - s1, 0), spark=spark)})"
    d = f"abs({whole_number(names[1], kinds[1], max(s1 - s2, 0), spark=spark)})"
    if not spark:
        d = checked_divisor(names[0], names[1], d)
    return n, d, max(s1, s2)


def divide_decimal(emission: Emission) -> str:
    """Long division in two steps, cut after one digit more than can count, then rounded half away from zero."""
    kind, writer, spark = emission.call.type, emission.writer, emission.spark
    scale = kind.scale or 0
    first, second = (scale + 2) // 2, scale + 1 - (scale + 2) // 2
    divide = "div" if spark else "//"
    string = "STRING" if spark else "VARCHAR"

    def remainder(n: str, d: str, digits: int) -> str:
        rest = f"CAST({n} % {d} AS DECIMAL(38, 0))" if spark else f"({n} % {d})"
        return f"{rest} * 1{'0' * digits}{'BD' if spark else ''}"

    def quotient(n: str, d: str, negative: str) -> str:
        def low(names: tuple[str, ...], high_rest: str) -> str:
            whole, high, tail = (f"CAST({t} {divide} {d} AS {string})" for t in (n, high_rest, names[0]))
            if spark:
                # Spark's div is a bigint and wraps. The other two have too few digits for that.
                wide = f"CAST(CAST(({n} - {n} % {d}) / {d} AS DECIMAL(38, 0)) AS STRING)"
                whole = f"CASE WHEN {n} <= {_INT64_MAX} THEN {whole} ELSE {wide} END"
            number = f"concat({whole}, '.', lpad({high}, {first}, '0'), lpad({tail}, {second}, '0'))"
            exact = f"CAST(concat(CASE WHEN {negative} THEN '-' ELSE '' END, {number}) AS DECIMAL(38, {scale + 1}))"
            return f"CASE WHEN {n} IS NULL OR {d} IS NULL THEN NULL ELSE {exact} END"

        def high(names: tuple[str, ...]) -> str:
            (t1,) = names
            return writer.let((remainder(t1, d, second),), lambda inner: low(inner, t1))

        return writer.let((remainder(n, d, first),), high)

    def over_values(names: tuple[str, ...]) -> str:
        n, d, aligned = _operands(emission, names, 0)
        negative = f"(({names[0]} < 0) <> ({names[1]} < 0))"

        def over_wholes(bound: tuple[str, ...]) -> str:
            a, b, sign = bound
            groups = f"({_group_number(a, aligned, spark=spark)} - {_group_number(b, aligned, spark=spark)})"
            kept = _kept_digits(emission, names, 0)
            return writer.let((quotient(a, b, sign), groups), lambda pair: _rounded(pair[0], pair[1], kept, kind))

        return writer.let((n, d, negative), over_wholes)

    return writer.let(emission.args, over_values)


def root_of_quotient(emission: Emission) -> str:
    """The root of a quotient (argument 0, of arguments 1 and 2) with the quotient's own scale.

    A double root, rounded to eight digits so that its square is exact, is corrected by three terms of the binomial
    series over the exact residue; the error is then far below the last digit kept.
    """
    kind, writer, spark = emission.call.type, emission.writer, emission.spark
    scale = kind.scale or 0

    def corrected(names: tuple[str, ...]) -> str:
        value, root = names
        # DuckDB keeps a product of two short decimals in 64 bits.
        wide = root if spark else f"CAST({root} AS DECIMAL(28, 8))"
        square = f"CAST(CAST({wide} * {root} AS DECIMAL(37, 16)) AS DECIMAL(37, {scale}))"
        residue = f"CAST(CAST({value} AS DECIMAL(37, {scale})) - {square} AS DOUBLE)"
        double_root = f"CAST({root} AS DOUBLE)"

        def series(bound: tuple[str, ...]) -> str:
            (e,) = bound
            terms = f"{e} - {e} * {e} / (2.0 * {double_root}) + {e} * {e} * {e} / (2.0 * {double_root} * {double_root})"
            fix = f"CAST({terms} AS DECIMAL(37, {scale + 1}))"
            return f"CAST(CAST({root} AS DECIMAL(37, {scale + 1})) + {fix} AS DECIMAL(38, {scale + 1}))"

        exact = writer.let((f"{residue} / (2.0 * {double_root})",), series)
        return f"(CASE WHEN {root} = 0 THEN CAST(0 AS DECIMAL(38, {scale + 1})) ELSE {exact} END)"

    def over_values(names: tuple[str, ...]) -> str:
        n, d, aligned = _operands(emission, names[1:], 1)
        root = f"CAST(round(sqrt(CAST({names[0]} AS DOUBLE)), 8) AS DECIMAL(18, 8))"
        value = writer.let((names[0], root), corrected)

        def over_wholes(bound: tuple[str, ...]) -> str:
            a, b, result = bound
            groups = f"({_group_number(a, aligned, spark=spark)} - {_group_number(b, aligned, spark=spark)})"
            kept = _kept_digits(emission, names[1:], 1)
            return writer.let((groups,), lambda pair: _rounded(result, pair[0], kept, kind))

        return writer.let((n, d, value), over_wholes)

    return writer.let(emission.args, over_values)
