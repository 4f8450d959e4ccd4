"""Operators and functions of json and jsonb.

Source: PostgreSQL 18 documentation 9.16 (JSON functions and operators).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.array_constants import constant_items
from pgtrickle_assets.query.casts import to_text
from pgtrickle_assets.query.coercion import constant_text, convert, postgres_name
from pgtrickle_assets.query.operators import call
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.plan import Call, Expression, Literal
from pgtrickle_assets.query.types import BOOLEAN, INT32, JSON, TIMESTAMPTZ, UNKNOWN, VARCHAR, ColumnType

if TYPE_CHECKING:
    from pgtrickle_assets.query.expressions import Analyzer

_Steps = list[Literal]


def _key(node: Any, line: int | None) -> Literal:
    """The one key or index after -> or ->>."""
    if isinstance(node, exp.JSONPath) and len(node.expressions) == 2:
        part = node.expressions[1]
        if isinstance(part, exp.JSONPathKey) and isinstance(part.this, str):
            return Literal(part.this, VARCHAR)
        if isinstance(part, exp.JSONPathSubscript) and isinstance(part.this, int) and part.this >= 0:
            return Literal(part.this, INT32)
    raise QueryError("the key after -> must be a constant, and an index not negative", line=line)


def _path(analyzer: Analyzer, node: Any, line: int | None) -> list[_Steps]:
    """The paths that one after #> can mean: a number is an index of an array, or else a key of an object."""
    if isinstance(node, exp.Array):
        parts: Sequence[str | None] = [
            constant_text(analyzer.analyze(p), "a JSON path", line) for p in node.expressions
        ]
    elif isinstance(node, exp.Literal) and node.is_string:
        try:
            parts = constant_items(node.name)
        except ValueError as error:
            raise QueryError(f"the JSON path {node.name!r} is not supported", line=line) from error
    else:
        raise QueryError("a JSON path must be a constant", line=line)
    choices: list[_Steps] = []
    for part in parts:
        if part is None or (part.startswith("-") and part[1:].isdigit()):
            raise QueryError("NULL and negative indexes in a JSON path are not supported", line=line)
        key = Literal(part, VARCHAR)
        choices.append([Literal(int(part), INT32), key] if part.isdigit() else [key])
    if not choices:
        raise QueryError("an empty JSON path is not supported", line=line)
    return [list(steps) for steps in product(*choices)]


def _document(analyzer: Analyzer, node: Any, op: str) -> Expression:
    source = analyzer.analyze(node)
    if source.type != JSON:
        raise QueryError(f"operator does not exist: {postgres_name(source.type)} {op} unknown", line=line_of(node))
    return source


def _at(function: str, kind: ColumnType, source: Expression, steps: _Steps, line: int | None) -> Expression:
    if any(str(step.value) == "" or set(str(step.value)) & set("'\"\\*") for step in steps):
        raise QueryError("empty JSON keys and keys with quotes or * are not supported", line=line)
    if isinstance(source, Call) and source.function == "json_value":
        return Call(function, (*source.args, *steps), kind)
    return Call(function, (source, *steps), kind)


def _field(function: str, kind: ColumnType) -> Callable[[Analyzer, Any], Expression]:
    def handle(analyzer: Analyzer, node: Any) -> Expression:
        line = line_of(node)
        return _at(function, kind, _document(analyzer, node.this, "->"), [_key(node.expression, line)], line)

    return handle


def _deep(function: str, kind: ColumnType) -> Callable[[Analyzer, Any], Expression]:
    def handle(analyzer: Analyzer, node: Any) -> Expression:
        line, source = line_of(node), _document(analyzer, node.this, "#>")
        found = [_at(function, kind, source, steps, line) for steps in _path(analyzer, node.expression, line)]
        return found[0] if len(found) == 1 else Call("coalesce", tuple(found), kind)

    return handle


def _has_key(analyzer: Analyzer, node: Any) -> Expression:
    line = line_of(node)
    key = constant_text(analyzer.analyze(node.expression), "the key after ?", line)
    return call("json_has_key", BOOLEAN, _document(analyzer, node.this, "?"), Literal(key, VARCHAR))


