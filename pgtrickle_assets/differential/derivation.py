"""The state of one derivation: what changed, the steps made so far, and the readings of the plan that rules ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pgtrickle_assets.differential.computed import Computed, chain_of, computed_delta
from pgtrickle_assets.differential.expressions import integer
from pgtrickle_assets.differential.steps import InputChange, Step, StepRole
from pgtrickle_assets.differential.view import Relation, Rows, View, copy, project, selection
from pgtrickle_assets.query.plan import Column, Node, Project, Scan, Version
from pgtrickle_assets.query.prune import prune_columns
from pgtrickle_assets.query.rewrite import IdGenerator, map_nodes, output_ids, ref, rename_ids, scans
from pgtrickle_assets.query.types import INT64, ColumnSchema

DeltaRule = Callable[["Derivation", Node], View | None]


@dataclass(slots=True)
class Derivation:
    """Collects the steps that bring a plan from its old to its new state.

    `rules` maps a node type to the function that gives the delta of such a node; None stands for "no change". `small`
    are state relations with so few rows that reading them whole costs less than a step that finds the affected ones.
    `computed` has what steps of state relations put out beside their columns, by relation.
    """

    changes: dict[str, InputChange]
    ids: IdGenerator
    rules: Mapping[type[Node], DeltaRule]
    small: frozenset[str] = frozenset()
    steps: list[Step] = field(default_factory=list[Step])
    computed: dict[str, Computed] = field(default_factory=dict[str, Computed])
    _deltas: dict[int, tuple[Node, View | None]] = field(default_factory=dict[int, tuple[Node, View | None]])
    _shared: dict[int, tuple[Node, Rows | None]] = field(default_factory=dict[int, tuple[Node, Rows | None]])

    def changed(self, node: Node) -> bool:
        """Whether some relation below `node` has a delta."""
        return any(self.change_of(scan) is not None for scan in scans(node))

    def change_of(self, scan: Scan) -> InputChange | None:
        """What the delta of the scanned relation holds, or None when it did not change."""
        change = self.changes.get(scan.relation)
        return change if change is not None and change.any else None

    def old(self, node: Node) -> View:
        """The state of `node` at the frontier."""
        return self._read(node, Version.OLD)

    def new(self, node: Node) -> View:
        """The state of `node` at the cut."""
        return self._read(node, Version.NEW)

    def _read(self, node: Node, version: Version) -> View:
        def pin(part: Node) -> Node:
            if not isinstance(part, Scan) or part.weight is not None:
                return part
            # An unchanged relation has one state; reading it at the cut finds its most compact files.
            return replace(part, version=version if self.change_of(part) else Version.NEW)

        return _instance(map_nodes(node, pin), node, self.ids)

    def delta(self, node: Node) -> View | None:
        """The Z-set between the old and the new state of `node`, or None when nothing below it changed."""
        known = self._deltas.get(id(node))
        if known is not None:
            return None if known[1] is None else copy(known[1], self.ids)
        result = self._delta(node) if self.changed(node) else None
        self._deltas[id(node)] = (node, result)
        return result

    def _delta(self, node: Node) -> View | None:
        chain = chain_of(node)
        computed = None if chain is None else self.computed.get(chain.scan.relation)
        if chain is not None and computed is not None and all(part in computed for part in chain.computed):
            return computed_delta(chain, node.output, computed, self.ids)
        return self.rules[type(node)](self, node)

    def shared_delta(self, node: Node) -> Rows | None:
        """The delta of `node` as a relation that may be read many times."""
        known = self._shared.get(id(node))
        if known is None:
            view = self.delta(node)
            known = (node, None if view is None else self.materialize(view, node.output, "delta"))
            self._shared[id(node)] = known
        return known[1]

    def materialize(self, view: View, columns: Sequence[Column], rule: str) -> Rows:
        """The view as something that may be read many times: a step, unless it is little more than a scan already."""
        if isinstance(view.node, Scan):
            names = {column.id: name for column, name in zip(view.node.columns, view.node.source_columns, strict=True)}
            stored = tuple((column, names[view.columns[column.id].id]) for column in columns)
            weighted = view.weight is not None
            return Relation(view.node.relation, stored, weighted, view.node.version, view.inserts_only)
        if (found := selection(view, columns)) is not None:
            return found
        if not columns and view.weight is None:
            # A table needs a column to have rows.
            present = Column("present", INT64, nullable=False)
            view, columns = project(view, [(present, integer(1))], self.ids), [present]
        name = f"step_{len(self.steps) + 1}"
        stored = tuple((column, f"c{position}") for position, column in enumerate(columns, start=1))
        self.emit(name, view, stored, "intermediate", rule)
        return Relation(name, stored, view.weight is not None, inserts_only=view.inserts_only)

    def emit(
        self,
        target: str,
        view: View,
        columns: Sequence[tuple[Column, str]],
        role: StepRole,
        rule: str,
        computed: Sequence[tuple[Column, str]] = (),
    ) -> None:
        """Append a step that puts out plan columns of `view` under the given names; `computed` are not stored."""
        query = _exact(view, [column for column, _ in (*columns, *computed)], self.ids)
        picked = None if view.sums is None else view.sums.picked()
        # What is shown or stored comes from Spark, also where it is an input as it is.
        if role != "intermediate" and picked is not None and all(step.target != picked.target for step in self.steps):
            picked = None
        step = Step(target, query, _schema(columns), role, view.weight is not None, rule, _schema(computed), picked)
        self.steps.append(step)


def _schema(columns: Sequence[tuple[Column, str]]) -> tuple[ColumnSchema, ...]:
    return tuple(ColumnSchema(name, column.type, column.nullable) for column, name in columns)


def _exact(view: View, columns: Sequence[Column], ids: IdGenerator) -> Node:
    items = [(ids.like(column), view.ref(column)) for column in columns]
    if view.weight is not None:
        items.append((ids.like(view.weight), ref(view.weight)))
    query = Project(view.node, tuple(items))
    return prune_columns(query, output_ids(query))


def _instance(node: Node, original: Node, ids: IdGenerator) -> View:
    fresh, names = rename_ids(node, ids)
    outputs = {column.id: column for column in fresh.output}
    return View(fresh, {column.id: outputs[names[column.id]] for column in original.output})


def read_current(node: Node, ids: IdGenerator) -> View:
    """The node as written, for a full run."""
    return _instance(node, node, ids)
