"""Dates, times and intervals under session time zone UTC.

Source: PostgreSQL 18 documentation 9.9; weeks and their years are ISO 8601, day of week counts from Sunday = 0.
"""

from __future__ import annotations

from pgtrickle_assets.query.functions.ages import age, age_span, extract_age, is_age
from pgtrickle_assets.query.functions.instants import MICROS_PER_DAY, micros, scaled
from pgtrickle_assets.query.functions.registry import Emission, register
from pgtrickle_assets.query.functions.signatures import define
from pgtrickle_assets.query.intervals import parse_interval
from pgtrickle_assets.query.plan import Literal
from pgtrickle_assets.query.types import DATE, TIMESTAMP


def field_text(field: str, text: str, kind: str, *, spark: bool) -> str:
    """A calendar field as a whole number."""
    if not spark and kind == "timestamptz":
        text, kind = f"({text} AT TIME ZONE 'UTC')", "timestamp"
    match field:
        case "year" | "month" | "day" | "hour" | "minute" | "quarter":
            return f"{field}({text})"
        case "week":
            return f"weekofyear({text})"
        case "dow":
            return f"(dayofweek({text}) - 1)" if spark else f"dayofweek({text})"
        case "isodow":
            return f"(weekday({text}) + 1)" if spark else f"isodow({text})"
        case "doy":
            return f"dayofyear({text})"
        case "isoyear":
            return f"extract(YEAROFWEEK FROM {text})" if spark else f"isoyear({text})"
        case "decade":
            return f"CAST(floor(year({text}) / 10) AS INT)"
        case "century":
            return f"CAST(floor((year({text}) + 99) / 100) AS INT)"
        case "millennium":
            return f"CAST(floor((year({text}) + 999) / 1000) AS INT)"
        case _:
            raise KeyError(field)


INTEGER_FIELDS = (
    "year", "month", "day", "hour", "minute", "quarter", "week", "dow", "isodow", "doy", "isoyear", "decade", "century",
    "millennium",
)  # fmt: skip
FRACTION_FIELDS = ("second", "milliseconds", "microseconds", "epoch", "julian")


def _extract(emission: Emission) -> str:
    field = _field(emission)
    text, source, kind = emission.args[1], emission.types[1], emission.call.type
    spark = emission.spark
    target = emission.writer.cast
    if source.name == "interval":
        return _extract_interval(field, emission)
    if field in INTEGER_FIELDS:
        whole = f"CAST({field_text(field, text, source.name, spark=spark)} AS BIGINT)"
        return f"CAST({whole} AS {_type(emission)})"
    total = micros(text, source.name, spark=spark)
    minute = f"pmod({total}, 60000000)" if spark else f"(({total} % 60000000 + 60000000) % 60000000)"
    del target, kind
    match field:
        case "epoch":
            return scaled(total, 6, _type(emission))
        case "second":
            return scaled(minute, 6, _type(emission))
        case "milliseconds":
            return scaled(minute, 3, _type(emission))
        case "microseconds":
            return scaled(minute, 0, _type(emission))
        case _:
            raise KeyError(field)


def _field(emission: Emission) -> str:
    literal = emission.call.args[0]
    assert isinstance(literal, Literal)
    return str(literal.value)


def _type(emission: Emission) -> str:
    kind = emission.call.type
    if kind.name == "decimal":
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return "DOUBLE"


def _extract_interval(field: str, emission: Emission) -> str:
    """Fields of the difference of two timestamps: whole days and a time, as PostgreSQL keeps it."""
    divide = "div" if emission.spark else "//"
    if is_age(emission, 1):
        return extract_age(field, emission, _type(emission))
    total = interval_micros(emission, 1)
    match field:
        case "epoch":
            return scaled(total, 6, _type(emission))
        case "day":
            return f"CAST({total} {divide} {MICROS_PER_DAY} AS {_type(emission)})"
        case "hour":
            return f"CAST(({total} % {MICROS_PER_DAY}) {divide} 3600000000 AS {_type(emission)})"
        case "minute":
            return f"CAST(({total} % 3600000000) {divide} 60000000 AS {_type(emission)})"
        case "second":
            return scaled(f"({total} % 60000000)", 6, _type(emission))
        case "milliseconds":
            return scaled(f"({total} % 60000000)", 3, _type(emission))
        case "microseconds":
            return scaled(f"({total} % 60000000)", 0, _type(emission))
        case _:
            return f"CAST(0 AS {_type(emission)})"


