"""The age() of two timestamps: a structure of months, days and microseconds, never a column."""

from __future__ import annotations

from pgtrickle_assets.query.functions.instants import MICROS_PER_DAY, micros, scaled
from pgtrickle_assets.query.functions.registry import Emission
from pgtrickle_assets.query.plan import Call


def is_age(emission: Emission, index: int) -> bool:
    """Whether an argument is age() of two timestamps."""
    arg = emission.call.args[index]
    return isinstance(arg, Call) and arg.function == "age"


def age(emission: Emission) -> str:
    """Months, days and microseconds between two timestamps, counted from the earlier one; all negative if it is first.

    Source: timestamp_age in PostgreSQL's timestamp.c: a day that is missing is taken from the month of the earlier one.
    """
    spark = emission.spark

    def body(names: tuple[str, ...]) -> str:
        first, second = names
        low, high = f"least({first}, {second})", f"greatest({first}, {second})"
        clock = {end: _clock(end, spark) for end in (low, high)}
        borrowed = f"CASE WHEN {clock[high]} < {clock[low]} THEN 1 ELSE 0 END"
        days = f"(day({high}) - day({low}) - {borrowed})"
        month = f"CASE WHEN {days} < 0 THEN 1 ELSE 0 END"
        months = f"((year({high}) - year({low})) * 12 + month({high}) - month({low}) - {month})"
        sign = f"(CASE WHEN {first} < {second} THEN -1 ELSE 1 END)"
        fields = {
            "months": f"CAST({sign} * {months} AS BIGINT)",
            "days": f"CAST({sign} * ({days} + {month} * day(last_day({low}))) AS BIGINT)",
            "micros": f"CAST({sign} * ({clock[high]} - {clock[low]} + {borrowed} * {MICROS_PER_DAY}) AS BIGINT)",
        }
        if spark:
            made = f"named_struct({', '.join(f'{name!r}, {text}' for name, text in fields.items())})"
        else:
            made = "{" + ", ".join(f"{name!r}: {text}" for name, text in fields.items()) + "}"
        return f"(CASE WHEN {first} IS NOT NULL AND {second} IS NOT NULL THEN {made} END)"

    return emission.writer.let(emission.args, body)


def _clock(moment: str, spark: bool) -> str:
    """Microseconds since midnight."""
    total = micros(moment, "timestamp", spark=spark)
    return (
        f"pmod({total}, {MICROS_PER_DAY})"
        if spark
        else f"(({total} % {MICROS_PER_DAY} + {MICROS_PER_DAY}) % {MICROS_PER_DAY})"
    )


def extract_age(field: str, emission: Emission, kind: str) -> str:
    """A field of an age as a value of the type `kind`."""
    divide = "div" if emission.spark else "//"

    def body(names: tuple[str, ...]) -> str:
        (value,) = names
        months, days, clock = (f"({value}).{part}" for part in ("months", "days", "micros"))
        years = f"({months} {divide} 12) * 31557600000000"
        whole = {
            "year": f"{months} {divide} 12",
            "month": f"{months} % 12",
            "day": days,
            "hour": f"{clock} {divide} 3600000000",
            "minute": f"({clock} % 3600000000) {divide} 60000000",
        }
        if field in whole:
            return f"CAST({whole[field]} AS {kind})"
        if field == "epoch":
            total = f"({years} + ({months} % 12) * 2592000000000 + {days} * {MICROS_PER_DAY} + {clock})"
            return scaled(total, 6, kind)
        return scaled(f"({clock} % 60000000)", {"second": 6, "milliseconds": 3, "microseconds": 0}[field], kind)

    return emission.writer.let((emission.args[1],), body)


def age_span(emission: Emission, index: int) -> str:
    """The length of an age in microseconds, as intervals are compared: a month has 30 days."""

    def span(names: tuple[str, ...]) -> str:
        (value,) = names
        return f"((({value}).months * 30 + ({value}).days) * {MICROS_PER_DAY} + ({value}).micros)"

    return emission.writer.let((emission.args[index],), span)
