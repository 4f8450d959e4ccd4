"""Instances of plan nodes inside the query of a step.

A defining plan is read several times in one maintenance run: its old state, its new state, its delta, often side by
side in one query. Each reading is a copy with column ids of its own, and a `View` remembers which of them stands for
which column of the defining plan, so that rules can use the plan's expressions on any reading without capturing
names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pgtrickle_assets.differential.expressions import integer, unequal
from pgtrickle_assets.differential.steps import Picked
from pgtrickle_assets.query.plan import (
    Aggregate,
    AggregateCall,
    Call,
    Column,
    ColumnRef,
    Expression,
    Filter,
    Join,
    JoinKind,
    Literal,
    Node,
    Project,
    Scan,
    UnionAll,
    Version,
)
from pgtrickle_assets.query.rewrite import IdGenerator, conjunction, conjuncts, ref, rename_ids, substitute
from pgtrickle_assets.query.types import INT64

WEIGHT = "__pgt_weight"
"""Name of the weight column in stored Z-sets and step outputs."""


@dataclass(frozen=True, slots=True)
class View:
    """A reading of a plan node.

    Attributes:
        node: The operator tree to evaluate.
        columns: Maps the id of a column of the defining plan to the output column of `node` that holds it.
        weight: The output column of `node` with the weight of each row; None for a bag.
        inserts_only: No row of this Z-set has a negative weight.
        sums: What the rows are, with equal ones added up, where it is that and nothing more.
    """

    node: Node
    columns: Mapping[str, Column]
    weight: Column | None = None
    inserts_only: bool = False
    sums: Selection | None = None

    def ref(self, column: Column | str) -> ColumnRef:
        """The value of a column of the defining plan."""
        return ref(self.columns[column if isinstance(column, str) else column.id])

    def expression(self, expression: Expression) -> Expression:
        """An expression of the defining plan, over this reading."""
        return substitute(expression, {old: ref(new) for old, new in self.columns.items()})

    def with_node(self, node: Node) -> View:
        """The same columns, read from another tree that still puts them out."""
        return View(node, self.columns, self.weight, self.inserts_only)


@dataclass(frozen=True, slots=True)
class Relation:
    """A stored relation or the output of a step, and the plan columns that its columns hold."""

    name: str
    columns: tuple[tuple[Column, str], ...]
    """Plan column and the name under which it is stored."""
    weighted: bool = False
    version: Version = Version.CURRENT
    inserts_only: bool = False

    @property
    def plan_columns(self) -> tuple[Column, ...]:
        """The plan columns in stored order."""
        return tuple(column for column, _ in self.columns)

    def scan(self, ids: IdGenerator, only: Iterable[str] | None = None, version: Version | None = None) -> View:
        """A fresh reading of the relation, of the plan columns in `only` or of all."""
        wanted = None if only is None else frozenset(only)
        chosen = [item for item in self.columns if wanted is None or item[0].id in wanted]
        fresh = tuple(ids.like(column) for column, _ in chosen)
        version = version or self.version
        weighted = self.weighted or version is Version.DELTA
        weight = ids.column(INT64, nullable=False, name=WEIGHT) if weighted else None
        node = Scan(self.name, fresh, tuple(name for _, name in chosen), version, weight)
        columns = {column.id: new for (column, _), new in zip(chosen, fresh, strict=True)}
        return View(node, columns, weight, self.inserts_only)


@dataclass(frozen=True, slots=True)
class Selection:
    """Some rows of what is there already: read again wherever they are needed, instead of being a step's output again.

    See `selection`.
    """

    view: View
    plan_columns: tuple[Column, ...]

    @property
    def inserts_only(self) -> bool:
        """See `View.inserts_only`."""
        return self.view.inserts_only

    def scan(self, ids: IdGenerator, only: Iterable[str] | None = None) -> View:
        """A fresh reading of the plan columns in `only` or of all."""
        wanted = None if only is None else frozenset(only)
        chosen = [column for column in self.plan_columns if wanted is None or column.id in wanted]
        return select(copy(self.view, ids), chosen, ids)

    def picked(self) -> Picked | None:
        """The rows without a query, unless values are compared."""
        node, flags = self.view.node, list[str]()
        ids = [self.view.columns[column.id].id for column in self.plan_columns]
        while isinstance(node, Filter | Project):
            if isinstance(node, Filter):
                parts = conjuncts(node.predicate)
                if not all(isinstance(part, ColumnRef) for part in parts):
                    return None
                flags += [part.id for part in parts if isinstance(part, ColumnRef)]
            else:
                items = {column.id: item.id for column, item in node.items if isinstance(item, ColumnRef)}
                if not items.keys() >= set(flags):
                    return None
                ids, flags = [items[i] for i in ids], [items[i] for i in flags]
            node = node.child
        assert isinstance(node, Scan)  # noqa: S101 - that is what a selection is of
        names = {column.id: name for column, name in zip(node.columns, node.source_columns, strict=True)}
        return Picked(node.relation, tuple(names[i] for i in ids), tuple(names[i] for i in flags))


Rows = Relation | Selection
"""Rows that may be read many times."""

_TESTS = frozenset(("=", "<>", "<", "<=", ">", ">=", "in", "is_null", "is_not_null"))


def selection(view: View, columns: Sequence[Column]) -> Selection | None:
    """The view if it is changes or a step's output under comparisons of columns, and has these plan columns from there.

    Then the driver knows the values that can occur about as well as if it had computed the view.
    """
    node, ids = view.node, {view.columns[column.id].id for column in columns}
    while isinstance(node, Filter | Project):
        if isinstance(node, Filter):
            if not all(_compares_columns(part) for part in conjuncts(node.predicate)):
                return None
        else:
            items = [item for column, item in node.items if column.id in ids]
            if not all(isinstance(item, ColumnRef) for item in items):
                return None
            ids = {item.id for item in items if isinstance(item, ColumnRef)}
        node = node.child
    # What has one state only is the output of a step.
    is_stored = isinstance(node, Scan) and (node.weight is not None or node.version is Version.CURRENT)
    return Selection(view, tuple(columns)) if is_stored and columns else None


def _compares_columns(part: Expression) -> bool:
    if not isinstance(part, Call):
        return isinstance(part, ColumnRef)
    if part.function in ("and", "or"):
        return all(_compares_columns(arg) for arg in part.args)
    return part.function in _TESTS and all(isinstance(arg, ColumnRef | Literal) for arg in part.args)


def copy(view: View, ids: IdGenerator) -> View:
    """The same reading under other column ids, for a second use in one query."""
    node, names = rename_ids(view.node, ids)
    fresh = {column.id: column for column in node.output}
    columns = {old: fresh[names[column.id]] for old, column in view.columns.items()}
    weight = None if view.weight is None else fresh[names[view.weight.id]]
    return View(node, columns, weight, view.inserts_only)


def filtered(view: View, predicate: Expression) -> View:
    """Rows of the view for which `predicate`, over the defining plan's columns, is true."""
    return view.with_node(Filter(view.node, view.expression(predicate)))


