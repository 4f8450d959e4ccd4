"""Whether a stream table can be partitioned by an output column of its query."""

from __future__ import annotations

from typing import Final

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.partitions import PartitionBy, canonical_value_key
from pgtrickle_assets.query.plan import (
    Aggregate,
    Case,
    Cast,
    Expression,
    Literal,
    Node,
    Opaque,
    Project,
    QueryPlan,
    SetOperation,
    UnionAll,
    Window,
    children,
)
from pgtrickle_assets.query.plan import Call as PlanCall
from pgtrickle_assets.suggestions import did_you_mean

_TIME_TYPES: Final = ("date", "timestamp", "timestamptz")
_BUCKET_TYPES: Final = ("int16", "int32", "int64", "date", "timestamp", "timestamptz")
_VALUE_TYPES: Final = ("varchar", "boolean", "int16", "int32", "int64", "date", "uuid", "decimal")


def check_partition_column(plan: QueryPlan, by: PartitionBy) -> None:
    """Checks that the column exists, has a fitting type and is not computed by an aggregate or a window.

    A partition's content is the query restricted to it; a restriction on a computed value cannot be brought down to the
    rows that make it up.

    Raises:
        QueryError: Naming the column and what to do.
    """
    names = [column.name for column in plan.output]
    if by.column not in names:
        raise QueryError(
            f"partition_by names column {by.column!r}, which the query does not return.",
            hint=did_you_mean(by.column, names),
        )
    position = names.index(by.column)
    kind = plan.output[position].type
    allowed = _TIME_TYPES if by.is_time else _BUCKET_TYPES if by.buckets else _VALUE_TYPES
    if by.kind == "hour" and kind.name == "date":
        allowed = _TIME_TYPES[1:]
    if kind.name not in allowed:
        raise QueryError(
            f"partition_by {by.kind}({by.column}) cannot use a column of type {kind}.",
            hint=f"It takes {', '.join(allowed)}.",
        )
    for value in () if by.buckets else by.values or ():
        spelled, hint = canonical_value_key(value, kind)
        if spelled != value:
            raise QueryError(
                f"partition_by lists {value!r}, which no row has as its {by.column}.",
                hint=hint if spelled is None else f"Write {spelled!r}.",
            )
    if _is_computed(plan.root, plan.root.output[position].id):
        raise QueryError(
            f"partition_by names column {by.column!r}, which an aggregate or a window computes.",
            hint="Partition by a column that is grouped by or passed through.",
        )


def _is_computed(node: Node, column: str) -> bool:
    match node:
        case Project():
            for output, expression in node.items:
                if output.id == column:
                    return any(_is_computed(node.child, used) for used in _columns_of(expression))
            return False
        case Aggregate() if any(output.id == column for output, _ in node.aggregates):
            return True
        case Window() if any(output.id == column for output, _ in node.calls):
            return True
        case UnionAll() | SetOperation():
            ids = [output.id for output in node.columns]
            if column not in ids:
                return False
            position = ids.index(column)
            return any(_is_computed(child, child.output[position].id) for child in children(node))
        case Opaque():
            return False
        case _:
            return any(
                _is_computed(child, column)
                for child in children(node)
                if any(output.id == column for output in child.output)
            )


def _columns_of(expression: Expression) -> list[str]:
    match expression:
        case Literal():
            return []
        case Cast():
            return _columns_of(expression.arg)
        case PlanCall():
            return [used for argument in expression.args for used in _columns_of(argument)]
        case Case():
            parts = [part for branch in expression.branches for part in branch]
            if expression.otherwise is not None:
                parts.append(expression.otherwise)
            return [used for part in parts for used in _columns_of(part)]
        case _:
            return [expression.id]
