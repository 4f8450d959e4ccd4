"""Which scans of a query matter only for a few values, so that files and row groups without them need not be read.

A filter tells by its constants. A join tells, too: rows of one side without a partner on the other don't show in its
output. Both columns are traced down to the scans that they come from, through operators that neither need the rows left
out nor change the values.
"""

from __future__ import annotations

from collections import Counter

from pgtrickle_assets.differential.steps import KeyPart, Limits, Restriction, ValueRange
from pgtrickle_assets.query.plan import (
    Aggregate,
    Call,
    Column,
    ColumnRef,
    Distinct,
    Expression,
    Filter,
    Generate,
    Join,
    Literal,
    Node,
    Project,
    Scan,
    SetOperation,
    TopK,
    UnionAll,
    Window,
    children,
)
from pgtrickle_assets.query.properties import common_partition
from pgtrickle_assets.query.rewrite import conjunction, conjuncts, equalities, output_ids, walk

Source = tuple[Scan, str]
"""A scan and the name of one of its stored columns."""

_RESTRICTED_SIDES = {
    "inner": ("left", "right"),
    "semi": ("left", "right"),
    "left": ("right",),
    "anti": ("right",),
    "right": ("left",),
    "full": (),
}

_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparisons, and what each is with its sides changed."""


def restrictions(query: Node) -> tuple[Restriction, ...]:
    """Restrictions that the joins of a query imply, also of small scans by large ones: the executor knows sizes."""
    found = [restriction for node in walk(query) if isinstance(node, Join) for restriction in _of_join(node)]
    times = Counter(node for node in walk(query) if isinstance(node, Scan))
    # A scan that occurs twice is read once, for both.
    return tuple(dict.fromkeys(restriction for restriction in found if times[restriction.scan] == 1))


def value_ranges(query: Node) -> tuple[ValueRange, ...]:
    """What the filters on scans say about single columns: comparisons with constants, also several under OR."""
    found: dict[Scan, list[tuple[Expression, ...]]] = {}
    _collect_filters(query, (), found)
    ranges: list[ValueRange] = []
    for scan, filters in found.items():
        # A scan that occurs twice is read once, for both.
        predicate = conjunction(filters[0]) if len(filters) == 1 else None
        if predicate is not None:
            for column, name in zip(scan.columns, scan.source_columns, strict=True):
                limits = _limits(predicate, column)
                if limits:
                    ranges.append(ValueRange(scan, name, limits))
    return tuple(ranges)


def _collect_filters(
    node: Node, above: tuple[Expression, ...], found: dict[Scan, list[tuple[Expression, ...]]]
) -> None:
    match node:
        case Filter():
            _collect_filters(node.child, (*above, *conjuncts(node.predicate)), found)
        case Scan():
            found.setdefault(node, []).append(above)
        case Join() if node.kind in ("semi", "anti"):
            _collect_filters(node.left, above, found)
            _collect_filters(node.right, (), found)
        case _:
            for child in children(node):
                _collect_filters(child, (), found)


def _limits(part: Expression, column: Column) -> tuple[Limits, ...]:
    """Where a column lies when a condition holds; nothing where the condition does not tell."""
    if not isinstance(part, Call):
        return ()
    of_parts = [_limits(arg, column) for arg in part.args] if part.function in ("and", "or") else []
    if part.function == "or":
        return tuple(limits for found in of_parts for limits in found) if all(of_parts) else ()
    if part.function == "and":
        told = [found for found in of_parts if found]
        single = [found[0] for found in told if len(found) == 1]
        if len(single) < len(told) or not told:
            return told[0] if told else ()
        low = next((least for least, _ in single if least is not None), None)
        high = next((greatest for _, greatest in single if greatest is not None), None)
        return ((low, high),)
    if part.function == "in":
        equal = [_compared(Call("=", (part.args[0], item), part.type), column) for item in part.args[1:]]
        return tuple(limits for found in equal for limits in found) if all(equal) else ()
    return _compared(part, column)


def _compared(part: Call, column: Column) -> tuple[Limits, ...]:
    if part.function not in _MIRRORED or len(part.args) != 2:
        return ()
    left, right, function = *part.args, part.function
    if isinstance(left, Literal):
        left, right, function = right, left, _MIRRORED[function]
    if not (isinstance(left, ColumnRef) and left.id == column.id and isinstance(right, Literal)):
        return ()
    if right.value is None or right.type != column.type:
        return ()
    return ((None if function in ("<", "<=") else right, None if function in (">", ">=") else right),)


def _of_join(node: Join) -> list[Restriction]:
    keys: dict[tuple[Scan, Scan], list[KeyPart]] = {}
    left_ids, right_ids = output_ids(node.left), output_ids(node.right)
    for first, second, null_safe in equalities(node.condition):
        for left, right in ((first.id, second.id), (second.id, first.id)):
            if left not in left_ids or right not in right_ids:
                continue
            for side in _RESTRICTED_SIDES[node.kind]:
                mine, other = ((node.left, left), (node.right, right))[:: 1 if side == "left" else -1]
                by = _origin(other[0], other[1], keeps_nulls=null_safe)
                if by is not None:
                    for scan, column in _targets(*mine):
                        # One row of a side holds all its columns, so the parts hold for one row of `by` together.
                        keys.setdefault((scan, by[0]), []).append(KeyPart(column, by[1], null_safe))
    return [Restriction(scan, by, tuple(dict.fromkeys(key))) for (scan, by), key in keys.items()]


def _stored(scan: Scan, column: str) -> Source | None:
    for own, name in zip(scan.columns, scan.source_columns, strict=True):
        if own.id == column:
            return scan, name
    return None


def _renamed(node: Project, column: str) -> str | None:
    for own, item in node.items:
        if own.id == column and isinstance(item, ColumnRef):
            return item.id
    return None


def _targets(node: Node, column: str) -> list[Source]:  # noqa: C901 - one case per operator
    """Scans of which rows with another value of `column` may be left out."""
    match node:
        case Scan():
            source = _stored(node, column)
            return [] if source is None else [source]
        case Project():
            inner = _renamed(node, column)
            return [] if inner is None else _targets(node.child, inner)
        case Filter() | Distinct():
            return _targets(node.child, column)
        case Generate():
            return _targets(node.child, column) if column in output_ids(node.child) else []
        case Aggregate():
            return _targets(node.child, column) if any(key.id == column for key in node.keys) else []
        case TopK():
            return _targets(node.child, column) if any(part.id == column for part in node.partition_by) else []
        case Window():
            return _targets(node.child, column) if column in common_partition(node) else []
        case UnionAll() | SetOperation():
            position = [own.id for own in node.columns].index(column)
            branches = node.children if isinstance(node, UnionAll) else (node.left, node.right)
            return [found for child in branches for found in _targets(child, child.output[position].id)]
        case Join():
            kept = {"inner": "both", "left": "left", "semi": "left", "anti": "left", "right": "right"}.get(
                node.kind, ""
            )
            if column in output_ids(node.left):
                return _targets(node.left, column) if kept in ("both", "left") else []
            return _targets(node.right, column) if kept in ("both", "right") else []
        case _:
            return []


def _origin(node: Node, column: str, *, keeps_nulls: bool) -> Source | None:
    """A scan whose stored column holds every value that `column` can have, NULL included if `keeps_nulls`."""
    match node:
        case Scan():
            return _stored(node, column)
        case Project():
            inner = _renamed(node, column)
            return None if inner is None else _origin(node.child, inner, keeps_nulls=keeps_nulls)
        case Filter() | Distinct() | TopK():
            return _origin(node.child, column, keeps_nulls=keeps_nulls)
        case Generate() | Window():
            inherited = column in output_ids(node.child)
            return _origin(node.child, column, keeps_nulls=keeps_nulls) if inherited else None
        case Aggregate():
            is_key = any(key.id == column for key in node.keys)
            return _origin(node.child, column, keeps_nulls=keeps_nulls) if is_key else None
        case Join():
            on_left = column in output_ids(node.left)
            extended = node.kind == "full" or node.kind == ("right" if on_left else "left")
            if extended and keeps_nulls:
                return None
            return _origin(node.left if on_left else node.right, column, keeps_nulls=keeps_nulls)
        case _:
            return None