def project(
    view: View,
    items: Sequence[tuple[Column, Expression]],
    ids: IdGenerator,
    *,
    weight: Expression | None = None,
) -> View:
    """One column per item, computed from the view; the plan columns of the items name the result's columns.

    Args:
        view: What to read.
        items: Plan column and its value as an expression over `view.node` (already translated).
        ids: Source of column ids.
        weight: New weight over `view.node`; the view's own weight stays when left out.
    """
    fresh = [(ids.like(column), expression) for column, expression in items]
    columns = {column.id: new for (column, _), (new, _) in zip(items, fresh, strict=True)}
    new_weight: Column | None = None
    if weight is None and view.weight is not None:
        weight = ref(view.weight)
    if weight is not None:
        new_weight = ids.column(INT64, nullable=False, name=WEIGHT)
        fresh.append((new_weight, weight))
    return View(Project(view.node, tuple(fresh)), columns, new_weight, view.inserts_only)


def select(view: View, columns: Iterable[Column], ids: IdGenerator) -> View:
    """The view with only these plan columns (and its weight)."""
    return project(view, [(column, view.ref(column)) for column in columns], ids)


def weighted(view: View, value: int, ids: IdGenerator, columns: Iterable[Column]) -> View:
    """The bag `view` as a Z-set in which every row has weight `value`."""
    items = [(column, view.ref(column)) for column in columns]
    result = project(view, items, ids, weight=integer(value))
    return View(result.node, result.columns, result.weight, inserts_only=value > 0)


def joined(kind: JoinKind, left: View, right: View, conditions: Iterable[Expression]) -> View:
    """The join of two views on translated conditions; at most one of them is a Z-set."""
    condition = conjunction(list(conditions))
    node = Join(kind, left.node, right.node, condition)
    if kind in ("semi", "anti"):
        return View(node, left.columns, left.weight, left.inserts_only)
    fresh = {column.id: column for column in node.output}
    columns = {old: fresh[new.id] for side in (left, right) for old, new in side.columns.items()}
    return View(node, columns, left.weight or right.weight, left.inserts_only or right.inserts_only)


def union(views: Sequence[View], columns: Sequence[Column], ids: IdGenerator) -> View:
    """The bag or Z-set sum of views that all hold the plan columns `columns`."""
    parts = [select(view, columns, ids) for view in views]
    if len(parts) == 1:
        return parts[0]
    outputs = tuple(ids.like(column) for column in columns)
    weight = None if parts[0].weight is None else ids.column(INT64, nullable=False, name=WEIGHT)
    node = UnionAll(tuple(part.node for part in parts), outputs if weight is None else (*outputs, weight))
    by_plan = {column.id: new for column, new in zip(columns, outputs, strict=True)}
    return View(node, by_plan, weight, all(part.inserts_only for part in parts))


def grouped(
    view: View, keys: Sequence[Column], aggregates: Sequence[tuple[Column, AggregateCall]], ids: IdGenerator
) -> View:
    """The bag with one row per key value; aggregate calls are over `view.node`, both kinds named by plan columns."""
    key_columns = [view.columns[key.id] for key in keys]
    fresh = [(ids.like(column), call) for column, call in aggregates]
    node = Aggregate(view.node, tuple(key_columns), tuple(fresh))
    columns = {key.id: column for key, column in zip(keys, key_columns, strict=True)}
    columns |= {column.id: new for (column, _), (new, _) in zip(aggregates, fresh, strict=True)}
    return View(node, columns)


def total_weight(weight: Expression) -> AggregateCall:
    """The sum of weights, a BIGINT."""
    return AggregateCall("sum", (weight,), INT64)


def consolidated(view: View, columns: Sequence[Column], ids: IdGenerator) -> View:
    """The Z-set with equal rows (NULL equals NULL) added up and zeros gone, on `columns` only."""
    narrow = select(view, columns, ids)
    assert narrow.weight is not None  # noqa: S101 - only Z-sets are consolidated
    weight = Column("weight", INT64, nullable=False, name=WEIGHT)
    sums = grouped(narrow, columns, [(weight, total_weight(ref(narrow.weight)))], ids)
    summed = sums.columns[weight.id]
    node = Filter(sums.node, unequal(ref(summed), integer(0)))
    columns_out = {column.id: sums.columns[column.id] for column in columns}
    return View(node, columns_out, summed, view.inserts_only, selection(narrow, columns))
