"""Plan nodes and expressions in words, for people; nothing evaluates this text."""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle_assets.query.functions.overflow import CHECKED
from pgtrickle_assets.query.plan import (
    Aggregate,
    AggregateCall,
    Call,
    Case,
    Cast,
    Column,
    ColumnRef,
    Distinct,
    Expression,
    Filter,
    Generate,
    Join,
    Literal,
    Node,
    Opaque,
    Project,
    Scan,
    SetOperation,
    SortKey,
    TopK,
    UnionAll,
    Values,
    Window,
    WindowCall,
)
from pgtrickle_assets.query.rewrite import walk

_POSTFIX = {"is_null": "IS NULL", "is_not_null": "IS NOT NULL", "is_true": "IS TRUE", "is_not_true": "IS NOT TRUE",
            "is_false": "IS FALSE", "is_not_false": "IS NOT FALSE"}  # fmt: skip
_INFIX = {"and": "AND", "or": "OR", "is_distinct_from": "IS DISTINCT FROM",
          "is_not_distinct_from": "IS NOT DISTINCT FROM", **{name: op for op, name in CHECKED.items()}}  # fmt: skip


class Describer:
    """Words for the nodes of plans; columns go by their labels, with the table where two tables have one.

    Args:
        roots: The plans; ids are unique over all of them.
    """

    def __init__(self, roots: Sequence[Node]) -> None:
        self._names = _names(roots)

    def column(self, column: Column | ColumnRef) -> str:
        """Name of a column."""
        return self._names.get(column.id, column.id)

    def node(self, node: Node) -> tuple[str, str]:
        """The operator, and what it does."""
        match node:
            case Scan():
                return "scan", f"{node.relation} ({', '.join(node.source_columns)})"
            case Values():
                return "values", f"{len(node.rows)} row{'' if len(node.rows) == 1 else 's'}"
            case Filter():
                return "filter", self.expression(node.predicate)
            case Project():
                return "project", ", ".join(self._item(column, value) for column, value in node.items)
            case Join():
                condition = "" if node.condition is None else self.expression(node.condition)
                return ("cross join" if node.kind == "inner" and not condition else f"{node.kind} join"), condition
            case Aggregate():
                keys = f"by {', '.join(map(self.column, node.keys))}: " if node.keys else ""
                return "aggregate", keys + ", ".join(self.aggregate(call) for _, call in node.aggregates)
            case Distinct():
                return "distinct", ""
            case UnionAll():
                return "union all", ""
            case SetOperation():
                return f"{node.kind} all" if node.all else node.kind, ""
            case Window():
                return "window", ", ".join(self.window(call) for _, call in node.calls)
            case TopK():
                per = f"per {', '.join(map(self.column, node.partition_by))}" if node.partition_by else ""
                return "top", " ".join(filter(None, (self.top(node.order_by, node.limit, node.offset), per)))
            case Generate():
                return "unnest", self.expression(node.generator)
            case Opaque():
                return "full only", node.detail

    def expression(self, expression: Expression) -> str:
        """An expression."""
        match expression:
            case ColumnRef():
                return self.column(expression)
            case Literal():
                return _literal(expression)
            case Cast():
                return f"{self.expression(expression.arg)}::{expression.type}"
            case Case():
                parts = [f"WHEN {self.expression(w)} THEN {self.expression(t)}" for w, t in expression.branches]
                if expression.otherwise is not None:
                    parts.append(f"ELSE {self.expression(expression.otherwise)}")
                return f"CASE {' '.join(parts)} END"
            case Call():
                return self._call(expression)

    def aggregate(self, call: AggregateCall) -> str:
        """An aggregate call."""
        arguments = ", ".join(map(self.expression, call.args)) or "*"
        order = f" ORDER BY {self.sort_keys(call.order_by)}" if call.order_by else ""
        text = f"{call.function}({'DISTINCT ' if call.distinct else ''}{arguments}{order})"
        return text if call.filter is None else f"{text} FILTER ({self.expression(call.filter)})"

    def window(self, call: WindowCall) -> str:
        """A window call."""
        over: list[str] = []
        if call.partition_by:
            over.append(f"PARTITION BY {', '.join(map(self.expression, call.partition_by))}")
        if call.order_by:
            over.append(f"ORDER BY {self.sort_keys(call.order_by)}")
        if call.frame:
            over.append(call.frame)
        return f"{call.function}({', '.join(map(self.expression, call.args))}) OVER ({' '.join(over)})"

    def sort_keys(self, keys: Sequence[SortKey]) -> str:
        """The items of an ORDER BY."""
        return ", ".join(f"{self.expression(key.expression)}{' DESC' if key.descending else ''}" for key in keys)

    def top(self, order_by: Sequence[SortKey], limit: int | None, offset: int) -> str:
        """Which rows of an order are kept."""
        parts = [f"ORDER BY {self.sort_keys(order_by)}"] if order_by else []
        parts += [] if limit is None else [f"LIMIT {limit}"]
        parts += [f"OFFSET {offset}"] if offset else []
        return " ".join(parts)

    def _item(self, column: Column, value: Expression) -> str:
        text, name = self.expression(value), self.column(column)
        return text if text == name else f"{text} AS {name}"

    def _call(self, call: Call) -> str:
        args = [self.expression(arg) for arg in call.args]
        name = call.function
        if name in _POSTFIX:
            return f"{args[0]} {_POSTFIX[name]}"
        if name == "not":
            return f"NOT ({args[0]})"
        if len(args) == 2 and (name in _INFIX or not name.replace("_", "").isalnum()):
            left, right = (self._operand(arg, text) for arg, text in zip(call.args, args, strict=True))
            return f"{left} {_INFIX.get(name, name)} {right}"
        return f"{name}({', '.join(args)})"

    @staticmethod
    def _operand(arg: Expression, text: str) -> str:
        return f"({text})" if isinstance(arg, Call) and len(arg.args) == 2 and not text.endswith(")") else text


