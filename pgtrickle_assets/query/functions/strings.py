"""Text functions.

Source: PostgreSQL 18 documentation 9.4 (strings), 9.7 (pattern matching). Positions count characters, from 1.
"""

from __future__ import annotations

from pgtrickle_assets.query.functions.registry import Emission, register
from pgtrickle_assets.query.functions.signatures import define
from pgtrickle_assets.query.plan import Literal


def _is_literal_at_least(emission: Emission, index: int, low: int) -> bool:
    arg = emission.call.args[index]
    return isinstance(arg, Literal) and isinstance(arg.value, int) and arg.value >= low


def _substring(emission: Emission) -> str:
    """A start before 1 shortens the piece, as PostgreSQL counts; both engines would count from the end."""
    text, start, *rest = emission.args
    function = "substring"
    if _is_literal_at_least(emission, 1, 1) and (not rest or _is_literal_at_least(emission, 2, 0)):
        return f"{function}({', '.join(emission.args)})"
    first = f"greatest({start}, 1)"
    if not rest:
        return f"{function}({text}, {first})"
    length = rest[0]
    message = "negative substring length not allowed"
    error = f"raise_error('{message}')" if emission.spark else f"error('{message}')"
    end = f"(CASE WHEN {length} < 0 THEN CAST({error} AS INT) ELSE {start} + {length} END)"
    return f"{function}({text}, {first}, greatest({end} - {first}, 0))"


def _side(name: str) -> None:
    def emit(emission: Emission) -> str:
        text, count = emission.args
        if not emission.spark or _is_literal_at_least(emission, 1, 0):
            return f"{name}({text}, {count})"
        kept = f"(CASE WHEN {count} < 0 THEN greatest(length({text}) + {count}, 0) ELSE {count} END)"
        return f"{name}({text}, {kept})"

    register(name, emit)


def _trim(name: str, spark: str) -> None:
    def emit(emission: Emission) -> str:
        text = emission.args[0]
        characters = emission.args[1] if len(emission.args) > 1 else "' '"
        return f"trim({spark} {characters} FROM {text})" if emission.spark else f"{name}({text}, {characters})"

    register(name, emit)


def _concat_ws(emission: Emission) -> str:
    return f"concat_ws({', '.join(emission.args)})"


def _concat(emission: Emission) -> str:
    return f"concat_ws('', {', '.join(emission.args)})"


def _like(*, fold: bool) -> None:
    word = "ILIKE" if fold else "LIKE"

    def emit(emission: Emission) -> str:
        text, pattern = emission.args
        # DuckDB has no escape character by default, Spark and PostgreSQL have the backslash.
        return f"({text} {word} {pattern})" if emission.spark else f"({text} {word} {pattern} ESCAPE '\\')"

    register("ilike" if fold else "like", emit)


def _split_part(emission: Emission) -> str:
    return f"split_part({', '.join(emission.args)})"


def _overlay(emission: Emission) -> str:
    text, new, start, *rest = emission.args
    length = rest[0] if rest else f"length({new})"
    parts = (f"substring({text}, 1, {start} - 1)", new, f"substring({text}, {start} + {length})")
    return f"concat({', '.join(parts)})" if emission.spark else f"({' || '.join(parts)})"


def _regexp_replace(emission: Emission) -> str:
    r"""All matches with flag g, else the first; the replacement uses \\1 in PostgreSQL and DuckDB, $1 in Spark."""
    text, pattern, replacement, flags = emission.args
    literal = emission.call.args[3]
    options = str(literal.value) if isinstance(literal, Literal) else ""
    if not emission.spark:
        return f"regexp_replace({text}, {pattern}, {replacement}, {flags})"
    if "g" in options:
        return f"regexp_replace({text}, {pattern}, {replacement})"

    def first(names: tuple[str, ...]) -> str:
        subject, position, match = names
        changed = f"regexp_replace({match}, {pattern}, {replacement})"
        tail = f"substring({subject}, {position} + length({match}))"
        head = f"substring({subject}, 1, {position} - 1)"
        return f"CASE WHEN {position} = 0 THEN {subject} ELSE concat({head}, {changed}, {tail}) END"

    return emission.writer.let((text, f"regexp_instr({text}, {pattern})", f"regexp_substr({text}, {pattern})"), first)


def _spark_only_first(emission: Emission) -> str:
    text, pattern, group = emission.args
    if emission.spark:
        return f"(CASE WHEN {text} RLIKE {pattern} THEN regexp_extract({text}, {pattern}, {group}) END)"
    return f"(CASE WHEN regexp_matches({text}, {pattern}) THEN regexp_extract({text}, {pattern}, {group}) END)"


register("length", "char_length({0})", "CAST(length({0}) AS INTEGER)")
for _name in ("length", "char_length", "character_length"):
    define(f"{_name}(text) -> int4", canonical="length")
register("octet_length", "octet_length({0})", "CAST(strlen({0}) AS INTEGER)")
define("octet_length(text) -> int4")
register("lower", "lower({0})")
define("lower(text) -> text")
register("upper", "upper({0})")
define("upper(text) -> text")
register("substring", _substring)
for _name in ("substring", "substr"):
    define(f"{_name}(text, int4) -> text", canonical="substring")
    define(f"{_name}(text, int4, int4) -> text", canonical="substring")
register("position", "locate({1}, {0})", "CAST(strpos({0}, {1}) AS INTEGER)")
define("strpos(text, text) -> int4", canonical="position")
define("position(text, text) -> int4", canonical="position")
_trim("trim", "BOTH")
_trim("ltrim", "LEADING")
_trim("rtrim", "TRAILING")
for _name, _canonical in (("btrim", "trim"), ("trim", "trim"), ("ltrim", "ltrim"), ("rtrim", "rtrim")):
    define(f"{_name}(text) -> text", canonical=_canonical)
    define(f"{_name}(text, text) -> text", canonical=_canonical)
register("concat", _concat, strict=False)
register("concat_ws", _concat_ws, strict=False)
register("||", "concat({0}, {1})", "({0} || {1})")
register("replace", "replace({0}, {1}, {2})")
define("replace(text, text, text) -> text")
register("split_part", _split_part)
define("split_part(text, text, int4) -> text")
_side("left")
_side("right")
define("left(text, int4) -> text")
define("right(text, int4) -> text")
register("lpad", "lpad({0}, {1}, {2})")
register("rpad", "rpad({0}, {1}, {2})")
define("lpad(text, int4, text) -> text")
define("rpad(text, int4, text) -> text")
register("repeat", "repeat({0}, {1})")
define("repeat(text, int4) -> text")
register("reverse", "reverse({0})")
define("reverse(text) -> text")
register("starts_with", "startswith({0}, {1})", "starts_with({0}, {1})")
define("starts_with(text, text) -> bool")
register("ascii", "ascii({0})", "CAST(ascii({0}) AS INTEGER)")
define("ascii(text) -> int4")
register("translate", "translate({0}, {1}, {2})")
define("translate(text, text, text) -> text")
register("md5", "md5({0})")
define("md5(text) -> text")
register("overlay", _overlay)
define("overlay(text, text, int4) -> text")
define("overlay(text, text, int4, int4) -> text")
_like(fold=False)
_like(fold=True)
register("regexp_like", "({0} RLIKE {1})", "regexp_matches({0}, {1})")
register("regexp_replace", _regexp_replace)
register("regexp_substring", _spark_only_first, strict=False)
