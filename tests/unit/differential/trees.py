"""Small hand-built plans for unit tests of the engine."""

from __future__ import annotations

from pgtrickle_assets.query.plan import (
    Aggregate,
    AggregateCall,
    Call,
    Column,
    Expression,
    InputTable,
    Node,
    QueryPlan,
    Scan,
)
from pgtrickle_assets.query.rewrite import ref
from pgtrickle_assets.query.types import BOOLEAN, INT32, INT64, ColumnSchema, TableName


def scan(relation: str, *names: str) -> Scan:
    """A scan of integer columns whose ids are `relation.name`."""
    columns = tuple(Column(f"{relation}.{name}", INT32, name=name) for name in names)
    return Scan(relation, columns, names)


def column(node: Node, name: str) -> Column:
    """The output column with this label."""
    return next(c for c in node.output if c.name == name or c.id == name)


def equal(left: Column, right: Column, function: str = "=") -> Expression:
    """An equality of two columns."""
    return Call(function, (ref(left), ref(right)), BOOLEAN)


def count_by(child: Node, *keys: str) -> Aggregate:
    """COUNT(*) per key."""
    total = Column("n", INT64, nullable=False, name="n")
    call = AggregateCall("count", (), INT64, nullable=False)
    return Aggregate(child, tuple(column(child, key) for key in keys), ((total, call),))


def plan(root: Node) -> QueryPlan:
    """A plan whose visible names are the labels of the root's columns."""
    output = tuple(ColumnSchema(c.name or c.id, c.type, c.nullable) for c in root.output)
    relations = ("l", "r", "s")
    inputs = {name: InputTable(TableName("public", name), ()) for name in relations}
    return QueryPlan(root, output, inputs, "")