def interval_micros(emission: Emission, index: int) -> str:
    """Length in microseconds of an interval argument: a constant or a difference of timestamps."""
    arg = emission.call.args[index]
    if isinstance(arg, Literal) and arg.value is not None:
        return f"CAST({parse_interval(str(arg.value)).span} AS BIGINT)"
    text = emission.args[index]
    if is_age(emission, index):
        return age_span(emission, index)
    if emission.spark:
        minutes = f"(extract(DAY FROM {text}) * 1440L + extract(HOUR FROM {text}) * 60L + extract(MINUTE FROM {text}))"
        fraction = f"CAST(extract(SECOND FROM {text}) * 1000000 AS BIGINT)"
        return f"CAST({minutes} * 60000000L + {fraction} AS BIGINT)"
    return f"CAST(epoch_us({text}) AS BIGINT)"


def _interval_span(emission: Emission) -> str:
    return interval_micros(emission, 0)


def _timestamp_difference(emission: Emission) -> str:
    left, right = emission.args
    if emission.spark:
        return f"({left} - {right})"
    kind = emission.types[0].name
    if kind == "timestamptz":
        left, right = f"({left} AT TIME ZONE 'UTC')", f"({right} AT TIME ZONE 'UTC')"
    return f"({left} - {right})"


def _date_bin(emission: Emission) -> str:
    """The beginning of the stride that a moment lies in, counted from an origin in both directions."""
    stride = interval_micros(emission, 0)
    kind = emission.call.type
    source, origin = (micros(text, kind.name, spark=emission.spark) for text in emission.args[1:])
    apart = f"({source} - {origin})"
    rest = f"pmod({apart}, {stride})" if emission.spark else f"(({apart} % {stride} + {stride}) % {stride})"
    total = f"({source} - {rest})"
    if emission.spark:
        moment = f"timestamp_micros({total})"
        return moment if kind.name == "timestamptz" else f"CAST({moment} AS TIMESTAMP_NTZ)"
    return f"{'make_timestamptz' if kind.name == 'timestamptz' else 'make_timestamp'}({total})"


_FIRST_YEARS = {
    "decade": "floor({0} / 10) * 10",
    "century": "floor(({0} - 1) / 100) * 100 + 1",
    "millennium": "floor(({0} - 1) / 1000) * 1000 + 1",
}
"""First year of a period, from a year: decades begin with year 0, centuries and millennia with year 1."""


def _truncate(emission: Emission) -> str:
    field, text, kind = _field(emission), emission.args[1], emission.call.type
    if field in _FIRST_YEARS:
        # DuckDB has centuries begin with year 0, and Spark does not know them.
        moment = f"({text} AT TIME ZONE 'UTC')" if kind.name == "timestamptz" and not emission.spark else text
        first = _FIRST_YEARS[field].format(f"year({moment})")
        whole = "INT" if emission.spark else "BIGINT"
        return emission.writer.cast(f"make_date(CAST({first} AS {whole}), 1, 1)", DATE, kind)
    if not emission.spark:
        if kind.name == "timestamptz":
            return f"(date_trunc('{field}', {text} AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')"
        return f"CAST(date_trunc('{field}', {text}) AS TIMESTAMP)"
    unit = {"milliseconds": "MILLISECOND", "microseconds": "MICROSECOND"}.get(field, field.upper())
    # Spark truncates a timestamp with zone; under UTC the detour changes nothing.
    zoned = text if kind.name == "timestamptz" else f"CAST({text} AS TIMESTAMP)"
    truncated = f"date_trunc('{unit}', {zoned})"
    return truncated if kind == kind.__class__("timestamptz") else f"CAST({truncated} AS TIMESTAMP_NTZ)"


def _plus_interval(sign: str) -> None:
    def emit(emission: Emission) -> str:
        moment, span = emission.args
        kind = emission.types[0]
        if emission.spark:
            text = emission.writer.cast(moment, kind, TIMESTAMP) if kind.name == "date" else moment
            return f"({text} {sign} {span})"
        return f"({moment} {sign} {span})"

    register("plus_interval" if sign == "+" else "minus_interval", emit)


