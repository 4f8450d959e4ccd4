"""A plan as SQL text for Spark or DuckDB.

Each node becomes one derived table whose columns are named by their ids, so no column can be captured by another.
Common table expressions would read better, but Spark takes several times as long to analyse them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pgtrickle_assets.query.functions.registry import Dialect
from pgtrickle_assets.query.plan import (
    Aggregate,
    Call,
    Column,
    Distinct,
    Filter,
    Generate,
    Join,
    Node,
    Opaque,
    Project,
    Scan,
    SetOperation,
    TopK,
    UnionAll,
    Values,
    Window,
)
from pgtrickle_assets.query.render_aggregates import aggregate_text, window_text
from pgtrickle_assets.query.render_expressions import ExpressionWriter
from pgtrickle_assets.query.render_generators import generator_source
from pgtrickle_assets.query.render_types import identifier, type_name
from pgtrickle_assets.query.rewrite import conjuncts

WEIGHT_COLUMN = "__pgt_weight"
"""Name of the weight column in a stored Z-set."""

_EQUALITIES = ("=", "is_not_distinct_from")

_JOIN_WORDS = {
    "inner": "INNER JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
}


def render(
    node: Node,
    dialect: Dialect,
    relation_name: Callable[[Scan], str],
    output: Sequence[tuple[str, str]] | None = None,
    *,
    one_task: bool = False,
) -> str:
    """SQL text that evaluates a plan.

    Args:
        node: Root of the plan.
        dialect: Engine that runs the text: "spark" (4.x, ANSI mode, session time zone UTC) or "duckdb" (time zone UTC).
        relation_name: Quoted SQL text of the relation that a scan reads.
        output: (column id, name) of each column of the result, in order; None: all columns, named by their ids.
        one_task: Whether Spark is to join within one task: without sorting, and without an exchange between joins.

    Returns:
        One SELECT statement without a trailing semicolon.
    """
    return _Renderer(dialect, relation_name, one_task=one_task).statement(node, output)


class _Renderer:
    def __init__(self, dialect: Dialect, relation_name: Callable[[Scan], str], *, one_task: bool) -> None:
        self.dialect: Dialect = dialect
        self.one_task = one_task and dialect == "spark"
        self.relation_name = relation_name
        self.writer = ExpressionWriter(dialect)
        self.tables = 0

    def statement(self, node: Node, output: Sequence[tuple[str, str]] | None) -> str:
        name = self.relation(node)
        pairs = [(column.id, column.id) for column in node.output] if output is None else output
        items = ", ".join(
            self.quote(i) if i == label else f"{self.quote(i)} AS {self.quote(label)}" for i, label in pairs
        )
        return f"SELECT {items or '1'}\nFROM {name}"

    def quote(self, name: str) -> str:
        return identifier(name, self.dialect)

    def relation(self, node: Node) -> str:
        """Write a node as a derived table."""
        text = self.query(node)
        self.tables += 1
        return f"(\n{text}\n) AS pgt_{self.tables}"

    def names(self, columns: Sequence[Column]) -> str:
        """Column list; a relation without columns still needs one to count its rows by."""
        return ", ".join(self.quote(column.id) for column in columns) or "1 AS pgt_none"

    def query(self, node: Node) -> str:
        match node:
            case Scan():
                return self.scan(node)
            case Values():
                return self.values(node)
            case Filter():
                child = self.relation(node.child)
                return f"SELECT {self.names(node.output)} FROM {child} WHERE {self.writer.expression(node.predicate)}"
            case Project():
                return self.project(node)
            case Join():
                return self.join(node)
            case Aggregate():
                return self.aggregate(node)
            case Distinct():
                return f"SELECT DISTINCT {self.names(node.output)} FROM {self.relation(node.child)}"
            case UnionAll():
                return self.union(node)
            case SetOperation():
                return self.set_operation(node)
            case Window():
                child = self.relation(node.child)
                calls = [f"{window_text(call, self.writer)} AS {self.quote(c.id)}" for c, call in node.calls]
                inherited = [self.quote(column.id) for column in node.child.output]
                return f"SELECT {', '.join([*inherited, *calls])} FROM {child}"
            case TopK():
                return self.top(node)
            case Generate():
                child = self.relation(node.child)
                source = generator_source(node, child, self.writer)
                return f"SELECT {self.names(node.output)} FROM {source}"
            case Opaque():
                return self.opaque(node)

    def scan(self, node: Scan) -> str:
        items = [
            f"{self.quote(source)} AS {self.quote(column.id)}"
            for source, column in zip(node.source_columns, node.columns, strict=True)
        ]
        if node.weight is not None:
            items.append(f"{self.quote(WEIGHT_COLUMN)} AS {self.quote(node.weight.id)}")
        return f"SELECT {', '.join(items) or '1 AS pgt_none'} FROM {self.relation_name(node)}"

    def values(self, node: Values) -> str:
        selects: list[str] = []
        for row in node.rows:
            items = [
                f"CAST({self.writer.expression(value)} AS {type_name(c.type, self.dialect)}) AS {self.quote(c.id)}"
                if c.type.name != "unknown"
                else f"{self.writer.expression(value)} AS {self.quote(c.id)}"
                for c, value in zip(node.columns, row, strict=True)
            ]
            selects.append(f"SELECT {', '.join(items) or '1 AS pgt_none'}")
        if not selects:
            nulls = [f"CAST(NULL AS {type_name(c.type, self.dialect)}) AS {self.quote(c.id)}" for c in node.columns]
            return f"SELECT {', '.join(nulls) or '1 AS pgt_none'} WHERE FALSE"
        return " UNION ALL ".join(selects)

    def project(self, node: Project) -> str:
        child = self.relation(node.child)
        items: list[str] = []
        for column, expression in node.items:
            text, name = self.writer.expression(expression), self.quote(column.id)
            items.append(text if text == name else f"{text} AS {name}")
        return f"SELECT {', '.join(items) or '1 AS pgt_none'} FROM {child}"

    def join(self, node: Join) -> str:
        left = self.relation(node.left)
        left_table = self.tables
        right = self.relation(node.right)
        condition = "TRUE" if node.condition is None else self.writer.expression(node.condition)
        names = self.join_hints(node, left_table, self.tables) + self.names(node.output)
        if node.kind in ("semi", "anti"):
            word = f"LEFT {node.kind.upper()} JOIN" if self.dialect == "spark" else f"{node.kind.upper()} JOIN"
            return f"SELECT {names} FROM {left} {word} {right} ON {condition}"
        if node.kind == "inner" and node.condition is None:
            return f"SELECT {names} FROM {left} CROSS JOIN {right}"
        return f"SELECT {names} FROM {left} {_JOIN_WORDS[node.kind]} {right} ON {condition}"

    def join_hints(self, node: Join, left: int, right: int) -> str:
        """What makes Spark join two derived tables by hash, where it is asked to stay in one task."""
        if not self.one_task:
            return ""
        hints: list[str] = []
        if node.kind == "inner":
            # Spark 4.3 takes the output of an inner join of single partitions for partitioned anyhow.
            hints.append("COALESCE(1)")
        if any(isinstance(part, Call) and part.function in _EQUALITIES for part in conjuncts(node.condition)):
            hints.append(f"SHUFFLE_HASH(pgt_{left}, pgt_{right})")
        return f"/*+ {', '.join(hints)} */ " if hints else ""

    def aggregate(self, node: Aggregate) -> str:
        child = self.relation(node.child)
        keys = [self.quote(key.id) for key in node.keys]
        calls = [f"{aggregate_text(call, self.writer)} AS {self.quote(c.id)}" for c, call in node.aggregates]
        if not keys:
            # An aggregate without GROUP BY has one row even when nothing of it is used.
            return f"SELECT {', '.join(calls) or 'count(*) AS pgt_none'} FROM {child}"
        return f"SELECT {', '.join([*keys, *calls])} FROM {child} GROUP BY {', '.join(keys)}"

    def union(self, node: UnionAll) -> str:
        return " UNION ALL ".join(self.branch(child, node.columns) for child in node.children)

    def branch(self, child: Node, columns: Sequence[Column]) -> str:
        """One operand of a set operation, its columns renamed by position."""
        name = self.relation(child)
        pairs = zip(child.output, columns, strict=True)
        items = ", ".join(f"{self.quote(old.id)} AS {self.quote(new.id)}" for old, new in pairs)
        return f"SELECT {items or '1 AS pgt_none'} FROM {name}"

    def set_operation(self, node: SetOperation) -> str:
        word = node.kind.upper() + (" ALL" if node.all else "")
        left, right = self.branch(node.left, node.columns), self.branch(node.right, node.columns)
        return f"{left} {word} {right}"

    def top(self, node: TopK) -> str:
        child = self.relation(node.child)
        names = self.names(node.output)
        order = self.writer.sort_keys(node.order_by)
        if node.partition_by:
            return self.top_of_partitions(node, child, names, order)
        text = f"SELECT {names} FROM {child}"
        if order:
            text += f" ORDER BY {order}"
        if node.limit is not None:
            text += f" LIMIT {node.limit}"
        return text + (f" OFFSET {node.offset}" if node.offset else "")

    def top_of_partitions(self, node: TopK, child: str, names: str, order: str) -> str:
        partition = self.names(node.partition_by)
        over = f"PARTITION BY {partition} ORDER BY {order or '1'}"
        bounds: list[str] = []
        if node.offset:
            bounds.append(f"pgt_rank > {node.offset}")
        if node.limit is not None:
            bounds.append(f"pgt_rank <= {node.offset + node.limit}")
        ranked = f"SELECT {names}, row_number() OVER ({over}) AS pgt_rank FROM {child}"
        return f"SELECT {names} FROM ({ranked}) AS pgt_ranked WHERE {' AND '.join(bounds) or 'TRUE'}"

    def opaque(self, node: Opaque) -> str:
        text = dict(node.sql)[self.dialect]
        for index, scan in enumerate(node.inputs):
            text = text.replace(f"{{{index}}}", self.relation_name(scan))
        aliases = ", ".join(self.quote(column.id) for column in node.columns)
        return f"SELECT {self.names(node.columns)} FROM ({text}) AS pgt_opaque({aliases})"
