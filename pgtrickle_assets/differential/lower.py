"""From a defining plan to state relations and a plan that reads them.

Operators whose delta needs stored content are taken out bottom up, each becoming a `State`; what is left is linear
operators and joins over inputs and state relations. DISTINCT, INTERSECT and EXCEPT become groupings that count rows
per side, so they share the rule of GROUP BY.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import cast

from pgtrickle_assets.differential.aggregate import AggregateState
from pgtrickle_assets.differential.algebra import Components
from pgtrickle_assets.differential.expressions import choose, greater, integer, subtract
from pgtrickle_assets.differential.recompute import RecomputedGroups
from pgtrickle_assets.differential.state import State, stored_columns
from pgtrickle_assets.differential.steps import RESULT, DeriveOptions
from pgtrickle_assets.differential.topk import TopKState
from pgtrickle_assets.differential.view import Relation
from pgtrickle_assets.differential.window import WindowState
from pgtrickle_assets.query.plan import (
    Aggregate,
    AggregateCall,
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
    WindowCall,
    children,
)
from pgtrickle_assets.query.prune import prune_columns
from pgtrickle_assets.query.rewrite import (
    IdGenerator,
    columns_of,
    conjuncts,
    filtered,
    output_ids,
    project_columns,
    ref,
    rename_ids,
    with_children,
)
from pgtrickle_assets.query.types import INT64


@dataclass(frozen=True, slots=True)
class Lowered:
    """State relations in the order in which they depend on each other, and the plan of the visible result.

    Where the visible columns are the content of the last state, the result is that state: `is_result` is set, the
    relation is named `RESULT`, its columns are in output order, and there is no second table.
    """

    states: tuple[State, ...]
    root: Node
    is_result: bool = False


def lower(root: Node, names: Sequence[str], options: DeriveOptions) -> Lowered:
    """Take the operators that need stored content out of a plan without opaque parts.

    Args:
        root: The plan.
        names: User-visible names of the root's columns.
        options: Choices of the user.
    """
    ids = IdGenerator.after(root)
    lowering = _Lowering(ids, options)
    lowered = lowering.node(prune_columns(root, output_ids(root)))
    result = _as_result(lowering.states, lowered, names)
    if result is not None:
        return Lowered((*lowering.states[:-1], result), lowered, is_result=True)
    return Lowered(tuple(lowering.states), lowered)


def _as_result(states: Sequence[State], root: Node, names: Sequence[str]) -> State | None:
    """The last state with the result as its relation, when the visible columns are the state's, each of them once."""
    origin = {column.id: column.id for column in root.output}
    node = root
    while isinstance(node, Project):
        sources = {column.id: item.id for column, item in node.items if isinstance(item, ColumnRef)}
        if any(source not in sources for source in origin.values()):
            return None
        origin = {output: sources[source] for output, source in origin.items()}
        node = node.child
    if not states or not isinstance(node, Scan) or node.relation != states[-1].relation.name:
        return None
    own = {column.id: stored for column, (stored, _) in zip(node.columns, states[-1].relation.columns, strict=True)}
    visible = [own[origin[column.id]] for column in root.output]
    if len(set(visible)) != len(own) or len(visible) != len(own):
        return None
    shown = dict(zip(visible, names, strict=True))
    key = tuple(shown[column] for column, name in states[-1].relation.columns if name in states[-1].key)
    relation = Relation(RESULT, tuple(shown.items()))
    return replace(states[-1], relation=relation, key=key)


def canonical(value: object, numbers: dict[str, int] | None = None, *, nullability: bool = True) -> object:
    """A hashable form of a plan that is equal for plans that differ in column ids and labels only.

    Without `nullability`, also for those that differ in what is known about NULLs.
    """
    numbers = {} if numbers is None else numbers
    if isinstance(value, Column | ColumnRef):
        known = (value.nullable,) if nullability else ()
        return ("column", numbers.setdefault(value.id, len(numbers)), value.type, *known)
    if isinstance(value, tuple):
        return tuple(canonical(part, numbers, nullability=nullability) for part in cast(tuple[object, ...], value))
    if is_dataclass(value) and not isinstance(value, type):
        names = [part.name for part in fields(value) if nullability or part.name != "nullable"]
        parts = (canonical(getattr(value, name), numbers, nullability=nullability) for name in names)
        return (type(value).__name__, *parts)
    return value


