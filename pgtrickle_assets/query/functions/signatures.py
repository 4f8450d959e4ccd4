"""Overloads of PostgreSQL's functions: which call is meant, and what type comes out.

Source: PostgreSQL 18 documentation, 10.3 (function type resolution) and chapter 9 for the functions themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgtrickle_assets.query.coercion import NUMERIC_ORDER, can_convert, merge_decimals
from pgtrickle_assets.query.functions.numbers import as_decimal
from pgtrickle_assets.query.plan import Expression
from pgtrickle_assets.query.types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    INTERVAL,
    JSON,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    UUID,
    VARCHAR,
    ColumnType,
    list_of,
)

TypeRule = Callable[[Sequence[Expression]], ColumnType]

_TYPES: dict[str, ColumnType] = {
    "bool": BOOLEAN, "int2": INT16, "int4": INT32, "int8": INT64, "float4": FLOAT32, "float8": FLOAT64,
    "text": VARCHAR, "bytea": BLOB, "date": DATE, "time": TIME, "timestamp": TIMESTAMP, "timestamptz": TIMESTAMPTZ,
    "uuid": UUID, "json": JSON, "interval": INTERVAL, "text[]": list_of(VARCHAR),
}  # fmt: skip
_PREFERRED = ("float64", "varchar", "boolean", "timestamptz", "interval")


@dataclass(frozen=True, slots=True)
class Signature:
    """One overload: parameter type names, result and the canonical function that a call becomes.

    A parameter is a type name of PostgreSQL, `numeric` (any scale), `anyarray`, `any` or `anyelement`; a trailing `...`
    repeats the last one.
    """

    name: str
    parameters: tuple[str, ...]
    variadic: bool
    result: ColumnType | TypeRule
    canonical: str
    volatility: str = "immutable"

    def parameter(self, index: int) -> str:
        """The parameter that argument `index` belongs to."""
        return self.parameters[min(index, len(self.parameters) - 1)]

    def takes(self, count: int) -> bool:
        """Whether the overload can be called with so many arguments."""
        return count >= len(self.parameters) if self.variadic else count == len(self.parameters)

    def target(self, index: int, kind: ColumnType) -> ColumnType | None:
        """The type to which argument `index` of type `kind` is converted; None if it cannot be."""
        wanted = self.parameter(index)
        if wanted in ("any", "anyelement"):
            return VARCHAR if kind == UNKNOWN else kind
        if wanted == "anyarray":
            return kind if kind.element is not None else None
        if wanted == "numeric":
            if kind.name in ("int16", "int32", "int64", "decimal"):
                return as_decimal(kind)
            return None
        if wanted == "integer":
            return kind if kind.is_integer else None
        found = _TYPES[wanted]
        return found if can_convert(kind, found) else None


_SIGNATURES: dict[str, list[Signature]] = {}
_SHAPE = re.compile(r"(\w+)\(([^)]*)\)(?:\s*->\s*(\S+))?")


def define(text: str, result: TypeRule | None = None, *, canonical: str = "", volatility: str = "immutable") -> None:
    """Add an overload written as `name(type, type) -> type`; `result` computes the type when it is not fixed."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a signature: {text}")
    name, inside, result_name = match.groups()
    parameters = [part.strip() for part in inside.split(",") if part.strip()]
    variadic = bool(parameters) and parameters[-1] == "..."
    if variadic:
        parameters.pop()
    kind = result if result is not None else _TYPES[result_name]
    signature = Signature(name, tuple(parameters), variadic, kind, canonical or name, volatility)
    _SIGNATURES.setdefault(name, []).append(signature)


def overloads(name: str) -> Sequence[Signature]:
    """All overloads of a function, or none."""
    return _SIGNATURES.get(name, ())


def names() -> tuple[str, ...]:
    """All function names that have an overload."""
    return tuple(sorted(_SIGNATURES))


def resolve(name: str, kinds: Sequence[ColumnType]) -> Signature | None:
    """The overload that PostgreSQL would choose for arguments of these types; None if there is none."""
    candidates: list[tuple[int, int, int, Signature]] = []
    for order, signature in enumerate(_SIGNATURES.get(name, ())):
        if not signature.takes(len(kinds)):
            continue
        targets = [signature.target(i, kind) for i, kind in enumerate(kinds)]
        if any(target is None for target in targets):
            continue
        exact = sum(_matches(kind, target) for kind, target in zip(kinds, targets, strict=True))
        preferred = sum(target is not None and target.name in _PREFERRED for target in targets)
        candidates.append((exact, preferred, -order, signature))
    return max(candidates, key=lambda c: c[:3])[3] if candidates else None


def _matches(kind: ColumnType, target: ColumnType | None) -> bool:
    return target is not None and (kind == target or (kind.name == "decimal" and target.name == "decimal"))


def argument_type(index: int) -> TypeRule:
    """The result has the type of an argument."""
    return lambda args: args[index].type


def merged_decimal(args: Sequence[Expression]) -> ColumnType:
    """The decimal that holds all digits of all arguments."""
    return merge_decimals([arg.type for arg in args])


__all__ = ["NUMERIC_ORDER", "Signature", "argument_type", "define", "merged_decimal", "names", "overloads", "resolve"]
