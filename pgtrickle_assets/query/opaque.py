"""Subtrees that only a full recompute can evaluate."""

from __future__ import annotations

from typing import Any

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.context import PlanningContext
from pgtrickle_assets.query.functions.registry import Dialect
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Column, Opaque, Scan
from pgtrickle_assets.query.render_types import identifier

DIALECTS: tuple[Dialect, ...] = ("spark", "duckdb")


def sampled(scan: Scan, sample: Any, context: PlanningContext) -> Opaque:
    """`table TABLESAMPLE method (percent)`; which rows it picks changes from one evaluation to the next."""
    percent = sample.args.get("percent") or sample.args.get("size")
    if percent is None or sample.args.get("seed") is not None:
        raise QueryError("TABLESAMPLE needs a percentage and no REPEATABLE clause", line=line_of(sample))
    share = float(percent.name)
    context.note("TABLESAMPLE picks other rows at each refresh, so the stream table is always recomputed.")
    names: dict[Dialect, str] = {}
    for dialect in DIALECTS:
        columns = ", ".join(identifier(name, dialect) for name in scan.source_columns)
        method = f"TABLESAMPLE ({share} PERCENT)" if dialect == "spark" else f"TABLESAMPLE BERNOULLI ({share} PERCENT)"
        names[dialect] = f"SELECT {columns} FROM {{0}} {method}"
    columns = tuple(Column(context.ids.fresh(), c.type, c.nullable, c.name) for c in scan.columns)
    sql = tuple((dialect, text) for dialect, text in names.items())
    return Opaque("tablesample", "TABLESAMPLE", (scan,), sql, columns)
