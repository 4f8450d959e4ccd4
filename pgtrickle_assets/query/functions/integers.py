"""Functions of whole numbers that neither engine has as PostgreSQL has them: common divisors, factorials, digits.

Sources: PostgreSQL 18 documentation 9.3; src/backend/utils/adt/int.c (int4gcd_internal) and numeric.c (gcd_var,
numeric_fac, get_min_scale).
"""

from __future__ import annotations

from math import factorial
from typing import Final

from pgtrickle_assets.query.functions.quotients import whole_number
from pgtrickle_assets.query.functions.registry import Emission, register
from pgtrickle_assets.query.types import ColumnType

LARGEST_FACTORIAL: Final = 33
"""The last number whose factorial has no more than 38 digits."""
_EUCLIDEAN_STEPS: Final = {"int32": 47, "int64": 93, "decimal": 184}
"""No two numbers of a type need more: those of Fibonacci need most (Lame's theorem)."""
_INTEGER_NAMES: Final = {"int32": "INT", "int64": "BIGINT"}


def _common_divisor(emission: Emission) -> str:
    kind, writer = emission.call.type, emission.writer
    left, right = (writer.cast(text, t, kind) for text, t in zip(emission.args, emission.types, strict=True))
    if emission.spark:
        return _euclid(left, right, kind)
    if kind.name == "decimal":
        wholes = ", ".join(whole_number(text, kind, 0, spark=False) for text in (left, right))
        return _with_point(f"gcd({wholes})", kind)
    wides = ", ".join(f"CAST({text} AS HUGEINT)" for text in (left, right))
    return f"CAST(gcd({wides}) AS {_INTEGER_NAMES[kind.name]})"


def _euclid(left: str, right: str, kind: ColumnType) -> str:
    """Euclid's algorithm in Spark; the sign goes at the end, where the smallest integer is out of range."""
    rest = "s.a % s.b"
    if kind.name == "decimal":
        rest = f"CAST({rest} AS DECIMAL({kind.precision}, {kind.scale}))"
    step = f"CASE WHEN s.b = 0 THEN s ELSE named_struct('a', s.b, 'b', {rest}) END"
    steps = f"sequence(1, {_EUCLIDEAN_STEPS[kind.name]})"
    return f"aggregate({steps}, named_struct('a', {left}, 'b', {right}), (s, i) -> {step}, s -> abs(s.a))"


def _with_point(whole: str, kind: ColumnType) -> str:
    """DuckDB's decimal of a whole number of its last digit."""
    target = f"DECIMAL({kind.precision}, {kind.scale})"
    unit = f"CAST('0.{'1'.rjust(kind.scale or 0, '0')}' AS DECIMAL(38, {kind.scale}))" if kind.scale else "1"
    return f"CAST(CAST({whole} AS DECIMAL({kind.precision}, 0)) * {unit} AS {target})"


def _factorial(emission: Emission) -> str:
    error = "raise_error" if emission.spark else "error"
    values = " ".join(f"WHEN {n} THEN CAST('{factorial(n)}' AS DECIMAL(38, 0))" for n in range(LARGEST_FACTORIAL + 1))

    def over_value(names: tuple[str, ...]) -> str:
        (n,) = names
        negative = f"CAST({error}('factorial of a negative number is undefined') AS DECIMAL(38, 0))"
        large = f"CAST({error}('a factorial has more than 38 digits') AS DECIMAL(38, 0))"
        wrong = f"WHEN {n} < 0 THEN {negative} WHEN {n} > {LARGEST_FACTORIAL} THEN {large}"
        return f"(CASE {wrong} ELSE CASE {n} {values} END END)"

    return emission.writer.let(emission.args, over_value)


def _fraction_digits(emission: Emission) -> str:
    """How many digits after the point a value needs."""
    if not emission.types[0].scale:
        return emission.writer.let(emission.args, lambda names: f"(CASE WHEN {names[0]} IS NOT NULL THEN 0 END)")
    text = f"split_part(CAST({emission.args[0]} AS {'STRING' if emission.spark else 'VARCHAR'}), '.', 2)"
    trimmed = f"rtrim('0', {text})" if emission.spark else f"rtrim({text}, '0')"
    return f"CAST(length({trimmed}) AS INT)"


def _shortest_text(emission: Emission) -> str:
    """The text of a numeric without zeros at its end."""
    text = f"CAST({emission.args[0]} AS {'STRING' if emission.spark else 'VARCHAR'})"
    if not emission.types[0].scale:
        return text
    return f"rtrim('.', rtrim('0', {text}))" if emission.spark else f"rtrim(rtrim({text}, '0'), '.')"


register("gcd", _common_divisor)
register("factorial", _factorial)
register("min_scale", _fraction_digits)
register("trim_scale", "{0}")
register("trimmed_text", _shortest_text)
