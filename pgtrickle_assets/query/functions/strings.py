"""Text functions.

Source: PostgreSQL 18 documentation 9.4 (strings), 9.7 (pattern matching). Positions count characters, from 1.
"""

from __future__ import annotations

from pgtrickle_assets.query.functions.registry import Emission, register
from pgtrickle_assets.query.functions.signatures import define
from pgtrickle_assets.query.plan import Literal
from pgtrickle_assets.query.render_types import text_literal


def _is_literal_at_least(emission: Emission, index: int, low: int) -> bool:
    arg = emission.call.args[index]
    return isinstance(arg, Literal) and isinstance(arg.value, int) and arg.value >= low


def _substring(emission: Emission) -> str:
    """A start before 1 shortens the piece, as PostgreSQL counts; both engines would count from the end."""
    text, start, *rest = emission.args
    function = "substring"
    if _is_literal_at_least(emission, 1, 1) and (not rest or _is_literal_at_least(emission, 2, 0)):
        return f"{function}({', '.join(emission.args)})"
    # greatest() would drop a NULL.
    first = f"(CASE WHEN {start} < 1 THEN 1 ELSE {start} END)"
    if not rest:
        return f"{function}({text}, {first})"
    length = rest[0]
    message = "negative substring length not allowed"
    error = f"raise_error('{message}')" if emission.spark else f"error('{message}')"
    end = f"(CASE WHEN {length} < 0 THEN CAST({error} AS BIGINT) ELSE CAST({start} AS BIGINT) + {length} END)"
    taken = (
        f"CASE WHEN {end} < {first} THEN 0 WHEN {end} - {first} > 2147483647 THEN 2147483647 ELSE {end} - {first} END"
    )
    return f"{function}({text}, {first}, CAST(({taken}) AS INT))"


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
    """An empty delimiter splits nothing; DuckDB would split at every character."""
    text, by, index = emission.args
    if emission.spark or (isinstance(emission.call.args[1], Literal) and emission.call.args[1].value):
        return f"split_part({text}, {by}, {index})"
    whole = f"CASE WHEN {index} IN (1, -1) THEN {text} WHEN {index} IS NOT NULL AND {text} IS NOT NULL THEN '' END"
    return f"(CASE WHEN {by} = '' THEN {whole} ELSE split_part({text}, {by}, {index}) END)"


def _pad(name: str) -> None:
    def emit(emission: Emission) -> str:
        text, length, fill = emission.args
        literal = emission.call.args[2]
        if emission.spark or (isinstance(literal, Literal) and literal.value):
            return f"{name}({text}, {length}, {fill})"
        # DuckDB has an error for an empty filling.
        cut = f"left({text}, greatest({length}, 0))"
        filled = f"{name}({text}, {length}, coalesce(nullif({fill}, ''), ' '))"
        return f"(CASE WHEN {fill} = '' THEN {cut} ELSE {filled} END)"

    register(name, emit)


def _upper(emission: Emission) -> str:
    """One character for each, as PostgreSQL does; a lengthening case mapping (ß, ligatures) is left out."""
    (text,) = emission.args
    if not emission.spark:
        return f"array_to_string(list_transform(string_split({text}, 'ß'), lambda part: upper(part)), 'ß')"

    def body(names: tuple[str, ...]) -> str:
        (name,) = names
        single = "CASE WHEN char_length(upper(c)) = 1 THEN upper(c) ELSE c END"
        apart = f"array_join(transform(split({name}, '', -1), c -> {single}), '')"
        same = f"char_length(upper({name})) = char_length({name})"
        return f"(CASE WHEN {same} THEN upper({name}) ELSE {apart} END)"

    return emission.writer.let((text,), body)


def _initcap(emission: Emission) -> str:
    """Words are runs of letters and digits."""
    (text,) = emission.args
    runs = text_literal(r"[\p{L}\p{Nl}0-9]+|[^\p{L}\p{Nl}0-9]+", emission.writer.dialect)
    lower = _lower_text("substring(w, 2)", spark=emission.spark)
    if emission.spark:
        first = "CASE WHEN char_length(upper(substring(w, 1, 1))) = 1 THEN upper(substring(w, 1, 1))"
        word = f"concat({first} ELSE substring(w, 1, 1) END, {lower})"
        return f"array_join(transform(regexp_extract_all({text}, {runs}, 0), w -> {word}), '')"
    first = "CASE WHEN w[1] = 'ß' THEN 'ß' ELSE upper(w[1]) END"
    words = f"list_transform(regexp_extract_all({text}, {runs}), lambda w: {first} || {lower})"
    return f"array_to_string({words}, '')"


def _lower_text(text: str, *, spark: bool) -> str:
    # Java lowers a last sigma to another letter, and a dotted I to two.
    return f"lower(translate({text}, '\u03a3\u0130', '\u03c3i'))" if spark else f"lower({text})"


