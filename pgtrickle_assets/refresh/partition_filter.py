"""Partitions of a stream table as conditions on the output of its plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from pgtrickle_assets.partitions import PartitionBy, PartitionSlice, slice_of
from pgtrickle_assets.query.plan import Call, Column, Expression, Filter, Literal, QueryPlan
from pgtrickle_assets.query.rewrite import conjunction, disjunction, equals, is_null, ref
from pgtrickle_assets.query.types import BOOLEAN, ColumnType


def restricted_to(plan: QueryPlan, by: PartitionBy, keys: Sequence[str]) -> QueryPlan:
    """The plan of the rows that belong to some partitions."""
    column = partition_column(plan, by)
    condition = disjunction([_condition(column, slice_of(by, key)) for key in keys])
    return plan if condition is None else replace(plan, root=Filter(plan.root, condition))


def without(plan: QueryPlan, by: PartitionBy, keys: Sequence[str]) -> QueryPlan:
    """The plan of the rows that belong to none of some partitions."""
    column = partition_column(plan, by)
    conditions = [_condition(column, slice_of(by, key)) for key in keys]
    # A NULL in the column makes the other conditions NULL; such a row belongs to none of those partitions.
    none = [Call("is_not_true", (condition,), BOOLEAN, nullable=False) for condition in conditions]
    condition = conjunction(none)
    return plan if condition is None else replace(plan, root=Filter(plan.root, condition))


def partition_column(plan: QueryPlan, by: PartitionBy) -> Column:
    """The root column by which the stream table is partitioned."""
    position = [column.name for column in plan.output].index(by.column)
    return plan.root.output[position]


def _condition(column: Column, rows: PartitionSlice) -> Expression:
    value = ref(column)
    if rows.is_null:
        return is_null(value)
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
