"""What is certain about the rows of a plan: how many there can be, and which columns identify them."""

from __future__ import annotations

from collections.abc import Mapping

from pgtrickle_assets.query.plan import (
    Aggregate,
    Call,
    ColumnRef,
    Distinct,
    Filter,
    Join,
    Literal,
    Node,
    Project,
    Scan,
    TopK,
    Values,
    Window,
)
from pgtrickle_assets.query.rewrite import columns_of, conjuncts, output_ids

TableKeys = Mapping[str, tuple[str, ...]]
"""Relation -> columns of a unique, not-null key."""


def exactly_one_row(node: Node) -> bool:
    """Whether the plan always yields exactly one row."""
    match node:
        case Aggregate():
            return not node.keys
        case Project() | Window():
            return exactly_one_row(node.child)
        case Values():
            return len(node.rows) == 1
        case Join():
            both = exactly_one_row(node.left) and exactly_one_row(node.right)
            return both and (node.kind == "left" or (node.kind == "inner" and node.condition is None))
        case _:
            return False


def at_most_one_row(node: Node, fixed: frozenset[str], keys: TableKeys) -> bool:
    """Whether there is at most one row for each combination of values of the columns in `fixed`.

    `keys` has the unique key of each relation that is known to have one.
    """
    if exactly_one_row(node):
        return True
    match node:
        case Scan():
            key = keys.get(node.relation, ())
            named = {
                source for source, column in zip(node.source_columns, node.columns, strict=True) if column.id in fixed
            }
            return bool(key) and set(key) <= named
        case Aggregate():
            return {key.id for key in node.keys} <= fixed
        case Distinct():
            return output_ids(node) <= fixed or at_most_one_row(node.child, fixed, keys)
        case TopK():
            partition = {column.id for column in node.partition_by}
            return (node.limit is not None and node.limit <= 1 and partition <= fixed) or at_most_one_row(
                node.child, fixed, keys
            )
        case Filter():
            return at_most_one_row(node.child, fixed | _pinned(node, fixed), keys)
        case Project():
            through = {item.id for column, item in node.items if column.id in fixed and isinstance(item, ColumnRef)}
            return at_most_one_row(node.child, frozenset(through), keys)
        case Window():
            return at_most_one_row(node.child, fixed, keys)
        case Join():
            if node.kind in ("semi", "anti"):
                return at_most_one_row(node.left, fixed, keys)
            return (
                node.kind in ("inner", "left")
                and at_most_one_row(node.left, fixed, keys)
                and at_most_one_row(node.right, fixed, keys)
            )
        case _:
            return False


def _pinned(node: Filter, fixed: frozenset[str]) -> frozenset[str]:
    """Columns that the filter sets equal to a constant or to a fixed column."""
    found: set[str] = set()
    for part in conjuncts(node.predicate):
        if not isinstance(part, Call) or part.function != "=":
            continue
        for one, other in (part.args, part.args[::-1]):
            if isinstance(one, ColumnRef) and (isinstance(other, Literal) or columns_of(other) <= fixed):
                found.add(one.id)
    return frozenset(found)


def common_partition(node: Window) -> frozenset[str]:
    """Columns by which every call of the window node partitions."""
    partitions = [{part.id for part in call.partition_by if isinstance(part, ColumnRef)} for _, call in node.calls]
    common = set(output_ids(node.child)) if partitions else set[str]()
    for partition in partitions:
        common &= partition
    return frozenset(common)
