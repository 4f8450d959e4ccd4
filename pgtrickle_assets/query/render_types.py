"""Names of types and text of literals and casts, per engine.

Sources: PostgreSQL 18 documentation chapter 8 for what a cast means; Spark 4.3 SQL reference (ANSI mode) and DuckDB 1.5
for how to say it.
"""

from __future__ import annotations

from pgtrickle_assets.query.functions.registry import Dialect
from pgtrickle_assets.query.intervals import Interval, parse_interval
from pgtrickle_assets.query.plan import Literal
from pgtrickle_assets.query.types import ColumnType

_NAMES: dict[str, tuple[str, str]] = {
    "boolean": ("BOOLEAN", "BOOLEAN"),
    "int16": ("SMALLINT", "SMALLINT"),
    "int32": ("INT", "INTEGER"),
    "int64": ("BIGINT", "BIGINT"),
    "float32": ("FLOAT", "REAL"),
    "float64": ("DOUBLE", "DOUBLE"),
    "varchar": ("STRING", "VARCHAR"),
    "blob": ("BINARY", "BLOB"),
    "date": ("DATE", "DATE"),
    "time": ("TIME(6)", "TIME"),
    "timestamp": ("TIMESTAMP_NTZ", "TIMESTAMP"),
    "timestamptz": ("TIMESTAMP", "TIMESTAMPTZ"),
    "uuid": ("STRING", "UUID"),
    "json": ("STRING", "JSON"),
    "interval": ("INTERVAL", "INTERVAL"),
    "unknown": ("VOID", "INTEGER"),
}


def type_name(kind: ColumnType, dialect: Dialect) -> str:
    """The engine's name of a type."""
    if kind.name == "decimal":
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if kind.name == "list":
        assert kind.element is not None
        element = type_name(kind.element, dialect)
        return f"ARRAY<{element}>" if dialect == "spark" else f"{element}[]"
    spark, duckdb = _NAMES[kind.name]
    return spark if dialect == "spark" else duckdb


def identifier(name: str, dialect: Dialect) -> str:
    """A quoted identifier."""
    if dialect == "spark":
        return "`" + name.replace("`", "``") + "`"
    return '"' + name.replace('"', '""') + '"'


def text_literal(value: str, dialect: Dialect) -> str:
    """A string constant. Spark reads backslashes as escapes and ${...} as variables, so both are written as escapes."""
    if dialect == "duckdb":
        if "\n" not in value and "\r" not in value:
            return "'" + value.replace("'", "''") + "'"
        # On one line, so that the text of a query can be indented.
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return "E'" + escaped.replace("\n", "\\n").replace("\r", "\\r") + "'"
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0") + "'"


def literal(value: Literal, dialect: Dialect) -> str:
    """The text of a constant with its exact type."""
    kind = value.type
    if value.value is None:
        return "NULL" if kind.name in ("unknown", "interval") else f"CAST(NULL AS {type_name(kind, dialect)})"
    if kind.name == "boolean":
        return "TRUE" if value.value else "FALSE"
    if kind.is_integer:
        return _integer(int(value.value), kind, dialect)
    text = str(value.value)
    if kind.name == "decimal":
        return f"CAST('{text}' AS {type_name(kind, dialect)})"
    if kind.is_float or kind.name in ("uuid", "date", "time", "timestamp", "timestamptz"):
        return f"CAST('{text}' AS {type_name(kind, dialect)})"
    if kind.name == "blob":
        return f"X'{text}'" if dialect == "spark" else f"from_hex('{text}')"
    if kind.name == "interval":
        return interval_literal(parse_interval(text), dialect)
    quoted = text_literal(text, dialect)
    return f"CAST({quoted} AS JSON)" if kind.name == "json" and dialect == "duckdb" else quoted


def _integer(value: int, kind: ColumnType, dialect: Dialect) -> str:
    name = type_name(kind, dialect)
    if kind.name == "int32" and value > -(2**31) and dialect == "spark":
        return str(value) if value >= 0 else f"({value})"
    return f"CAST('{value}' AS {name})"


def interval_literal(value: Interval, dialect: Dialect) -> str:
    """Months, days and microseconds; both engines add the three parts in this order, as PostgreSQL does."""
    if dialect == "spark":
        seconds = f"CAST('{value.microseconds // 10**6}.{value.microseconds % 10**6:06d}' AS DECIMAL(18, 6))"
        if value.microseconds < 0:
            whole, part = divmod(-value.microseconds, 10**6)
            seconds = f"CAST('-{whole}.{part:06d}' AS DECIMAL(18, 6))"
        return f"make_interval(0, {value.months}, 0, {value.days}, 0, 0, {seconds})"
    parts = f"to_months({value.months}) + to_days({value.days})"
    return f"({parts} + to_microseconds({value.microseconds}))"


