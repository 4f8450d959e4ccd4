"""What is computed of the changed rows of a state relation, in the step that finds them.

A state relation holds sums and counts; the averages and comparisons that a query makes of them stand in projections and
filters right above it. Computed as further columns of the step that puts out the state's changed rows, they are there
for all that follows, and a result that is nothing more needs no query of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pgtrickle_assets.differential.expressions import choose
from pgtrickle_assets.differential.view import Relation, View, project
from pgtrickle_assets.query.plan import Column, ColumnRef, Expression, Filter, Node, Project, Scan, Version, children
from pgtrickle_assets.query.rewrite import FALSE, IdGenerator, ref, substitute

Computed = dict[Expression, tuple[Column, str]]
"""For expressions over the stored names of a relation, the plan column with their value and its name in the output."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Projections and filters over a scan: output columns and the condition as expressions over its stored names.

    An expression that a filter comes before is only evaluated where the filter passes.
    """

    scan: Scan
    columns: dict[str, Expression]
    condition: Expression | None = None

    @property
    def computed(self) -> tuple[Expression, ...]:
        """What is more than a stored column."""
        parts = [*self.columns.values(), *([] if self.condition is None else [self.condition])]
        return tuple(part for part in parts if not isinstance(part, ColumnRef))


def chain_of(node: Node) -> Chain | None:
    """The node as a chain, if it is one and more than a scan."""
    return _chain(node) if isinstance(node, Project | Filter) else None


def _chain(node: Node) -> Chain | None:
    match node:
        case Scan():
            named = zip(node.columns, node.source_columns, strict=True)
            return Chain(node, {column.id: replace(ref(column), id=name) for column, name in named})
        case Project():
            below = _chain(node.child)
            if below is None:
                return None
            items = {column.id: substitute(item, below.columns) for column, item in node.items}
            return replace(below, columns={i: _where(below.condition, item) for i, item in items.items()})
        case Filter():
            below = _chain(node.child)
            if below is None:
                return None
            passed = substitute(node.predicate, below.columns)
            before = below.condition
            return replace(below, condition=passed if before is None else choose(before, passed, FALSE))
        case _:
            return None


def _where(condition: Expression | None, item: Expression) -> Expression:
    return item if condition is None or isinstance(item, ColumnRef) else choose(condition, item)


def computed_of(readers: Iterable[Node], relation: str, ids: IdGenerator) -> Computed:
    """What the chains in some plans compute of a relation, under names that no stored column has."""
    found: Computed = {}
    for reader in readers:
        for chain in _chains(reader):
            if chain.scan.relation != relation:
                continue
            for part in chain.computed:
                if part not in found:
                    column = ids.column(part.type, nullable=part.nullable, name="computed")
                    found[part] = column, f"__pgt_computed_{len(found) + 1}"
    return found


def computed_delta(chain: Chain, columns: Sequence[Column], computed: Computed, ids: IdGenerator) -> View:
    """The delta of a chain whose parts were all computed with the changed rows of its relation."""

    def name(part: Expression) -> str:
        return part.id if isinstance(part, ColumnRef) else computed[part][1]

    values = [(column, chain.columns[column.id]) for column in columns]
    parts = [*(part for _, part in values), *([] if chain.condition is None else [chain.condition])]
    stored = {name(part): Column(name(part), part.type, part.nullable) for part in parts}
    relation = Relation(chain.scan.relation, tuple((column, own) for own, column in stored.items()))
    view = relation.scan(ids, version=Version.DELTA)
    if chain.condition is not None:
        view = view.with_node(Filter(view.node, view.ref(name(chain.condition))))
    return project(view, [(column, view.ref(name(part))) for column, part in values], ids)


def _chains(node: Node) -> Sequence[Chain]:
    """The longest chains in a plan."""
    own = chain_of(node)
    return [own] if own is not None else [chain for child in children(node) for chain in _chains(child)]