def _interval_times(emission: Emission) -> str:
    literal = emission.call.args[0]
    assert isinstance(literal, Literal)
    span = parse_interval(str(literal.value))
    factor = emission.args[1]
    if emission.spark:
        unit = f"CAST('{span.microseconds / 10**6:.6f}' AS DECIMAL(18, 6))"
        seconds = f"CAST(CAST({factor} AS DECIMAL(18, 0)) * {unit} AS DECIMAL(18, 6))"
        months, days = (f"CAST({n} * {factor} AS INT)" for n in (span.months, span.days))
        return f"make_interval(0, {months}, 0, {days}, 0, 0, {seconds})"
    return (
        f"(to_months(CAST({span.months} * {factor} AS INTEGER)) + to_days(CAST({span.days} * {factor} AS INTEGER)) + "
        f"to_microseconds({span.microseconds} * {factor}))"
    )


def _at_zone(emission: Emission) -> str:
    """A timestamp with zone seen in a zone, or a plain one read in it."""
    moment, zone = emission.args
    if not emission.spark:
        return f"({moment} AT TIME ZONE {zone})"
    if emission.types[0].name == "timestamptz":
        return f"CAST(from_utc_timestamp({moment}, {zone}) AS TIMESTAMP_NTZ)"
    # An hour that comes twice is the later one to PostgreSQL, the earlier to Spark: of the two readings, the one with
    # the offset of the next day is taken where it reads back the same.
    local = f"CAST({moment} AS TIMESTAMP)"
    later = f"to_utc_timestamp({local} + INTERVAL 1 DAY, {zone}) - INTERVAL 1 DAY"

    def body(names: tuple[str, ...]) -> str:
        (after,) = names
        return f"(CASE WHEN from_utc_timestamp({after}, {zone}) = {local} THEN {after} ELSE {earlier} END)"

    earlier = f"to_utc_timestamp({local}, {zone})"
    return emission.writer.let((later,), body)


def _pieces(emission: Emission) -> str:
    """to_char with a constant format: each field of the format becomes one text, put together."""
    literal = emission.call.args[1]
    assert isinstance(literal, Literal)
    text, kind = emission.args[0], emission.types[0].name
    parts = [_piece(piece, text, kind, emission) for piece in split_format(str(literal.value))]
    joined = ", ".join(parts) or "''"
    return f"concat({joined})" if emission.spark else f"({' || '.join(parts) or chr(39) * 2})"


_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
FORMATS = (
    "HH24", "HH12", "YYYY", "IYYY", "MONTH", "Month", "month", "DAY", "Day", "day", "MON", "Mon", "mon", "DDD", "DY",
    "Dy", "dy", "HH", "MI", "SS", "MS", "US", "YY", "MM", "DD", "ID", "IW", "AM", "PM", "am", "pm", "Q", "D",
)  # fmt: skip


def split_format(text: str) -> list[tuple[str, str, bool]]:
    """A to_char format as (kind, text, fill mode) pieces; kind is `field` or `literal`.

    Raises:
        ValueError: A field that is not supported.
    """
    pieces: list[tuple[str, str, bool]] = []
    index, fill = 0, False
    while index < len(text):
        if text.startswith("FM", index):
            fill, index = True, index + 2
            continue
        if text[index] == '"':
            end = text.find('"', index + 1)
            end = len(text) if end < 0 else end
            pieces.append(("literal", text[index + 1 : end], False))
            index = end + 1
            continue
        field = next((name for name in FORMATS if text.startswith(name, index)), None)
        if field is not None:
            pieces.append(("field", field, fill))
            index, fill = index + len(field), False
            continue
        if text[index].isalpha():
            raise ValueError(f"to_char format {text[index:]!r} is not supported")
        pieces.append(("literal", text[index], False))
        index += 1
    return pieces


