"""The members of json_object_agg and jsonb_object_agg, and their order.

Source: PostgreSQL 18 documentation 9.21; src/backend/utils/adt/json.c (json_object_agg_transfn) and jsonb_util.c
(lengthCompareJsonbString, uniqueifyJsonbObject).
"""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.coercion import convert, postgres_name
from pgtrickle_assets.query.json_calls import json_text, text_or_null
from pgtrickle_assets.query.operators import call
from pgtrickle_assets.query.plan import Call, Case, Expression, Literal, SortKey
from pgtrickle_assets.query.rewrite import conjunction, is_null
from pgtrickle_assets.query.types import INT32, JSON, UNKNOWN, VARCHAR


def object_members(
    name: str,
    pair: Sequence[Expression],
    condition: Expression | None,
    order_by: tuple[SortKey, ...],
    line: int | None,
) -> tuple[tuple[Expression, Expression], tuple[SortKey, ...]]:
    """Text and key of a member, and the order of all members.

    An object of jsonb keeps the last of the members with one key, and has its keys ordered by length, then by bytes;
    one of json keeps all of them as they come. Members that tie are ordered by key and value.

    Args:
        name: json_object_agg or jsonb_object_agg.
        pair: Key and value.
        condition: FILTER of the call.
        order_by: ORDER BY of the call.
        line: For errors.

    Raises:
        QueryError: The key or the value has no JSON text.
    """
    key, value = pair
    if key.type == JSON or key.type.element is not None:
        raise QueryError(f"{name} with a key of type {postgres_name(key.type)} is not supported", line=line)
    plain = convert(key, VARCHAR) if key.type == UNKNOWN else key
    quoted = json_text(plain, line)
    if plain.type.is_numeric or plain.type.name == "boolean":
        quoted = _joined(Literal('"', VARCHAR), quoted, Literal('"', VARCHAR))
    label = _named(plain, plain if plain.type == VARCHAR else quoted, condition)
    colon = Literal(": " if name.startswith("jsonb") else " : ", VARCHAR)
    member = _joined(_named(plain, quoted, condition), colon, text_or_null(value, line))
    ties = [SortKey(label), SortKey(json_text(value, line) if value.type == JSON else value)]
    if name.startswith("jsonb"):
        by_length = SortKey(call("octet_length", INT32, label))
        return (member, label), (by_length, ties[0], *order_by, ties[1])
    return (member, label), (*order_by, *ties)


def _named(key: Expression, text: Expression, condition: Expression | None) -> Expression:
    """The text of a key, which is an error for NULL; rows that FILTER leaves out have no key to be wrong."""
    if not key.nullable:
        return text
    missing = conjunction([part for part in (is_null(key), condition) if part is not None])
    assert missing is not None
    error = Call("raise", (Literal("field name must not be null", VARCHAR),), VARCHAR)
    return Case(((missing, error),), text, VARCHAR)


def _joined(*parts: Expression) -> Expression:
    return Call("concat", parts, VARCHAR, nullable=False)
