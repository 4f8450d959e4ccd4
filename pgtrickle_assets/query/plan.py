"""The relational operator tree of a defining query.

A plan is plain immutable data: no engine, no connection. Every output column of every node has an `id` that is unique
in the whole plan, so that rules can move expressions between nodes without capturing names; user-visible names appear
only in `QueryPlan.output`. Relations are bags: two equal rows are two rows.

In every node `output` gives its columns in order; in every expression `nullable` says whether its value can be NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal as TypingLiteral

from pgtrickle_assets.query.types import ColumnSchema, ColumnType, TableName

ScalarValue = bool | int | float | str | bytes | None


@dataclass(frozen=True, slots=True)
class Column:
    """An output column of a node; `name` is only a label for people."""

    id: str
    type: ColumnType
    nullable: bool = True
    name: str = ""


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """The value of a column produced by a child node (or, in a correlated subplan, by an outer one)."""

    id: str
    type: ColumnType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. `value` is the canonical text for every type but boolean, integer and NULL.

    Decimals keep their written scale, floats are shortest round-trip text, dates and timestamps ISO, blobs hexadecimal,
    intervals the text that PostgreSQL prints.
    """

    value: ScalarValue
    type: ColumnType

    @property
    def nullable(self) -> bool:
        return self.value is None


@dataclass(frozen=True, slots=True)
class Call:
    """A scalar function or operator from the function registry, under its canonical name."""

    function: str
    args: tuple[Expression, ...]
    type: ColumnType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Cast:
    """A conversion with PostgreSQL's meaning (rounding, truncation, errors)."""

    arg: Expression
    type: ColumnType

    @property
    def nullable(self) -> bool:
        return self.arg.nullable


@dataclass(frozen=True, slots=True)
class Case:
    """Searched CASE: the first branch whose condition is true."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None
    type: ColumnType
    nullable: bool = True


Expression = ColumnRef | Literal | Call | Cast | Case


@dataclass(frozen=True, slots=True)
class SortKey:
    """One ORDER BY item; `nulls_first` is always explicit."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate function over the rows of a group. `count` without arguments is COUNT(*)."""

    function: str
    args: tuple[Expression, ...]
    type: ColumnType
    distinct: bool = False
    filter: Expression | None = None
    order_by: tuple[SortKey, ...] = ()
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A window function; the frame is SQL text in standard spelling, empty for the default frame.

    `values_by` orders the values of a list; PostgreSQL takes them in the order of the window.
    """

    function: str
    args: tuple[Expression, ...]
    type: ColumnType
    partition_by: tuple[Expression, ...] = ()
    order_by: tuple[SortKey, ...] = ()
    frame: str = ""
    filter: Expression | None = None
    nullable: bool = True
    values_by: tuple[SortKey, ...] = ()


class Version(Enum):
    """Which state of a relation a scan reads."""

    CURRENT = "current"
    """As the query is written: the state asked for by whoever evaluates the plan."""
    OLD = "old"
    """The state at the frontier."""
    NEW = "new"
    """The state at the cut."""
    DELTA = "delta"
    """The Z-set between the two; the scan then has a weight column too (see `Scan.weight`)."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows of a stored or intermediate relation.

    `columns[i]` is read from the column `source_columns[i]` of the relation. `weight` is the id under which the integer
    weight of each row is exposed; it is set exactly when `version` is DELTA or the relation is a Z-set.
    """

    relation: str
    columns: tuple[Column, ...]
    source_columns: tuple[str, ...]
    version: Version = Version.CURRENT
    weight: Column | None = None

    @property
    def output(self) -> tuple[Column, ...]:
        return self.columns if self.weight is None else (*self.columns, self.weight)


@dataclass(frozen=True, slots=True)
class Values:
    """A constant relation."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Expression, ...], ...]

    @property
    def output(self) -> tuple[Column, ...]:
        return self.columns


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows for which `predicate` is true (not false, not NULL)."""

    child: Node
    predicate: Expression

    @property
    def output(self) -> tuple[Column, ...]:
        return self.child.output


@dataclass(frozen=True, slots=True)
class Project:
    """One output column per item."""

    child: Node
    items: tuple[tuple[Column, Expression], ...]

    @property
    def output(self) -> tuple[Column, ...]:
        return tuple(column for column, _ in self.items)


JoinKind = TypingLiteral["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class Join:
    """A join on `condition` (None: cross join). Semi and anti joins expose the left columns only.

    Columns of the NULL-extended side keep their ids; `output` marks them nullable.
    """

    kind: JoinKind
    left: Node
    right: Node
    condition: Expression | None = None

    @property
    def output(self) -> tuple[Column, ...]:
        left, right = self.left.output, self.right.output
        if self.kind in ("semi", "anti"):
            return left
        if self.kind in ("right", "full"):
            left = _as_nullable(left)
        if self.kind in ("left", "full"):
            right = _as_nullable(right)
        return (*left, *right)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row per distinct value of `keys` (columns of the child); without keys exactly one row, even over nothing.

    NULL is a key value like any other. An expression in GROUP BY is a column of a `Project` below.
    """

    child: Node
    keys: tuple[Column, ...]
    aggregates: tuple[tuple[Column, AggregateCall], ...]

    @property
    def output(self) -> tuple[Column, ...]:
        return (*self.keys, *(column for column, _ in self.aggregates))


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each different row of the child once."""

    child: Node

    @property
    def output(self) -> tuple[Column, ...]:
        return self.child.output


@dataclass(frozen=True, slots=True)
class UnionAll:
    """Bag union; column i of each child becomes `columns[i]`."""

    children: tuple[Node, ...]
    columns: tuple[Column, ...]

    @property
    def output(self) -> tuple[Column, ...]:
        return self.columns


@dataclass(frozen=True, slots=True)
class SetOperation:
    """INTERSECT or EXCEPT, with bag counts if `all`; columns match by position."""

    kind: TypingLiteral["intersect", "except"]
    all: bool
    left: Node
    right: Node
    columns: tuple[Column, ...]

    @property
    def output(self) -> tuple[Column, ...]:
        return self.columns


@dataclass(frozen=True, slots=True)
class Window:
    """The child's columns plus one column per window call."""

    child: Node
    calls: tuple[tuple[Column, WindowCall], ...]

    @property
    def output(self) -> tuple[Column, ...]:
        return (*self.child.output, *(column for column, _ in self.calls))


