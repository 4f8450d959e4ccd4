"""Computes only those groups that a join can use.

`part p JOIN (SELECT k, avg(v) FROM lineitem GROUP BY k) a ON a.k = p.id WHERE p.brand = 'x'` needs the averages of a
few parts. With these joined below the grouping, no other group is computed, kept as state or maintained. A correlated
subquery that aggregates has this form.

Source: Mumick and Pirahesh, Implementation of Magic-sets in a Relational Database System, SIGMOD 1994.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pgtrickle_assets.query.plan import (
    Aggregate,
    Call,
    Column,
    ColumnRef,
    Expression,
    Filter,
    Join,
    Literal,
    Node,
    Project,
    Scan,
    children,
)
from pgtrickle_assets.query.properties import TableKeys, at_most_one_row
from pgtrickle_assets.query.rewrite import (
    IdGenerator,
    conjuncts,
    equalities,
    equals,
    project_columns,
    ref,
    rename_ids,
    scans,
    with_children,
)

_SELECTIVE = frozenset(("=", "in", "like", "starts_with"))
"""Comparisons with constants that few rows are expected to pass."""


def restrict_groups(node: Node, keys: TableKeys) -> Node:
    """The plan with groupings in joins restricted by what is filtered beside them.

    Args:
        node: The plan, with filters as low as they go.
        keys: The unique key of each relation that is known to have one.
    """
    return _Restriction(keys, IdGenerator.after(node)).plan(node)


@dataclass(slots=True)
class _Together:
    """What is joined to one another, without rows that a join adds.

    Attributes:
        tables: Filtered tables among what is joined.
        equal: Columns that have the same value in every row that comes out.
    """

    tables: list[Node] = field(default_factory=list[Node])
    equal: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def equal_to(self, column: str, more: Iterable[tuple[str, str]] = ()) -> frozenset[str]:
        """The columns with the same value as one of them."""
        found = {column}
        pairs = [*self.equal, *more]
        while grown := {b for pair in pairs for a, b in (pair, pair[::-1]) if a in found} - found:
            found |= grown
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Restriction:
    keys: TableKeys
    ids: IdGenerator

    def plan(self, node: Node) -> Node:
        if not isinstance(node, Join) or node.kind not in ("inner", "left"):
            return with_children(node, [self.plan(child) for child in children(node)])
        together = _Together()
        _collect(node, together)
        return self._joined(node, together)

    def _joined(self, node: Node, together: _Together, more: tuple[tuple[str, str], ...] = ()) -> Node:
        """A part of what is joined; `more` columns are equal where rows of the part are of use."""
        match node:
            case Join() if node.kind == "inner":
                left, right = self._joined(node.left, together, more), self._joined(node.right, together, more)
                return replace(node, left=left, right=right)
            case Join() if node.kind == "left":
                matching = (*more, *_equal(node.condition))
                is_join = isinstance(node.right, Join)
                right = self.plan(node.right) if is_join else self._joined(node.right, together, matching)
                return replace(node, left=self._joined(node.left, together, more), right=right)
            case Filter():
                return replace(node, child=self._joined(node.child, together, more))
            case Project():
                return replace(node, child=self._joined(node.child, together, (*more, *_renamed(node))))
            case Aggregate():
                return self._grouping(node, together, more)
            case _:
                return self.plan(node)

    def _grouping(self, node: Aggregate, together: _Together, more: tuple[tuple[str, str], ...]) -> Node:
        child = self.plan(node.child)
        known = {scan.relation for scan in scans(child)}
        for key in node.keys:
            equal = together.equal_to(key.id, more)
            for table in together.tables:
                column = next((c for c in table.output if c.id in equal and c.type == key.type), None)
                if column is None or known & _relations(table):
                    continue
                if at_most_one_row(table, frozenset((column.id,)), self.keys):
                    known |= _relations(table)
                    child = self._restricted(child, key, table, column)
        return replace(node, child=child)

    def _restricted(self, child: Node, key: Column, table: Node, column: Column) -> Node:
        by, _ = rename_ids(project_columns(table, [column]), self.ids)
        return project_columns(Join("inner", child, by, equals(ref(key), ref(by.output[0]))), child.output)


def _collect(node: Node, together: _Together) -> None:
    match node:
        case Join() if node.kind == "inner":
            together.equal += _equal(node.condition)
            _collect(node.left, together)
            _collect(node.right, together)
        case Join() if node.kind == "left":
            _collect(node.left, together)
        case Filter() | Project() if _is_filtered_table(node):
            together.tables.append(node)
        case Filter():
            together.equal += _equal(node.predicate)
            _collect(node.child, together)
        case Project():
            together.equal += _renamed(node)
            _collect(node.child, together)
        case _:
            pass


def _equal(condition: Expression | None) -> list[tuple[str, str]]:
    return [(left.id, right.id) for left, right, null_safe in equalities(condition) if not null_safe]


def _renamed(node: Project) -> list[tuple[str, str]]:
    return [(column.id, item.id) for column, item in node.items if isinstance(item, ColumnRef)]


def _relations(node: Node) -> set[str]:
    return {scan.relation for scan in scans(node)}


def _is_filtered_table(node: Node) -> bool:
    """Whether the node is a table under filters of which one is expected to leave few rows."""
    found = False
    while isinstance(node, Filter | Project):
        if isinstance(node, Filter):
            found = found or any(map(_is_selective, conjuncts(node.predicate)))
        node = node.child
    return found and isinstance(node, Scan)


def _is_selective(part: Expression) -> bool:
    if not isinstance(part, Call) or part.function not in _SELECTIVE:
        return False
    return any(isinstance(arg, ColumnRef) for arg in part.args) and any(isinstance(arg, Literal) for arg in part.args)
