"""Scalar functions by family. Importing the package fills the registry."""

from __future__ import annotations

from pgtrickle_assets.query.functions import (
    buckets,
    collections,
    datetimes,
    domains,
    hash_buckets,
    integers,
    logic,
    math,
    number_formats,
    numbers,
    overflow,
    strings,
)
from pgtrickle_assets.query.functions.registry import Emission, Function, Writer, lookup, register, registered, write

__all__ = [
    "Emission",
    "Function",
    "Writer",
    "buckets",
    "collections",
    "datetimes",
    "domains",
    "hash_buckets",
    "integers",
    "logic",
    "lookup",
    "math",
    "number_formats",
    "numbers",
    "overflow",
    "register",
    "registered",
    "strings",
    "write",
]
