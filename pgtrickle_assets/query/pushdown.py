"""Puts filters onto the side they read, join conditions into joins, and joins in a connected order.

Engines do this themselves; the plan does it too, because delta rules look at join conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pgtrickle_assets.query.plan import (
    Aggregate,
    Call,
    ColumnRef,
    Distinct,
    Expression,
    Filter,
    Generate,
    Join,
    Literal,
    Node,
    Project,
    UnionAll,
    Window,
    children,
)
from pgtrickle_assets.query.properties import common_partition
from pgtrickle_assets.query.rewrite import (
    columns_of,
    conjunction,
    conjuncts,
    disjunction,
    filtered,
    is_equality,
    output_ids,
    project_columns,
    ref,
    substitute,
    with_children,
)


def push_filters(node: Node) -> Node:
    """The plan with each conjunct as low as its columns allow.

    It goes through inner joins, the kept side of other joins, projections, and what treats the rows of different values
    of its columns apart: groups by their keys, DISTINCT, UNION ALL, windows by what all of them partition by.
    """
    return _push(node, ())


def restricted(node: Node, condition: Expression) -> Node:
    """The rows of a node that meet a condition, which goes as low as it can; the columns stay as they are."""
    found = push_filters(Filter(node, condition))
    # Joins may come out in another order.
    return found if found.output == node.output else project_columns(found, node.output)


def _disjuncts(part: Expression) -> tuple[Expression, ...]:
    if isinstance(part, Call) and part.function == "or":
        return tuple(inner for arg in part.args for inner in _disjuncts(arg))
    return (part,)


def factored(part: Expression) -> tuple[Expression, ...]:
    """`(a AND b) OR (a AND c)` as `a AND (b OR c)`: what all branches share becomes a conjunct of its own."""
    branches = [conjuncts(branch) for branch in _disjuncts(part)]
    if len(branches) < 2:
        return (part,)
    shared = [p for p in branches[0] if all(p in other for other in branches[1:])]
    if not shared:
        return (part,)
    rest = [conjunction([p for p in branch if p not in shared]) for branch in branches]
    if any(one is None for one in rest):
        return tuple(shared)
    remaining = disjunction([one for one in rest if one is not None])
    return (*shared, remaining) if remaining is not None else tuple(shared)


def _push(node: Node, parts: tuple[Expression, ...]) -> Node:
    match node:
        case Filter():
            own = [piece for part in conjuncts(node.predicate) for piece in factored(part)]
            return _push(node.child, (*parts, *own))
        case Project():
            items = {column.id: item for column, item in node.items}
            movable = [p for p in parts if all(_cheap(items[i]) for i in columns_of(p) if i in items)]
            stay = [p for p in parts if p not in movable]
            below = tuple(substitute(part, items) for part in movable)
            return filtered(replace(node, child=_push(node.child, below)), stay)
        case Join() if node.kind == "inner":
            return _inner(node, parts)
        case Join() if node.kind in ("left", "semi", "anti"):
            left = output_ids(node.left)
            down = tuple(p for p in parts if columns_of(p) <= left)
            own = conjuncts(node.condition)
            right_ids = output_ids(node.right)
            right_only = tuple(p for p in own if columns_of(p) and columns_of(p) <= right_ids)
            kept = [p for p in own if p not in right_only]
            joined = replace(
                node, left=_push(node.left, down), right=_push(node.right, right_only), condition=conjunction(kept)
            )
            return filtered(joined, [p for p in parts if p not in down])
        case Aggregate():
            return _split(node, node.child, parts, frozenset(key.id for key in node.keys))
        case Window():
            return _split(node, node.child, parts, common_partition(node))
        case Generate():
            return _split(node, node.child, parts, output_ids(node.child))
        case Distinct():
            return replace(node, child=_push(node.child, parts))
        case UnionAll():
            return replace(
                node, children=tuple(_push(child, _of_branch(node, child, parts)) for child in node.children)
            )
        case _:
            below = with_children(node, [_push(child, ()) for child in children(node)])
            return filtered(below, parts)


def _split(node: Aggregate | Window | Generate, child: Node, parts: Sequence[Expression], ids: frozenset[str]) -> Node:
    """What reads nothing but these columns goes below the node."""
    down = tuple(p for p in parts if columns_of(p) and columns_of(p) <= ids)
    return filtered(replace(node, child=_push(child, down)), [p for p in parts if p not in down])


def _of_branch(node: UnionAll, child: Node, parts: Sequence[Expression]) -> tuple[Expression, ...]:
    names = {column.id: ref(own) for column, own in zip(node.columns, child.output, strict=True)}
    return tuple(substitute(part, names) for part in parts)


def _cheap(item: Expression) -> bool:
    return isinstance(item, (ColumnRef, Literal))


def _inner(node: Join, parts: tuple[Expression, ...]) -> Node:
    """Flatten a tree of inner joins and put it together again along its conditions, in the order it was written."""
    leaves: list[Node] = []
    pool: list[Expression] = list(parts)

    def flatten(current: Node) -> None:
        if isinstance(current, Join) and current.kind == "inner":
            pool.extend(conjuncts(current.condition))
            flatten(current.left)
            flatten(current.right)
        elif isinstance(current, Filter):
            pool.extend(piece for part in conjuncts(current.predicate) for piece in factored(part))
            flatten(current.child)
        else:
            leaves.append(current)

    flatten(node)
    pool = list(dict.fromkeys(pool))
    placed: list[Node] = []
    remaining: list[Expression] = []
    used: set[Expression] = set()
    for leaf in leaves:
        ids = output_ids(leaf)
        own = tuple(p for p in pool if columns_of(p) and columns_of(p) <= ids)
        used.update(own)
        placed.append(_push(leaf, (*own, *_implied(pool, ids))))
    remaining = [p for p in pool if p not in used]
    result, todo = placed[0], placed[1:]
    while todo:
        result, remaining = _join_next(result, todo, remaining)
    return filtered(result, remaining)


def _implied(pool: Sequence[Expression], ids: frozenset[str]) -> tuple[Expression, ...]:
    """What `(a = 1 AND b = 2) OR (a = 3 AND b = 4)` says about one side of a join alone: `a = 1 OR a = 3`."""
    found: list[Expression] = []
    for part in pool:
        branches = _disjuncts(part)
        if len(branches) < 2 or columns_of(part) <= ids:
            continue
        own = [conjunction([p for p in conjuncts(branch) if _tests_constants(p, ids)]) for branch in branches]
        known = [one for one in own if one is not None]
        either = disjunction(known) if len(known) == len(branches) else None
        if either is not None:
            found.append(either)
    return tuple(found)


def _tests_constants(part: Expression, ids: frozenset[str]) -> bool:
    """Whether a condition compares columns with constants and nothing more, which never fails."""
    if not isinstance(part, Call) or part.function not in ("=", "<", "<=", ">", ">=", "in"):
        return False
    return all(map(_cheap, part.args)) and bool(columns_of(part)) and columns_of(part) <= ids


def _join_next(result: Node, todo: list[Node], remaining: list[Expression]) -> tuple[Node, list[Expression]]:
    """Join the first relation that an equality connects; else the first one connected at all; else the next."""
    have = output_ids(result)

    def connects(leaf: Node, *, equality: bool) -> bool:
        ids = output_ids(leaf)
        return any(
            columns_of(p) & ids
            and columns_of(p) & have
            and columns_of(p) <= ids | have
            and (not equality or is_equality(p))
            for p in remaining
        )

    chosen = next((leaf for leaf in todo if connects(leaf, equality=True)), None)
    chosen = chosen or next((leaf for leaf in todo if connects(leaf, equality=False)), todo[0])
    todo.remove(chosen)
    both = have | output_ids(chosen)
    here = [p for p in remaining if columns_of(p) and columns_of(p) <= both]
    return Join("inner", result, chosen, conjunction(here)), [p for p in remaining if p not in here]
