"""Joins subqueries of expressions into the plan around them.

Correlated subqueries are unnested in one of two ways. Where the correlation is a set of conjuncts that can be lifted
out of the subquery, they become the join condition (`correlation.lift`). Otherwise the subquery is evaluated for each
different combination of outer values at once (`dependent.evaluate_for`). Sources: Neumann and Kemper, Unnesting
Arbitrary Queries (BTW 2015); Galindo-Legaria and Joshi, Orthogonal Optimization of Subqueries and Aggregation (SIGMOD
2001).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgtrickle_assets.query.correlation import Lifted, equality, lift, lift_aggregate
from pgtrickle_assets.query.dependent import evaluate_for
from pgtrickle_assets.query.expressions import PendingSubquery
from pgtrickle_assets.query.plan import (
    Aggregate,
    AggregateCall,
    Call,
    Case,
    Column,
    ColumnRef,
    Distinct,
    Expression,
    Filter,
    Join,
    Literal,
    Node,
    Project,
)
from pgtrickle_assets.query.properties import TableKeys, at_most_one_row, exactly_one_row
from pgtrickle_assets.query.rewrite import (
    IdGenerator,
    columns_of,
    conjunction,
    filtered,
    free_refs,
    is_not_null,
    is_null,
    not_distinct,
    output_ids,
    project_columns,
    ref,
    rename_ids,
    substitute,
    walk_expression,
)
from pgtrickle_assets.query.types import BOOLEAN, INT64, VARCHAR

MORE_THAN_ONE_ROW = "more than one row returned by a subquery used as an expression"


class Unnester:
    """Attaches the pending subqueries of one query block."""

    def __init__(self, ids: IdGenerator, pending: Mapping[str, PendingSubquery], keys: TableKeys) -> None:
        self.ids = ids
        self.pending = pending
        self.keys = keys

    def attach(self, node: Node, expressions: Sequence[Expression]) -> Node:
        """The node with one more column for each subquery that the expressions use."""
        for expression in expressions:
            for part in walk_expression(expression):
                if isinstance(part, ColumnRef) and part.id in self.pending and part.id not in output_ids(node):
                    node = self._join_value(node, self.pending[part.id])
        return node

    def filter(self, node: Node, predicate: Expression) -> Node:
        """The rows for which one conjunct is true; EXISTS, IN and their negations become semi and anti joins."""
        if isinstance(predicate, ColumnRef):
            found = self.pending.get(predicate.id)
            if found is not None and found.kind == "any":
                return self._semi(node, found, "semi")
        if isinstance(predicate, Call) and predicate.function == "not" and isinstance(predicate.args[0], ColumnRef):
            found = self.pending.get(predicate.args[0].id)
            if found is not None and found.kind == "any":
                return self._semi(node, found, "anti")
        attached = self.attach(node, [predicate])
        filtered = Filter(attached, predicate)
        return filtered if attached is node else project_columns(filtered, node.output)

    def _operands_attached(self, node: Node, subquery: PendingSubquery) -> Node:
        """Subqueries inside the tested value come first; so do those the subquery itself is correlated to."""
        inner = output_ids(subquery.node)
        refs = (
            []
            if subquery.predicate is None
            else [
                part
                for part in walk_expression(subquery.predicate)
                if isinstance(part, ColumnRef) and part.id not in inner
            ]
        )
        return self.attach(node, [*refs, *free_refs(subquery.node)])

    def _semi(self, node: Node, subquery: PendingSubquery, kind: str) -> Node:
        original = node
        subquery = _peeled(subquery)
        node = self._operands_attached(node, subquery)
        predicate = subquery.predicate
        if predicate is not None and kind == "anti":
            predicate = not_false(predicate)
        lifted = self._lift(node, subquery.node, predicate)
        condition = conjunction(lifted.condition)
        join = Join("anti" if kind == "anti" else "semi", node, lifted.node, condition)
        return join if node is original else project_columns(join, original.output)

    def _lift(self, node: Node, inner: Node, predicate: Expression | None) -> Lifted:
        """The subquery without correlation, and the condition under which its rows belong to an outer row."""
        outer = [r for r in free_refs(inner) if r.id in output_ids(node)]
        extra = () if predicate is None else (predicate,)
        if not outer:
            return Lifted(inner, extra)
        lifted = lift(inner, frozenset(r.id for r in outer), self.ids, exists=predicate is None)
        if lifted is not None:
            return Lifted(lifted.node, (*lifted.condition, *extra))
        domain, mapping = self._domain(node, outer)
        evaluated = evaluate_for(domain, mapping, inner, self.ids)
        condition = tuple(not_distinct(r, ref(evaluated.keys[r.id])) for r in outer)
        return Lifted(evaluated.node, (*condition, *extra))

    def _domain(self, node: Node, outer: Sequence[ColumnRef]) -> tuple[Node, dict[str, Column]]:
        """The different combinations of outer values, on a copy of the outer plan; outer id -> column of the copy."""
        copy, renamed = rename_ids(node, self.ids)
        by_id = {column.id: column for column in copy.output}
        columns = [by_id[renamed[r.id]] for r in outer]
        return Distinct(project_columns(copy, columns)), {r.id: c for r, c in zip(outer, columns, strict=True)}

    def _join_value(self, node: Node, subquery: PendingSubquery) -> Node:
        if subquery.kind == "any":
            subquery = _peeled(subquery)
        node = self._operands_attached(node, subquery)
        if subquery.kind == "scalar":
            return self._join_scalar(node, subquery)
        return self._join_mark(node, subquery)

    def _join_scalar(self, node: Node, subquery: PendingSubquery) -> Node:
        value = subquery.node.output[0]
        outer = [r for r in free_refs(subquery.node) if r.id in output_ids(node)]
        if not outer:
            inner, result = self._single(subquery.node, value, ())
            kind = "inner" if exactly_one_row(inner) else "left"
            return self._with_column(Join(kind, node, inner, None), node, subquery.column, result)
        correlated = frozenset(r.id for r in outer)
        grouped = lift_aggregate(subquery.node, correlated, self.ids)
        if grouped is not None:
            joined = Join("left", node, grouped.node, conjunction(grouped.condition))
            return self._with_column(joined, node, subquery.column, grouped.values[value.id])
        lifted = lift(subquery.node, correlated, self.ids, exists=False)
        if lifted is not None and lifted.keys is not None:
            inner, result = self._single(lifted.node, value, lifted.keys)
            joined = Join("left", node, inner, conjunction(lifted.condition))
            return self._with_column(joined, node, subquery.column, result)
        domain, mapping = self._domain(node, outer)
        evaluated = evaluate_for(domain, mapping, subquery.node, self.ids)
        keys = tuple(evaluated.keys[r.id] for r in outer)
        inner, result = self._single(evaluated.node, value, keys)
        condition = conjunction([not_distinct(r, ref(evaluated.keys[r.id])) for r in outer])
        return self._with_column(Join("left", node, inner, condition), node, subquery.column, result)

    def _single(self, inner: Node, value: Column, keys: Sequence[Column]) -> tuple[Node, Expression]:
        """The subquery with at most one row per key, and its value: an error where there were more rows."""
        by_id = {column.id: column for column in inner.output}
        value = by_id[value.id]
        if at_most_one_row(inner, frozenset(key.id for key in keys), self.keys):
            return inner, ref(value)
        picked, count = self.ids.like(value), self.ids.column(INT64, nullable=False)
        copies = tuple(by_id[key.id] for key in keys)
        calls = (
            (picked, AggregateCall("any_value", (ref(value),), value.type)),
            (count, AggregateCall("count", (), INT64, nullable=False)),
        )
        message = Literal(MORE_THAN_ONE_ROW, VARCHAR)
        too_many = Call(">", (ref(count), Literal(1, INT64)), BOOLEAN)
        error = Call("raise", (message,), value.type)
        grouped = Aggregate(inner, copies, calls)
        return grouped, Case(((too_many, error),), ref(picked), value.type)

    def _with_column(self, joined: Node, node: Node, column: Column, value: Expression) -> Node:
        kept = tuple((c, ref(c)) for c in joined.output if c.id in output_ids(node))
        return Project(joined, (*kept, (column, value)))

    def _join_mark(self, node: Node, subquery: PendingSubquery) -> Node:
        """A boolean column: whether some row of the subquery satisfies the test, in three-valued logic."""
        simple = self._mark_by_key(node, subquery)
        if simple is not None:
            return simple
        predicate = subquery.predicate
        inner = output_ids(subquery.node)
        outer_ids = dict.fromkeys(r.id for r in free_refs(subquery.node) if r.id in output_ids(node))
        if predicate is not None:
            outer_ids.update(dict.fromkeys(i for i in sorted(columns_of(predicate) - inner)))
        by_id = {column.id: column for column in node.output}
        outer = [ref(by_id[i]) for i in outer_ids]
        domain, mapping = self._domain(node, outer)
        over_domain = {i: ref(column) for i, column in mapping.items()}
        lifted = self._lift_over(domain, mapping, subquery.node, exists=predicate is None)
        conditions = [substitute(part, over_domain) for part in lifted.condition]
        test = None if predicate is None else substitute(predicate, over_domain)
        if test is not None:
            conditions.append(not_false(test))
        if mapping:
            joined: Node = Join("inner", domain, lifted.node, conjunction(conditions))
        else:
            joined = filtered(lifted.node, conditions)
        true_column, count = self.ids.column(BOOLEAN), self.ids.column(INT64, nullable=False)
        holds: Expression = Literal(True, BOOLEAN) if test is None else test
        project = Project(joined, (*((c, ref(c)) for c in mapping.values()), (flag := self.ids.column(BOOLEAN), holds)))
        grouped = Aggregate(
            project,
            tuple(mapping.values()),
            (
                (true_column, AggregateCall("bool_or", (ref(flag),), BOOLEAN)),
                (count, AggregateCall("count", (), INT64, nullable=False)),
            ),
        )
        condition = conjunction([not_distinct(r, ref(mapping[r.id])) for r in outer])
        # Without outer values there is one group, which has its row even when it is empty.
        none = is_null(ref(_nullable(count))) if mapping else Call("=", (ref(count), Literal(0, INT64)), BOOLEAN)
        result = Case(
            ((none, Literal(False, BOOLEAN)), (is_true(ref(true_column)), Literal(True, BOOLEAN))),
            Literal(None, BOOLEAN),
            BOOLEAN,
        )
        return self._with_column(Join("left", node, grouped, condition), node, subquery.column, result)

    def _lift_over(self, domain: Node, mapping: Mapping[str, Column], inner: Node, *, exists: bool) -> Lifted:
        """The subquery made independent, with conditions over outer ids (to be replaced by the domain's)."""
        outer = [r for r in free_refs(inner) if r.id in mapping]
        if not outer:
            return Lifted(inner, ())
        lifted = lift(inner, frozenset(r.id for r in outer), self.ids, exists=exists)
        if lifted is not None:
            return lifted
        copy, renamed = rename_ids(domain, self.ids)
        by_id = {column.id: column for column in copy.output}
        inner_mapping = {outer_id: by_id[renamed[column.id]] for outer_id, column in mapping.items()}
        evaluated = evaluate_for(copy, inner_mapping, inner, self.ids)
        return Lifted(evaluated.node, tuple(not_distinct(r, ref(evaluated.keys[r.id])) for r in outer))

    def _mark_by_key(self, node: Node, subquery: PendingSubquery) -> Node | None:
        """The common case: all conditions are equalities and the test is never NULL; one left join decides."""
        outer = [r for r in free_refs(subquery.node) if r.id in output_ids(node)]
        lifted = Lifted(subquery.node, ())
        if outer:
            found = lift(subquery.node, frozenset(r.id for r in outer), self.ids, exists=subquery.predicate is None)
            if found is None:
                return None
            lifted = found
        parts = [*lifted.condition]
        if subquery.predicate is not None:
            if subquery.predicate.nullable:
                return None
            parts.append(subquery.predicate)
        inner_ids = output_ids(lifted.node)
        pairs: list[tuple[Expression, Expression]] = []
        for part in parts:
            pair = equality(part, inner_ids)
            if pair is None:
                return None
            pairs.append(pair)
        if not pairs:
            return None
        keys = [self.ids.column(inside.type, nullable=inside.nullable) for inside, _ in pairs]
        projected = Project(lifted.node, tuple((k, inside) for k, (inside, _) in zip(keys, pairs, strict=True)))
        mark = self.ids.column(BOOLEAN, nullable=False)
        distinct = Distinct(projected)
        marked = Project(distinct, (*((key, ref(key)) for key in keys), (mark, Literal(True, BOOLEAN))))
        condition = conjunction(
            [Call("=", (outside, ref(k)), BOOLEAN) for k, (_, outside) in zip(keys, pairs, strict=True)]
        )
        joined = Join("left", node, marked, condition)
        return self._with_column(joined, node, subquery.column, is_not_null(ref(_nullable(mark))))


def _peeled(subquery: PendingSubquery) -> PendingSubquery:
    """The subquery without projections on top: what they compute moves into the test."""
    node, predicate = subquery.node, subquery.predicate
    while isinstance(node, Project):
        if predicate is not None:
            predicate = substitute(predicate, {column.id: item for column, item in node.items})
        node = node.child
    return replace(subquery, node=node, predicate=predicate)


def not_false(predicate: Expression) -> Expression:
    """`predicate IS NOT FALSE`, taken apart so that equalities of values that are never NULL stay plain."""
    if not predicate.nullable:
        return predicate
    if isinstance(predicate, Call) and predicate.function in ("and", "or"):
        return Call(predicate.function, tuple(not_false(arg) for arg in predicate.args), BOOLEAN, nullable=False)
    if isinstance(predicate, Call) and predicate.function in ("=", "<>", "<", "<=", ">", ">="):
        nulls = tuple(is_null(arg) for arg in predicate.args if arg.nullable)
        return Call("or", (predicate, *nulls), BOOLEAN, predicate.nullable)
    return Call("is_not_false", (predicate,), BOOLEAN, nullable=False)


def is_true(expression: Expression) -> Expression:
    """`expression IS TRUE`."""
    return Call("is_true", (expression,), BOOLEAN, nullable=False)


def _nullable(column: Column) -> Column:
    return Column(column.id, column.type, True, column.name)
