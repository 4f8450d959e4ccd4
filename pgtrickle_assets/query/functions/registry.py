"""The function registry: for each canonical function its volatility and its text in each engine.

A `Call` in a plan names a function here. Overload resolution (PostgreSQL's names and types to canonical names) is the
business of `signatures`; this side only knows how a resolved call is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal as TypingLiteral
from typing import Protocol

from pgtrickle_assets.query.plan import Call, Expression
from pgtrickle_assets.query.types import ColumnType

Dialect = TypingLiteral["spark", "duckdb"]
Volatility = TypingLiteral["immutable", "stable", "volatile"]


class Writer(Protocol):
    """What a function needs of the expression renderer."""

    dialect: Dialect

    def expression(self, expression: Expression) -> str:
        """The text of any expression."""
        ...

    def cast(self, text: str, source: ColumnType, target: ColumnType) -> str:
        """The text that converts `text` from one type to another with PostgreSQL's meaning."""
        ...

    def let(self, values: tuple[str, ...], body: Callable[[tuple[str, ...]], str]) -> str:
        """The text of `body` over names bound to `values`, so that long operands are written and evaluated once."""
        ...


@dataclass(frozen=True, slots=True)
class Emission:
    """One call to be written: the call, the text of its arguments, and the renderer."""

    call: Call
    args: tuple[str, ...]
    writer: Writer

    @property
    def spark(self) -> bool:
        """Whether the text is for Spark."""
        return self.writer.dialect == "spark"

    @property
    def types(self) -> tuple[ColumnType, ...]:
        """Types of the arguments."""
        return tuple(arg.type for arg in self.call.args)


Emitter = str | Callable[[Emission], str]


@dataclass(frozen=True, slots=True)
class Function:
    """A canonical scalar function.

    `spark` and `duckdb` are a template over `{0}`, `{1}`, ... and `{args}` (all, comma separated) or a callable. Strict
    functions yield NULL exactly when an argument is NULL. `source` says where the meaning was taken from.
    """

    name: str
    spark: Emitter
    duckdb: Emitter
    volatility: Volatility = "immutable"
    strict: bool = True
    source: str = field(default="PostgreSQL 18 documentation, chapter 9")


_FUNCTIONS: dict[str, Function] = {}


def register(
    name: str,
    spark: Emitter,
    duckdb: Emitter | None = None,
    *,
    volatility: Volatility = "immutable",
    strict: bool = True,
) -> None:
    """Add a function; `duckdb` left out means the same text as for Spark."""
    if name in _FUNCTIONS:
        raise ValueError(f"function {name!r} is registered twice")
    _FUNCTIONS[name] = Function(name, spark, spark if duckdb is None else duckdb, volatility, strict)


def lookup(name: str) -> Function | None:
    """The function with this canonical name, or None."""
    return _FUNCTIONS.get(name)


def registered() -> tuple[Function, ...]:
    """All functions, by name."""
    return tuple(_FUNCTIONS[name] for name in sorted(_FUNCTIONS))


def write(emission: Emission) -> str:
    """The text of a call in the dialect of its writer."""
    function = _FUNCTIONS.get(emission.call.function)
    if function is None:
        raise KeyError(f"no function {emission.call.function!r} in the registry")
    emitter = function.spark if emission.spark else function.duckdb
    if callable(emitter):
        return emitter(emission)
    return emitter.format(*emission.args, args=", ".join(emission.args))
