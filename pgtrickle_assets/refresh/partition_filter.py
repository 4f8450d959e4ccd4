"""Partitions of a stream table as conditions on the output of its plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from pgtrickle_assets.partitions import PartitionBy, PartitionSlice, slice_of
from pgtrickle_assets.query.functions.hash_buckets import BUCKET
from pgtrickle_assets.query.plan import Call, Column, Expression, Literal, QueryPlan
from pgtrickle_assets.query.pushdown import restricted
from pgtrickle_assets.query.rewrite import FALSE, TRUE, conjunction, disjunction, equals, is_null, ref
from pgtrickle_assets.query.types import BOOLEAN, INT32, ColumnType


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows of some partitions, or with `others` of all partitions but those."""

    by: PartitionBy
    keys: tuple[str, ...]
    others: bool = False

    def condition(self, column: Column) -> Expression:
        """The rows, as a condition on the partition column."""
        conditions = [_condition(column, slice_of(self.by, key)) for key in self.keys]
        if not self.others:
            return disjunction(conditions) or FALSE
        # A NULL in the column makes the other conditions NULL; such a row belongs to none of those partitions.
        none = [Call("is_not_true", (condition,), BOOLEAN, nullable=False) for condition in conditions]
        return conjunction(none) or TRUE

    def restrict(self, plan: QueryPlan) -> QueryPlan:
        """The plan of these rows."""
        return replace(plan, root=restricted(plan.root, self.condition(partition_column(plan, self.by))))


def partition_column(plan: QueryPlan, by: PartitionBy) -> Column:
    """The root column by which the stream table is partitioned."""
    position = [column.name for column in plan.output].index(by.column)
    return plan.root.output[position]


def _condition(column: Column, rows: PartitionSlice) -> Expression:
    value = ref(column)
    if rows.is_null:
        return is_null(value)
    if rows.buckets is not None:
        bucket = Call(BUCKET, (value, Literal(rows.buckets, INT32)), INT32, column.nullable)
        return equals(bucket, Literal(int(rows.value or 0), INT32))
    if rows.value is not None:
        return equals(value, _literal(rows.value, column.type))
    parts: list[Expression] = []
    if rows.lower is not None:
        parts.append(Call(">=", (value, _moment(rows.lower, column.type)), BOOLEAN, column.nullable))
    if rows.upper is not None:
        parts.append(Call("<", (value, _moment(rows.upper, column.type)), BOOLEAN, column.nullable))
    condition = conjunction(parts)
    if condition is None:
        raise ValueError(f"partition of column {rows.column} has no bound")
    return condition


def _literal(text: str, kind: ColumnType) -> Literal:
    if kind.is_integer:
        return Literal(int(text), kind)
    if kind.name == "boolean":
        return Literal(text == "true", kind)
    return Literal(text, kind)


def _moment(moment: datetime, kind: ColumnType) -> Literal:
    if kind.name == "date":
        return Literal(moment.date().isoformat(), kind)
    text = moment.isoformat(sep=" ")
    return Literal(f"{text}+00" if kind.name == "timestamptz" else text, kind)
