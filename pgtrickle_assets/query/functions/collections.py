"""Arrays and JSON.

Source: PostgreSQL 18 documentation 9.19 (arrays) and 9.16 (JSON). Arrays count from 1.
"""

from __future__ import annotations

from pgtrickle_assets.query.functions.registry import Emission, register
from pgtrickle_assets.query.functions.signatures import argument_type, define
from pgtrickle_assets.query.plan import Literal
from pgtrickle_assets.query.types import INT32


def _array(emission: Emission) -> str:
    inside = ", ".join(emission.args)
    if emission.spark:
        return f"array({inside})"
    return emission.writer.cast(f"[{inside}]", emission.call.type, emission.call.type)


def _json_path(emission: Emission) -> str:
    """The constant path of a JSON operator as a JSON path."""
    steps: list[str] = []
    for arg in emission.call.args[1:]:
        assert isinstance(arg, Literal)
        if isinstance(arg.value, int):
            steps.append(f"[{arg.value}]" if emission.spark or arg.value >= 0 else f"[#{arg.value}]")
        elif emission.spark:
            steps.append(f"['{arg.value}']")
        else:
            steps.append('."' + str(arg.value).replace('"', '\\"') + '"')
    from pgtrickle_assets.query.render_types import text_literal

    return text_literal("$" + "".join(steps), emission.writer.dialect)


def _json_text(emission: Emission) -> str:
    path = _json_path(emission)
    if emission.spark:
        return f"get_json_object({emission.args[0]}, {path})"
    return f"json_extract_string({emission.args[0]}, {path})"


def _json_value(emission: Emission) -> str:
    path = _json_path(emission)
    if emission.spark:
        return f"to_json(variant_get(parse_json({emission.args[0]}), {path}, 'variant'))"
    return f"CAST(json_extract({emission.args[0]}, {path}) AS VARCHAR)"


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


register("array", _array, strict=False)
register("element", "get({0}, {1} - 1)", "{0}[greatest({1}, 0)]", strict=False)
register("array_length", _array_length)
define("array_length(anyarray, int4) -> int4")
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
register("json_value", _json_value, strict=False)
register("json_quote", "to_json(CAST({0} AS VARIANT))", "CAST(to_json({0}) AS VARCHAR)")
register("json_array_length", "json_array_length({0})", "CAST(json_array_length({0}) AS INTEGER)")
define("json_array_length(json) -> int4")
define("jsonb_array_length(json) -> int4", canonical="json_array_length")

ARRAY_INDEX = INT32
"""Type of a subscript."""