@dataclass(slots=True)
class _Lowering:
    ids: IdGenerator
    options: DeriveOptions
    states: list[State] = field(default_factory=list[State])
    known: dict[object, Project] = field(default_factory=dict[object, Project])

    def node(self, node: Node) -> Node:
        node = self._simplified(node)
        lowered = with_children(node, [self.node(child) for child in children(node)])
        if not isinstance(lowered, Aggregate | Window | TopK):
            return lowered
        form = canonical(lowered)
        if form in self.known:
            return self._again(self.known[form], lowered.output)
        match lowered:
            case Aggregate():
                reading = self._aggregate(lowered)
            case Window():
                reading = self._window(lowered)
            case TopK():
                reading = self._top(lowered)
        self.known[form] = reading
        return reading

    def _again(self, reading: Project, columns: Sequence[Column]) -> Project:
        """A second reading of a state relation, for a subplan that occurs twice."""
        copy, _ = rename_ids(reading, self.ids)
        return Project(copy, tuple((column, ref(own)) for column, own in zip(columns, copy.output, strict=True)))

    def _simplified(self, node: Node) -> Node:
        match node:
            case Distinct():
                return Aggregate(node.child, node.child.output, ())
            case SetOperation():
                return self._set_operation(node)
            case Join() if node.kind in ("semi", "anti"):
                return self._uncorrelated(node)
            case Window():
                return self._one_partitioning(node)
            case TopK() if node.limit is None and not node.offset:
                return self._simplified(node.child)
            case _:
                return node

    def _set_operation(self, node: SetOperation) -> Node:
        """Counts of each row on both sides, and the rows that INTERSECT or EXCEPT keeps of them."""
        left_count, right_count = (self.ids.column(INT64, nullable=False, name=n) for n in ("left_rows", "right_rows"))
        sides = [
            Project(child, tuple((self.ids.like(c), ref(c)) for c in child.output) + self._marks(is_left))
            for child, is_left in ((node.left, True), (node.right, False))
        ]
        marks = (self.ids.like(left_count), self.ids.like(right_count))
        both = UnionAll(tuple(sides), (*node.columns, *marks))
        calls = tuple(
            (total, AggregateCall("sum", (ref(mark),), INT64, nullable=False))
            for total, mark in zip((left_count, right_count), marks, strict=True)
        )
        counted = Aggregate(both, node.columns, calls)
        left, right = ref(left_count), ref(right_count)
        on_right = greater(right, integer(0))
        if not node.all:
            if node.kind == "except":
                on_right = Call("not", (on_right,), on_right.type, nullable=False)
            kept = filtered(counted, [greater(left, integer(0)), on_right])
            return project_columns(kept, node.columns)
        copies: Expression = subtract(left, right)
        if node.kind == "intersect":
            copies = choose(greater(left, right), right, left)
        number = self.ids.column(INT64, nullable=False, name="copy")
        series = Call("generate_series", (integer(1), copies), INT64, nullable=False)
        repeated = Generate(filtered(counted, [greater(copies, integer(0))]), series, (number,))
        return project_columns(repeated, node.columns)

    def _marks(self, is_left: bool) -> tuple[tuple[Column, Expression], ...]:
        values = (1, 0) if is_left else (0, 1)
        return tuple((self.ids.column(INT64, nullable=False, name="mark"), integer(value)) for value in values)

    def _uncorrelated(self, node: Join) -> Node:
        """A semi or anti join that no left column decides, as a test of the right side's row count."""
        left, right = output_ids(node.left), output_ids(node.right)
        parts = conjuncts(node.condition)
        if any(columns_of(part) & left for part in parts):
            return node
        total = self.ids.column(INT64, nullable=False, name="rows")
        matching = filtered(node.right, [part for part in parts if columns_of(part) <= right])
        counted = Aggregate(matching, (), ((total, AggregateCall("count", (), INT64, nullable=False)),))
        some: Expression = greater(ref(total), integer(0))
        if node.kind == "anti":
            some = Call("not", (some,), some.type, nullable=False)
        return project_columns(Join("inner", node.left, Filter(counted, some)), node.left.output)

    def _one_partitioning(self, node: Window) -> Node:
        """Windows of one PARTITION BY each, over columns; expressions in PARTITION BY become columns first."""
        named: dict[Expression, Column] = {}
        for _, call in node.calls:
            for part in call.partition_by:
                if not isinstance(part, ColumnRef):
                    named.setdefault(part, self.ids.column(part.type, nullable=part.nullable, name="partition"))
        child = node.child
        if named:
            own = tuple((column, ref(column)) for column in child.output)
            child = Project(child, own + tuple((column, part) for part, column in named.items()))
        groups: dict[frozenset[str], list[tuple[Column, WindowCall]]] = {}
        for column, call in node.calls:
            parts = tuple(part if isinstance(part, ColumnRef) else ref(named[part]) for part in call.partition_by)
            key = frozenset(part.id for part in parts)
            groups.setdefault(key, []).append((column, replace(call, partition_by=parts)))
        # Without partitions everything is recomputed, so such calls come last and on top.
        ordered = sorted(groups.values(), key=lambda calls: -len(calls[0][1].partition_by))
        if len(ordered) == 1 and not named:
            return node
        result = child
        for calls in ordered:
            result = Window(result, tuple(calls))
        return project_columns(result, node.output)

    def _aggregate(self, node: Aggregate) -> Project:
        components = Components(self.ids, self.options, grouped=bool(node.keys))
        components.rows()
        finals = [(column, components.final(call)) for column, call in node.aggregates]
        keys = tuple((key, self.ids.like(key)) for key in node.keys)
        stored_keys = tuple(stored for _, stored in keys)
        items: list[tuple[Column, Expression]] = [(key, ref(stored)) for key, stored in keys]
        if all(final is not None for _, final in finals):
            found = tuple(components.found.values())
            relation = self._relation((*stored_keys, *(c.column for c in found)))
            state: State = AggregateState(relation, node.child, self._key(relation, keys), keys, found)
            items += [(column, final) for column, final in finals if final is not None]
        else:
            values = tuple((self.ids.like(column), call) for column, call in node.aggregates)
            relation = self._relation((*stored_keys, *(column for column, _ in values)))
            state = RecomputedGroups(relation, node.child, self._key(relation, keys), keys, values)
            items += [(column, ref(value)) for (column, _), (value, _) in zip(node.aggregates, values, strict=True)]
        return Project(self._kept(state), tuple(items))

    @staticmethod
    def _key(relation: Relation, keys: Sequence[tuple[Column, Column]]) -> tuple[str, ...]:
        return tuple(name for _, name in relation.columns[: len(keys)])

    def _window(self, node: Window) -> Project:
        inputs = tuple((column, self.ids.like(column)) for column in node.child.output)
        calls = tuple((self.ids.like(column), call) for column, call in node.calls)
        partition_ids = {part.id for part in node.calls[0][1].partition_by if isinstance(part, ColumnRef)}
        partition = tuple(column for column in node.child.output if column.id in partition_ids)
        relation = self._relation((*(stored for _, stored in inputs), *(column for column, _ in calls)))
        state = WindowState(relation, node.child, (), inputs, partition, calls)
        items = [(column, ref(stored)) for column, stored in inputs]
        items += [(column, ref(stored)) for (column, _), (stored, _) in zip(node.calls, calls, strict=True)]
        return Project(self._kept(state), tuple(items))

    def _top(self, node: TopK) -> Project:
        inputs = tuple((column, self.ids.like(column)) for column in node.child.output)
        relation = self._relation(tuple(stored for _, stored in inputs))
        state = TopKState(relation, node.child, (), inputs, node.order_by, node.limit, node.offset, node.partition_by)
        return Project(self._kept(state), tuple((column, ref(stored)) for column, stored in inputs))

    def _relation(self, columns: Sequence[Column]) -> Relation:
        return Relation(f"state_{len(self.states) + 1}", stored_columns(columns))

    def _kept(self, state: State) -> Scan:
        self.states.append(state)
        stored = state.relation.columns
        return Scan(state.relation.name, tuple(c for c, _ in stored), tuple(name for _, name in stored))
