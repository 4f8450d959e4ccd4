"""One SELECT block: FROM, WHERE, GROUP BY, HAVING, windows, DISTINCT, ORDER BY and LIMIT, in PostgreSQL's order.

Source: PostgreSQL 18 documentation, SELECT (processing order) and 7.3 (select lists).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.coercion import convert
from pgtrickle_assets.query.context import OutputColumn, PlannedQuery
from pgtrickle_assets.query.expressions import Analyzer, PendingSubquery, sort_key
from pgtrickle_assets.query.from_clause import ONE_ROW, BlockPlanner, CommonTables, FromPlanner
from pgtrickle_assets.query.grouping import Calls, GroupBy, GroupedBlock, group_by, windowed
from pgtrickle_assets.query.limits import limited, total_order
from pgtrickle_assets.query.naming import fold, output_name
from pgtrickle_assets.query.parse import line_of, parts_of
from pgtrickle_assets.query.plan import (
    Column,
    ColumnRef,
    Distinct,
    Expression,
    Filter,
    Literal,
    Node,
    Project,
    SortKey,
    TopK,
)
from pgtrickle_assets.query.rewrite import (
    columns_of,
    conjuncts,
    free_refs,
    map_operands,
    map_window,
    output_ids,
    ref,
    substitute_node,
    walk_expression,
)
from pgtrickle_assets.query.scope import FromItem, Scope
from pgtrickle_assets.query.types import UNKNOWN, VARCHAR
from pgtrickle_assets.query.unnesting import Unnester


class SelectPlanner:
    """Plans one SELECT."""

    def __init__(self, blocks: BlockPlanner, select: exp.Select, parent: Scope | None, tables: CommonTables) -> None:
        self.blocks = blocks
        self.context = blocks.context
        self.select = select
        self.parent = parent
        self.tables = tables
        self.pending: dict[str, PendingSubquery] = {}
        self.calls = Calls(self.context.ids)
        self.item: FromItem | None = None
        self.scope = Scope(None, parent)
        self.windows = {fold(w.this): w for w in parts_of(select, "windows")}

    def plan(self) -> PlannedQuery:
        """The plan of the block."""
        self._refuse_unsupported()
        self.item = FromPlanner(self.blocks, self.parent, self.tables).plan(self.select)
        self.scope = Scope(self.item, self.parent)
        node: Node = ONE_ROW if self.item is None else self.item.node
        node = self._where(node)
        targets = self._targets()
        having = self._having()
        order_items = self._order(targets)
        distinct_on = self._distinct_on_items(targets)
        groups = self._groups(targets)
        grouped = (
            groups.keys or self.calls.aggregates or having is not None or self.select.args.get("group") is not None
        )
        expressions = [expression for _, expression in targets]
        orders = [*(key.expression for key in order_items), *distinct_on]
        if grouped:
            node, expressions, orders, having = self._aggregated(node, groups, expressions, orders, having)
        if having is not None:
            for part in conjuncts(having):
                node = self._unnester().filter(node, part)
        node, expressions, orders = self._windowed(node, expressions, orders)
        node = self._unnester().attach(node, [*expressions, *orders])
        names = [name for name, _ in targets]
        keys = [SortKey(e, k.descending, k.nulls_first) for e, k in zip(orders, order_items, strict=False)]
        return self._finished(node, names, expressions, keys, orders[len(keys) :])

    def _refuse_unsupported(self) -> None:
        for key, label in (
            ("locks", "FOR UPDATE"),
            ("into", "SELECT INTO"),
            ("qualify", "QUALIFY"),
            ("laterals", "LATERAL VIEW"),
            ("kind", "SELECT AS"),
        ):
            if self.select.args.get(key):
                raise QueryError(f"{label} is not supported in a stream table", line=line_of(self.select))

    def _analyzer(self, clause: str, sink: Calls | None = None) -> Analyzer:
        def plan_subquery(node: exp.Expr, scope: Scope) -> PlannedQuery:
            return self.blocks.query(node, scope, self.tables)

        if sink is not None:
            sink.clause = clause
        return Analyzer(self.context, self.scope, plan_subquery, clause, sink, False, self.windows, self.pending)

    def _unnester(self) -> Unnester:
        return Unnester(self.context.ids, self.pending, self.blocks.table_keys())

    def _where(self, node: Node) -> Node:
        clause = self.select.args.get("where")
        if clause is None:
            return node
        predicate = self._analyzer("WHERE").predicate(clause.this)
        plain = [part for part in conjuncts(predicate) if not self._uses_subquery(part)]
        for part in plain:
            node = Filter(node, part)
        for part in conjuncts(predicate):
            if self._uses_subquery(part):
                node = self._unnester().filter(node, part)
        return node

    def _uses_subquery(self, expression: Expression) -> bool:
        return any(isinstance(p, ColumnRef) and p.id in self.pending for p in walk_expression(expression))

    def _targets(self) -> list[tuple[str, Expression]]:
        """The SELECT list with stars expanded."""
        targets: list[tuple[str, Expression]] = []
        analyzer = self._analyzer("SELECT", self.calls)
        for node in self.select.expressions:
            if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                targets += self._star(node)
                continue
            expression = analyzer.analyze(node)
            targets.append((output_name(node), expression))
        return targets

    def _star(self, node: Any) -> list[tuple[str, Expression]]:
        if self.item is None:
            raise QueryError("SELECT * with no tables specified is not valid", line=line_of(node))
        table = node.args.get("table") if isinstance(node, exp.Column) else None
        if table is None:
            return list(self.item.visible)
        name = fold(table)
        relation = next((r for r in self.item.relations if r.alias == name), None)
        if relation is None:
            self.scope.resolve([name, "*"], line_of(node))
            raise QueryError(f'missing FROM-clause entry for table "{name}"', line=line_of(node))
        return list(relation.columns)

    def _having(self) -> Expression | None:
        clause = self.select.args.get("having")
        if clause is None:
            return None
        self.calls.windows_allowed = False
        predicate = self._analyzer("HAVING", self.calls).predicate(clause.this)
        self.calls.windows_allowed = True
        return predicate

    def _order(self, targets: Sequence[tuple[str, Expression]]) -> list[SortKey]:
        """ORDER BY items: an output name, an ordinal, or an expression over the input."""
        clause = self.select.args.get("order")
        if clause is None:
            return []
        keys: list[SortKey] = []
        for item in clause.expressions:
            inner = item.this if isinstance(item, exp.Ordered) else item
            expression = self._named_target(inner, targets, "ORDER BY", names_first=True)
            if expression is None:
                expression = self._analyzer("ORDER BY", self.calls).analyze(inner)
            keys.append(sort_key(expression, item))
        return keys

    def _distinct_on_items(self, targets: Sequence[tuple[str, Expression]]) -> list[Expression]:
        """DISTINCT ON items: an output name, an ordinal, or an expression over the input, as in ORDER BY."""
        distinct = self.select.args.get("distinct")
        on = None if distinct is None else distinct.args.get("on")
        if on is None:
            return []
        written = on.expressions if isinstance(on, exp.Tuple) else [on.this if isinstance(on, exp.Paren) else on]
        found: list[Expression] = []
        for part in written:
            expression = self._named_target(part, targets, "DISTINCT ON", names_first=True)
            found.append(self._analyzer("DISTINCT ON", self.calls).value(part) if expression is None else expression)
        return found

    def _named_target(
        self, node: Any, targets: Sequence[tuple[str, Expression]], clause: str, *, names_first: bool
    ) -> Expression | None:
        """A SELECT item that ORDER BY, GROUP BY or DISTINCT ON means by its ordinal or its output name."""
        line = line_of(node)
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
            position = int(node.name)
            if not 1 <= position <= len(targets):
                raise QueryError(f"{clause} position {position} is not in select list", line=line)
            return targets[position - 1][1]
        if not isinstance(node, exp.Column) or node.args.get("table") is not None or isinstance(node.this, exp.Star):
            return None
        name = fold(node.this)
        matches = list(dict.fromkeys(expression for label, expression in targets if label == name))
        if not names_first and self.scope.own([name], line) is not None:
            return None
        if len(matches) > 1:
            raise QueryError(f'{clause} "{name}" is ambiguous', line=line)
        return matches[0] if matches else None

    def _groups(self, targets: Sequence[tuple[str, Expression]]) -> GroupBy:
        analyzer = self._analyzer("GROUP BY")

        def analyze(node: Any) -> Expression:
            found = self._named_target(node, targets, "GROUP BY", names_first=False)
            if found is None:
                return analyzer.value(node)
            aggregates = {column.id for column in self.calls.aggregates.values()}
            windows = {column.id for column, _ in self.calls.windows}
            if any(isinstance(p, ColumnRef) and p.id in aggregates | windows for p in walk_expression(found)):
                raise QueryError("aggregate and window functions are not allowed in GROUP BY", line=line_of(node))
            return convert(found, VARCHAR) if found.type == UNKNOWN else found

        return group_by(self.select.args.get("group"), analyze)

    def _aggregated(
        self,
        node: Node,
        groups: GroupBy,
        expressions: Sequence[Expression],
        orders: Sequence[Expression],
        having: Expression | None,
    ) -> tuple[Node, list[Expression], list[Expression], Expression | None]:
        own = output_ids(node)
        below = [e for call in self.calls.aggregates for e in (*call.args, *([call.filter] if call.filter else []))]
        below += [key.expression for call in self.calls.aggregates for key in call.order_by]
        node = self._unnester().attach(node, [*groups.keys, *below])
        block = GroupedBlock(self.context.ids, groups, self.calls, self._identified)
        allowed = self._allowed(own)

        def change(expression: Expression) -> Expression:
            return block.over_groups(expression, allowed, line_of(self.select))

        results = [change(e) for e in expressions]
        order_results = [change(e) for e in orders]
        having_result = None if having is None else change(having)
        self.calls.windows = [(c, map_window(call, change)) for c, call in self.calls.windows]
        used = [*results, *order_results, *([having_result] if having_result is not None else [])]
        keys = {key.id for key in groups.keys if isinstance(key, ColumnRef)}
        self._move_subqueries_above(used, own, keys, change)
        return block.aggregate(node), results, order_results, having_result

    def _allowed(self, own: frozenset[str]) -> frozenset[str]:
        """Ids that need no grouping: calls, subqueries, and columns of outer queries."""
        allowed = {column.id for column in self.calls.aggregates.values()}
        allowed |= {column.id for column, _ in self.calls.windows}
        allowed |= {column.id for column in self.calls.groupings.values()}
        allowed |= set(self.pending)
        scope = self.parent
        while scope is not None:
            allowed |= set() if scope.item is None else {r.id for _, r in scope.item.visible}
            allowed |= set() if scope.item is None else {r.id for rel in scope.item.relations for _, r in rel.columns}
            scope = scope.parent
        return frozenset(allowed - own)

    def _move_subqueries_above(
        self, used: Sequence[Expression], own: frozenset[str], keys: set[str], change: Any
    ) -> None:
        """Subqueries of the SELECT list and HAVING see groups, not rows: their outer references move to the keys.

        Those that are a grouping key themselves were computed for the rows.
        """
        for expression in used:
            for part in walk_expression(expression):
                if not isinstance(part, ColumnRef) or part.id not in self.pending or part.id in keys:
                    continue
                found = self.pending[part.id]
                mapping = {r.id: change(r) for r in free_refs(found.node) if r.id in own}
                inner = substitute_node(found.node, mapping) if mapping else found.node
                predicate = found.predicate
                if predicate is not None:
                    kept = output_ids(inner)
                    predicate = _change_outside(predicate, kept, change)
                self.pending[part.id] = PendingSubquery(found.kind, found.column, inner, predicate)

    def _identified(self, key_ids: Sequence[str]) -> Sequence[Column]:
        """Columns of relations whose primary key is among the grouped columns."""
        if self.item is None:
            return ()
        grouped = set(key_ids)
        found: list[Column] = []
        for relation in self.item.relations:
            if not key_ids or (relation.key and set(relation.key) <= grouped):
                found += [Column(r.id, r.type, r.nullable, name) for name, r in relation.columns]
        return found

    def _windowed(
        self, node: Node, expressions: list[Expression], orders: list[Expression]
    ) -> tuple[Node, list[Expression], list[Expression]]:
        if not self.calls.windows:
            return node, expressions, orders
        used = [e for _, call in self.calls.windows for e in _window_expressions(call)]
        node = self._unnester().attach(node, used)
        return windowed(node, self.calls.windows, lambda e: e), expressions, orders

    def _finished(
        self,
        node: Node,
        names: Sequence[str],
        expressions: Sequence[Expression],
        order: Sequence[SortKey],
        distinct_on: Sequence[Expression],
    ) -> PlannedQuery:
        """The SELECT list computed, then DISTINCT, ORDER BY and LIMIT."""
        items: list[tuple[Column, Expression]] = []
        for name, expression in zip(names, expressions, strict=True):
            typed = convert(expression, VARCHAR) if expression.type == UNKNOWN else expression
            items.append((self.context.ids.column(typed.type, nullable=typed.nullable, name=name), typed))
        distinct = self.select.args.get("distinct")
        by_expression = {expression: column for column, expression in items}
        hidden: list[tuple[Column, Expression]] = []
        keys: list[SortKey] = []
        for key in order:
            expression = convert(key.expression, VARCHAR) if key.expression.type == UNKNOWN else key.expression
            column = by_expression.get(expression)
            if column is None:
                column = self.context.ids.column(expression.type, nullable=expression.nullable)
                by_expression[expression] = column
                hidden.append((column, expression))
            keys.append(SortKey(ref(column), key.descending, key.nulls_first))
        if distinct is not None and not distinct_on and hidden:
            raise QueryError("for SELECT DISTINCT, ORDER BY expressions must appear in select list")
        columns = tuple(
            OutputColumn(name, column, _untyped(expression))
            for name, (column, _), expression in zip(names, items, expressions, strict=True)
        )
        if distinct_on:
            return self._distinct_on(node, items, hidden, keys, columns, distinct_on)
        result: Node = Project(node, (*items, *hidden))
        if distinct is not None:
            result = Distinct(result)
        result = limited(self.context, result, self.select, keys)
        return PlannedQuery(_only(result, columns), columns)

    def _distinct_on(
        self,
        node: Node,
        items: list[tuple[Column, Expression]],
        hidden: list[tuple[Column, Expression]],
        keys: list[SortKey],
        columns: tuple[OutputColumn, ...],
        on: Sequence[Expression],
    ) -> PlannedQuery:
        """DISTINCT ON: the first row of each group in ORDER BY order."""
        by_expression = {expression: column for column, expression in (*items, *hidden)}
        partition: list[Column] = []
        for expression in on:
            column = by_expression.get(expression)
            if column is None:
                column = self.context.ids.column(expression.type, nullable=expression.nullable)
                hidden.append((column, expression))
                by_expression[expression] = column
            partition.append(column)
        leading = {k.expression for k in keys[: len(partition)]}
        if keys and any(ref(column) not in leading for column in partition[: len(keys)]):
            raise QueryError("SELECT DISTINCT ON expressions must match initial ORDER BY expressions")
        projected = Project(node, (*items, *hidden))
        rest = [key for key in keys if key.expression not in {ref(c) for c in partition}]
        result: Node = TopK(projected, total_order(rest, projected), 1, 0, tuple(partition))
        if self.select.args.get("limit") is not None or self.select.args.get("offset") is not None:
            result = limited(self.context, result, self.select, keys)
        return PlannedQuery(_only(result, columns), columns)


def _only(node: Node, columns: Sequence[OutputColumn]) -> Node:
    """The node without hidden ORDER BY columns."""
    wanted = [item.column for item in columns]
    if [c.id for c in node.output] == [c.id for c in wanted]:
        return node
    return Project(node, tuple((column, ref(column)) for column in wanted))


def _untyped(expression: Expression) -> Literal | None:
    return expression if isinstance(expression, Literal) and expression.type == UNKNOWN else None


def _window_expressions(call: Any) -> list[Expression]:
    found = [*call.args, *call.partition_by, *(key.expression for key in (*call.order_by, *call.values_by))]
    return [*found, call.filter] if call.filter is not None else found


def _change_outside(predicate: Expression, inner: frozenset[str], change: Any) -> Expression:
    """Rewrite the part of a subquery test that belongs to the outer query."""
    if columns_of(predicate) & inner:
        if isinstance(predicate, ColumnRef):
            return predicate
        return map_operands(predicate, lambda part: _change_outside(part, inner, change))
    return change(predicate)
