"""Helpers that rules use to take plans and expressions apart and to put them together again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from pgtrickle_assets.query.plan import (
    Aggregate,
    AggregateCall,
    Call,
    Case,
    Cast,
    Column,
    ColumnRef,
    Expression,
    Filter,
    Generate,
    Join,
    Literal,
    Node,
    Opaque,
    Project,
    Scan,
    SetOperation,
    SortKey,
    TopK,
    UnionAll,
    Values,
    Window,
    WindowCall,
    children,
)
from pgtrickle_assets.query.types import BOOLEAN, ColumnType


class IdGenerator:
    """Hands out column ids ("c1", "c2", ...) that are unique in one plan."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        numbers = [int(name[1:]) for name in taken if name[:1] == "c" and name[1:].isdigit()]
        self._last = max(numbers, default=0)

    @classmethod
    def after(cls, node: Node) -> IdGenerator:
        """A generator whose ids do not occur in `node`."""
        return cls(all_ids(node))

    def fresh(self) -> str:
        """The next unused id."""
        self._last += 1
        return f"c{self._last}"

    def column(self, type_: ColumnType, *, nullable: bool = True, name: str = "") -> Column:
        """A new column of the given type."""
        return Column(self.fresh(), type_, nullable, name)

    def like(self, column: Column | ColumnRef) -> Column:
        """A new column of the type, nullability and label of another one."""
        return Column(self.fresh(), column.type, column.nullable, column.name if isinstance(column, Column) else "")


def ref(column: Column) -> ColumnRef:
    """The expression that reads `column`."""
    return ColumnRef(column.id, column.type, column.nullable)


EQUALITY = "="
NULL_SAFE_EQUALITY = "is_not_distinct_from"
TRUE = Literal(True, BOOLEAN)
FALSE = Literal(False, BOOLEAN)


def conjuncts(predicate: Expression | None) -> tuple[Expression, ...]:
    """The operands of a tree of ANDs, left to right; none for None and for TRUE."""
    if predicate is None or predicate == TRUE:
        return ()
    if isinstance(predicate, Call) and predicate.function == "and":
        return tuple(part for arg in predicate.args for part in conjuncts(arg))
    return (predicate,)


def conjunction(parts: Sequence[Expression]) -> Expression | None:
    """AND over the different `parts`; None when there are none."""
    unique = tuple(dict.fromkeys(parts))
    if not unique:
        return None
    if len(unique) == 1:
        return unique[0]
    return Call("and", unique, BOOLEAN, any(part.nullable for part in unique))


def disjunction(parts: Sequence[Expression]) -> Expression | None:
    """OR over the different `parts`; None when there are none."""
    unique = tuple(dict.fromkeys(parts))
    if not unique:
        return None
    if len(unique) == 1:
        return unique[0]
    return Call("or", unique, BOOLEAN, any(part.nullable for part in unique))


def negation(expression: Expression) -> Expression:
    """NOT, with double negation removed."""
    if isinstance(expression, Call) and expression.function == "not":
        return expression.args[0]
    return Call("not", (expression,), BOOLEAN, expression.nullable)


def equals(left: Expression, right: Expression) -> Expression:
    """`left = right` for operands of one type."""
    return Call(EQUALITY, (left, right), BOOLEAN, left.nullable or right.nullable)


def not_distinct(left: Expression, right: Expression) -> Expression:
    """`left IS NOT DISTINCT FROM right`; a plain equality where neither side can be NULL."""
    if not left.nullable and not right.nullable:
        return equals(left, right)
    return Call(NULL_SAFE_EQUALITY, (left, right), BOOLEAN, nullable=False)


def is_equality(part: Expression) -> TypeGuard[Call]:
    """Whether a condition is `left = right` or `left IS NOT DISTINCT FROM right`."""
    return isinstance(part, Call) and part.function in (EQUALITY, NULL_SAFE_EQUALITY)


def equalities(condition: Expression | None) -> tuple[tuple[ColumnRef, ColumnRef, bool], ...]:
    """Pairs of plain columns that `condition` makes equal; the flag says whether NULL equals NULL."""
    found: list[tuple[ColumnRef, ColumnRef, bool]] = []
    for part in conjuncts(condition):
        if is_equality(part):
            left, right = part.args
            if isinstance(left, ColumnRef) and isinstance(right, ColumnRef):
                found.append((left, right, part.function == NULL_SAFE_EQUALITY))
    return tuple(found)


def is_null(expression: Expression) -> Expression:
    """`expression IS NULL`."""
    return Call("is_null", (expression,), BOOLEAN, nullable=False)


def is_not_null(expression: Expression) -> Expression:
    """`expression IS NOT NULL`."""
    return Call("is_not_null", (expression,), BOOLEAN, nullable=False)


