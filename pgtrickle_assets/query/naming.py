"""Names: folding of identifiers and the default names of output columns.

Source: PostgreSQL 18, src/backend/parser/parse_target.c (FigureColname).
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from pgtrickle_assets.query.parse import class_of

UNNAMED = "?column?"
_TYPE_NAMES = {
    "INT": "int4", "BIGINT": "int8", "SMALLINT": "int2", "DOUBLE": "float8", "FLOAT": "float4", "DECIMAL": "numeric",
    "TEXT": "text", "VARCHAR": "varchar", "CHAR": "bpchar", "BOOLEAN": "bool", "DATE": "date", "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamptz", "TIME": "time", "UUID": "uuid", "JSON": "json", "JSONB": "jsonb",
    "INTERVAL": "interval", "VARBINARY": "bytea",
}  # fmt: skip
_KEYWORD_NAMES: dict[type[exp.Expr], str] = {
    exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "current_timestamp",
    exp.Localtimestamp: "localtimestamp",
    exp.Localtime: "localtime",
    exp.CurrentTime: "current_time",
    exp.Extract: "extract",
    exp.Substring: "substring",
    exp.StrPosition: "position",
    exp.Overlay: "overlay",
    exp.Exists: "exists",
    exp.Array: "array",
    exp.AtTimeZone: "timezone",
    exp.Boolean: "bool",
    exp.Interval: "interval",
}
MAX_NAME = 63


def fold(identifier: Any) -> str:
    """An identifier as PostgreSQL stores it: unquoted in lower case (ASCII), cut to 63 bytes."""
    if isinstance(identifier, exp.Identifier):
        text = identifier.name
        if not identifier.args.get("quoted"):
            text = "".join(c.lower() if c.isascii() else c for c in text)
    else:
        text = str(identifier)
    raw = text.encode()
    return text if len(raw) <= MAX_NAME else raw[:MAX_NAME].decode(errors="ignore")


def function_name(call: exp.Anonymous) -> str:
    """The folded name of a function call, without a pg_catalog qualifier."""
    name = call.this
    return fold(name) if isinstance(name, exp.Identifier) else str(name).lower()


def output_name(node: exp.Expr) -> str:
    """The default name of an output column."""
    return _figure(node)[0] or UNNAMED


def _figure(node: Any) -> tuple[str, int]:
    """Name and strength: 2 for a name proper, 1 for one that a surrounding construct may replace."""
    match node:
        case exp.Alias():
            return fold(node.args["alias"]), 2
        case exp.Column():
            return fold(node.this), 2
        case exp.Dot():
            last = node.expression
            return (function_name(last), 2) if isinstance(last, exp.Anonymous) else (fold(last), 2)
        case exp.Anonymous():
            return function_name(node), 2
        case exp.Window() | exp.Filter() | exp.WithinGroup() | exp.IgnoreNulls() | exp.RespectNulls():
            return _figure(node.this)
        case exp.Paren() | exp.Collate() | exp.Bracket():
            return _figure(node.this)
        case exp.Cast():
            name, strength = _figure(node.this)
            if strength > 1:
                return name, strength
            kind = node.args["to"]
            label = str(kind.this.name if hasattr(kind.this, "name") else kind.this)
            return _TYPE_NAMES.get(label, label.lower()), 1
        case exp.Case():
            name, strength = _figure(node.args["default"]) if node.args.get("default") else ("", 0)
            return (name, strength) if strength > 1 else ("case", 1)
        case exp.Trim():
            side = str(node.args.get("position") or "BOTH").upper()
            return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "btrim"), 2
        case exp.Subquery():
            return _figure(node.this) if node.this else ("", 0)
        case exp.Select():
            return _figure(node.selects[0]) if node.selects else ("", 0)
        case exp.SetOperation():
            return _figure(node.this)
        case _:
            keyword = _KEYWORD_NAMES.get(class_of(node))
            return (keyword, 2) if keyword else ("", 0)