def _piece(piece: tuple[str, str, bool], text: str, kind: str, emission: Emission) -> str:
    what, value, fill = piece
    spark = emission.spark
    if what == "literal":
        from pgtrickle_assets.query.render_types import text_literal

        return text_literal(value, emission.writer.dialect)
    if value.upper() in ("MONTH", "MON", "DAY", "DY"):
        return _name_of(value, fill, text, kind, spark=spark)

    def number(field: str) -> str:
        return field_text(field, text, kind, spark=spark)

    def padded(number_text: str, width: int) -> str:
        string = f"CAST({number_text} AS {'STRING' if spark else 'VARCHAR'})"
        return string if fill else f"lpad({string}, CAST(greatest({width}, length({string})) AS INT), '0')"

    total = micros(text, kind, spark=spark)
    divide = "div" if spark else "//"
    second = (
        f"(pmod({total}, 60000000) div 1000000)"
        if spark
        else f"((({total} % 60000000 + 60000000) % 60000000) // 1000000)"
    )
    fraction = f"pmod({total}, 1000000)" if spark else f"(({total} % 1000000 + 1000000) % 1000000)"
    simple = {
        "YYYY": ("year", 4), "IYYY": ("isoyear", 4), "MM": ("month", 2), "DD": ("day", 2), "DDD": ("doy", 3),
        "HH24": ("hour", 2), "MI": ("minute", 2), "Q": ("quarter", 1), "ID": ("isodow", 1), "IW": ("week", 2),
    }  # fmt: skip
    if value in simple:
        field, width = simple[value]
        return padded(number(field), width)
    match value:
        case "HH" | "HH12":
            return padded(f"(({number('hour')} + 11) % 12 + 1)", 2)
        case "YY":
            return padded(f"({number('year')} % 100)", 2)
        case "SS":
            return padded(second, 2)
        case "MS":
            return padded(f"({fraction} {divide} 1000)", 3)
        case "US":
            return padded(fraction, 6)
        case "D":
            return padded(f"({number('dow')} + 1)", 1)
        case _:
            upper = f"(CASE WHEN {number('hour')} < 12 THEN 'AM' ELSE 'PM' END)"
            return upper if value.isupper() else f"lower{upper}"


def _name_of(value: str, fill: bool, text: str, kind: str, *, spark: bool) -> str:
    month = value.upper() in ("MONTH", "MON")
    words = list(_MONTHS if month else _DAYS)
    short = len(value) < 4 and value.upper() != "DAY"
    if short:
        words = [word[:3] for word in words]
    elif not fill:
        words = [word.ljust(9) for word in words]
    if value.isupper():
        words = [word.upper() for word in words]
    elif value.islower():
        words = [word.lower() for word in words]
    number = field_text("month" if month else "dow", text, kind, spark=spark)
    branches = " ".join(f"WHEN {i + (1 if month else 0)} THEN '{word}'" for i, word in enumerate(words))
    return f"(CASE {number} {branches} END)"


register("extract", _extract)
register("age", age, strict=False)
register("timestamp_difference", _timestamp_difference)
register("interval_span", _interval_span)
register("date_trunc", _truncate)
define("date_trunc(text, timestamptz) -> timestamptz")
define("date_trunc(text, timestamp) -> timestamp")
_plus_interval("+")
_plus_interval("-")
register("interval_times", _interval_times)
register("plus_days", "date_add({0}, {1})", "({0} + {1})")
register("minus_days", "date_sub({0}, {1})", "({0} - {1})")
register("date_difference", "datediff({0}, {1})", "CAST(({0} - {1}) AS INTEGER)")
register("at_time_zone", _at_zone)
register("date_bin", _date_bin)
register(
    "make_timestamp",
    "make_timestamp_ntz({0}, {1}, {2}, {3}, {4}, CAST({5} AS DECIMAL(16, 6)))",
    "make_timestamp({args})",
)
register("make_date", "make_date({0}, {1}, {2})")
define("make_date(int4, int4, int4) -> date")
register(
    "to_timestamp",
    "timestamp_micros(CAST(rint({0} * 1000000D) AS BIGINT))",
    "make_timestamptz(CAST(round_even({0} * 1000000, 0) AS BIGINT))",
)
define("to_timestamp(float8) -> timestamptz")
register("to_char", _pieces)
define("to_char(timestamp, text) -> text")
define("to_char(timestamptz, text) -> text")
register("now", "current_timestamp()", "now()", volatility="stable")
define("now() -> timestamptz", volatility="stable")
define("transaction_timestamp() -> timestamptz", canonical="now", volatility="stable")
define("statement_timestamp() -> timestamptz", canonical="now", volatility="stable")
register("current_date", "current_date()", "CAST(now() AT TIME ZONE 'UTC' AS DATE)", volatility="stable")
register(
    "localtimestamp", "CAST(current_timestamp() AS TIMESTAMP_NTZ)", "(now() AT TIME ZONE 'UTC')", volatility="stable"
)
register("clock_timestamp", "current_timestamp()", "now()", volatility="volatile")
define("clock_timestamp() -> timestamptz", volatility="volatile")
