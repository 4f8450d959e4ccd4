"""What the engine hands to an executor: steps, state tables and reasons, as plain data.

An executor runs steps in order. The output of a step becomes a relation named `target` that later steps scan; see
`Step`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as TypingLiteral

from pgtrickle_assets.query.plan import Literal, Node, Scan
from pgtrickle_assets.query.types import ColumnSchema

RESULT = "result"
"""Relation name of the visible result; a step of role `result` targets it."""

StepRole = TypingLiteral["intermediate", "state", "result"]


@dataclass(frozen=True, slots=True)
class InputChange:
    """Which kinds of rows the delta of an input holds. An input with neither is unchanged."""

    inserts: bool = True
    deletes: bool = True

    @property
    def any(self) -> bool:
        """Whether there is a change at all."""
        return self.inserts or self.deletes


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A column of a scan that must equal one of another; with `null_safe`, NULL equals NULL, else NULL equals nothing.

    Columns are names in the stored relations.
    """

    column: str
    by_column: str
    null_safe: bool


@dataclass(frozen=True, slots=True)
class Restriction:
    """Only rows of `scan` that equal some row of `by` in all parts of the key can matter.

    The executor may leave out other rows, and skip files and row groups that hold none; it need not.
    """

    scan: Scan
    by: Scan
    key: tuple[KeyPart, ...]


Limits = tuple[Literal | None, Literal | None]
"""Least and greatest value, both included; None is no limit."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Only rows of `scan` whose `column` lies within one of the limits can matter.

    The executor may leave out other rows, and skip files that hold none; it need not.
    """

    scan: Scan
    column: str
    limits: tuple[Limits, ...]


@dataclass(frozen=True, slots=True)
class Picked:
    """The output of a step in other words: columns of those rows of a Z-set that have all flags.

    The Z-set is the output of the earlier step `target`, or the delta of the input with that name. `columns` and the
    Boolean columns `flags` are its stored columns; equal rows are added up.
    """

    target: str
    columns: tuple[str, ...]
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One query of a maintenance run.

    Attributes:
        target: Name of the relation that holds the step's output for later steps.
        query: A plan whose output columns are `columns` in order, followed by the weight column when `weighted`.
        columns: Names and types of the output, without the weight.
        role: `state` steps give the new content (full) or the Z-set delta of a state relation, `result` steps the same
            of the visible table, `intermediate` outputs are dropped at the end of the run.
        weighted: Whether the output has a BIGINT weight column, named `__pgt_weight`, last.
        rule: Name of the rule that made the step, as in `reasons.RULES`.
        computed: Further columns after `columns`, for later steps only: they are not stored.
        picked: The same output without the query, where there is a way.
    """

    target: str
    query: Node
    columns: tuple[ColumnSchema, ...]
    role: StepRole
    weighted: bool
    rule: str
    computed: tuple[ColumnSchema, ...] = ()
    picked: Picked | None = None

    @property
    def output_columns(self) -> tuple[ColumnSchema, ...]:
        """All columns of the query but the weight."""
        return (*self.columns, *self.computed)


@dataclass(frozen=True, slots=True)
class StateTable:
    """A stored relation that the visible columns don't carry.

    `relation` is its name in scans. Rows are unique by `key`; an empty key with `single_row` false means a bag.
    """

    relation: str
    columns: tuple[ColumnSchema, ...]
    key: tuple[str, ...]
    rule: str


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a plan, or a part of it, is not maintained better."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class DeriveOptions:
    """Choices of the user that change rules.

    `algebraic_floats` lets sums of floats be kept by adding and subtracting, which drifts from a recompute.
    """

    algebraic_floats: bool = False
