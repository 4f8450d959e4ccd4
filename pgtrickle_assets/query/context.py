"""What the planning of one query shares between its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pgtrickle_assets.query.plan import Column, Expression, InputTable, Literal, Node
from pgtrickle_assets.query.rewrite import IdGenerator
from pgtrickle_assets.query.types import TableSchema

Resolve = Callable[[tuple[str, ...]], TableSchema | None]


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A named column of a planned query block; `untyped` is the constant of unknown type that it holds, if it does."""

    name: str
    column: Column
    untyped: Literal | None = None


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query block as a plan with named columns; `key` are ids that are known to identify its rows, or empty."""

    node: Node
    columns: tuple[OutputColumn, ...]


@dataclass(slots=True)
class CommonTable:
    """A WITH item: planned anew at each use, since ids are unique in a plan."""

    name: str
    plan: Callable[[], PlannedQuery]


@dataclass(slots=True)
class PlanningContext:
    """State of one call of `plan_query`."""

    resolve: Resolve
    known_names: Sequence[str] = ()
    ids: IdGenerator = field(default_factory=IdGenerator)
    inputs: dict[str, InputTable] = field(default_factory=lambda: dict[str, InputTable]())
    notes: list[str] = field(default_factory=lambda: list[str]())
    stable: list[str] = field(default_factory=lambda: list[str]())
    volatile: list[str] = field(default_factory=lambda: list[str]())
    schemas: dict[str, TableSchema] = field(default_factory=lambda: dict[str, TableSchema]())

    def note(self, text: str) -> None:
        """Remember a remark for the user, once."""
        if text not in self.notes:
            self.notes.append(text)

    def uses(self, name: str, volatility: str) -> None:
        """Remember a function whose value is not fixed by its arguments."""
        target = self.stable if volatility == "stable" else self.volatile if volatility == "volatile" else None
        if target is not None and name not in target:
            target.append(name)


Expressions = tuple[Expression, ...]