def cast_text(text: str, source: ColumnType, target: ColumnType, dialect: Dialect) -> str:
    """The text that converts a value as PostgreSQL does."""
    name = type_name(target, dialect)
    plain = f"CAST({text} AS {name})"
    if source.is_float and target.is_integer:
        # Half to even; both engines would truncate or round away from zero on their own.
        even = f"rint({text})" if dialect == "spark" else f"round_even({text}, 0)"
        return f"CAST({even} AS {name})"
    if source.is_float and target.name == "decimal":
        # PostgreSQL goes through the text with 15 (real: 6) significant digits.
        digits = 14 if source.name == "float64" else 5
        shown = f"format_string('%.{digits}e', {text})" if dialect == "spark" else f"printf('%.{digits}e', {text})"
        # Spark would show a NULL as the word null.
        return f"CAST(CASE WHEN {text} IS NOT NULL THEN {shown} END AS {name})"
    if source.name == "decimal" and target.is_integer:
        return f"CAST(round({text}, 0) AS {name})"
    if target.name == "varchar":
        return _to_text(text, source, dialect)
    if source.name == "timestamptz" and target.name in ("date", "timestamp", "time") and dialect == "duckdb":
        return f"CAST({text} AT TIME ZONE 'UTC' AS {name})"
    if target.name == "timestamptz" and source.name in ("date", "timestamp") and dialect == "duckdb":
        return f"(CAST({text} AS TIMESTAMP) AT TIME ZONE 'UTC')"
    if source.name == "varchar" and target.is_integer and dialect == "duckdb":
        # DuckDB would round '1.5'.
        whole = f"regexp_matches(trim({text}), '^[+-]?[0-9]+$') OR {text} IS NULL"
        return (
            f"CAST(CASE WHEN {whole} THEN trim({text}) ELSE error('invalid input syntax for an integer') END AS {name})"
        )
    if source.name == "varchar" and target.is_numeric:
        return f"CAST(trim({text}) AS {name})"
    if source.name == "varchar" and target.name == "boolean":
        return _boolean(text, dialect)
    return plain


def _boolean(text: str, dialect: Dialect) -> str:
    """The words that PostgreSQL reads as true and false, and their unique beginnings."""
    word = f"lower(trim({text}))"
    error = "raise_error" if dialect == "spark" else "error"
    wrong = f"CAST({error}('invalid input syntax for type boolean') AS BOOLEAN)"
    return (
        f"(CASE WHEN {word} IN ('t', 'tr', 'tru', 'true', 'y', 'ye', 'yes', 'on', '1') THEN TRUE "
        f"WHEN {word} IN ('f', 'fa', 'fal', 'fals', 'false', 'n', 'no', 'of', 'off', '0') THEN FALSE "
        f"WHEN {text} IS NOT NULL THEN {wrong} END)"
    )


def _to_text(text: str, source: ColumnType, dialect: Dialect) -> str:
    name = type_name(ColumnType("varchar"), dialect)
    if source.name == "timestamptz":
        if dialect == "duckdb":
            return f"(CAST({text} AT TIME ZONE 'UTC' AS VARCHAR) || '+00')"
        return f"concat(CAST({text} AS STRING), '+00')"
    if source.is_float:
        return _float_text(text, source, dialect)
    if dialect == "duckdb" and source.name == "decimal" and source.precision == source.scale:
        # DuckDB writes .05 where the type has no digit before the point.
        return f"regexp_replace(CAST({text} AS VARCHAR), '^(-?)[.]', '\\10.')"
    return f"CAST({text} AS {name})"


def _float_text(text: str, source: ColumnType, dialect: Dialect) -> str:
    """The shortest digits that read back the same, as PostgreSQL writes them: plain from 1e-4 to 1e15 (real: 1e6)."""
    spark = dialect == "spark"
    limit = "1e15" if source.name == "float64" else "1e6"
    string = f"CAST({text} AS {'STRING' if spark else 'VARCHAR'})"
    wide = f"CAST({string} AS DOUBLE)"
    decimal = f"CAST(CAST({wide if spark else string} AS DECIMAL(38, 22)) AS {'STRING' if spark else 'VARCHAR'})"
    pattern = text_literal(r"\.?0+$", dialect)
    plain = f"regexp_replace({decimal}, {pattern}, '')"
    # Both engines write some numbers without an exponent that PostgreSQL writes with one.
    sign = f"CASE WHEN {string} LIKE '-%' THEN '-' ELSE '' END"
    positive = f"replace({string}, '-', '')"
    point = f"length(split_part({positive}, '.', 1)) - 1"
    figures = f"regexp_replace(replace({positive}, '.', ''), {text_literal('0+$', dialect)}, '')"
    moved = f"concat({sign}, substring({figures}, 1, 1), '.', substring({figures}, 2))"
    has_power = f"upper({string}) LIKE '%E%'"
    written = f"CASE WHEN {has_power} THEN split_part(upper({string}), 'E', 1) ELSE {moved} END"
    ends = text_literal(r"\.0?$", dialect)
    mantissa = f"regexp_replace({written}, {ends}, '')"
    power = f"CASE WHEN {has_power} THEN CAST(nullif(split_part(upper({string}), 'E', 2), '') AS INT) ELSE {point} END"
    digits = f"lpad(CAST(abs({power}) AS {'STRING' if spark else 'VARCHAR'}), 2, '0')"
    scientific = f"concat({mantissa}, CASE WHEN {power} < 0 THEN 'e-' ELSE 'e+' END, {digits})"
    inside = f"abs({text}) >= 1e-4 AND abs({text}) < {limit}"
    infinite = f"CASE WHEN {text} > 0 THEN 'Infinity' ELSE '-Infinity' END"
    special = f"WHEN isnan({text}) THEN 'NaN' WHEN abs({text}) = CAST('Infinity' AS DOUBLE) THEN {infinite}"
    zero = f"WHEN {text} = 0 THEN CASE WHEN {string} LIKE '-%' THEN '-0' ELSE '0' END"
    return f"(CASE WHEN {text} IS NULL THEN NULL {special} {zero} WHEN {inside} THEN {plain} ELSE {scientific} END)"
