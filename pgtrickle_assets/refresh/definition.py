"""A stream table with everything that its definition implies: plan, maintenance plan, and its tables in the lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pgtrickle_assets.differential.derive import MaintenancePlan, derive
from pgtrickle_assets.differential.locality import partition_columns
from pgtrickle_assets.differential.steps import RESULT
from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.lake.model import TableDefinition
from pgtrickle_assets.partitions import lake_partition_fields
from pgtrickle_assets.project import STATE_SCHEMA, Project
from pgtrickle_assets.query.types import ColumnSchema, TableName

if TYPE_CHECKING:
    from pgtrickle_assets.query.plan import QueryPlan
    from pgtrickle_assets.stream_table import StreamTable


@dataclass(frozen=True)
class Definition:
    """What a stream table is, as far as refreshing it is concerned.

    Attributes:
        stream_table: As declared.
        plan: The planned query.
        maintenance: How it is kept up to date.
        upstream: Inputs that are stream tables.
    """

    stream_table: StreamTable
    plan: QueryPlan
    maintenance: MaintenancePlan
    upstream: tuple[TableName, ...]

    @property
    def name(self) -> TableName:
        """The lake table of the result."""
        return self.stream_table.table

    @property
    def inputs(self) -> tuple[TableName, ...]:
        """Lake tables that the query reads."""
        return tuple(table.name for table in self.plan.inputs.values())

    @property
    def reasons(self) -> tuple[tuple[str, str], ...]:
        """Why it cannot be maintained differentially; empty when it can."""
        return tuple((reason.code, reason.detail) for reason in self.maintenance.reasons)

    @cached_property
    def tables(self) -> Mapping[str, TableName]:
        """Lake table of the result and of each state relation, by step target."""
        states = {state.relation: self._state_name(state.relation) for state in self.maintenance.state_tables}
        return {RESULT: self.name, **states}

    @cached_property
    def table_definitions(self) -> tuple[TableDefinition, ...]:
        """The lake tables that it needs."""
        table = self.stream_table
        result = TableDefinition(
            self.name, self.plan.output, lake_partition_fields(table.partitioning), table.description
        )
        comment = f"Group state of stream table {self.name}"
        states = [
            TableDefinition(self.tables[state.relation], _nullable(state.columns), (), comment)
            for state in self.maintenance.state_tables
        ]
        return (result, *states)

    @cached_property
    def partition_columns(self) -> Mapping[str, str] | None:
        """The column that tells the partition, by step target; None where states cannot be told apart by partition."""
        by = self.stream_table.partitioning
        return None if by is None else partition_columns(self.maintenance, by.column)

    def sort_columns(self, target: str) -> tuple[str, ...]:
        """Columns by which the files of a table are sorted, so that few of them hold a given key."""
        if target == RESULT:
            return ()
        return next(state.key for state in self.maintenance.state_tables if state.relation == target)

    def _state_name(self, relation: str) -> TableName:
        # Dots cannot occur in the parts, so the name belongs to one stream table.
        return TableName(STATE_SCHEMA, f"{self.name}.{relation}")


def define(project: Project, name: str) -> Definition:
    """The definition of a stream table.

    Raises:
        ConfigurationError: The query cannot be planned, or `refresh_mode: differential` asks for what it cannot have.
    """
    stream_table = project.stream_table(name)
    plan = project.plan(name)
    if plan is None:
        raise ConfigurationError(
            f"stream table {name}: the columns of what it reads are not known.", hint="Run `pgtrickle apply`."
        )
    upstream = tuple(project.stream_table(read).table for read in project.upstream[name])
    # Whoever asks for full refreshes should not pay for group state that nothing reads.
    is_full = stream_table.refresh_mode == "full"
    maintenance = MaintenancePlan(plan, (), None) if is_full else derive(plan)
    return Definition(stream_table, plan, maintenance, upstream)


def _nullable(columns: tuple[ColumnSchema, ...]) -> tuple[ColumnSchema, ...]:
    # A state column holds what the engine found; a NOT NULL rule would only turn a wrong guess into a failed refresh.
    return tuple(ColumnSchema(column.name, column.type) for column in columns)
