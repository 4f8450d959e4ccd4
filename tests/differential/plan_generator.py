"""Random plans, tables and batches, as hypothesis strategies that shrink.

Plans are built from the operator tree directly, so every operator is combined with every other, also in ways that no
SQL text reaches. Values come from small domains: NULLs, duplicates and skew are the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from pgtrickle_assets.query.functions.numbers import as_decimal, quotient_type
from pgtrickle_assets.query.plan import (
    Aggregate,
    AggregateCall,
    Call,
    Case,
    Cast,
    Column,
    Distinct,
    Expression,
    Filter,
    Generate,
    InputTable,
    Join,
    Literal,
    Node,
    Project,
    QueryPlan,
    Scan,
    SetOperation,
    SortKey,
    TopK,
    UnionAll,
    Window,
    WindowCall,
)
from pgtrickle_assets.query.rewrite import IdGenerator, ref
from pgtrickle_assets.query.types import (
    BOOLEAN,
    FLOAT64,
    INT32,
    INT64,
    VARCHAR,
    ColumnSchema,
    ColumnType,
    TableName,
    decimal,
)

DECIMAL = decimal(6, 2)
WIDE = decimal(38, 18)

TABLE_COLUMNS = (
    ColumnSchema("k", INT32),
    ColumnSchema("g", VARCHAR),
    ColumnSchema("v", INT32),
    ColumnSchema("d", DECIMAL),
    ColumnSchema("x", FLOAT64),
    ColumnSchema("b", BOOLEAN),
    ColumnSchema("w", WIDE),
)

_DOMAINS: dict[ColumnType, tuple[Any, ...]] = {
    INT32: (None, 0, 1, 1, 2, -1),
    VARCHAR: (None, "a", "a", "", "b"),
    DECIMAL: (None, Decimal("0.00"), Decimal("1.50"), Decimal("-2.25"), Decimal("9.99")),
    FLOAT64: (None, 0.0, -0.0, 1.5, float("nan"), -2.0),
    BOOLEAN: (None, True, False),
    WIDE: (None, Decimal("0.000000000000000001"), Decimal("3.5"), Decimal("-123456789.5")),
}

OPERATORS_BASIC = ("filter", "project", "inner", "aggregate", "union_all", "distinct")
OPERATORS_ALL = (
    *OPERATORS_BASIC,
    "inner",
    "aggregate",
    "left",
    "right",
    "full",
    "semi",
    "anti",
    "set_operation",
    "window",
    "top_k",
    "generate",
)


def row_strategy(columns: Sequence[ColumnSchema] = TABLE_COLUMNS) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*(st.sampled_from(_DOMAINS[column.type]) for column in columns))


@dataclass
class Builder:
    """Draws one plan."""

    draw: Any
    tables: dict[str, Sequence[ColumnSchema]]
    operators: Sequence[str]
    ids: IdGenerator = field(default_factory=IdGenerator)
    scans: int = 0

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def chance(self, label: str = "") -> bool:
        return self.draw(st.booleans())

    def node(self, depth: int) -> Node:
        if depth <= 0 or self.scans >= 4:
            return self.scan()
        operator = self.pick(["scan", *self.operators])
        return getattr(self, operator)(depth) if operator != "scan" else self.scan()

    def scan(self, depth: int = 0) -> Node:
        self.scans += 1
        name = self.pick(sorted(self.tables))
        schema = self.tables[name]
        size = self.draw(st.integers(2, len(schema)))
        chosen = sorted(self.draw(st.permutations(range(len(schema))))[:size])
        columns = tuple(self.ids.column(schema[i].type, name=schema[i].name) for i in chosen)
        return Scan(name, columns, tuple(schema[i].name for i in chosen))

    def column(self, node: Node, *types: ColumnType) -> Column | None:
        fitting = [c for c in node.output if not types or c.type in types]
        return self.pick(fitting) if fitting else None

    def predicate(self, columns: Sequence[Column]) -> Expression:
        column = self.pick(columns)
        kind = self.pick(["compare", "is_null", "pair", "not", "or"])
        if kind == "is_null":
            return Call("is_null", (ref(column),), BOOLEAN, nullable=False)
        if kind == "not":
            return Call("not", (self.comparison(column),), BOOLEAN)
        if kind == "or":
            return Call("or", (self.comparison(column), self.comparison(self.pick(columns))), BOOLEAN)
        if kind == "pair":
            others = [c for c in columns if c.type == column.type]
            operator = self.pick(["=", "<", "<>", "is_not_distinct_from"])
            return Call(operator, (ref(column), ref(self.pick(others))), BOOLEAN)
        return self.comparison(column)

    def comparison(self, column: Column) -> Expression:
        if column.type == BOOLEAN:
            return ref(column)
        operator = self.pick(["=", "<", ">=", "<>"])
        return Call(operator, (ref(column), self.constant(column.type)), BOOLEAN)

    def constant(self, kind: ColumnType) -> Literal:
        if kind == VARCHAR:
            return Literal(self.pick(["a", "b", ""]), VARCHAR)
        if kind.is_integer:
            return Literal(self.pick([0, 1, 2]), kind)
        if kind.name == "decimal":
            return Literal(self.pick(["0", "1"]), kind)
        if kind.name == "list":
            return Literal(None, kind)
        return Literal(self.pick(["0.0", "1.5"]), FLOAT64)

    def filter(self, depth: int) -> Node:
        child = self.node(depth - 1)
        return Filter(child, self.predicate(child.output))

    def project(self, depth: int) -> Node:
        child = self.node(depth - 1)
        items: list[tuple[Column, Expression]] = []
        for _ in range(self.draw(st.integers(1, 4))):
            expression = self.scalar(child)
            items.append((self.ids.column(expression.type, name="p"), expression))
        return Project(child, tuple(items))

    def scalar(self, child: Node) -> Expression:
        column = self.pick(child.output)
        kind = self.pick(["same", "same", "case", "shift", "constant"])
        if kind == "constant":
            return Literal(self.pick([1, 2]), INT32)
        if kind == "shift" and column.type == INT32:
            return Call("+", (ref(column), Literal(1, INT32)), INT32)
        if kind == "case":
            return Case(((self.predicate(child.output), ref(column)),), None, column.type)
        return ref(column)

    def condition(self, left: Node, right: Node) -> Expression | None:
        pairs = [(a, b) for a in left.output for b in right.output if a.type == b.type and a.type.name != "list"]
        if not pairs:
            return None
        parts: list[Expression] = []
        for _ in range(self.draw(st.integers(1, 2))):
            a, b = self.pick(pairs)
            operator = self.pick(["=", "=", "=", "is_not_distinct_from", "<", "<>"])
            operands = (ref(a), ref(b)) if self.chance() else (ref(b), ref(a))
            parts.append(Call(operator, operands, BOOLEAN))
        if self.draw(st.integers(0, 3)) == 3:
            parts.append(self.predicate(self.pick([left, right]).output))
        if self.draw(st.integers(0, 7)) == 7:
            # The condition of NOT IN: also true where the comparison is NULL.
            parts[0] = Call("is_not_false", (parts[0],), BOOLEAN, nullable=False)
        return parts[0] if len(parts) == 1 else Call("and", tuple(parts), BOOLEAN)

    def _join(self, kind: Any, depth: int) -> Node:
        left, right = self.node(depth - 1), self.node(depth - 2)
        condition = self.condition(left, right)
        if condition is None and kind == "full":
            kind = "inner"
        return Join(kind, left, right, condition)

    def inner(self, depth: int) -> Node:
        return self._join("inner", depth)

    def left(self, depth: int) -> Node:
        return self._join("left", depth)

    def right(self, depth: int) -> Node:
        return self._join("right", depth)

    def full(self, depth: int) -> Node:
        return self._join("full", depth)

    def semi(self, depth: int) -> Node:
        return self._join("semi", depth)

    def anti(self, depth: int) -> Node:
        return self._join("anti", depth)

    def keys(self, node: Node, most: int) -> tuple[Column, ...]:
        count = self.draw(st.integers(0, min(most, len(node.output))))
        return tuple(self.draw(st.permutations(list(node.output)))[:count])

    def aggregate(self, depth: int) -> Node:
        child = self.node(depth - 1)
        keys = self.keys(child, 2)
        calls: list[tuple[Column, AggregateCall]] = []
        for _ in range(self.draw(st.integers(1, 3))):
            call = self.aggregate_call(child)
            calls.append((self.ids.column(call.type, name=call.function), call))
        return Aggregate(child, keys, tuple(calls))

    def aggregate_call(self, child: Node) -> AggregateCall:
        condition = self.predicate(child.output) if self.draw(st.integers(0, 4)) == 4 else None
        column = self.pick(child.output)
        options = ["count", "count_all"]
        if column.type.name != "list":
            options += ["min", "max", "count_distinct"]
        if column.type.is_numeric:
            options += ["sum", "sum", "avg"]
        if column.type == BOOLEAN:
            options += ["bool_and", "bool_or"]
        if column.type == VARCHAR:
            options += ["string_agg"]
        function = self.pick(options)
        args: tuple[Expression, ...] = (ref(column),)
        if function == "count_all":
            return AggregateCall("count", (), INT64, filter=condition, nullable=False)
        if function == "count_distinct":
            return AggregateCall("count", args, INT64, distinct=True, filter=condition, nullable=False)
        if function == "count":
            return AggregateCall("count", args, INT64, filter=condition, nullable=False)
        if function == "string_agg":
            order = (SortKey(ref(column)),)
            return AggregateCall(function, (*args, Literal(",", VARCHAR)), VARCHAR, filter=condition, order_by=order)
        if function in ("sum", "avg"):
            kind = sum_type(column.type) if function == "sum" else average_type(column.type)
            return AggregateCall(function, args, kind, filter=condition)
        return AggregateCall(function, args, column.type, filter=condition)

    def distinct(self, depth: int) -> Node:
        return Distinct(self.project(depth))

    def aligned(self, left: Node, right: Node) -> tuple[Node, Node, tuple[Column, ...]]:
        types = [c.type for c in left.output]
        count = self.draw(st.integers(1, min(3, len(types))))
        chosen = self.draw(st.permutations(list(left.output)))[:count]
        sides: list[Node] = [Project(left, tuple((self.ids.like(c), ref(c)) for c in chosen))]
        items: list[tuple[Column, Expression]] = []
        for column in chosen:
            other = self.column(right, column.type)
            value: Expression = Literal(None, column.type) if other is None else ref(other)
            items.append((self.ids.column(column.type), value))
        sides.append(Project(right, tuple(items)))
        return sides[0], sides[1], tuple(self.ids.like(c) for c in chosen)

    def union_all(self, depth: int) -> Node:
        left, right, columns = self.aligned(self.node(depth - 1), self.node(depth - 2))
        return UnionAll((left, right), columns)

    def set_operation(self, depth: int) -> Node:
        left, right, columns = self.aligned(self.node(depth - 1), self.node(depth - 2))
        return SetOperation(self.pick(["intersect", "except"]), self.chance(), left, right, columns)

    def total_order(self, node: Node) -> tuple[SortKey, ...]:
        columns = [c for c in node.output if c.type.name != "list"]
        ordered = self.draw(st.permutations(columns))
        return tuple(SortKey(ref(c), self.chance(), self.chance()) for c in ordered)

    def window(self, depth: int) -> Node:
        child = self.node(depth - 1)
        calls: list[tuple[Column, WindowCall]] = []
        for _ in range(self.draw(st.integers(1, 2))):
            call = self.window_call(child)
            calls.append((self.ids.column(call.type, name=call.function), call))
        return Window(child, tuple(calls))

    def window_call(self, child: Node) -> WindowCall:
        partition = tuple(ref(c) for c in self.keys(child, 2))
        order = self.total_order(child)
        function = self.pick(["row_number", "rank", "dense_rank", "count", "lag", "sum"])
        column = self.column(child, INT32)
        if function == "sum" and column is not None:
            frame = self.pick(["", "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"])
            return WindowCall("sum", (ref(column),), INT64, partition, order, frame)
        if function == "count":
            return WindowCall("count", (), INT64, partition, order[:1], nullable=False)
        if function == "lag" and column is not None:
            return WindowCall("lag", (ref(column),), INT32, partition, order)
        if function in ("lag", "sum"):
            function = "row_number"
        ties = order[:1] if function != "row_number" else order
        return WindowCall(function, (), INT64, partition, ties, nullable=False)

    def top_k(self, depth: int) -> Node:
        child = self.node(depth - 1)
        partition = self.keys(child, 1)
        limit = self.draw(st.integers(1, 3))
        offset = self.draw(st.sampled_from([0, 0, 1]))
        return TopK(child, self.total_order(child), limit, offset, partition)

    def generate(self, depth: int) -> Node:
        child = self.node(depth - 1)
        column = self.column(child, INT32)
        if column is None:
            return child
        series = Call("generate_series", (Literal(0, INT64), Cast(ref(column), INT64)), INT64)
        return Generate(child, series, (self.ids.column(INT64, name="e"),), self.chance())


def sum_type(kind: ColumnType) -> ColumnType:
    if kind.name in ("int16", "int32"):
        return INT64
    if kind.is_float:
        return kind
    return decimal(38, as_decimal(kind).scale or 0)


def average_type(kind: ColumnType) -> ColumnType:
    return FLOAT64 if kind.is_float else quotient_type(decimal(38, as_decimal(kind).scale or 0), decimal(19, 0))


@dataclass(frozen=True)
class Scenario:
    """A plan, the rows at the start, and batches of (table, row, weight)."""

    root: Node
    tables: dict[str, list[tuple[Any, ...]]]
    batches: list[list[tuple[str, tuple[Any, ...], int]]]

    def plan(self) -> QueryPlan:
        output = tuple(ColumnSchema(f"o{i}", c.type, c.nullable) for i, c in enumerate(self.root.output))
        inputs = {
            name: InputTable(TableName("public", name), tuple(c.name for c in TABLE_COLUMNS)) for name in self.tables
        }
        return QueryPlan(self.root, output, inputs, "")


@st.composite
def scenarios(draw: Any, operators: Sequence[str] = OPERATORS_ALL, depth: int = 4, top: str = "") -> Scenario:
    """A random scenario; tables have at most a handful of rows. `top` is the operator at the root, if given."""
    names = ["t1", "t2"]
    builder = Builder(draw, dict.fromkeys(names, TABLE_COLUMNS), operators)
    levels = draw(st.sampled_from([1, 2, depth - 1, depth]))
    root = getattr(builder, top)(levels) if top else builder.node(levels)
    tables = {
        name: draw(st.lists(row_strategy(), min_size=draw(st.sampled_from([0, 2, 4])), max_size=6)) for name in names
    }
    current = {name: list(rows) for name, rows in tables.items()}
    batches: list[list[tuple[str, tuple[Any, ...], int]]] = []
    for _ in range(draw(st.integers(1, 3))):
        batches.append(_batch(draw, current))
    return Scenario(root, tables, batches)


def _batch(draw: Any, current: dict[str, list[tuple[Any, ...]]]) -> list[tuple[str, tuple[Any, ...], int]]:
    delta: list[tuple[str, tuple[Any, ...], int]] = []
    for name in sorted(current):
        rows = current[name]
        for action in draw(
            st.lists(st.sampled_from(["insert", "delete", "update", "undo", "clear", "twice"]), max_size=4)
        ):
            row = draw(row_strategy()) if action in ("insert", "update", "undo", "twice") else ()
            if action in ("insert", "undo", "twice"):
                copies = 2 if action == "twice" else 1
                delta.append((name, row, copies))
                rows.extend([row] * copies)
            if action == "undo":
                delta.append((name, row, -1))
                rows.remove(row)
            if action in ("delete", "update") and rows:
                gone = rows.pop(draw(st.integers(0, len(rows) - 1)))
                delta.append((name, gone, -1))
                if action == "update":
                    # Often one column only, so that keys move or stay.
                    changed = list(gone)
                    position = draw(st.integers(0, len(changed) - 1))
                    changed[position] = row[position]
                    rows.append(tuple(changed))
                    delta.append((name, tuple(changed), 1))
            if action == "clear":
                delta.extend((name, gone, -1) for gone in rows)
                rows.clear()
    return delta
