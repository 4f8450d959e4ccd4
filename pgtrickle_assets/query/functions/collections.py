"""Arrays and JSON.

Source: PostgreSQL 18 documentation 9.19 (arrays) and 9.16 (JSON). Arrays count from 1.
"""

from __future__ import annotations

import json
import re

from pgtrickle_assets.query.functions.registry import Emission, register
from pgtrickle_assets.query.functions.signatures import argument_type, define
from pgtrickle_assets.query.plan import Literal
from pgtrickle_assets.query.render_types import text_literal, type_name
from pgtrickle_assets.query.types import INT32

BLANKS = "' '"
"""What can stand before a JSON document that PostgreSQL wrote."""


def _array(emission: Emission) -> str:
    inside = ", ".join(emission.args)
    if emission.spark and emission.args:
        return f"array({inside})"
    if emission.spark:
        kind = type_name(emission.call.type, "spark")
        return f"CAST(array() AS {kind})"
    return emission.writer.cast(f"[{inside}]", emission.call.type, emission.call.type)


def _json_path(emission: Emission) -> str:
    """The constant path of a JSON operator as a JSON path."""
    steps: list[str] = []
    for arg in emission.call.args[1:]:
        assert isinstance(arg, Literal)
        if isinstance(arg.value, int):
            steps.append(f"[{arg.value}]")
        elif emission.spark:
            steps.append(f"['{arg.value}']")
        else:
            steps.append('."' + str(arg.value).replace('"', '\\"') + '"')
    return text_literal("$" + "".join(steps), emission.writer.dialect)


def _json_text(emission: Emission) -> str:
    """Text as it is, JSON as JSON, and a number with the digits that it was written with."""
    path, document = _json_path(emission), emission.args[0]
    if not emission.spark:
        return _as_written(emission, f"json_extract_string({document}, {path})")
    plain = f"get_json_object({document}, {path})"
    if isinstance(emission.call.args[-1], Literal) and isinstance(emission.call.args[-1].value, int):
        # Spark gives an element null as the text null.
        variant = f"CAST(variant_get(parse_json({document}), {path}, 'variant') AS STRING)"
        plain = f"(CASE WHEN {plain} = 'null' THEN {variant} ELSE {plain} END)"
    return _as_written(emission, plain)


def _json_value(emission: Emission) -> str:
    path, document = _json_path(emission), emission.args[0]
    if emission.spark:
        return _as_written(emission, f"to_json(variant_get(parse_json({document}), {path}, 'variant'))")
    return _as_written(emission, f"CAST(json_extract({document}, {path}) AS VARCHAR)")


def _as_written(emission: Emission, value: str) -> str:
    """A value of a document; of a number, its text in the document.

    Both engines read numbers as double precision, which loses digits and zeros at the end. The number is looked up
    behind the last step of the path; one that stands there in several ways is an error.
    """
    last, spark = emission.call.args[-1], emission.spark
    assert isinstance(last, Literal)
    key = json.dumps(last.value, ensure_ascii=False)
    before = r"[\[,]\s*" if isinstance(last.value, int) else rf"{re.escape(key)}\s*:\s*"
    dialect = emission.writer.dialect
    numbers = text_literal(rf'{before}"?(-?[0-9][0-9.eE+-]*)', dialect)
    whole = text_literal(r"^-?[0-9]{1,15}$", dialect)
    number = text_literal(r"^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$", dialect)

    def body(names: tuple[str, ...]) -> str:
        document, plain = names
        if spark:
            test = f"n -> try_cast(n AS DOUBLE) = try_cast({plain} AS DOUBLE)"
            found = f"array_distinct(filter(regexp_extract_all({document}, {numbers}, 1), {test}))"
            needed = f"{plain} RLIKE {number} AND NOT {plain} RLIKE {whole}"
            several = f"CAST(raise_error('{_SEVERAL}') AS STRING)"
            chosen = f"CASE WHEN size({found}) = 1 THEN {found}[0] ELSE {several} END"
        else:
            test = f"lambda n: try_cast(n AS DOUBLE) = try_cast({plain} AS DOUBLE)"
            found = f"list_distinct(list_filter(regexp_extract_all({document}, {numbers}, 1), {test}))"
            needed = f"regexp_matches({plain}, {number}) AND NOT regexp_matches({plain}, {whole})"
            chosen = f"CASE WHEN len({found}) = 1 THEN {found}[1] ELSE error('{_SEVERAL}') END"
        return f"(CASE WHEN {needed} THEN {chosen} ELSE {plain} END)"

    document = emission.args[0] if spark else f"CAST({emission.args[0]} AS VARCHAR)"
    return emission.writer.let((document, value), body)


