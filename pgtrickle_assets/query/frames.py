"""Window frames as standard SQL text.

Source: PostgreSQL 18 documentation 4.2.8. GROUPS and EXCLUDE do not exist in Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.plan import SortKey


def frame_text(spec: Any, order_by: Sequence[SortKey], line: int | None) -> str:
    """The frame clause, or an empty text for the default frame.

    Raises:
        QueryError: GROUPS, EXCLUDE, or an offset that is not a constant number.
    """
    if spec is None:
        return ""
    kind = str(spec.args.get("kind") or "RANGE").upper()
    if kind not in ("ROWS", "RANGE"):
        raise QueryError(f"a {kind} frame is not supported: Spark has none", line=line)
    exclude = spec.args.get("exclude")
    if exclude is not None and str(getattr(exclude, "name", exclude)).upper() != "NO OTHERS":
        raise QueryError("EXCLUDE in a window frame is not supported: Spark has none", line=line)
    start = _bound(spec.args.get("start"), spec.args.get("start_side"), kind, order_by, line)
    end = spec.args.get("end")
    stop = "CURRENT ROW" if end is None else _bound(end, spec.args.get("end_side"), kind, order_by, line)
    return f"{kind} BETWEEN {start} AND {stop}"


def _bound(value: Any, side: Any, kind: str, order_by: Sequence[SortKey], line: int | None) -> str:
    if isinstance(value, str):
        text = value.upper()
        return text if text == "CURRENT ROW" else f"{text} {str(side).upper()}"
    if not isinstance(value, exp.Literal) or value.is_string:
        raise QueryError("the offset of a window frame must be a constant number", line=line)
    if kind == "RANGE":
        if len(order_by) != 1:
            raise QueryError("RANGE with an offset requires exactly one ORDER BY column", line=line)
        if not (order_by[0].expression.type.is_integer and value.name.isdigit()):
            raise QueryError("RANGE with an offset is supported over integers only", line=line)
    return f"{value.name} {str(side).upper()}"
