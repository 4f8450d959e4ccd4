"""FROM: tables, subqueries, functions and joins of them.

Sources: PostgreSQL 18 documentation 7.2.1 (the FROM clause) and 7.2.1.5 (LATERAL).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.context import CommonTable, PlannedQuery, PlanningContext
from pgtrickle_assets.query.expressions import Analyzer
from pgtrickle_assets.query.lateral import join_lateral
from pgtrickle_assets.query.naming import fold, output_name
from pgtrickle_assets.query.opaque import sampled
from pgtrickle_assets.query.operators import comparison, unify
from pgtrickle_assets.query.parse import line_of, parts_of
from pgtrickle_assets.query.plan import (
    Call,
    Column,
    ColumnRef,
    Expression,
    Generate,
    InputTable,
    Join,
    Node,
    Project,
    Scan,
    Values,
)
from pgtrickle_assets.query.rewrite import columns_of, conjunction, free_columns, output_ids, project_columns, ref
from pgtrickle_assets.query.scope import FromItem, Named, Relation, Scope, nearest
from pgtrickle_assets.query.set_returning import generator_call
from pgtrickle_assets.query.unnesting import Unnester

ONE_ROW = Values((), ((),))


class BlockPlanner(Protocol):
    """What FROM needs of the planner of query blocks."""

    context: PlanningContext

    def query(self, node: Any, parent: Scope | None, tables: CommonTables) -> PlannedQuery:
        """Plan a query block."""
        ...

    def table_keys(self) -> dict[str, tuple[str, ...]]:
        """Keys of the relations read so far."""
        ...


CommonTables = dict[str, CommonTable]


@dataclass(slots=True)
class FromPlanner:
    """Plans the FROM clause of one block; `parent` is the scope around the block."""

    blocks: BlockPlanner
    parent: Scope | None
    tables: CommonTables

    @property
    def context(self) -> PlanningContext:
        """The shared state."""
        return self.blocks.context

    def plan(self, select: exp.Select) -> FromItem | None:
        """The whole FROM clause; None when there is none."""
        clause = select.args.get("from_")
        if clause is None:
            return None
        item = self._with_joins(clause.this, None)
        for join in parts_of(select, "joins"):
            item = self._join(item, join)
        _unique_aliases(item)
        return item

    def _with_joins(self, node: Any, left: FromItem | None) -> FromItem:
        """An item and the joins that are attached to it in parentheses."""
        item = self._item(node, left)
        for join in parts_of(node, "joins"):
            item = self._join(item, join)
        return item

    def _item(self, node: Any, left: FromItem | None) -> FromItem:
        if isinstance(node, exp.Lateral):
            return self._lateral_item(node, left)
        if isinstance(node, exp.Table):
            if node.args.get("rows_from"):
                raise QueryError("ROWS FROM is not supported", line=line_of(node))
            if isinstance(node.this, exp.Identifier):
                return self._table(node)
            return self._function(node.this, node.args.get("alias"), node.args.get("ordinality"), left)
        if isinstance(node, exp.Unnest):
            return self._unnest(node, node.args.get("alias"), left)
        if isinstance(node, exp.Subquery):
            return self._subquery(node, self.parent)
        if isinstance(node, exp.Paren):
            return self._with_joins(node.this, left)
        if isinstance(node, exp.Values):
            return self._derived(self.blocks.query(node, self.parent, self.tables), node.args.get("alias"), node)
        raise QueryError(f"{type(node).__name__} in FROM is not supported", line=line_of(node))

    def _table(self, node: exp.Table) -> FromItem:
        parts = tuple(fold(part) for part in (node.args.get("catalog"), node.args.get("db"), node.this) if part)
        line = line_of(node)
        if len(parts) == 1 and parts[0] in self.tables:
            planned = self.tables[parts[0]].plan()
            return self._derived(planned, node.args.get("alias"), node, default_alias=parts[0])
        schema = self.context.resolve(parts)
        if schema is None:
            name = ".".join(parts)
            hint = nearest(name, self.context.known_names) or nearest(parts[-1], self.tables)
            raise QueryError(f'relation "{name}" does not exist', line=line, hint=hint)
        columns = [Column(self.context.ids.fresh(), c.type, c.nullable, c.name) for c in schema.columns]
        relation = str(schema.name)
        names = tuple(c.name for c in schema.columns)
        self.context.inputs[relation] = InputTable(schema.name, names)
        self.context.schemas[relation] = schema
        scan: Node = Scan(relation, tuple(columns), names)
        key = tuple(column.id for column in columns if column.name in schema.key) if schema.key else ()
        sample = node.args.get("sample")
        if sample is not None:
            assert isinstance(scan, Scan)
            scan, key = sampled(scan, sample, self.context), ()
        alias, labels = _alias(node.args.get("alias"), parts[-1], names, line)
        named = tuple((label, ref(column)) for label, column in zip(labels, scan.output, strict=True))
        return FromItem(scan, (Relation(alias, named, key),), named)

    def _subquery(self, node: exp.Subquery, parent: Scope | None) -> FromItem:
        inner = node.this
        alias = node.args.get("alias")
        if isinstance(inner, (exp.Table, exp.Join)) or (
            isinstance(inner, exp.Subquery) and alias is None and inner.args.get("alias")
        ):
            item = self._with_joins(inner, None)
            for join in parts_of(node, "joins"):
                item = self._join(item, join)
            if alias is None:
                return item
            label, labels = _alias(alias, "", [name for name, _ in item.visible], line_of(node))
            named = tuple((new, r) for new, (_, r) in zip(labels, item.visible, strict=True))
            return FromItem(item.node, (Relation(label, named),), named)
        return self._derived(self.blocks.query(node, parent, self.tables), alias, node)

    def _derived(self, planned: PlannedQuery, alias: Any, node: Any, *, default_alias: str = "") -> FromItem:
        names = [item.name for item in planned.columns]
        label, labels = _alias(alias, default_alias, names, line_of(node))
        named = tuple((name, ref(item.column)) for name, item in zip(labels, planned.columns, strict=True))
        return FromItem(planned.node, (Relation(label, named),), named)

    def _lateral_item(self, node: exp.Lateral, left: FromItem | None) -> FromItem:
        inner, alias = node.this, node.args.get("alias")
        if isinstance(inner, exp.Subquery):
            scope = Scope(left, self.parent) if left is not None else self.parent
            planned = self.blocks.query(inner, scope, self.tables)
            return self._derived(planned, alias, node)
        if isinstance(inner, exp.Unnest):
            return self._unnest(inner, alias, left)
        return self._function(inner, alias, node.args.get("ordinality"), left)

    def _analyzer(self, item: FromItem | None, clause: str) -> Analyzer:
        def plan_subquery(node: exp.Expr, scope: Scope) -> PlannedQuery:
            return self.blocks.query(node, scope, self.tables)

        return Analyzer(self.context, Scope(item, self.parent), plan_subquery, clause)

    def _unnest(self, node: exp.Unnest, alias: Any, left: FromItem | None) -> FromItem:
        if len(node.expressions) != 1:
            raise QueryError("unnest of several arrays is not supported", line=line_of(node))
        call = exp.Anonymous(this="unnest", expressions=list(node.expressions))
        offset = node.args.get("offset")
        if offset is not None and isinstance(alias, exp.TableAlias) and isinstance(offset, exp.Identifier):
            # The parser takes the last column alias for the ordinality.
            alias = alias.copy()
            alias.append("columns", offset.copy())
        return self._function(call, alias, offset, left)

    def _function(self, node: Any, alias: Any, ordinality: Any, left: FromItem | None) -> FromItem:
        """A set-returning function; its arguments may read the items before it."""
        analyzer = self._analyzer(left, "FROM")
        generator, columns, names = generator_call(analyzer, node, self.context.ids, numbered=bool(ordinality))
        if analyzer.pending:
            raise QueryError("a subquery in a function in FROM is not supported", line=line_of(node))
        base = ONE_ROW if left is None or not _reads(generator, left) else left.node
        generated = Generate(base, generator, columns)
        default = output_name(node)
        label, labels = _alias(alias, default, names, line_of(node))
        if isinstance(alias, exp.TableAlias) and not alias.args.get("columns") and names[0] == default:
            # A function without a named result column gives its column the alias.
            labels[0] = label
        named = tuple((name, ref(column)) for name, column in zip(labels, columns, strict=True))
        return FromItem(generated, (Relation(label, named, (), not ordinality),), named)

    def _join(self, left: FromItem, join: exp.Join) -> FromItem:
        line = line_of(join)
        side, kind = (str(join.args.get(key) or "").upper() for key in ("side", "kind"))
        natural = str(join.args.get("method") or "").upper() == "NATURAL"
        if kind in ("SEMI", "ANTI") or (join.args.get("method") and not natural):
            raise QueryError(f"{kind or join.args.get('method')} JOIN is not PostgreSQL", line=line)
        right = self._with_joins(join.this, left)
        how: Any = {"LEFT": "left", "RIGHT": "right", "FULL": "full"}.get(side, "inner")
        common = self._common_columns(left, right, join, natural=natural)
        condition = join.args.get("on")
        if how != "inner" and condition is None and common is None and kind != "CROSS":
            raise QueryError(f"{side} JOIN needs ON or USING", line=line)
        if common is not None:
            return self._merge(how, left, right, common, line)
        both = FromItem(ONE_ROW, (*left.relations, *right.relations), (*left.visible, *right.visible))
        _unique_aliases(both)
        parts: Sequence[Expression] = ()
        pending: dict[str, Any] = {}
        if condition is not None:
            analyzer = self._analyzer(both, "JOIN/ON")
            analyzer.clause = "JOIN/ON"
            parts, pending = [analyzer.predicate(condition)], analyzer.pending
        node = self._joined(how, left, right, parts, pending, line)
        return both.refreshed(node)

    def _joined(
        self,
        how: Any,
        left: FromItem,
        right: FromItem,
        parts: Sequence[Expression],
        pending: dict[str, Any],
        line: int | None,
    ) -> Node:
        unnester = Unnester(self.context.ids, pending, self.blocks.table_keys())
        if _is_lateral(left, right):
            if how not in ("inner", "left"):
                raise QueryError("a LATERAL item cannot be on the nullable side of this join", line=line)
            if pending:
                raise QueryError("a subquery in the ON clause of a LATERAL join is not supported", line=line)
            return join_lateral(how, left.node, right.node, conjunction(parts), self.context.ids)
        if not pending:
            return Join(how, left.node, right.node, conjunction(parts))
        if how != "inner":
            return self._outer_with_subqueries(how, left, right, parts, pending, line)
        node: Node = Join("inner", left.node, right.node, None)
        for part in parts:
            node = unnester.filter(node, part)
        return node

    def _outer_with_subqueries(
        self,
        how: Any,
        left: FromItem,
        right: FromItem,
        parts: Sequence[Expression],
        pending: dict[str, Any],
        line: int | None,
    ) -> Node:
        """An outer join whose ON has subqueries: their values are computed on the side whose columns they read."""
        keys = self.blocks.table_keys()
        nodes = [right.node, left.node]
        for column, subquery in pending.items():
            needed = free_columns(subquery.node) | columns_of(subquery.predicate) - output_ids(subquery.node)
            needed -= pending.keys()
            other = output_ids(left.node), output_ids(right.node)
            side = 0 if not needed & other[0] else 1
            if needed & other[side]:
                raise QueryError(
                    "a subquery in the ON clause of an outer join that reads both sides is not supported", line=line
                )
            unnester = Unnester(self.context.ids, pending, keys)
            nodes[side] = unnester.attach(nodes[side], [ColumnRef(column, subquery.column.type)])
        joined = Join(how, nodes[1], nodes[0], conjunction(parts))
        return project_columns(joined, [c for c in joined.output if c.id not in pending])

    def _common_columns(self, left: FromItem, right: FromItem, join: exp.Join, *, natural: bool) -> list[str] | None:
        using = join.args.get("using")
        if using:
            return [fold(part.this if isinstance(part, exp.Column) else part) for part in using]
        if not natural:
            return None
        names = [name for name, _ in right.visible]
        return [name for name, _ in left.visible if name in names]

    def _merge(self, how: Any, left: FromItem, right: FromItem, names: Sequence[str], line: int | None) -> FromItem:
        """JOIN USING and NATURAL JOIN: each common column appears once, first."""
        tests: list[Expression] = []
        pairs: list[tuple[str, ColumnRef, ColumnRef]] = []
        for name in names:
            one, other = (_only(item, name, line) for item in (left, right))
            pairs.append((name, one, other))
            tests.append(comparison("=", one, other, line))
        node = self._joined(how, left, right, tests, {}, line)
        merged: list[Named] = []
        added: list[tuple[Column, Expression]] = []
        for name, one, other in pairs:
            kind, (a, b) = unify([one, other], "JOIN/USING", line)
            if how in ("inner", "left") and a == one:
                merged.append((name, one))
            elif how == "right" and b == other:
                merged.append((name, other))
            else:
                value = Call("coalesce", (a, b), kind, nullable=True) if how == "full" else b if how == "right" else a
                column = self.context.ids.column(kind, name=name)
                added.append((column, value))
                merged.append((name, ref(column)))
        if added:
            node = Project(node, (*((c, ref(c)) for c in node.output), *added))
        rest = [pair for item in (left, right) for pair in item.visible if pair[0] not in names]
        item = FromItem(node, (*left.relations, *right.relations), (*merged, *rest))
        return item.refreshed(node)


def _reads(generator: Call, left: FromItem) -> bool:
    return bool(columns_of(generator) & output_ids(left.node))


def _is_lateral(left: FromItem, right: FromItem) -> bool:
    below = output_ids(left.node)
    if isinstance(right.node, Generate) and right.node.child is left.node:
        return True
    return bool(free_columns(right.node) & below)


def _only(item: FromItem, name: str, line: int | None) -> ColumnRef:
    found = [r for label, r in item.visible if label == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise QueryError(f'common column name "{name}" appears more than once', line=line)
    raise QueryError(
        f'column "{name}" specified in USING clause does not exist on both sides',
        line=line,
        hint=nearest(name, [label for label, _ in item.visible]),
    )


def _alias(alias: Any, default: str, names: Sequence[str], line: int | None) -> tuple[str, list[str]]:
    """The alias of an item and its column names, some of them renamed."""
    if not isinstance(alias, exp.TableAlias):
        return default, list(names)
    label = fold(alias.this) if alias.this is not None else default
    written = [fold(part.this if isinstance(part, exp.ColumnDef) else part) for part in parts_of(alias, "columns")]
    if len(written) > len(names):
        raise QueryError(f'table "{label}" has {len(names)} columns available but {len(written)} specified', line=line)
    return label, [*written, *names[len(written) :]]


def _unique_aliases(item: FromItem) -> None:
    seen: set[str] = set()
    for relation in item.relations:
        if relation.alias and relation.alias in seen:
            raise QueryError(f'table name "{relation.alias}" specified more than once')
        seen.add(relation.alias)
