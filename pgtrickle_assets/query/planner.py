"""The entry point: SQL text to a `QueryPlan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot.errors import SqlglotError

from pgtrickle_assets.errors import QueryError, UnsupportedTypeError
from pgtrickle_assets.query.blocks import QueryBlocks
from pgtrickle_assets.query.context import PlannedQuery, PlanningContext
from pgtrickle_assets.query.folding import fold_constants
from pgtrickle_assets.query.group_restriction import restrict_groups
from pgtrickle_assets.query.join_kinds import simplify_joins
from pgtrickle_assets.query.lineage import column_sources
from pgtrickle_assets.query.parse import parse
from pgtrickle_assets.query.plan import InputTable, Node, QueryPlan
from pgtrickle_assets.query.properties import TableKeys
from pgtrickle_assets.query.prune import prune_columns
from pgtrickle_assets.query.pushdown import push_filters
from pgtrickle_assets.query.rewrite import project_columns, scans
from pgtrickle_assets.query.simplify import merge_projections
from pgtrickle_assets.query.types import ColumnSchema, ColumnType, TableSchema

DIALECT = "postgres"


def plan_query(
    sql: str,
    *,
    resolve: Callable[[tuple[str, ...]], TableSchema | None],
    dialect: str = DIALECT,
    known_names: Sequence[str] = (),
) -> QueryPlan:
    """Plan a defining query.

    Args:
        sql: One SELECT in PostgreSQL's dialect.
        resolve: Schema of a table by its name parts as written (unquoted parts in lower case), or None.
        dialect: Only "postgres"; other dialects are not planned.
        known_names: Names to suggest when a table is unknown.

    Returns:
        The typed plan. Keys of `inputs` are `str(TableName)`, as in its scans.

    Raises:
        QueryError: Syntax, unknown name, wrong type or a construct that is not supported; with the line in `sql`.
    """
    if dialect != DIALECT:
        raise QueryError(f'queries in dialect "{dialect}" cannot be planned', hint="Write it in PostgreSQL's dialect.")
    context = PlanningContext(resolve, known_names)
    try:
        blocks = QueryBlocks(context)
        planned = blocks.query(parse(sql), None, {})
        output = _output_schema(planned)
        root = _optimized(planned, blocks.table_keys())
    except SqlglotError as error:
        raise QueryError(f"the query cannot be read: {error}") from error
    except RecursionError as error:
        raise QueryError("the query is nested too deeply", hint="Split it over several stream tables.") from error
    return QueryPlan(
        root=root,
        output=output,
        inputs=_used_inputs(root, context),
        sql=sql,
        notes=tuple(context.notes),
        stable_functions=tuple(context.stable),
        volatile_functions=tuple(context.volatile),
        lineage=_lineage(root, output),
    )


def _optimized(planned: PlannedQuery, keys: TableKeys) -> Node:
    columns = [item.column for item in planned.columns]
    wanted = [column.id for column in columns]
    node = restrict_groups(push_filters(simplify_joins(fold_constants(planned.node), keys)), keys)
    node = prune_columns(node, wanted)
    if [column.id for column in node.output] != wanted:
        by_id = {column.id: column for column in node.output}
        node = project_columns(node, [by_id[i] for i in wanted]) if len(set(wanted)) == len(wanted) else node
    return merge_projections(node)


def _output_schema(planned: PlannedQuery) -> tuple[ColumnSchema, ...]:
    seen: dict[str, str] = {}
    output: list[ColumnSchema] = []
    for item in planned.columns:
        # DuckDB compares names without case, and cannot read a lake that has both.
        other = seen.get(item.name.lower())
        if other is not None:
            same = f'two output columns are named "{item.name}"'
            differ = f'output columns "{other}" and "{item.name}" differ only in case, which the lake cannot hold'
            raise QueryError(same if other == item.name else differ, hint="Give one of them another name with AS.")
        seen[item.name.lower()] = item.name
        _storable(item.name, item.column.type)
        output.append(ColumnSchema(item.name, item.column.type, item.column.nullable))
    if not output:
        raise QueryError("the query has no output columns")
    return tuple(output)


def _storable(name: str, kind: ColumnType) -> None:
    if kind.name in ("interval", "unknown"):
        raise UnsupportedTypeError(
            f'output column "{name}" has type {kind.name}, which a table of the lake cannot hold',
            hint="Use EXTRACT(EPOCH FROM ...) to store seconds.",
        )


def _used_inputs(root: Node, context: PlanningContext) -> dict[str, InputTable]:
    """Inputs with the columns that are really read, in table order."""
    used: dict[str, set[str]] = {}
    for scan in scans(root):
        used.setdefault(scan.relation, set()).update(scan.source_columns)
    return {
        relation: replace(table, columns=tuple(c for c in table.columns if c in used.get(relation, ())))
        for relation, table in context.inputs.items()
        if relation in used
    }


def _lineage(root: Node, output: Sequence[ColumnSchema]) -> dict[str, tuple[tuple[str, str], ...]]:
    sources = column_sources(root)
    return {
        schema.name: tuple(sorted(sources.get(column.id, frozenset())))
        for schema, column in zip(output, root.output, strict=True)
    }
