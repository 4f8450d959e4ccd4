"""Scalar functions by family. Importing the package fills the registry."""

from __future__ import annotations

from pgtrickle_assets.query.functions import collections, datetimes, domains, logic, math, numbers, strings
from pgtrickle_assets.query.functions.registry import Emission, Function, Writer, lookup, register, registered, write

__all__ = [
    "Emission",
    "Function",
    "Writer",
    "collections",
    "datetimes",
    "domains",
    "logic",
    "lookup",
    "math",
    "numbers",
    "register",
    "registered",
    "strings",
    "write",
]