def operands(expression: Expression) -> tuple[Expression, ...]:
    """The direct subexpressions."""
    match expression:
        case Call():
            return expression.args
        case Cast():
            return (expression.arg,)
        case Case():
            parts = tuple(part for branch in expression.branches for part in branch)
            return parts if expression.otherwise is None else (*parts, expression.otherwise)
        case _:
            return ()


def map_operands(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The same expression over changed direct subexpressions."""
    match expression:
        case Call():
            args = tuple(change(arg) for arg in expression.args)
            return expression if args == expression.args else replace(expression, args=args)
        case Cast():
            return replace(expression, arg=change(expression.arg))
        case Case():
            branches = tuple((change(when), change(then)) for when, then in expression.branches)
            otherwise = None if expression.otherwise is None else change(expression.otherwise)
            return replace(expression, branches=branches, otherwise=otherwise)
        case _:
            return expression


def transform(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """Replace subexpressions top down: where `change` returns an expression it stands and is not entered."""
    changed = change(expression)
    if changed is not None:
        return changed
    return map_operands(expression, lambda part: transform(part, change))


def substitute(expression: Expression, mapping: Mapping[str, Expression]) -> Expression:
    """Replace column references by the expressions that `mapping` has for their ids."""
    if not mapping:
        return expression
    return transform(expression, lambda part: mapping.get(part.id) if isinstance(part, ColumnRef) else None)


def walk_expression(expression: Expression) -> Iterator[Expression]:
    """The expression and all its subexpressions, parents first."""
    yield expression
    for part in operands(expression):
        yield from walk_expression(part)


def columns_of(expression: Expression | None) -> frozenset[str]:
    """Ids of the columns that an expression reads."""
    if expression is None:
        return frozenset()
    return frozenset(part.id for part in walk_expression(expression) if isinstance(part, ColumnRef))


def _call_expressions(call: AggregateCall | WindowCall) -> Iterator[Expression]:
    yield from call.args
    if call.filter is not None:
        yield call.filter
    for key in call.order_by:
        yield key.expression
    if isinstance(call, WindowCall):
        yield from call.partition_by
        yield from (key.expression for key in call.values_by)


def node_expressions(node: Node) -> Iterator[Expression]:
    """The expressions that a node itself evaluates (not its children's)."""
    match node:
        case Filter():
            yield node.predicate
        case Project():
            yield from (expression for _, expression in node.items)
        case Join():
            if node.condition is not None:
                yield node.condition
        case Aggregate():
            yield from (ref(key) for key in node.keys)
            for _, call in node.aggregates:
                yield from _call_expressions(call)
        case Window():
            for _, call in node.calls:
                yield from _call_expressions(call)
        case TopK():
            yield from (key.expression for key in node.order_by)
            yield from (ref(column) for column in node.partition_by)
        case Generate():
            yield node.generator
        case Values():
            yield from (value for row in node.rows for value in row)
        case _:
            return


def map_sort_keys(keys: Sequence[SortKey], change: Callable[[Expression], Expression]) -> tuple[SortKey, ...]:
    """The same sort keys over changed expressions."""
    return tuple(replace(key, expression=change(key.expression)) for key in keys)


def map_aggregate(call: AggregateCall, change: Callable[[Expression], Expression]) -> AggregateCall:
    """The same aggregate over changed expressions."""
    return replace(
        call,
        args=tuple(change(arg) for arg in call.args),
        filter=None if call.filter is None else change(call.filter),
        order_by=map_sort_keys(call.order_by, change),
    )


def map_window(call: WindowCall, change: Callable[[Expression], Expression]) -> WindowCall:
    """The same window call over changed expressions."""
    return replace(
        call,
        args=tuple(change(arg) for arg in call.args),
        filter=None if call.filter is None else change(call.filter),
        order_by=map_sort_keys(call.order_by, change),
        partition_by=tuple(change(part) for part in call.partition_by),
        values_by=map_sort_keys(call.values_by, change),
    )


def map_node_expressions(node: Node, change: Callable[[Expression], Expression]) -> Node:
    """The same node with each of its own expressions changed; keys and partition columns are left alone."""
    match node:
        case Filter():
            return replace(node, predicate=change(node.predicate))
        case Project():
            return replace(node, items=tuple((column, change(item)) for column, item in node.items))
        case Join():
            return node if node.condition is None else replace(node, condition=change(node.condition))
        case Aggregate():
            return replace(node, aggregates=tuple((c, map_aggregate(call, change)) for c, call in node.aggregates))
        case Window():
            return replace(node, calls=tuple((c, map_window(call, change)) for c, call in node.calls))
        case TopK():
            return replace(node, order_by=map_sort_keys(node.order_by, change))
        case Generate():
            generator = change(node.generator)
            assert isinstance(generator, Call)
            return replace(node, generator=generator)
        case Values():
            return replace(node, rows=tuple(tuple(change(value) for value in row) for row in node.rows))
        case _:
            return node


def with_children(node: Node, new: Sequence[Node]) -> Node:
    """The same node over other children (as many, in the same order)."""
    match node:
        case Join() | SetOperation():
            return node if (node.left, node.right) == tuple(new) else replace(node, left=new[0], right=new[1])
        case UnionAll():
            return replace(node, children=tuple(new))
        case Opaque():
            return replace(node, inputs=tuple(child for child in new if isinstance(child, Scan)))
        case Scan() | Values():
            return node
        case _:
            return node if node.child is new[0] else replace(node, child=new[0])


def map_nodes(node: Node, change: Callable[[Node], Node]) -> Node:
    """Rebuild a tree bottom up."""
    old = children(node)
    new = [map_nodes(child, change) for child in old]
    if any(a is not b for a, b in zip(old, new, strict=True)):
        node = with_children(node, new)
    return change(node)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, parents first."""
    yield node
    for child in children(node):
        yield from walk(child)


def scans(node: Node) -> Iterator[Scan]:
    """All scans of a tree, left to right."""
    return (part for part in walk(node) if isinstance(part, Scan))


def all_ids(node: Node) -> frozenset[str]:
    """Every column id that a tree defines."""
    return frozenset(column.id for part in walk(node) for column in part.output)


def output_ids(node: Node) -> frozenset[str]:
    """Ids of the columns that a node puts out."""
    return frozenset(column.id for column in node.output)


def free_columns(node: Node) -> frozenset[str]:
    """Ids that a tree reads without defining them: its correlation with an outer query."""
    used = frozenset(i for part in walk(node) for expression in node_expressions(part) for i in columns_of(expression))
    return used - all_ids(node)


def free_refs(node: Node) -> tuple[ColumnRef, ...]:
    """The references behind `free_columns`, each once, in order of appearance."""
    free = free_columns(node)
    found: dict[str, ColumnRef] = {}
    for part in walk(node):
        for expression in node_expressions(part):
            for piece in walk_expression(expression):
                if isinstance(piece, ColumnRef) and piece.id in free:
                    found.setdefault(piece.id, piece)
    return tuple(found.values())


def substitute_node(node: Node, mapping: Mapping[str, Expression]) -> Node:
    """Replace column references everywhere in a tree (used for free columns)."""
    return map_nodes(node, lambda part: map_node_expressions(part, lambda e: substitute(e, mapping)))


def rename_ids(node: Node, ids: IdGenerator) -> tuple[Node, dict[str, str]]:
    """A copy whose columns all have fresh ids, and the map from old to new ids. Free columns keep theirs."""
    mapping = {old: ids.fresh() for old in dict.fromkeys(column.id for part in walk(node) for column in part.output)}
    return apply_ids(node, mapping), mapping


def apply_ids(node: Node, mapping: Mapping[str, str]) -> Node:
    """Rename column ids, definitions and uses alike."""

    def column(c: Column) -> Column:
        return replace(c, id=mapping.get(c.id, c.id))

    def expression(e: Expression) -> Expression:
        return transform(
            e, lambda part: replace(part, id=mapping.get(part.id, part.id)) if isinstance(part, ColumnRef) else None
        )

    def one(part: Node) -> Node:
        part = map_node_expressions(part, expression)
        match part:
            case Scan():
                weight = None if part.weight is None else column(part.weight)
                return replace(part, columns=tuple(map(column, part.columns)), weight=weight)
            case Values() | UnionAll() | SetOperation() | Generate():
                return replace(part, columns=tuple(map(column, part.columns)))
            case Opaque():
                # The SQL text of an opaque node names its outputs by position, so renaming them is safe.
                return replace(part, columns=tuple(map(column, part.columns)))
            case Project():
                return replace(part, items=tuple((column(c), item) for c, item in part.items))
            case Aggregate():
                aggregates = tuple((column(c), call) for c, call in part.aggregates)
                return replace(part, keys=tuple(map(column, part.keys)), aggregates=aggregates)
            case Window():
                return replace(part, calls=tuple((column(c), call) for c, call in part.calls))
            case TopK():
                return replace(part, partition_by=tuple(map(column, part.partition_by)))
            case _:
                return part

    return map_nodes(node, one)


def project_columns(node: Node, columns: Sequence[Column]) -> Project:
    """A projection to some of a node's own columns, ids unchanged."""
    return Project(node, tuple((column, ref(column)) for column in columns))


def filtered(node: Node, parts: Sequence[Expression]) -> Node:
    """The node under a filter of the given conjuncts, or itself when there are none."""
    predicate = conjunction(parts)
    return node if predicate is None else Filter(node, predicate)
