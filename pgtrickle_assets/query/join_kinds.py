"""Makes inner joins of other joins that give the same rows. They have the simplest delta, and any order will do.

An outer join is one where a condition above rejects its NULL-extended rows: `a LEFT JOIN b ... WHERE b.x > 1`, or a
correlated scalar subquery that is compared with something. A semi join is one where the right side has no two rows for
a left one: `k IN (SELECT k FROM b GROUP BY k ...)`, or IN over a primary key.

Source: Galindo-Legaria and Rosenthal, Outerjoin Simplification and Reordering for Query Optimization, TODS 1997.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pgtrickle_assets.query.plan import (
    Aggregate,
    Call,
    Cast,
    ColumnRef,
    Distinct,
    Expression,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Project,
    UnionAll,
    Window,
    children,
)
from pgtrickle_assets.query.properties import TableKeys, at_most_one_row, common_partition
from pgtrickle_assets.query.rewrite import (
    columns_of,
    conjuncts,
    is_equality,
    output_ids,
    project_columns,
    ref,
    substitute,
    with_children,
)

_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=", "like", "ilike", "starts_with", "regexp_like")
_ARITHMETIC: Final = ("+", "-", "*", "/", "%", "neg", "abs", "float_sum", "float_difference", "float_product")
_OTHERS: Final = ("not", "float_quotient", "plus_days", "minus_days", "plus_interval", "minus_interval", "||")
_STRICT: Final = frozenset((*_COMPARISONS, *_ARITHMETIC, *_OTHERS))
"""Functions that are NULL where any argument is."""

Conditions = tuple[Expression, ...]


def simplify_joins(node: Node, keys: TableKeys) -> Node:
    """The plan with the simplest kind of every join that gives the same rows.

    Args:
        node: The plan.
        keys: The unique key of each relation that is known to have one.
    """
    return _Simplifier(keys).simplified(node, ())


@dataclass(frozen=True, slots=True)
class _Simplifier:
    keys: TableKeys

    def simplified(self, node: Node, wanted: Conditions) -> Node:
        """The node, of which rows that fail one of the conditions need not be right.

        A condition may read columns from elsewhere, which may have any value.
        """
        match node:
            case Filter():
                return replace(node, child=self.simplified(node.child, (*wanted, *conjuncts(node.predicate))))
            case Project():
                items = {column.id: item for column, item in node.items}
                return replace(node, child=self.simplified(node.child, _over(wanted, items)))
            case Join():
                return self._join(node, wanted)
            case Aggregate() | Distinct() | Generate():
                return replace(node, child=self.simplified(node.child, wanted))
            case Window():
                hidden = output_ids(node.child) - common_partition(node)
                apart = tuple(part for part in wanted if not columns_of(part) & hidden)
                return replace(node, child=self.simplified(node.child, apart))
            case UnionAll():
                return replace(node, children=tuple(self._branch(node, child, wanted) for child in node.children))
            case _:
                return with_children(node, [self.simplified(child, ()) for child in children(node)])

    def _branch(self, node: UnionAll, child: Node, wanted: Conditions) -> Node:
        own = {column.id: ref(mine) for column, mine in zip(node.columns, child.output, strict=True)}
        return self.simplified(child, _over(wanted, own))

    def _join(self, node: Join, wanted: Conditions) -> Node:
        left, right = output_ids(node.left), output_ids(node.right)
        kind = _kind(node.kind, left_wanted=_reject(wanted, left), right_wanted=_reject(wanted, right))
        matching = conjuncts(node.condition)
        # A kept side has rows without a match; of another one only what meets the condition is of use.
        of_left = {"right": matching, "full": (), "left": wanted, "anti": wanted}.get(kind, (*wanted, *matching))
        of_right = {"right": wanted, "full": (), "inner": (*wanted, *matching)}.get(kind, matching)
        below = replace(
            node, kind=kind, left=self.simplified(node.left, of_left), right=self.simplified(node.right, of_right)
        )
        if kind == "semi" and at_most_one_row(node.right, _equal_to_left(node, right), self.keys):
            return project_columns(replace(below, kind="inner"), below.output)
        return below


def _over(conditions: Conditions, items: Mapping[str, Expression]) -> Conditions:
    return tuple(substitute(part, items) for part in conditions)


def _reject(conditions: Conditions, ids: frozenset[str]) -> bool:
    return any(rejects(part, ids) for part in conditions)


def _equal_to_left(node: Join, right: frozenset[str]) -> frozenset[str]:
    """Columns of the right side that the condition sets equal to something that the right side does not decide."""
    found: set[str] = set()
    for part in conjuncts(node.condition):
        if is_equality(part):
            for one, other in (part.args, part.args[::-1]):
                if isinstance(one, ColumnRef) and one.id in right and not columns_of(other) & right:
                    found.add(one.id)
    return frozenset(found)


def _kind(kind: JoinKind, *, left_wanted: bool, right_wanted: bool) -> JoinKind:
    """The kind of a join of which rows that lack a wanted side are of no use."""
    match kind:
        case "left" if right_wanted:
            return "inner"
        case "right" if left_wanted:
            return "inner"
        case "full" if left_wanted and right_wanted:
            return "inner"
        case "full" if left_wanted:
            return "left"
        case "full" if right_wanted:
            return "right"
        case _:
            return kind


def rejects(condition: Expression, ids: frozenset[str]) -> bool:
    """Whether a condition is certainly not true where these columns are all NULL."""
    if isinstance(condition, Call):
        match condition.function:
            case "and":
                return any(rejects(part, ids) for part in condition.args)
            case "or":
                return all(rejects(part, ids) for part in condition.args)
            case "is_not_null" | "is_true" | "is_false" | "in":
                return _is_null(condition.args[0], ids)
            case "not" if isinstance(inner := condition.args[0], Call) and inner.function == "is_null":
                return _is_null(inner.args[0], ids)
            case _:
                pass
    return _is_null(condition, ids)


def _is_null(expression: Expression, ids: frozenset[str]) -> bool:
    """Whether an expression is certainly NULL where these columns are all NULL."""
    match expression:
        case ColumnRef():
            return expression.id in ids
        case Cast():
            return _is_null(expression.arg, ids)
        case Call() if expression.function in _STRICT:
            return any(_is_null(arg, ids) for arg in expression.args)
        case _:
            return False