@dataclass(frozen=True, slots=True)
class TopK:
    """ORDER BY with LIMIT and OFFSET, per value of `partition_by` (empty: over everything). `limit` None: no limit."""

    child: Node
    order_by: tuple[SortKey, ...]
    limit: int | None
    offset: int = 0
    partition_by: tuple[Column, ...] = ()

    @property
    def output(self) -> tuple[Column, ...]:
        return self.child.output


@dataclass(frozen=True, slots=True)
class Generate:
    """LATERAL set-returning function: each child row with each element that `generator` returns for it.

    `outer` keeps child rows without elements (LEFT JOIN LATERAL ... ON true).
    """

    child: Node
    generator: Call
    columns: tuple[Column, ...]
    outer: bool = False

    @property
    def output(self) -> tuple[Column, ...]:
        return (*self.child.output, *self.columns)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A subtree that only full recompute can evaluate; `sql` per dialect with `{relation}` placeholders bound by scans.

    `reason` is a code of the rule table (recursive_cte, volatile_function, tablesample, ...).
    """

    reason: str
    detail: str
    inputs: tuple[Scan, ...]
    sql: tuple[tuple[str, str], ...]
    columns: tuple[Column, ...]

    @property
    def output(self) -> tuple[Column, ...]:
        return self.columns


Node = (
    Scan
    | Values
    | Filter
    | Project
    | Join
    | Aggregate
    | Distinct
    | UnionAll
    | SetOperation
    | Window
    | TopK
    | Generate
    | Opaque
)


@dataclass(frozen=True, slots=True)
class InputTable:
    """A table that a query reads, with the columns it needs of it."""

    name: TableName
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A planned defining query.

    `output[i]` is the user-visible name and type of column i of `root`. `inputs` maps each relation key used in scans
    to its table. `notes` are remarks for the user, such as an ORDER BY without effect. `stable_functions` names
    functions like `now()` whose value moves without a source changing; such a plan is never differential. `lineage`
    maps an output column to the (relation, column) pairs that it is computed from.
    """

    root: Node
    output: tuple[ColumnSchema, ...]
    inputs: dict[str, InputTable]
    sql: str
    notes: tuple[str, ...] = ()
    stable_functions: tuple[str, ...] = ()
    volatile_functions: tuple[str, ...] = ()
    lineage: dict[str, tuple[tuple[str, str], ...]] = field(
        default_factory=lambda: dict[str, tuple[tuple[str, str], ...]]()
    )

    @property
    def moves_with_time(self) -> bool:
        """Whether the result may change although no input does."""
        return bool(self.stable_functions or self.volatile_functions)


def children(node: Node) -> Sequence[Node]:
    """The direct inputs of a node."""
    match node:
        case Scan() | Values():
            return ()
        case Join() | SetOperation():
            return (node.left, node.right)
        case UnionAll():
            return node.children
        case Opaque():
            return node.inputs
        case _:
            return (node.child,)


def _as_nullable(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    return tuple(Column(c.id, c.type, True, c.name) for c in columns)
