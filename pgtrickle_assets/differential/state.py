"""State relations: the stored content of an operator that its delta cannot be computed without.

The operator is replaced in the plan by a reading of its state relation. Its old state is then a read of what is
stored, its delta the output of its own steps, and everything above (another aggregate, HAVING, a join) treats it like
a stored input. Old rows are never recomputed, so results that an engine does not repeat bit by bit (sums of floats,
ties) are still retracted exactly as they were stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pgtrickle_assets.differential.derivation import Derivation
from pgtrickle_assets.differential.expressions import integer
from pgtrickle_assets.differential.restrict import restrict
from pgtrickle_assets.differential.steps import StateTable
from pgtrickle_assets.differential.view import (
    Relation,
    Rows,
    View,
    consolidated,
    joined,
    project,
    select,
    union,
    weighted,
)
from pgtrickle_assets.query.plan import Column, Distinct, Node, Version
from pgtrickle_assets.query.rewrite import TRUE, IdGenerator
from pgtrickle_assets.query.types import INT64, ColumnSchema


@dataclass(frozen=True, slots=True)
class State(ABC):
    """One operator with a state relation.

    Attributes:
        relation: The stored relation: state column (as plan column) and stored name.
        child: The operator's input; it may scan state relations made before this one.
        key: Stored names of the columns that identify a row; empty for a bag or a single row.
    """

    relation: Relation
    child: Node
    key: tuple[str, ...]

    @property
    @abstractmethod
    def rule(self) -> str:
        """Name of the rule, as in `reasons.RULES`."""

    @abstractmethod
    def full(self, ids: IdGenerator) -> View:
        """The content of the relation, from the child as written."""

    @abstractmethod
    def change(self, derivation: Derivation) -> View | None:
        """The delta of the relation, after emitting the steps that it needs; None when the child did not change."""

    @property
    def table(self) -> StateTable:
        """The stored relation as the executor sees it."""
        columns = tuple(ColumnSchema(name, column.type, column.nullable) for column, name in self.relation.columns)
        return StateTable(self.relation.name, columns, self.key, self.rule)

    def stored(self, derivation: Derivation) -> View:
        """The content at the frontier."""
        return self.relation.scan(derivation.ids, version=Version.OLD)


def stored_columns(columns: Iterable[Column]) -> tuple[tuple[Column, str], ...]:
    """State columns with readable, unique and repeatable stored names."""
    named: list[tuple[Column, str]] = []
    for position, column in enumerate(columns, start=1):
        label = "".join(c if c.isascii() and c.isalnum() else "_" for c in column.name.lower()).strip("_")[:40]
        named.append((column, f"{label}_{position}" if label else f"column_{position}"))
    return tuple(named)


TOUCHED = Column("touched", INT64, nullable=False)
"""Stands for the key where there is no key: the relation of affected keys then has a row when something changed."""


def affected_keys(derivation: Derivation, changed: View, keys: Sequence[Column], rule: str) -> Rows:
    """The distinct key values of changed rows, old and new, as a relation."""
    if keys:
        narrow = View(changed.node, changed.columns)
        narrow = select(narrow, keys, derivation.ids)
    else:
        narrow = project(View(changed.node, changed.columns), [(TOUCHED, integer(1))], derivation.ids)
    distinct = narrow.with_node(Distinct(narrow.node))
    return derivation.materialize(distinct, keys or (TOUCHED,), rule)


def reached_by(_derivation: Derivation, changed: Rows) -> Rows:
    """A relation with every key that changed rows, old and new, have: the changed rows themselves."""
    return changed


def of_affected(derivation: Derivation, view: View, keys: Sequence[tuple[Column, Column]], affected: Rows) -> View:
    """Rows of the view whose key (view column, key column) is affected; without keys all of them, if any is."""
    return restrict(view, [(mine, key, True) for mine, key in keys], affected, derivation.ids)


def when_touched(derivation: Derivation, view: View, affected: Rows) -> View:
    """The view, or nothing when no key is affected. For results that have a row even over nothing."""
    keys = affected.scan(derivation.ids, only=[affected.plan_columns[0].id])
    return joined("semi", view, keys, [TRUE])


def difference(derivation: Derivation, new: View, old: View, columns: Sequence[Column]) -> View:
    """The Z-set `new - old` of two bags."""
    ids = derivation.ids
    parts = [weighted(new, 1, ids, columns), weighted(old, -1, ids, columns)]
    return consolidated(union(parts, columns, ids), columns, ids)


def net_change(derivation: Derivation, node: Node, needed: Iterable[str]) -> tuple[View, tuple[Column, ...]] | None:
    """The delta of `node` on its needed columns with equal rows added up, and these columns."""
    delta = derivation.delta(node)
    if delta is None:
        return None
    wanted = frozenset(needed)
    columns = tuple(column for column in node.output if column.id in wanted) or node.output[:1]
    return consolidated(delta, columns, derivation.ids), columns
