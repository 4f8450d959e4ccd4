"""Takes the correlation out of a subquery: by lifting conjuncts, or by evaluating it for all outer values at once.

Sources: Galindo-Legaria and Joshi, Orthogonal Optimization of Subqueries and Aggregation (SIGMOD 2001) for lifting;
Neumann and Kemper, Unnesting Arbitrary Queries (BTW 2015) for the dependent join pushed to the leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pgtrickle_assets.query.plan import (
    Aggregate,
    Call,
    Column,
    Distinct,
    Expression,
    Filter,
    Generate,
    Join,
    Literal,
    Node,
    Project,
    TopK,
    Window,
)
from pgtrickle_assets.query.rewrite import (
    IdGenerator,
    columns_of,
    conjunction,
    conjuncts,
    equals,
    filtered,
    free_columns,
    output_ids,
    ref,
    substitute,
)
from pgtrickle_assets.query.types import INT64


@dataclass(frozen=True, slots=True)
class Lifted:
    """A subquery without correlation; a row of it belongs to an outer row where all of `condition` is true.

    `keys` are its columns that the condition sets equal to outer values, when it consists of such equalities alone.
    """

    node: Node
    condition: tuple[Expression, ...]
    keys: tuple[Column, ...] | None = None


def equality(part: Expression, inner_ids: frozenset[str]) -> tuple[Expression, Expression] | None:
    """`inside = outside` as (inside, outside), where one operand reads inner columns only and the other none."""
    if not isinstance(part, Call) or part.function != "=":
        return None
    for inside, outside in (part.args, part.args[::-1]):
        if columns_of(inside) and columns_of(inside) <= inner_ids and not columns_of(outside) & inner_ids:
            return inside, outside
    return None


def lift(node: Node, outer: frozenset[str], ids: IdGenerator, *, exists: bool) -> Lifted | None:
    """Lift correlated conjuncts out of a subquery.

    Args:
        node: The subquery.
        outer: Ids of the outer columns that it is correlated to.
        ids: For new columns.
        exists: Only whether there is a row matters.

    Returns:
        The independent subquery, or None where a correlated conjunct cannot pass an operator.
    """
    if exists:
        node = _without_effect_on_existence(node)
    lifter = _Lifter(outer, ids)
    found = lifter.lift(node)
    if found is None:
        return None
    inner_ids = output_ids(found.node)
    keys: list[Column] = []
    by_id = {column.id: column for column in found.node.output}
    for part in found.condition:
        pair = equality(part, inner_ids)
        if pair is None or not hasattr(pair[0], "id"):
            return found
        keys.append(by_id[next(iter(columns_of(pair[0])))])
    return replace(found, keys=tuple(dict.fromkeys(keys)))


def _without_effect_on_existence(node: Node) -> Node:
    while True:
        match node:
            case Project() | Distinct() | Window():
                node = node.child
            case TopK() if node.offset == 0 and (node.limit is None or node.limit > 0):
                node = node.child
            case Aggregate() if node.keys:
                node = node.child
            case _:
                return node


class _Lifter:
    def __init__(self, outer: frozenset[str], ids: IdGenerator) -> None:
        self.outer = outer
        self.ids = ids

    def correlated(self, expression: Expression) -> bool:
        return bool(columns_of(expression) & self.outer)

    def lift(self, node: Node) -> Lifted | None:
        if not free_columns(node) & self.outer:
            return Lifted(node, ())
        match node:
            case Filter():
                below = self.lift(node.child)
                if below is None:
                    return None
                parts = conjuncts(node.predicate)
                local = [part for part in parts if not self.correlated(part)]
                lifted = tuple(part for part in parts if self.correlated(part))
                return Lifted(filtered(below.node, local), (*below.condition, *lifted))
            case Project():
                return self._project(node)
            case Join():
                return self._join(node)
            case Aggregate() if node.keys:
                return self._aggregate(node)
            case Distinct():
                below = self.lift(node.child)
                keyed = None if below is None else self.with_keys(below)
                return None if keyed is None else Lifted(Distinct(keyed.node), keyed.condition)
            case Window():
                below = self.lift(node.child)
                keyed = None if below is None else self.with_keys(below)
                if keyed is None or keyed.keys is None:
                    return None
                extra = tuple(ref(key) for key in keyed.keys)
                if any(self.correlated(e) for _, call in node.calls for e in (*call.args, *call.partition_by)):
                    return None
                calls = tuple((c, replace(call, partition_by=(*call.partition_by, *extra))) for c, call in node.calls)
                return Lifted(Window(keyed.node, calls), keyed.condition)
            case TopK():
                below = self.lift(node.child)
                keyed = None if below is None else self.with_keys(below)
                if keyed is None or keyed.keys is None or any(self.correlated(k.expression) for k in node.order_by):
                    return None
                partition = tuple(dict.fromkeys((*node.partition_by, *keyed.keys)))
                return Lifted(replace(node, child=keyed.node, partition_by=partition), keyed.condition)
            case Generate():
                if self.correlated(node.generator):
                    return None
                below = self.lift(node.child)
                return None if below is None else Lifted(replace(node, child=below.node), below.condition)
            case _:
                return None

    def _project(self, node: Project) -> Lifted | None:
        if any(self.correlated(item) for _, item in node.items):
            return None
        below = self.lift(node.child)
        if below is None:
            return None
        return Lifted(_exposed(node, below), below.condition)

    def _join(self, node: Join) -> Lifted | None:
        left = self.lift(node.left)
        if left is None:
            return None
        parts = conjuncts(node.condition)
        correlated = tuple(part for part in parts if self.correlated(part))
        if node.kind == "inner":
            right = self.lift(node.right)
            if right is None:
                return None
            local = [part for part in parts if not self.correlated(part)]
            joined = Join("inner", left.node, right.node, conjunction(local))
            return Lifted(joined, (*left.condition, *right.condition, *correlated))
        if node.kind in ("left", "semi", "anti") and not correlated and not free_columns(node.right) & self.outer:
            return Lifted(replace(node, left=left.node), left.condition)
        return None

    def _aggregate(self, node: Aggregate) -> Lifted | None:
        below = self.lift(node.child)
        keyed = None if below is None else self.with_keys(below)
        if keyed is None or keyed.keys is None:
            return None
        keys = tuple(dict.fromkeys((*node.keys, *keyed.keys)))
        return Lifted(replace(node, child=keyed.node, keys=keys), keyed.condition)

    def with_keys(self, below: Lifted) -> Lifted | None:
        """Make the inner side of each lifted equality a column; None where a conjunct is no equality."""
        inner_ids = output_ids(below.node)
        by_id = {column.id: column for column in below.node.output}
        keys: list[Column] = []
        condition: list[Expression] = []
        added: list[tuple[Column, Expression]] = []
        for part in below.condition:
            pair = equality(part, inner_ids)
            if pair is None:
                return None
            inside, outside = pair
            key = by_id.get(getattr(inside, "id", ""))
            if key is None:
                key = self.ids.column(inside.type, nullable=inside.nullable)
                added.append((key, inside))
            keys.append(key)
            condition.append(equals(ref(key), outside))
        node = below.node
        if added:
            node = Project(node, (*((c, ref(c)) for c in node.output), *added))
        return Lifted(node, tuple(condition), tuple(dict.fromkeys(keys)))


def _exposed(node: Project, below: Lifted) -> Project:
    """The projection, with the columns that lifted conditions read added."""
    have = {column.id for column, _ in node.items}
    wanted = frozenset(i for part in below.condition for i in columns_of(part)) - have
    extra = tuple((column, ref(column)) for column in below.node.output if column.id in wanted)
    return Project(below.node, (*node.items, *extra))


@dataclass(frozen=True, slots=True)
class GroupedAggregate:
    """A correlated aggregate without GROUP BY, turned into one group per outer value.

    `values` are the subquery's output columns as expressions over the group, valid also where the group is missing.
    """

    node: Node
    condition: tuple[Expression, ...]
    values: dict[str, Expression]


def lift_aggregate(node: Node, outer: frozenset[str], ids: IdGenerator) -> GroupedAggregate | None:
    """Turn `SELECT f(agg(x)) FROM t WHERE t.k = outer.k` into groups by `t.k`; None where it has another shape."""
    values: dict[str, Expression] = {column.id: ref(column) for column in node.output}
    while isinstance(node, Project):
        items = {column.id: item for column, item in node.items}
        values = {i: substitute(value, items) for i, value in values.items()}
        node = node.child
    if not isinstance(node, Aggregate) or node.keys:
        return None
    lifter = _Lifter(outer, ids)
    if any(
        lifter.correlated(e)
        for _, call in node.aggregates
        for e in (*call.args, *([call.filter] if call.filter is not None else []))
    ):
        return None
    below = lifter.lift(node.child)
    keyed = None if below is None else lifter.with_keys(below)
    if keyed is None or keyed.keys is None:
        return None
    grouped = Aggregate(keyed.node, keyed.keys, node.aggregates)
    return GroupedAggregate(grouped, keyed.condition, {i: substitute(v, empty_values(node)) for i, v in values.items()})


def empty_values(node: Aggregate) -> dict[str, Expression]:
    """How to read an aggregate's columns when its group may be missing: a count is 0 then, anything else NULL."""
    found: dict[str, Expression] = {}
    for column, call in node.aggregates:
        if call.function in ("count", "regr_count"):
            nullable = replace(column, nullable=True)
            found[column.id] = Call("coalesce", (ref(nullable), Literal(0, INT64)), INT64, nullable=False)
        else:
            found[column.id] = ref(replace(column, nullable=True))
    return found