_SEVERAL = "a number of a JSON document is written in several ways there"


def _array_cat(emission: Emission) -> str:
    """A NULL array counts as empty, unless both are NULL."""
    left, right = emission.args
    joined = f"concat({left}, {right})" if emission.spark else f"list_concat({left}, {right})"
    return f"(CASE WHEN {left} IS NULL THEN {right} WHEN {right} IS NULL THEN {left} ELSE {joined} END)"


def _array_length(emission: Emission) -> str:
    size = f"size({emission.args[0]})" if emission.spark else f"CAST(len({emission.args[0]}) AS INTEGER)"
    return f"nullif({size}, 0)"


def _string_to_array(emission: Emission) -> str:
    """No text has no element; without a delimiter each character is one, and an empty delimiter is found nowhere."""
    spark, delimiter = emission.spark, emission.call.args[1]

    def body(names: tuple[str, ...]) -> str:
        text, by = names
        # Both engines take an empty pattern to mean every code point.
        characters = f"split({text}, '', -1)" if spark else f"string_split({text}, '')"
        whole = f"array({text})" if spark else f"[{text}]"
        branches = [f"WHEN {text} IS NULL THEN NULL", f"WHEN {text} = '' THEN {_no_text(emission)}"]
        if isinstance(delimiter, Literal):
            if delimiter.value is None:
                result = characters
            else:
                result = _split(text, by, spark=spark) if delimiter.value else whole
        else:
            branches += [f"WHEN {by} IS NULL THEN {characters}", f"WHEN {by} = '' THEN {whole}"]
            result = _split(text, by, spark=spark)
        return f"(CASE {' '.join(branches)} ELSE {result} END)"

    text, by = emission.args
    if isinstance(delimiter, Literal):
        return emission.writer.let((text,), lambda names: body((*names, by)))
    return emission.writer.let((text, by), body)


def _no_text(emission: Emission) -> str:
    return "CAST(array() AS ARRAY<STRING>)" if emission.spark else "CAST([] AS VARCHAR[])"


def _split(text: str, by: str, *, spark: bool) -> str:
    if not spark:
        return f"string_split({text}, {by})"
    # A quoted pattern ends at the first \E, so one in the delimiter is written between two quoted parts.
    quoted = f"replace({by}, '\\\\E', '\\\\E\\\\\\\\E\\\\Q')"
    return f"split({text}, concat('\\\\Q', {quoted}, '\\\\E'), -1)"


def _array_has(emission: Emission) -> str:
    """Three-valued: not found among elements of which one is NULL is unknown, and so is NULL in any but no elements."""
    array, value = emission.args
    if emission.spark:
        return f"(CASE WHEN size({array}) = 0 THEN FALSE ELSE array_contains({array}, {value}) END)"
    found = f"CASE WHEN list_contains({array}, {value}) THEN TRUE"
    unknown = f"WHEN {array} IS NULL OR len({array}) > list_count({array}) OR ({value} IS NULL AND len({array}) > 0)"
    return f"({found} {unknown} THEN NULL ELSE FALSE END)"


def _array_any(emission: Emission) -> str:
    """Three-valued: true where the test is for some element, else unknown where it is for one, else false."""
    array, value = emission.args[:2]
    op = emission.call.args[2]
    assert isinstance(op, Literal)
    test = f"{value} {op.value} e"
    if emission.spark:
        return f"exists({array}, e -> {test})"

    def some(condition: str) -> str:
        return f"len(list_filter({array}, lambda e: {condition})) > 0"

    return (
        f"(CASE WHEN {array} IS NULL THEN NULL WHEN {some(test)} THEN TRUE "
        f"WHEN {some(f'({test}) IS NULL')} THEN NULL ELSE FALSE END)"
    )


def _array_contains_all(emission: Emission) -> str:
    """Whether each element of the second array equals one of the first; a NULL equals nothing."""
    whole, part = emission.args
    test = f"len(list_filter({part}, lambda e: e IS NULL OR NOT list_contains({whole}, e))) = 0"
    if emission.spark:
        test = f"forall({part}, e -> coalesce(array_contains({whole}, e), FALSE))"
    return _unless_null(whole, part, test)


def _array_overlaps(emission: Emission) -> str:
    left, right = emission.args
    test = f"len(list_filter({right}, lambda e: e IS NOT NULL AND list_contains({left}, e))) > 0"
    if emission.spark:
        test = f"exists({right}, e -> coalesce(array_contains({left}, e), FALSE))"
    return _unless_null(left, right, test)


