"""Inner joins of any number of inputs.

For two inputs the delta is dL x R1 + L0 x dR, which counts the rows changed on both sides exactly once. A chain of n
inputs is one operator: sum over the changed inputs i of R1(new) x ... x R(i-1)(new) x dRi x R(i+1)(old) x ... x
Rn(old), a sum that telescopes to new minus old. Every term starts from its delta and reaches the next input through
an equality.

Source: Koch, Incremental Query Evaluation in a Ring of Databases, 2010; DBSP 2023, section 4 (bilinear operators).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgtrickle_assets.differential.derivation import Derivation
from pgtrickle_assets.differential.restrict import restrict
from pgtrickle_assets.differential.view import View, joined, project, union
from pgtrickle_assets.query.plan import (
    Column,
    ColumnRef,
    Expression,
    Filter,
    Generate,
    Join,
    Node,
    Project,
    Scan,
    UnionAll,
    Values,
    Version,
)
from pgtrickle_assets.query.rewrite import (
    columns_of,
    conjunction,
    conjuncts,
    equalities,
    filtered,
    output_ids,
    ref,
    substitute,
)


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """A tree of inner joins, filters and projections as one n-ary join.

    `outputs` gives each output column of the tree as an expression over the inputs' columns.
    """

    inputs: tuple[Node, ...]
    conditions: tuple[Expression, ...]
    outputs: Mapping[str, Expression]


def is_join_group(node: Node) -> bool:
    """Whether the node is an inner join, maybe under filters and projections."""
    while isinstance(node, Filter | Project):
        node = node.child
    return isinstance(node, Join) and node.kind == "inner"


def join_group(node: Node) -> JoinGroup:
    """The n-ary join under `node`, with conditions on one input pushed into that input."""
    inputs, conditions, outputs = _flatten(node)
    pushed: list[Node] = []
    for child in inputs:
        mine = output_ids(child)
        own = [part for part in conditions if columns_of(part) and columns_of(part) <= mine]
        conditions = [part for part in conditions if part not in own]
        pushed.append(filtered(child, own))
    return JoinGroup(tuple(pushed), tuple(conditions), outputs)


def _flatten(node: Node) -> tuple[list[Node], list[Expression], dict[str, Expression]]:
    if not is_join_group(node):
        return [node], [], {column.id: ref(column) for column in node.output}
    if isinstance(node, Join):
        left_inputs, left_conditions, left_outputs = _flatten(node.left)
        right_inputs, right_conditions, right_outputs = _flatten(node.right)
        outputs = left_outputs | right_outputs
        own = [substitute(part, outputs) for part in conjuncts(node.condition)]
        return left_inputs + right_inputs, left_conditions + right_conditions + own, outputs
    assert isinstance(node, Filter | Project)  # noqa: S101 - is_join_group admits nothing else
    inputs, conditions, outputs = _flatten(node.child)
    if isinstance(node, Filter):
        own = [substitute(part, outputs) for part in conjuncts(node.predicate)]
        return inputs, conditions + own, outputs
    return inputs, conditions, {column.id: substitute(item, outputs) for column, item in node.items}


def inner_join_delta(derivation: Derivation, node: Node) -> View | None:
    """The sum of one term per changed input."""
    group = join_group(node)
    terms: list[View] = []
    for position, child in enumerate(group.inputs):
        lead = derivation.delta(child)
        if lead is not None:
            terms.append(_term(derivation, node, group, position, lead))
    return union(terms, node.output, derivation.ids) if terms else None


def partner_version(position: int, lead: int) -> Version:
    """Which state of input `position` the term led by input `lead` reads."""
    return Version.NEW if position < lead else Version.OLD


def _term(derivation: Derivation, node: Node, group: JoinGroup, lead: int, delta: View) -> View:
    waiting = [position for position in range(len(group.inputs)) if position != lead]
    conditions: tuple[Expression, ...] = group.conditions
    view = delta
    while waiting:
        position = _next_input(group, frozenset(view.columns), waiting, conditions)
        waiting.remove(position)
        partner = group.inputs[position]
        reach = frozenset(view.columns) | output_ids(partner)
        own = tuple(part for part in conditions if columns_of(part) <= reach)
        conditions = tuple(part for part in conditions if part not in own)
        needed = frozenset(i for part in (*own, *conditions, *group.outputs.values()) for i in columns_of(part))
        view = join_partner(derivation, view, partner, partner_version(position, lead), own, needed)
    items = [(column, view.expression(group.outputs[column.id])) for column in node.output]
    return project(view, items, derivation.ids)


def _next_input(
    group: JoinGroup, reached: frozenset[str], waiting: Sequence[int], conditions: Sequence[Expression]
) -> int:
    """The waiting input with the most equalities to what is joined already; the first written one on a tie."""

    def links(position: int) -> tuple[int, int]:
        mine = output_ids(group.inputs[position])
        equal = sum(
            1
            for left, right, _ in equalities(conjunction(conditions))
            if (left.id in mine and right.id in reached) or (right.id in mine and left.id in reached)
        )
        related = sum(1 for part in conditions if columns_of(part) & mine and columns_of(part) & reached)
        return equal, related

    return max(waiting, key=lambda position: (*links(position), -position))


def join_partner(
    derivation: Derivation,
    view: View,
    partner: Node,
    version: Version,
    conditions: Sequence[Expression],
    needed: frozenset[str],
) -> View:
    """`view` joined with one state of `partner` on conditions over plan columns.

    A partner that is more than scans is read restricted to the keys that `view` holds; then `view` becomes a step.
    """
    reading = derivation.old(partner) if version is Version.OLD else derivation.new(partner)
    if not is_simple(partner):
        pairs = key_pairs(conditions, frozenset(view.columns), output_ids(partner))
        if pairs:
            kept = plan_columns(view, needed)
            keys = derivation.materialize(view, kept, "inner_join")
            view = keys.scan(derivation.ids)
            reading = restrict(reading, pairs, keys, derivation.ids)
    both = View(view.node, {**view.columns, **reading.columns})
    return joined("inner", view, reading, [both.expression(part) for part in conditions])


def plan_columns(view: View, needed: frozenset[str]) -> list[Column]:
    """The plan columns of `view` that are in `needed`, at least one."""
    columns = [Column(i, column.type, column.nullable, column.name) for i, column in view.columns.items()]
    return [column for column in columns if column.id in needed] or columns[:1]


def key_pairs(
    conditions: Sequence[Expression], keys: frozenset[str], partner: frozenset[str]
) -> list[tuple[Column, Column, bool]]:
    """(column of the partner, column of the keys, NULL equals NULL) for each equality between the two."""
    pairs: list[tuple[Column, Column, bool]] = []
    for left, right, null_safe in equalities(conjunction(list(conditions))):
        for mine, other in ((left, right), (right, left)):
            if mine.id in partner and other.id in keys:
                pairs.append((_column(mine), _column(other), null_safe))
    return pairs


def _column(reference: ColumnRef) -> Column:
    return Column(reference.id, reference.type, reference.nullable)


def is_simple(node: Node) -> bool:
    """Whether reading the node is one pass over stored rows, which a join with a small side restricts by itself."""
    match node:
        case Scan() | Values():
            return True
        case Filter() | Project() | Generate():
            return is_simple(node.child)
        case UnionAll():
            return all(is_simple(child) for child in node.children)
        case _:
            return False
