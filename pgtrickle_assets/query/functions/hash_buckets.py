"""The number of a value's bucket, as DuckLake's partition transform `bucket(n)` has it; no query can name it.

Source: DuckLake specification 1.0, partitioning: Murmur3 (x86, 32 bits, seed 0) of the value as eight bytes, without
the sign bit, modulo n. NULL is in no bucket.
"""

from __future__ import annotations

from typing import Final

from pgtrickle_assets.query.functions.registry import Emission, register

BUCKET: Final = "pgtrickle_bucket"
"""Takes a whole number, a date or a timestamp, and the number of buckets."""

_SEED_ZERO: Final = -1693959553
"""Spark's `hash` begins with seed 42 and goes on with the hash of its first argument: that of this integer is 0."""


def _spark(emission: Emission) -> str:
    value, count = emission.args
    kind = emission.types[0]
    number = value
    if kind.is_integer or kind.name == "date":
        number = f"CAST({f'unix_date({value})' if kind.name == 'date' else value} AS BIGINT)"
    return f"if({value} IS NULL, NULL, (hash({_SEED_ZERO}, {number}) & 2147483647) % {count})"


def _duckdb(emission: Emission) -> str:
    value, count = emission.args
    let = emission.writer.let

    def times(text: str, factor: int) -> str:
        return f"((({text}) * {factor}) & 4294967295)"

    def rotated(text: str, by: int) -> str:
        return let((text,), lambda v: f"((({v[0]} << {by}) | ({v[0]} >> {32 - by})) & 4294967295)")

    def folded(text: str, by: int) -> str:
        return let((text,), lambda v: f"xor({v[0]}, {v[0]} >> {by})")

    def mixed(block: str) -> str:
        return times(rotated(times(block, 0xCC9E2D51), 15), 0x1B873593)

    def added(state: str, block: str) -> str:
        state = mixed(block) if not state else f"xor({state}, {mixed(block)})"
        return f"(({rotated(state, 13)} * 5 + {0xE6546B64}) & 4294967295)"

    def bucket(names: tuple[str, ...]) -> str:
        low, high = f"CAST({names[0]} & 4294967295 AS HUGEINT)", f"CAST(({names[0]} >> 32) & 4294967295 AS HUGEINT)"
        state = f"xor({added(added('', low), high)}, 8::HUGEINT)"
        state = times(folded(state, 16), 0x85EBCA6B)
        state = folded(times(folded(state, 13), 0xC2B2AE35), 16)
        return f"CAST(({state} & 2147483647) % {count} AS INTEGER)"

    match emission.types[0].name:
        case "date":
            number = f"CAST({value} - DATE '1970-01-01' AS BIGINT)"
        case "timestamp" | "timestamptz":
            number = f"epoch_us({value})"
        case _:
            number = f"CAST({value} AS BIGINT)"
    return let((number,), bucket)


register(BUCKET, _spark, _duckdb)
