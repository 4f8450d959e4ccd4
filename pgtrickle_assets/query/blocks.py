"""Query blocks: SELECT, VALUES, set operations and WITH."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.context import CommonTable, OutputColumn, PlannedQuery, PlanningContext
from pgtrickle_assets.query.expressions import Analyzer, sort_key
from pgtrickle_assets.query.from_clause import CommonTables
from pgtrickle_assets.query.limits import limited
from pgtrickle_assets.query.naming import fold
from pgtrickle_assets.query.operators import unify
from pgtrickle_assets.query.parse import line_of, parts_of
from pgtrickle_assets.query.plan import (
    Column,
    Distinct,
    Expression,
    Node,
    Project,
    SetOperation,
    SortKey,
    UnionAll,
    Values,
)
from pgtrickle_assets.query.recursion import recursive_table
from pgtrickle_assets.query.rewrite import ref
from pgtrickle_assets.query.scope import FromItem, Relation, Scope
from pgtrickle_assets.query.select import SelectPlanner


class QueryBlocks:
    """Plans query blocks, one after the other, under one planning context."""

    def __init__(self, context: PlanningContext) -> None:
        self.context = context

    def table_keys(self) -> dict[str, tuple[str, ...]]:
        """Keys of the relations read so far."""
        return {relation: schema.key for relation, schema in self.context.schemas.items() if schema.key}

    def query(self, node: Any, parent: Scope | None, tables: CommonTables) -> PlannedQuery:
        """Plan a query block.

        Args:
            node: SELECT, set operation, VALUES, or one of them in parentheses.
            parent: Names of the blocks around it.
            tables: WITH items that it may use.
        """
        with_clause = node.args.get("with_")
        if with_clause is not None:
            tables = self._common_tables(with_clause, parent, tables)
        if isinstance(node, exp.Select):
            return SelectPlanner(self, node, parent, tables).plan()
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, parent, tables)
        if isinstance(node, exp.Values):
            return self._values(node, parent, tables)
        if isinstance(node, (exp.Subquery, exp.Paren)):
            planned = self.query(node.this, parent, tables)
            return self._ordered(node, planned, parent, tables)
        if isinstance(node, exp.Table):
            return self.query(exp.select("*").from_(node.copy()), parent, tables)
        raise QueryError(f"{type(node).__name__} is not supported as a query", line=line_of(node))

    def _common_tables(self, clause: exp.With, parent: Scope | None, tables: CommonTables) -> CommonTables:
        known = dict(tables)
        for item in clause.expressions:
            name = fold(item.args["alias"].this)
            columns = [fold(part) for part in parts_of(item.args["alias"], "columns")]
            if not isinstance(item.this, (exp.Query, exp.Values)):
                raise QueryError(f'WITH item "{name}" changes data, which a stream table cannot', line=line_of(item))
            if clause.args.get("recursive") and _mentions(item.this, name):
                known[name] = recursive_table(self, name, columns, item.this, dict(known))
            else:
                known[name] = self._common_table(name, columns, item.this, parent, dict(known))
        return known

    def _common_table(
        self, name: str, columns: Sequence[str], node: Any, parent: Scope | None, tables: CommonTables
    ) -> CommonTable:
        def plan() -> PlannedQuery:
            return renamed(self.query(node, parent, tables), columns, name, line_of(node))

        # Planned once even if unused, so that an error in it is found.
        if columns:
            plan()
        return CommonTable(name, plan)

    def _set_operation(self, node: exp.SetOperation, parent: Scope | None, tables: CommonTables) -> PlannedQuery:
        branches = [self.query(part, parent, tables) for part in _operands(node)]
        first = branches[0]
        if any(len(branch.columns) != len(first.columns) for branch in branches):
            word = node.key.upper()
            raise QueryError(f"each {word} query must have the same number of columns", line=line_of(node))
        nodes, columns = self._aligned(branches, line_of(node), node.key.upper())
        distinct = bool(node.args.get("distinct"))
        result: Node
        if isinstance(node, exp.Union):
            result = UnionAll(tuple(nodes), columns)
            result = Distinct(result) if distinct else result
        else:
            kind: Any = "intersect" if isinstance(node, exp.Intersect) else "except"
            result = SetOperation(kind, not distinct, nodes[0], nodes[1], columns)
        planned = PlannedQuery(
            result, tuple(OutputColumn(item.name, c) for item, c in zip(first.columns, columns, strict=True))
        )
        return self._ordered(node, planned, parent, tables)

    def _aligned(
        self, branches: Sequence[PlannedQuery], line: int | None, word: str
    ) -> tuple[list[Node], tuple[Column, ...]]:
        """The branches with their columns in common types, and the columns of the result."""
        converted: list[list[Expression]] = [[] for _ in branches]
        columns: list[Column] = []
        for position, item in enumerate(branches[0].columns):
            refs: list[Expression] = [_value(branch, position) for branch in branches]
            kind, values = unify(refs, word, line)
            for target, value in zip(converted, values, strict=True):
                target.append(value)
            nullable = any(value.nullable for value in values)
            columns.append(self.context.ids.column(kind, nullable=nullable, name=item.name))
        nodes: list[Node] = []
        for branch, values in zip(branches, converted, strict=True):
            plain = all(value == ref(item.column) for value, item in zip(values, branch.columns, strict=True))
            if plain and len(branch.node.output) == len(values):
                nodes.append(branch.node)
                continue
            items = tuple((self.context.ids.column(v.type, nullable=v.nullable), v) for v in values)
            nodes.append(Project(branch.node, items))
        return nodes, tuple(columns)

    def _ordered(self, node: Any, planned: PlannedQuery, parent: Scope | None, tables: CommonTables) -> PlannedQuery:
        """ORDER BY and LIMIT of a set operation or of a query in parentheses, over its output columns."""
        order = node.args.get("order")
        keys: list[SortKey] = []
        for item in order.expressions if order is not None else ():
            inner = item.this if isinstance(item, exp.Ordered) else item
            keys.append(sort_key(self._output(inner, planned, parent, tables), item))
        result = limited(self.context, planned.node, node, keys)
        return PlannedQuery(result, planned.columns)

    def _output(self, node: Any, planned: PlannedQuery, parent: Scope | None, tables: CommonTables) -> Expression:
        if isinstance(node, exp.Literal) and node.name.isdigit() and not node.is_string:
            position = int(node.name)
            if not 1 <= position <= len(planned.columns):
                raise QueryError(f"ORDER BY position {position} is not in select list", line=line_of(node))
            return ref(planned.columns[position - 1].column)
        named = tuple((item.name, ref(item.column)) for item in planned.columns)
        scope = Scope(FromItem(planned.node, (Relation("", named),), named), parent)
        return Analyzer(self.context, scope, lambda n, s: self.query(n, s, tables), "ORDER BY").analyze(node)

    def _values(self, node: exp.Values, parent: Scope | None, tables: CommonTables) -> PlannedQuery:
        scope = Scope(None, parent)
        analyzer = Analyzer(self.context, scope, lambda n, s: self.query(n, s, tables), "VALUES")
        rows = [
            [analyzer.analyze(v) for v in (r.expressions if isinstance(r, exp.Tuple) else [r])]
            for r in node.expressions
        ]
        if analyzer.pending:
            raise QueryError("a subquery in VALUES is not supported", line=line_of(node))
        if any(len(row) != len(rows[0]) for row in rows):
            raise QueryError("VALUES lists must all be the same length", line=line_of(node))
        columns: list[Column] = []
        values: list[list[Expression]] = []
        for position in range(len(rows[0])):
            kind, converted = unify([row[position] for row in rows], "VALUES", line_of(node))
            nullable = any(value.nullable for value in converted)
            columns.append(self.context.ids.column(kind, nullable=nullable, name=f"column{position + 1}"))
            values.append(converted)
        table = Values(tuple(columns), tuple(zip(*values, strict=True)))
        return self._ordered(node, PlannedQuery(table, tuple(OutputColumn(c.name, c) for c in columns)), parent, tables)


def _value(branch: PlannedQuery, position: int) -> Expression:
    """A column of a branch; a constant of unknown type stands for itself: the other branches decide its type."""
    item = branch.columns[position]
    return item.untyped or ref(item.column)


def _operands(node: exp.SetOperation) -> list[Any]:
    """The operands; a chain of UNION ALL is flattened."""
    left: Any = node.this
    same = (
        isinstance(node, exp.Union)
        and isinstance(left, exp.Union)
        and not node.args.get("distinct")
        and not left.args.get("distinct")
        and not any(left.args.get(key) for key in ("order", "limit", "offset", "with_"))
    )
    if same:
        return [*_operands(left), node.expression]
    return [left, node.expression]


def _mentions(node: exp.Expr, name: str) -> bool:
    return any(
        not table.args.get("db") and fold(table.this) == name
        for table in node.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier)
    )


def renamed(planned: PlannedQuery, names: Sequence[str], label: str, line: int | None) -> PlannedQuery:
    """A planned query under other column names."""
    if len(names) > len(planned.columns):
        raise QueryError(
            f'WITH query "{label}" has {len(planned.columns)} columns available but {len(names)} specified', line=line
        )
    columns = tuple(
        OutputColumn(names[i] if i < len(names) else item.name, item.column) for i, item in enumerate(planned.columns)
    )
    return PlannedQuery(planned.node, columns)
