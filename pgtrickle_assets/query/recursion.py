"""WITH RECURSIVE: a subtree that only a full recompute can evaluate.

Source: PostgreSQL 18 documentation 7.8.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.coercion import convert
from pgtrickle_assets.query.context import CommonTable, OutputColumn, PlannedQuery, PlanningContext
from pgtrickle_assets.query.opaque import DIALECTS
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Column, ColumnRef, Expression, Node, Opaque, Project, Scan
from pgtrickle_assets.query.render import render
from pgtrickle_assets.query.render_types import identifier
from pgtrickle_assets.query.rewrite import ref, scans
from pgtrickle_assets.query.scope import Scope

_WORKING = "#recursive:"


class Blocks(Protocol):
    """What a recursive table needs of the block planner."""

    context: PlanningContext

    def query(self, node: Any, parent: Scope | None, tables: dict[str, CommonTable]) -> PlannedQuery:
        """Plan a query block."""
        ...


def recursive_table(
    blocks: Blocks, name: str, columns: Sequence[str], node: Any, tables: dict[str, CommonTable]
) -> CommonTable:
    """A recursive WITH item `name(columns) AS (base UNION ALL step)`.

    Raises:
        QueryError: It is not of that form; UNION without ALL is one, since Spark has only UNION ALL there.
    """
    line = line_of(node)
    while isinstance(node, (exp.Subquery, exp.Paren)):
        node = node.this
    if not isinstance(node, exp.Union):
        raise QueryError(f'recursive query "{name}" does not have the form base UNION ALL recursive term', line=line)
    if node.args.get("distinct"):
        raise QueryError(
            f'recursive query "{name}" uses UNION, which Spark cannot evaluate',
            line=line,
            hint="Use UNION ALL with a condition that ends the recursion.",
        )
    union = node

    def plan() -> PlannedQuery:
        return _plan(blocks, name, columns, union, tables, line)

    return CommonTable(name, plan)


def _plan(
    blocks: Blocks, name: str, columns: Sequence[str], node: exp.Union, tables: dict[str, CommonTable], line: int | None
) -> PlannedQuery:
    context = blocks.context
    base = blocks.query(node.this, None, tables)
    names = [columns[i] if i < len(columns) else item.name for i, item in enumerate(base.columns)]

    def working() -> PlannedQuery:
        own = tuple(
            Column(context.ids.fresh(), item.column.type, True, n) for item, n in zip(base.columns, names, strict=True)
        )
        scan = Scan(_WORKING + name, own, tuple(f"r{i}" for i in range(len(own))))
        return PlannedQuery(scan, tuple(OutputColumn(c.name, c) for c in own))

    step = blocks.query(node.expression, None, {**tables, name: CommonTable(name, working)})
    if len(step.columns) != len(base.columns):
        raise QueryError("each UNION query must have the same number of columns", line=line)
    for position, (old, new) in enumerate(zip(base.columns, step.columns, strict=True)):
        mixed = old.column.type != new.column.type and not (
            old.column.type.name == "decimal" and new.column.type.name == "decimal"
        )
        if mixed:
            raise QueryError(
                f'recursive query "{name}" column {position + 1} has another type in its recursive term', line=line
            )
    inputs = tuple(
        scan for part in (base.node, step.node) for scan in scans(part) if not scan.relation.startswith(_WORKING)
    )
    output = tuple(
        Column(context.ids.fresh(), item.column.type, True, n) for item, n in zip(base.columns, names, strict=True)
    )
    sql = tuple((dialect, _text(name, base, step, inputs, dialect)) for dialect in DIALECTS)
    opaque = Opaque("recursive_cte", f'WITH RECURSIVE "{name}"', inputs, sql, output)
    return PlannedQuery(opaque, tuple(OutputColumn(c.name, c) for c in output))


def _text(name: str, base: PlannedQuery, step: PlannedQuery, inputs: Sequence[Scan], dialect: Any) -> str:
    """SQL of the whole recursion; relations are placeholders that stand for the inputs by position."""
    table = identifier(f"pgt_recursive_{name}", dialect)

    def relation(scan: Scan) -> str:
        return table if scan.relation.startswith(_WORKING) else f"{{{inputs.index(scan)}}}"

    count = len(base.columns)
    parts: list[str] = []
    for planned in (base, step):
        output = [(item.column.id, f"r{i}") for i, item in enumerate(planned.columns)]
        node = _typed_like(planned, base)
        parts.append(f"SELECT * FROM ({render(node, dialect, relation, output)}) AS pgt_part")
    labels = ", ".join(f"r{i}" for i in range(count))
    return f"WITH RECURSIVE {table}({labels}) AS ({parts[0]} UNION ALL {parts[1]}) SELECT {labels} FROM {table}"


def _typed_like(planned: PlannedQuery, base: PlannedQuery) -> Node:
    """The recursive term with the column types of the base."""
    items: list[tuple[Column, Expression]] = []
    for own, other in zip(planned.columns, base.columns, strict=True):
        items.append((own.column, convert(ref(own.column), other.column.type)))
    if all(isinstance(item, ColumnRef) for _, item in items):
        return planned.node
    return Project(planned.node, tuple(items))