def _names(roots: Sequence[Node]) -> dict[str, str]:
    nodes = [node for root in roots for node in walk(root)]
    readings = [node for node in nodes if isinstance(node, Scan)]
    tables: dict[str, set[int]] = {}
    for place, scan in enumerate(readings):
        for name in scan.source_columns:
            tables.setdefault(name, set()).add(place)
    aliases = _aliases(readings)
    names: dict[str, str] = {}
    for place, scan in enumerate(readings):
        for column, name in zip(scan.columns, scan.source_columns, strict=True):
            names[column.id] = name if len(tables[name]) == 1 else f"{aliases[place]}.{name}"
    # Inputs come after the nodes that read them.
    for node in reversed(nodes):
        for column in node.output:
            names.setdefault(column.id, column.name or column.id)
        if isinstance(node, Project):
            for column, value in node.items:
                own = names.get(value.id, "") if isinstance(value, ColumnRef) else ""
                if own.rpartition(".")[2] == column.name:
                    names[column.id] = own
    return names


def _aliases(readings: Sequence[Scan]) -> list[str]:
    """A short name per reading of a table; the second of the same one gets a number."""
    aliases: list[str] = []
    seen: dict[str, int] = {}
    for scan in readings:
        short = scan.relation.rpartition(".")[2]
        seen[short] = seen.get(short, 0) + 1
        aliases.append(short if seen[short] == 1 else f"{short}_{seen[short]}")
    return aliases


def _literal(literal: Literal) -> str:
    match literal.value:
        case None:
            return "NULL"
        case bool():
            return str(literal.value).upper()
        case int():
            return str(literal.value)
        case value if literal.type.is_numeric:
            return str(value)
        case value:
            text = value.hex() if isinstance(value, bytes) else str(value)
            return "'" + text.replace("'", "''") + "'"
