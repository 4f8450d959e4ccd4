"""Evaluates a correlated plan for every combination of outer values at once: the dependent join, pushed to the leaves.

Source: Neumann and Kemper, Unnesting Arbitrary Queries (BTW 2015). The domain holds each combination once, so grouping,
ordering and windows of the subquery simply work per combination.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pgtrickle_assets.query.correlation import empty_values
from pgtrickle_assets.query.plan import (
    Aggregate,
    Call,
    Column,
    Distinct,
    Expression,
    Filter,
    Generate,
    Join,
    Node,
    Project,
    SetOperation,
    TopK,
    UnionAll,
    Values,
    Window,
)
from pgtrickle_assets.query.rewrite import (
    IdGenerator,
    conjunction,
    free_columns,
    map_node_expressions,
    not_distinct,
    ref,
    rename_ids,
    substitute,
)

Keys = dict[str, Column]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A plan with one more column per outer value; `keys` maps the outer id to that column."""

    node: Node
    keys: Keys


def evaluate_for(domain: Node, mapping: Mapping[str, Column], node: Node, ids: IdGenerator) -> Evaluated:
    """Evaluate `node` for each row of `domain`.

    Args:
        domain: Distinct combinations of outer values.
        mapping: Outer column id -> its column in `domain`.
        node: A plan that reads those outer columns.
        ids: For new columns; the domain may be used several times, each time under fresh ids.
    """
    return _Pusher(domain, mapping, ids).push(node)


