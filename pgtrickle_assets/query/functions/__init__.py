"""Scalar functions by family. Importing the package fills the registry."""

from __future__ import annotations

from pgtrickle_assets.query.functions import logic, numbers
from pgtrickle_assets.query.functions.registry import Emission, Function, Writer, lookup, register, registered, write

__all__ = ["Emission", "Function", "Writer", "logic", "lookup", "numbers", "register", "registered", "write"]
