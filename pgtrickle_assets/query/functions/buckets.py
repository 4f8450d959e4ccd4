"""width_bucket: in which of a number of equal parts of an interval a value lies.

Source: PostgreSQL 18, src/backend/utils/adt/numeric.c (width_bucket_numeric, compute_bucket) and float.c
(width_bucket_float8).
"""

from __future__ import annotations

from pgtrickle_assets.query.functions.overflow import INFINITY
from pgtrickle_assets.query.functions.quotients import whole_number
from pgtrickle_assets.query.functions.registry import Emission, register
from pgtrickle_assets.query.types import MAX_DECIMAL_PRECISION, decimal


def _width_bucket(emission: Emission) -> str:
    floats = emission.types[0].is_float

    def over_values(names: tuple[str, ...]) -> str:
        operand, low, high, count = names
        inside = _part_of_doubles if floats else _part_of_wholes
        # The engines raise the overflow of count + 1, as PostgreSQL does.
        rising = (
            f"CASE WHEN {operand} < {low} THEN 0 WHEN {operand} >= {high} THEN {count} + 1 "
            f"ELSE {inside(operand, low, high, low, count, emission.spark)} END"
        )
        falling = (
            f"CASE WHEN {operand} > {low} THEN 0 WHEN {operand} <= {high} THEN {count} + 1 "
            f"ELSE {inside(low, operand, low, high, count, emission.spark)} END"
        )
        error = "raise_error" if emission.spark else "error"
        checks = [(f"{count} <= 0", "count must be greater than zero")]
        if floats:
            checks.append((" OR ".join(f"isnan({name})" for name in names[:3]), "operand and bounds cannot be NaN"))
            infinite = " OR ".join(f"abs({name}) = {INFINITY}" for name in (low, high))
            checks.append((infinite, "lower and upper bounds must be finite"))
        checks.append((f"{low} = {high}", "lower bound cannot equal upper bound"))
        wrong = " ".join(f"WHEN {test} THEN CAST({error}('{message}') AS INT)" for test, message in checks)
        known = " AND ".join(f"{name} IS NOT NULL" for name in names)
        return f"(CASE WHEN {known} THEN CASE {wrong} WHEN {low} < {high} THEN {rising} ELSE {falling} END END)"

    return emission.writer.let(emission.args if floats else _aligned(emission), over_values)


def _aligned(emission: Emission) -> tuple[str, ...]:
    """Operand and bounds as whole numbers of one scale, which are divided without a rest to round."""
    common = decimal(MAX_DECIMAL_PRECISION, max(kind.scale or 0 for kind in emission.types[:3]))
    values = [
        whole_number(emission.writer.cast(text, kind, common), common, 0, spark=emission.spark)
        for text, kind in zip(emission.args[:3], emission.types[:3], strict=True)
    ]
    return (*values, emission.args[3])


def _part_of_wholes(upper: str, lower: str, last: str, first: str, count: str, spark: bool) -> str:
    quotient = f"(({upper} - {lower}) * {count}) {'div' if spark else '//'} ({last} - {first})"
    return f"CAST({quotient} + 1 AS INT)"


def _part_of_doubles(upper: str, lower: str, last: str, first: str, count: str, spark: bool) -> str:
    """The share is computed in halves where the interval is longer than any double, and is less than 1."""
    share = f"({upper} - {lower}) / ({last} - {first})"
    halves = f"({upper} / 2 - {lower} / 2) / ({last} / 2 - {first} / 2)"
    part = f"{count} * (CASE WHEN {last} - {first} = {INFINITY} THEN {halves} ELSE {share} END)"
    return f"(least(CAST(floor({part}) AS INT), {count} - 1) + 1)"


register("width_bucket", _width_bucket)