class _Pusher:
    def __init__(self, domain: Node, mapping: Mapping[str, Column], ids: IdGenerator) -> None:
        self.domain = domain
        self.mapping = mapping
        self.ids = ids

    def depends(self, node: Node) -> bool:
        return bool(free_columns(node) & self.mapping.keys())

    def copy(self) -> Evaluated:
        node, renamed = rename_ids(self.domain, self.ids)
        by_id = {column.id: column for column in node.output}
        return Evaluated(node, {outer: by_id[renamed[column.id]] for outer, column in self.mapping.items()})

    def bind(self, node: Node, keys: Keys) -> Node:
        """The node with outer references replaced by the key columns of its (already pushed) child."""
        values: dict[str, Expression] = {outer: ref(column) for outer, column in keys.items()}
        return map_node_expressions(node, lambda expression: substitute(expression, values))

    def push(self, node: Node) -> Evaluated:
        if not self.depends(node):
            copy = self.copy()
            return Evaluated(Join("inner", copy.node, node, None), copy.keys)
        match node:
            case Filter() | Generate() | Distinct():
                below = self.push(node.child)
                return Evaluated(self.bind(replace(node, child=below.node), below.keys), below.keys)
            case Project():
                below = self.push(node.child)
                bound = self.bind(replace(node, child=below.node), below.keys)
                assert isinstance(bound, Project)
                kept = tuple((key, ref(key)) for key in below.keys.values())
                return Evaluated(replace(bound, items=(*bound.items, *kept)), below.keys)
            case Window():
                below = self.push(node.child)
                bound = self.bind(replace(node, child=below.node), below.keys)
                assert isinstance(bound, Window)
                extra = tuple(ref(key) for key in below.keys.values())
                calls = tuple((c, replace(call, partition_by=(*call.partition_by, *extra))) for c, call in bound.calls)
                return Evaluated(replace(bound, calls=calls), below.keys)
            case TopK():
                below = self.push(node.child)
                bound = self.bind(replace(node, child=below.node), below.keys)
                assert isinstance(bound, TopK)
                partition = (*bound.partition_by, *below.keys.values())
                return Evaluated(replace(bound, partition_by=partition), below.keys)
            case Join():
                return self._join(node)
            case Aggregate():
                return self._aggregate(node)
            case UnionAll():
                branches = [self.push(child) for child in node.children]
                keys = self._fresh_keys()
                columns = (*node.columns, *keys.values())
                return Evaluated(
                    UnionAll(tuple(self._aligned(b, c) for b, c in zip(branches, node.children, strict=True)), columns),
                    keys,
                )
            case SetOperation():
                left, right = self.push(node.left), self.push(node.right)
                keys = self._fresh_keys()
                columns = (*node.columns, *keys.values())
                operation = replace(
                    node, left=self._aligned(left, node.left), right=self._aligned(right, node.right), columns=columns
                )
                return Evaluated(operation, keys)
            case Values():
                return self._values(node)
            case _:
                raise AssertionError(f"{type(node).__name__} cannot be correlated")

    def _fresh_keys(self) -> Keys:
        return {outer: self.ids.like(column) for outer, column in self.mapping.items()}

    def _aligned(self, branch: Evaluated, original: Node) -> Node:
        """A branch with its own columns first and the keys, in the order of the mapping, last."""
        by_id = {column.id: column for column in branch.node.output}
        columns = [*(by_id[column.id] for column in original.output), *(branch.keys[outer] for outer in self.mapping)]
        return Project(branch.node, tuple((self.ids.like(column), ref(column)) for column in columns))

    def _join(self, node: Join) -> Evaluated:
        both_sides = node.kind == "full"
        left_first = node.kind != "right"
        needs_left = self.depends(node.left) or left_first or both_sides
        needs_right = self.depends(node.right) or not left_first or both_sides
        if node.kind == "inner":
            needs_left = self.depends(node.left) or not self.depends(node.right)
            needs_right = self.depends(node.right)
        left = self.push(node.left) if needs_left else Evaluated(node.left, {})
        right = self.push(node.right) if needs_right else Evaluated(node.right, {})
        keys = left.keys if needs_left and (left_first or not needs_right) else right.keys
        condition: list[Expression] = []
        if node.condition is not None:
            condition.append(substitute(node.condition, {outer: ref(column) for outer, column in keys.items()}))
        if needs_left and needs_right:
            condition += [not_distinct(ref(left.keys[outer]), ref(right.keys[outer])) for outer in self.mapping]
        joined = Join(node.kind, left.node, right.node, conjunction(condition))
        if not both_sides:
            return Evaluated(joined, keys)
        merged = self._fresh_keys()
        items = [(column, ref(column)) for column in joined.output if column not in left.keys.values()]
        whole = [
            (merged[outer], Call("coalesce", (ref(left.keys[outer]), ref(right.keys[outer])), column.type, True))
            for outer, column in self.mapping.items()
        ]
        return Evaluated(Project(joined, (*items, *whole)), merged)

    def _aggregate(self, node: Aggregate) -> Evaluated:
        below = self.push(node.child)
        bound = self.bind(replace(node, child=below.node), below.keys)
        assert isinstance(bound, Aggregate)
        grouped = replace(bound, keys=(*bound.keys, *below.keys.values()))
        if node.keys:
            return Evaluated(grouped, below.keys)
        # Without GROUP BY there is a row also for combinations without input.
        inner_columns = {column.id: self.ids.like(column) for column, _ in grouped.aggregates}
        renamed = replace(grouped, aggregates=tuple((inner_columns[c.id], call) for c, call in grouped.aggregates))
        every = self.copy()
        condition = conjunction(
            [not_distinct(ref(every.keys[outer]), ref(below.keys[outer])) for outer in self.mapping]
        )
        joined = Join("left", every.node, renamed, condition)
        defaults = empty_values(renamed)
        items = tuple((column, defaults[inner_columns[column.id].id]) for column, _ in grouped.aggregates)
        kept = tuple((key, ref(key)) for key in every.keys.values())
        return Evaluated(Project(joined, (*items, *kept)), every.keys)

    def _values(self, node: Values) -> Evaluated:
        keys = self._fresh_keys()
        branches: list[Node] = []
        for row in node.rows:
            copy = self.copy()
            values: dict[str, Expression] = {outer: ref(column) for outer, column in copy.keys.items()}
            items = [(self.ids.like(c), substitute(v, values)) for c, v in zip(node.columns, row, strict=True)]
            kept = [(self.ids.like(key), ref(key)) for key in copy.keys.values()]
            branches.append(Project(copy.node, (*items, *kept)))
        return Evaluated(UnionAll(tuple(branches), (*node.columns, *keys.values())), keys)