def _chr(emission: Emission) -> str:
    """The character of a code point; Spark's chr counts modulo 256."""
    (code,) = emission.args
    if not emission.spark:
        wrong = "error('invalid code for chr()')"
        return f"(CASE WHEN {code} > 0 THEN chr({code}) WHEN {code} IS NOT NULL THEN {wrong} END)"
    valid = f"{code} BETWEEN 1 AND 55295 OR {code} BETWEEN 57344 AND 1114111"
    text = f"decode(unhex(lpad(hex(CAST({code} AS BIGINT)), 8, '0')), 'UTF-32')"
    wrong = "CAST(raise_error('invalid code for chr()') AS STRING)"
    return f"(CASE WHEN {valid} THEN {text} WHEN {code} IS NOT NULL THEN {wrong} END)"


def _to_hex(emission: Emission) -> str:
    """Negative numbers are shown as two's complements of their type's width."""
    (number,) = emission.args
    if emission.spark:
        if emission.types[0].name == "int32":
            number = f"(CASE WHEN {number} < 0 THEN {number} + 4294967296L ELSE {number} END)"
        return f"lower(hex({number}))"
    if emission.types[0].name == "int32":
        number = f"(CASE WHEN {number} < 0 THEN {number} + 4294967296 ELSE {number} END)"
    return f"lower(to_hex({number}))"


def _overlay(emission: Emission) -> str:
    text, new, start, *rest = emission.args
    length = rest[0] if rest else f"length({new})"
    parts = (f"substring({text}, 1, {start} - 1)", new, f"substring({text}, {start} + {length})")
    return f"concat({', '.join(parts)})" if emission.spark else f"({' || '.join(parts)})"


def _regexp_replace(emission: Emission) -> str:
    r"""All matches with flag g, else the first; the replacement uses \\1 in PostgreSQL and DuckDB, $1 in Spark."""
    text, _, replacement, flags = emission.args
    pattern = _pattern(emission, 1)
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


def _pattern(emission: Emission, index: int) -> str:
    """A pattern; RE2 folds all letters, Java only those of ASCII unless told."""
    text = emission.args[index]
    return text.replace("(?si)", "(?siu)", 1) if emission.spark else text


def _regexp_like(emission: Emission) -> str:
    text, pattern = emission.args[0], _pattern(emission, 1)
    return f"({text} RLIKE {pattern})" if emission.spark else f"regexp_matches({text}, {pattern})"


def _regexp_substring(emission: Emission) -> str:
    text, group = emission.args[0], emission.args[2]
    return f"(CASE WHEN {_regexp_like(emission)} THEN regexp_extract({text}, {_pattern(emission, 1)}, {group}) END)"


def _regexp_match(emission: Emission) -> str:
    text, pattern = emission.args[0], _pattern(emission, 1)
    parts = ", ".join(f"regexp_extract({text}, {pattern}, {group})" for group in emission.args[2:])
    return f"(CASE WHEN {_regexp_like(emission)} THEN {f'array({parts})' if emission.spark else f'[{parts}]'} END)"


def _regexp_count(emission: Emission) -> str:
    text, pattern = emission.args[0], _pattern(emission, 1)
    if emission.spark:
        return f"regexp_count({text}, {pattern})"
    return f"CAST(len(regexp_extract_all({text}, {pattern})) AS INTEGER)"


register("length", "char_length({0})", "CAST(length({0}) AS INTEGER)")
for _name in ("length", "char_length", "character_length"):
    define(f"{_name}(text) -> int4", canonical="length")
register("octet_length", "octet_length({0})", "CAST(strlen({0}) AS INTEGER)")
define("octet_length(text) -> int4")
register("lower", lambda emission: _lower_text(emission.args[0], spark=emission.spark))
define("lower(text) -> text")
register("upper", _upper)
define("upper(text) -> text")
register("initcap", _initcap)
define("initcap(text) -> text")
register("chr", _chr)
define("chr(int4) -> text")
register("to_hex", _to_hex)
define("to_hex(int4) -> text")
define("to_hex(int8) -> text")
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
_pad("lpad")
_pad("rpad")
define("lpad(text, int4, text) -> text")
define("rpad(text, int4, text) -> text")
register("repeat", "repeat({0}, {1})")
define("repeat(text, int4) -> text")
# DuckDB keeps what forms one letter together.
register("reverse", "reverse({0})", "array_to_string(list_reverse(string_split({0}, '')), '')")
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
register("regexp_like", _regexp_like)
register("regexp_count", _regexp_count)
register("regexp_match", _regexp_match, strict=False)
register("regexp_replace", _regexp_replace)
register("regexp_substring", _regexp_substring, strict=False)
