"""Restricting a plan to the rows that a few keys reach.

Recompute terms read only what the affected keys need. `restrict` moves the semi-join with the keys as far down as it
goes: through projections, filters, joins (by their equalities also to the other side), groupings and unions, down to
the scans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pgtrickle_assets.differential.view import Rows, View
from pgtrickle_assets.query.plan import (
    Aggregate,
    Call,
    Column,
    ColumnRef,
    Distinct,
    Expression,
    Filter,
    Generate,
    Join,
    Node,
    Project,
    Scan,
    SetOperation,
    TopK,
    UnionAll,
    Window,
)
from pgtrickle_assets.query.properties import common_partition
from pgtrickle_assets.query.rewrite import (
    EQUALITY,
    NULL_SAFE_EQUALITY,
    TRUE,
    IdGenerator,
    conjunction,
    equalities,
    output_ids,
    ref,
)
from pgtrickle_assets.query.types import BOOLEAN


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A column of the restricted plan must equal a key column; with `null_safe`, NULL equals NULL."""

    column: str
    key: Column
    null_safe: bool = True


def restrict(view: View, pairs: Sequence[tuple[Column, Column, bool]], keys: Rows, ids: IdGenerator) -> View:
    """The rows of `view` whose plan columns equal the key columns in some row of `keys`.

    Args:
        view: What to restrict.
        pairs: Plan column of the view, plan column of the key relation, whether NULL equals NULL. Without pairs the
            view is kept or dropped as a whole: kept when `keys` has a row.
        keys: Rows with the keys; its rows need not be distinct.
        ids: Source of column ids.
    """
    wanted = tuple(KeyPair(view.columns[column.id].id, key, null_safe) for column, key, null_safe in pairs)
    restriction = _Restriction(keys, ids)
    if not wanted:
        return view.with_node(restriction.semi_join(view.node, ()))
    return view.with_node(restriction.exactly(view.node, wanted))


@dataclass(frozen=True, slots=True)
class _Restriction:
    keys: Rows
    ids: IdGenerator

    def semi_join(self, node: Node, pairs: Sequence[KeyPair]) -> Node:
        needed = [pair.key.id for pair in pairs] or [self.keys.plan_columns[0].id]
        keys = self.keys.scan(self.ids, only=needed)
        outputs = {column.id: column for column in node.output}
        conditions: list[Expression] = []
        for pair in pairs:
            column, key = ref(outputs[pair.column]), keys.ref(pair.key)
            function = NULL_SAFE_EQUALITY if pair.null_safe else EQUALITY
            conditions.append(Call(function, (column, key), BOOLEAN, not pair.null_safe))
        return Join("semi", node, keys.node, conjunction(conditions) or TRUE)

    def exactly(self, node: Node, pairs: Sequence[KeyPair]) -> Node:
        pushed, exact = self.push(node, tuple(pairs))
        return pushed if exact else self.semi_join(pushed, pairs)

    def push(self, node: Node, pairs: tuple[KeyPair, ...]) -> tuple[Node, bool]:  # noqa: C901 - one case per operator
        """The node restricted as far as `pairs` can be pushed, and whether that is the whole restriction."""
        if not pairs:
            return node, False
        match node:
            case Scan():
                return self.semi_join(node, pairs), True
            case Project():
                sources = {column.id: item.id for column, item in node.items if isinstance(item, ColumnRef)}
                return self._through(node, pairs, sources)
            case Filter() | Distinct():
                child, exact = self.push(node.child, pairs)
                return replace(node, child=child), exact
            case Generate():
                return self._through(node, pairs, {i: i for i in output_ids(node.child)})
            case Aggregate():
                return self._through(node, pairs, {key.id: key.id for key in node.keys})
            case TopK():
                return self._through(node, pairs, {column.id: column.id for column in node.partition_by})
            case Window():
                return self._through(node, pairs, {i: i for i in common_partition(node)})
            case UnionAll() | SetOperation():
                return self._into_branches(node, pairs), True
            case Join():
                return self._into_join(node, pairs)
            case _:
                return node, False

    def _through(
        self,
        node: Project | Generate | Aggregate | TopK | Window,
        pairs: tuple[KeyPair, ...],
        sources: dict[str, str],
    ) -> tuple[Node, bool]:
        mapped = tuple(replace(pair, column=sources[pair.column]) for pair in pairs if pair.column in sources)
        child, exact = self.push(node.child, mapped)
        return replace(node, child=child), exact and len(mapped) == len(pairs)

    def _into_branches(self, node: UnionAll | SetOperation, pairs: tuple[KeyPair, ...]) -> Node:
        position = {column.id: index for index, column in enumerate(node.columns)}

        def branch(child: Node) -> Node:
            moved = tuple(replace(pair, column=child.output[position[pair.column]].id) for pair in pairs)
            return self.exactly(child, moved)

        if isinstance(node, UnionAll):
            return replace(node, children=tuple(branch(child) for child in node.children))
        return replace(node, left=branch(node.left), right=branch(node.right))

    def _into_join(self, node: Join, pairs: tuple[KeyPair, ...]) -> tuple[Node, bool]:
        left_ids, right_ids = output_ids(node.left), output_ids(node.right)
        if node.kind == "full":
            return node, False
        if node.kind == "inner":
            left_pairs = _reaching(left_ids, pairs, node.condition)
            right_pairs = _reaching(right_ids, pairs, node.condition)
        elif node.kind == "right":
            own = tuple(pair for pair in pairs if pair.column in right_ids)
            left_pairs, right_pairs = _carried(left_ids, own, node.condition), own
        else:
            own = tuple(pair for pair in pairs if pair.column in left_ids)
            left_pairs, right_pairs = own, _carried(right_ids, own, node.condition)
        left, left_exact = self.push(node.left, left_pairs)
        right, right_exact = self.push(node.right, right_pairs)
        # A pair carried to a side by an equality of an inner join restricts that side, and the join does the rest.
        complete = (node.kind != "right" and left_exact and _covers(left_pairs, pairs)) or (
            node.kind in ("inner", "right") and right_exact and _covers(right_pairs, pairs)
        )
        return replace(node, left=left, right=right), complete


def _covers(reached: tuple[KeyPair, ...], pairs: tuple[KeyPair, ...]) -> bool:
    return len({pair.key.id for pair in reached}) == len(pairs)


def _reaching(side: frozenset[str], pairs: tuple[KeyPair, ...], condition: Expression | None) -> tuple[KeyPair, ...]:
    """Pairs on columns of `side`, or carried there by an equality of an inner join; one per key."""
    found = {pair.key.id: pair for pair in _carried(side, pairs, condition)}
    found |= {pair.key.id: pair for pair in pairs if pair.column in side}
    return tuple(found.values())


def _carried(side: frozenset[str], pairs: tuple[KeyPair, ...], condition: Expression | None) -> tuple[KeyPair, ...]:
    carried: list[KeyPair] = []
    for left, right, null_safe in equalities(condition):
        for mine, other in ((left, right), (right, left)):
            if mine.id in side and other.id not in side and mine.type == other.type:
                matches = (pair for pair in pairs if pair.column == other.id)
                carried.extend(KeyPair(mine.id, pair.key, pair.null_safe and null_safe) for pair in matches)
    unique = {pair.key.id: pair for pair in carried}
    return tuple(unique.values())
