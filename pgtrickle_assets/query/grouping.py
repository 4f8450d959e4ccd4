"""GROUP BY, HAVING and the calls they bring: aggregates, grouping sets and windows of one query block.

Sources: PostgreSQL 18 documentation 7.2.3-7.2.5 and 9.21 (GROUPING).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import (
    Aggregate,
    AggregateCall,
    Column,
    ColumnRef,
    Expression,
    Literal,
    Node,
    Project,
    UnionAll,
    Window,
    WindowCall,
)
from pgtrickle_assets.query.rewrite import IdGenerator, columns_of, map_window, ref, rename_ids, transform
from pgtrickle_assets.query.types import INT32

GroupingSets = list[tuple[int, ...]]


@dataclass(slots=True)
class Calls:
    """Aggregate and window calls of one block, each under the column that stands for it; equal calls share one."""

    ids: IdGenerator
    aggregates: dict[AggregateCall, Column] = field(default_factory=lambda: dict[AggregateCall, Column]())
    windows: list[tuple[Column, WindowCall]] = field(default_factory=lambda: list[tuple[Column, WindowCall]]())
    groupings: dict[tuple[Expression, ...], Column] = field(
        default_factory=lambda: dict[tuple[Expression, ...], Column]()
    )
    windows_allowed: bool = True
    clause: str = ""

    def aggregate(self, call: AggregateCall, line: int | None) -> ColumnRef:
        """The column of an aggregate."""
        column = self.aggregates.get(call)
        if column is None:
            column = self.ids.column(call.type, nullable=call.nullable, name=call.function)
            self.aggregates[call] = column
        return ref(column)

    def window(self, call: WindowCall, line: int | None) -> ColumnRef:
        """The column of a window function."""
        if not self.windows_allowed:
            raise QueryError(f"window functions are not allowed in {self.clause}", line=line)
        column = next((column for column, known in self.windows if known == call), None)
        if column is None:
            column = self.ids.column(call.type, nullable=call.nullable, name=call.function)
            self.windows.append((column, call))
        return ref(column)

    def grouping(self, args: tuple[Expression, ...], line: int | None) -> Expression:
        """The column of GROUPING(args)."""
        column = self.groupings.get(args)
        if column is None:
            column = self.ids.column(INT32, nullable=False, name="grouping")
            self.groupings[args] = column
        return ref(column)


@dataclass(frozen=True, slots=True)
class GroupBy:
    """The keys of GROUP BY and the sets of them to group by (indices into `keys`)."""

    keys: tuple[Expression, ...]
    sets: tuple[tuple[int, ...], ...]


def group_by(clause: exp.Group | None, analyze: Callable[[Any], Expression]) -> GroupBy:
    """GROUP BY as keys and grouping sets; without a clause one empty set.

    Args:
        clause: The parsed clause, or None.
        analyze: Turns one grouping item into an expression over the rows of FROM.
    """
    if clause is None:
        return GroupBy((), ((),))
    if clause.args.get("all"):
        raise QueryError("GROUP BY ALL is not PostgreSQL", line=line_of(clause))
    keys: list[Expression] = []

    def index(node: Any) -> int:
        expression = analyze(node)
        if expression not in keys:
            keys.append(expression)
        return keys.index(expression)

    def columns(node: Any) -> tuple[int, ...]:
        if isinstance(node, exp.Tuple):
            return tuple(index(part) for part in node.expressions)
        return (index(node.this if isinstance(node, exp.Paren) else node),)

    def sets(node: Any) -> GroupingSets:
        if isinstance(node, exp.Rollup):
            parts = [columns(part) for part in node.expressions]
            return [tuple(itertools.chain(*parts[:n])) for n in range(len(parts), -1, -1)]
        if isinstance(node, exp.Cube):
            parts = [columns(part) for part in node.expressions]
            subsets = [c for n in range(len(parts), -1, -1) for c in itertools.combinations(parts, n)]
            return [tuple(itertools.chain(*subset)) for subset in subsets]
        if isinstance(node, exp.GroupingSets):
            return [one for part in node.expressions for one in sets(part)]
        return [columns(node)]

    product = [
        tuple(dict.fromkeys(itertools.chain(*combination)))
        for combination in itertools.product(*(sets(node) for node in _items(clause)))
    ]
    if clause.args.get("all") is False:
        product = list({tuple(sorted(one)): one for one in product}.values())
    return GroupBy(tuple(keys), tuple(product))


def _items(clause: exp.Group) -> list[Any]:
    """Grouping items in the order they are written, wherever the parser keeps them."""
    items: list[Any] = list(clause.expressions)
    for key in ("grouping_sets", "cube", "rollup"):
        items += clause.args.get(key) or []
    return items


class GroupedBlock:
    """Builds the Aggregate (one, or one per grouping set) and rewrites expressions to read it."""

    def __init__(
        self, ids: IdGenerator, groups: GroupBy, calls: Calls, identified: Callable[[Sequence[str]], Sequence[Column]]
    ) -> None:
        self.ids = ids
        self.groups = groups
        self.calls = calls
        self.identified = identified
        plain = len(groups.sets) == 1 and len(groups.sets[0]) == len(groups.keys)
        self.columns = [self._key_column(key, plain=plain) for key in groups.keys]
        self.by_key: dict[Expression, Column] = dict(zip(groups.keys, self.columns, strict=True))
        self._dependent: dict[str, Column] = {}
        if plain:
            # A key that is the primary key of a table determines that table's other columns.
            for column in identified([key.id for key in groups.keys if isinstance(key, ColumnRef)]):
                self._dependent.setdefault(column.id, column)
        self.extra: dict[str, Column] = {}

    def _key_column(self, key: Expression, *, plain: bool) -> Column:
        """The output column of a key: the input column itself where one is grouped by, else a new one."""
        if plain and isinstance(key, ColumnRef):
            return Column(key.id, key.type, key.nullable)
        return self.ids.column(key.type, nullable=key.nullable or not plain)

    def over_groups(self, expression: Expression, allowed: frozenset[str], line: int | None) -> Expression:
        """The expression over the output of the Aggregate.

        Args:
            expression: Over rows of FROM, aggregate columns and columns of pending subqueries.
            allowed: Ids that may stay as they are: aggregates, windows, subqueries and outer columns.
            line: For the error.

        Raises:
            QueryError: It reads a column that is neither grouped nor aggregated.
        """

        def replace_key(part: Expression) -> Expression | None:
            column = self.by_key.get(part)
            if column is None and isinstance(part, ColumnRef):
                column = next((c for k, c in self.by_key.items() if isinstance(k, ColumnRef) and k.id == part.id), None)
            if column is not None:
                return ref(column)
            if isinstance(part, ColumnRef) and part.id not in allowed:
                return self._functionally_dependent(part, line)
            return None

        return transform(expression, replace_key)

    def _functionally_dependent(self, part: ColumnRef, line: int | None) -> Expression:
        if part.id not in self._dependent:
            name = self._name(part)
            raise QueryError(
                f"column {name}must appear in the GROUP BY clause or be used in an aggregate function", line=line
            )
        if part.id not in self.extra:
            self.extra[part.id] = self.ids.column(part.type, nullable=part.nullable)
        return ref(self.extra[part.id])

    def _name(self, part: ColumnRef) -> str:
        for column in self.identified(()):
            if column.id == part.id and column.name:
                return f'"{column.name}" '
        return ""

    def aggregate(self, child: Node) -> Node:
        """The Aggregate node(s) over the rows of FROM."""
        calls = tuple((column, call) for call, column in self.calls.aggregates.items())
        if len(self.groups.sets) == 1 and len(self.groups.sets[0]) == len(self.groups.keys):
            return self._single(child, calls)
        return self._sets(child, calls)

    def _single(self, child: Node, calls: tuple[tuple[Column, AggregateCall], ...]) -> Node:
        names = {column.id: column for column in child.output}
        keys = list(zip(self.columns, self.groups.keys, strict=True))
        computed = [(column, key) for column, key in keys if column.id not in names]
        computed += [(column, ref(names[source])) for source, column in self.extra.items()]
        projected = Project(child, (*((c, ref(c)) for c in child.output), *computed)) if computed else child
        columns = [names.get(column.id, column) for column, _ in keys]
        node: Node = Aggregate(projected, (*columns, *self.extra.values()), calls)
        if self.calls.groupings:
            zeros = [(column, Literal(0, INT32)) for column in self.calls.groupings.values()]
            node = Project(node, (*((c, ref(c)) for c in node.output), *zeros))
        return node

    def _sets(self, child: Node, calls: tuple[tuple[Column, AggregateCall], ...]) -> Node:
        """One aggregate per grouping set over a copy of the input; keys outside the set are NULL."""
        branches: list[Node] = []
        groupings = tuple(self.calls.groupings.items())
        columns = (*self.columns, *(c for c, _ in calls), *(c for _, c in groupings))
        for members in self.groups.sets:
            # Ids are unique in a plan, and the column ids of the block belong to the union.
            branches.append(rename_ids(self._set(child, calls, members, groupings), self.ids)[0])
        return UnionAll(tuple(branches), columns)

    def _set(
        self,
        child: Node,
        calls: tuple[tuple[Column, AggregateCall], ...],
        members: tuple[int, ...],
        groupings: tuple[tuple[tuple[Expression, ...], Column], ...],
    ) -> Node:
        chosen = [(self.columns[i], self.groups.keys[i]) for i in members]
        projected = Project(child, (*((c, ref(c)) for c in child.output), *chosen)) if chosen else child
        grouped = Aggregate(projected, tuple(column for column, _ in chosen), calls)
        items: list[tuple[Column, Expression]] = []
        for index, column in enumerate(self.columns):
            value = ref(column) if index in members else Literal(None, column.type)
            items.append((self.ids.like(column), value))
        items += [(self.ids.like(column), ref(column)) for column, _ in calls]
        items += [(self.ids.like(column), self._grouping_value(args, members)) for args, column in groupings]
        return Project(grouped, tuple(items))

    def _grouping_value(self, args: tuple[Expression, ...], members: tuple[int, ...]) -> Literal:
        value = 0
        for arg in args:
            if arg not in self.groups.keys:
                raise QueryError("arguments to GROUPING must be grouping expressions")
            value = value * 2 + (0 if self.groups.keys.index(arg) in members else 1)
        return Literal(value, INT32)


def windowed(
    child: Node, calls: Sequence[tuple[Column, WindowCall]], change: Callable[[Expression], Expression]
) -> Node:
    """Window nodes over a plan, one per different partitioning; calls that read others come above them."""
    changed = [(column, map_window(call, change)) for column, call in calls]
    level: dict[str, int] = {}
    by_partition: dict[tuple[int, tuple[Expression, ...]], list[tuple[Column, WindowCall]]] = {}
    for column, call in changed:
        keys = [*(key.expression for key in call.order_by), *call.partition_by]
        read = (i for key in keys for i in columns_of(key))
        level[column.id] = max((level[i] + 1 for i in read if i in level), default=0)
        by_partition.setdefault((level[column.id], call.partition_by), []).append((column, call))
    node = child
    for _, group in sorted(by_partition.items(), key=lambda item: item[0][0]):
        node = Window(node, tuple(group))
    return node