def _kind(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    if len(args) != 1 or args[0].type != JSON:
        return None
    return call("json_kind", VARCHAR, convert(args[0], VARCHAR))


def json_text(value: Expression, line: int | None) -> Expression:
    """A value as the text of a JSON value; SQL's NULL stays NULL.

    Raises:
        QueryError: Its type has no JSON text here.
    """
    kind = value.type
    if kind == JSON or kind.is_integer or kind.name in ("decimal", "boolean"):
        return to_text(value, line)
    if kind.name in ("timestamp", "timestamptz"):
        text = call("replace", VARCHAR, to_text(value, line), Literal(" ", VARCHAR), Literal("T", VARCHAR))
        if kind == TIMESTAMPTZ:
            text = call("||", VARCHAR, text, Literal(":00", VARCHAR))
        return call("json_quote", VARCHAR, text)
    if kind in (VARCHAR, UNKNOWN) or kind.name in ("date", "uuid"):
        return Call("json_quote", (convert(value, VARCHAR),), VARCHAR, value.nullable)
    raise QueryError(f"{postgres_name(kind)} as JSON is not supported", line=line)


def text_or_null(value: Expression, line: int | None) -> Expression:
    """A value as the text of a JSON value; SQL's NULL is that of JSON."""
    if isinstance(value, Literal) and value.value is None:
        return Literal("null", VARCHAR)
    return Call("coalesce", (json_text(value, line), Literal("null", VARCHAR)), VARCHAR, nullable=False)


def _build_object(_: Analyzer, name: str, args: list[Expression], line: int | None) -> Expression | None:
    """An object of constant keys; jsonb has them ordered by length, then by bytes."""
    if len(args) % 2:
        raise QueryError("argument list must have even number of elements", line=line)
    keys = [constant_text(key, f"a key of {name}", line) for key in args[::2]]
    if len(set(keys)) < len(keys):
        raise QueryError(f"{name} with a key that occurs twice is not supported", line=line)
    pairs = list(zip(keys, args[1::2], strict=True))
    if name.startswith("jsonb"):
        pairs.sort(key=lambda pair: (len(pair[0].encode()), pair[0].encode()))
    colon = Literal(": ", VARCHAR)
    fields = [[json_text(Literal(key, VARCHAR), line), colon, text_or_null(value, line)] for key, value in pairs]
    return _joined("{", fields, "}")


def _build_array(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    return _joined("[", [[text_or_null(arg, line)] for arg in args], "]")


def _joined(begin: str, items: Sequence[Sequence[Expression]], end: str) -> Expression:
    parts: list[Expression] = [Literal(begin, VARCHAR)]
    for index, item in enumerate(items):
        parts += [Literal(", ", VARCHAR)] if index else []
        parts += item
    return convert(Call("concat", (*parts, Literal(end, VARCHAR)), VARCHAR, nullable=False), JSON)


def _to_json(_: Analyzer, __: str, args: list[Expression], line: int | None) -> Expression | None:
    return convert(json_text(args[0], line), JSON) if len(args) == 1 else None


FUNCTIONS: dict[str, Callable[[Analyzer, str, list[Expression], int | None], Expression | None]] = {
    **dict.fromkeys(("json_typeof", "jsonb_typeof"), _kind),
    **dict.fromkeys(("json_build_object", "jsonb_build_object"), _build_object),
    **dict.fromkeys(("json_build_array", "jsonb_build_array"), _build_array),
    **dict.fromkeys(("to_json", "to_jsonb"), _to_json),
}
HANDLERS: dict[type, Callable[[Any, Any], Expression]] = {
    exp.JSONExtract: _field("json_value", JSON),
    exp.JSONExtractScalar: _field("json_text", VARCHAR),
    exp.JSONBExtract: _deep("json_value", JSON),
    exp.JSONBExtractScalar: _deep("json_text", VARCHAR),
    exp.JSONBContainsTopKey: _has_key,
}
