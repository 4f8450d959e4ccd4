"""Moments as whole numbers of microseconds."""

from __future__ import annotations

MICROS_PER_DAY = 86_400_000_000


def micros(text: str, kind: str, *, spark: bool) -> str:
    """Microseconds since 1970-01-01 00:00 of a date or timestamp."""
    if spark:
        zoned = text if kind == "timestamptz" else f"CAST({text} AS TIMESTAMP)"
        return f"unix_micros({zoned})"
    return f"epoch_us(CAST({text} AS {'TIMESTAMPTZ' if kind == 'timestamptz' else 'TIMESTAMP'}))"


def scaled(count: str, digits: int, kind: str) -> str:
    """An integer count divided by a power of ten, exactly, as a value of the type `kind`."""
    if not digits:
        return f"CAST({count} AS {kind})"
    factor = f"0.{'0' * (digits - 1)}1"
    unit = f"CAST('{factor}' AS DECIMAL({digits}, {digits}))"
    return f"CAST(CAST({count} AS DECIMAL(20, 0)) * {unit} AS {kind})"