def _unless_null(left: str, right: str, test: str) -> str:
    return f"(CASE WHEN {left} IS NOT NULL AND {right} IS NOT NULL THEN {test} END)"


def _without(emission: Emission) -> str:
    array, value = emission.args
    if emission.spark:
        return f"filter({array}, e -> NOT (e <=> {value}))"
    return f"list_filter({array}, lambda e: e IS DISTINCT FROM {value})"


def _replaced(emission: Emission) -> str:
    array, old, new = emission.args
    if emission.spark:
        return f"transform({array}, e -> CASE WHEN e <=> {old} THEN {new} ELSE e END)"
    return f"list_transform({array}, lambda e: CASE WHEN e IS NOT DISTINCT FROM {old} THEN {new} ELSE e END)"


register("array", _array, strict=False)
register("array_any", _array_any, strict=False)
register("array_contains_all", _array_contains_all)
register("array_overlaps", _array_overlaps)
register("array_remove", _without, strict=False)
register("array_replace", _replaced, strict=False)
register("element", "get({0}, {1} - 1)", "{0}[greatest({1}, 0)]", strict=False)
register("array_length", _array_length)
register("cardinality", "size({0})", "CAST(len({0}) AS INTEGER)")
define("cardinality(anyarray) -> int4")
register("array_to_string", "array_join({0}, {1})", "array_to_string({0}, {1})")
define("array_to_string(anyarray, text) -> text")
register("string_to_array", _string_to_array, strict=False)
define("string_to_array(text, text) -> text[]")
register("array_append", "array_append(coalesce({0}, array()), {1})", "list_append({0}, {1})", strict=False)
register("array_cat", _array_cat, strict=False)
register(
    "array_position", "nullif(CAST(array_position({0}, {1}) AS INT), 0)", "CAST(list_position({0}, {1}) AS INTEGER)"
)
register("array_has", _array_has, strict=False)
register("array_any_null", "exists({0}, x -> x IS NULL)", "(len({0}) > list_count({0}))")
define("array_cat(anyarray, anyarray)", argument_type(0))
register("json_text", _json_text, strict=False)


def _json_kind(emission: Emission) -> str:
    """Told from the first character of the document."""
    begin = f"substring(ltrim({emission.args[0]}, {BLANKS}), 1, 1)"
    if emission.spark:
        begin = f"substring(trim(LEADING {BLANKS} FROM {emission.args[0]}), 1, 1)"
    kinds = "WHEN '{' THEN 'object' WHEN '[' THEN 'array' WHEN '\"' THEN 'string' WHEN 't' THEN 'boolean'"
    other = "WHEN 'f' THEN 'boolean' WHEN 'n' THEN 'null' ELSE 'number'"
    return f"(CASE WHEN {emission.args[0]} IS NOT NULL THEN CASE {begin} {kinds} {other} END END)"


def _json_has_key(emission: Emission) -> str:
    """A key of an object, or a text that is an element of an array or the document itself."""
    document, key = emission.args
    if emission.spark:
        variant = f"parse_json({document})"
        text = f"schema_of_variant(v) = 'STRING' AND CAST(v AS STRING) = {key}"
        items = f"CASE WHEN schema_of_variant({variant}) LIKE 'ARRAY<%' THEN CAST({variant} AS ARRAY<VARIANT>)"
        listed = f"exists({items} ELSE array({variant}) END, v -> coalesce({text}, FALSE))"
        keys = f"coalesce(array_contains(json_object_keys({document}), {key}), FALSE)"
        return f"(CASE WHEN {document} IS NOT NULL THEN {keys} OR {listed} END)"
    listed = f"list_filter(json_extract({document}, '$[*]'), lambda v: v = to_json({key}))"
    itself = f"(json_type({document}) = 'VARCHAR' AND json_extract_string({document}, '$') = {key})"
    keys = f"list_contains(json_keys({document}), {key})"
    return f"(CASE WHEN {document} IS NOT NULL THEN {keys} OR {itself} OR len({listed}) > 0 END)"


register("json_kind", _json_kind)
register("json_has_key", _json_has_key)
register("json_value", _json_value, strict=False)
register("json_quote", "to_json(CAST({0} AS VARIANT))", "CAST(to_json({0}) AS VARCHAR)")
register("json_array_length", "json_array_length({0})", "CAST(json_array_length({0}) AS INTEGER)")
define("json_array_length(json) -> int4")
define("jsonb_array_length(json) -> int4", canonical="json_array_length")

ARRAY_INDEX = INT32
"""Type of a subscript."""
