"""PostgreSQL's implicit conversions: common types, typed constants, exact decimals.

Sources: PostgreSQL 18 documentation chapter 10 (type conversion) and 4.1.2 (constants).
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.array_constants import constant_items
from pgtrickle_assets.query.functions.numbers import as_decimal
from pgtrickle_assets.query.intervals import parse_interval
from pgtrickle_assets.query.plan import Call, Cast, Expression, Literal
from pgtrickle_assets.query.types import (
    BOOLEAN,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    MAX_DECIMAL_PRECISION,
    UNKNOWN,
    VARCHAR,
    ColumnType,
    decimal,
    list_of,
)

NUMERIC_ORDER = ("int16", "int32", "int64", "decimal", "float32", "float64")
"""Implicit numeric conversions go from left to right only."""
DATETIME_ORDER = ("date", "timestamp", "timestamptz")

_NAMES = {
    "boolean": "boolean", "int16": "smallint", "int32": "integer", "int64": "bigint", "float32": "real",
    "float64": "double precision", "varchar": "text", "blob": "bytea", "date": "date", "time": "time",
    "timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone", "uuid": "uuid",
    "json": "jsonb", "interval": "interval", "unknown": "unknown",
}  # fmt: skip


def postgres_name(kind: ColumnType) -> str:
    """The name under which users of PostgreSQL know a type."""
    if kind.name == "decimal":
        return f"numeric({kind.precision},{kind.scale})"
    if kind.element is not None:
        return f"{postgres_name(kind.element)}[]"
    return _NAMES[kind.name]


def is_unknown_text(expression: Expression) -> bool:
    """Whether this is a quoted constant (or NULL) whose type the context decides."""
    return isinstance(expression, Literal) and expression.type == UNKNOWN


def constant_text(expression: Expression, what: str, line: int | None) -> str:
    """The text of a constant argument.

    Raises:
        QueryError: It is not a constant.
    """
    if isinstance(expression, Literal) and expression.type in (UNKNOWN, VARCHAR) and expression.value is not None:
        return str(expression.value)
    raise QueryError(f"{what} must be a constant", line=line)


def number_literal(text: str, *, negative: bool = False) -> Literal:
    """A numeric constant as PostgreSQL types it: integer, bigint, or numeric with the written digits."""
    if re.fullmatch(r"\d+", text):
        value = -int(text) if negative else int(text)
        if _fits(value, INT32):
            return Literal(value, INT32)
        if _fits(value, INT64):
            return Literal(value, INT64)
    text = f"-{text}" if negative else text
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    scale = max(-exponent, 0) if isinstance(exponent, int) else 0
    plain = f"{number:f}"
    return decimal_literal(plain, scale)


def decimal_literal(plain: str, scale: int) -> Literal:
    """A numeric constant from its plain notation."""
    integers = len(plain.lstrip("-").partition(".")[0].lstrip("0"))
    precision = max(integers + scale, 1)
    if precision > MAX_DECIMAL_PRECISION:
        shown = plain if len(plain) < 50 else f"{plain[:20]}..."
        raise QueryError(f"the number {shown} has more than {MAX_DECIMAL_PRECISION} digits, which Spark cannot hold")
    return Literal(plain, decimal(precision, scale))


def literal_as_decimal(literal: Literal) -> Literal:
    """An integer constant as a numeric of just its digits; other constants unchanged."""
    if literal.type.is_integer and literal.value is not None:
        return decimal_literal(str(literal.value), 0)
    return literal


def merge_decimals(kinds: Sequence[ColumnType]) -> ColumnType:
    """The decimal that holds all digits of the given integer and decimal types, as far as 38 go (scale first)."""
    parts = [as_decimal(kind) for kind in kinds]
    scale = max(part.scale or 0 for part in parts)
    integers = max((part.precision or 0) - (part.scale or 0) for part in parts)
    return decimal(max(min(integers + scale, MAX_DECIMAL_PRECISION), 1), scale)


def common_type(kinds: Sequence[ColumnType]) -> ColumnType | None:
    """The type that UNION, CASE, COALESCE, VALUES, ARRAY, IN and comparisons give their operands, or None.

    Constants of unknown type do not count; all unknown means text.
    """
    known = [kind for kind in kinds if kind != UNKNOWN]
    if not known:
        return VARCHAR
    if all(kind == known[0] for kind in known):
        return known[0]
    if all(kind.is_numeric for kind in known):
        return _common_number(known)
    for order in (DATETIME_ORDER, ("varchar", "uuid"), ("varchar", "json")):
        if all(kind.name in order for kind in known):
            if order is DATETIME_ORDER:
                return ColumnType(max((kind.name for kind in known), key=order.index))
            return None
    if all(kind.element is not None for kind in known):
        element = common_type([kind.element for kind in known if kind.element is not None])
        return None if element is None else list_of(element)
    return None


def _common_number(kinds: Sequence[ColumnType]) -> ColumnType:
    highest = max((kind.name for kind in kinds), key=NUMERIC_ORDER.index)
    if highest == "decimal":
        return merge_decimals(kinds)
    if highest in ("float32", "float64"):
        # real meets anything but real as double precision
        return FLOAT32 if all(kind == FLOAT32 for kind in kinds) else FLOAT64
    return ColumnType(highest)


def can_convert(source: ColumnType, target: ColumnType) -> bool:
    """Whether PostgreSQL converts implicitly in a function call."""
    if source in (target, UNKNOWN):
        return True
    if source.name in NUMERIC_ORDER and target.name in NUMERIC_ORDER:
        return NUMERIC_ORDER.index(source.name) <= NUMERIC_ORDER.index(target.name)
    if source.name in DATETIME_ORDER and target.name in DATETIME_ORDER:
        return DATETIME_ORDER.index(source.name) <= DATETIME_ORDER.index(target.name)
    if source.element is not None and target.element is not None:
        return source.element == target.element or source.element == UNKNOWN
    return False


def convert(expression: Expression, target: ColumnType, *, line: int | None = None) -> Expression:
    """The expression as a value of `target`; constants are converted now, so that a wrong one is an error at load."""
    if expression.type == target:
        return expression
    if isinstance(expression, Literal):
        return _convert_literal(expression, target, line)
    return Cast(expression, target)


def _convert_literal(literal: Literal, target: ColumnType, line: int | None) -> Expression:
    if literal.value is None:
        return Literal(None, target)
    if literal.type == UNKNOWN:
        return parse_constant(str(literal.value), target, line=line)
    if literal.type.is_integer and target.is_integer:
        return Literal(literal.value, target) if _fits(int(literal.value), target) else Cast(literal, target)
    if literal.type.name in ("int16", "int32", "int64", "decimal") and target.name == "decimal":
        exact = exact_decimal(str(literal.value), target)
        return Cast(literal, target) if exact is None else exact
    if literal.type.name in ("int16", "int32", "int64", "decimal") and target.is_float:
        return Literal(repr(float(str(literal.value))), target)
    return Cast(literal, target)


def exact_decimal(text: str, target: ColumnType) -> Literal | None:
    """The constant as a value of a decimal type, when it fits without rounding."""
    number = Decimal(text)
    precision, scale = target.precision or 0, target.scale or 0
    digits = f"{number:f}"
    whole, _, fraction = digits.lstrip("-").partition(".")
    if len(fraction.rstrip("0")) > scale or len(whole.lstrip("0")) > precision - scale:
        return None
    fraction = fraction.rstrip("0").ljust(scale, "0")
    sign = "-" if digits.startswith("-") else ""
    return Literal(f"{sign}{whole}.{fraction}" if scale else f"{sign}{whole}", target)


def _fits(value: int, target: ColumnType) -> bool:
    bits = {"int16": 15, "int32": 31, "int64": 63}[target.name]
    return -(2**bits) <= value < 2**bits


def parse_constant(text: str, target: ColumnType, *, line: int | None = None) -> Expression:
    """A quoted constant read as a value of `target`.

    Raises:
        QueryError: The text is not a value of that type.
    """
    try:
        return _parse(text, target)
    except (ValueError, InvalidOperation) as error:
        raise QueryError(f"invalid input syntax for type {postgres_name(target)}: '{text}'", line=line) from error


def _parse(text: str, target: ColumnType) -> Expression:
    stripped = text.strip()
    name = target.name
    if name in ("varchar", "json", "unknown"):
        return Literal(text, target)
    if name == "boolean":
        return Literal(_boolean(stripped), BOOLEAN)
    if target.is_integer:
        value = int(stripped)
        if not _fits(value, target):
            raise ValueError(text)
        return Literal(value, target)
    if name == "decimal":
        exact = exact_decimal(stripped, target)
        return exact if exact is not None else Cast(_decimal_of(stripped), target)
    if target.is_float:
        return Literal(repr(float(stripped)), target)
    if name == "date":
        return Literal(_date(stripped).isoformat(), target)
    if name in ("timestamp", "timestamptz"):
        return Literal(_timestamp(stripped, zoned=name == "timestamptz"), target)
    if name == "time":
        return Literal(datetime.time.fromisoformat(stripped).isoformat(), target)
    if name == "uuid":
        return Literal(str(uuid.UUID(stripped)), target)
    if name == "interval":
        return Literal(parse_interval(stripped).text(), target)
    if name == "blob" and stripped.startswith("\\x"):
        return Literal(bytes.fromhex(stripped[2:]).hex(), target)
    if target.element is not None:
        items = tuple(convert(Literal(item, UNKNOWN), target.element) for item in constant_items(stripped))
        return Call("array", items, target, nullable=False)
    raise ValueError(text)


def _decimal_of(text: str) -> Literal:
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(text)
    return decimal_literal(f"{number:f}", max(-exponent, 0))


def numeric_constant(text: str) -> Literal:
    """A quoted constant read as an unconstrained numeric: the digits that are written."""
    return _decimal_of(text.strip())


def _boolean(text: str) -> bool:
    lowered = text.lower()
    for value, words in ((True, ("true", "yes", "on", "1")), (False, ("false", "no", "off", "0"))):
        if lowered and any(word.startswith(lowered) for word in words) and lowered != "o":
            return value
    raise ValueError(text)


def _date(text: str) -> datetime.date:
    match = re.fullmatch(r"(\d{4})-(\d{1,2})-(\d{1,2})", text) or re.fullmatch(r"(\d{4})(\d\d)(\d\d)", text)
    if match is None:
        return datetime.datetime.fromisoformat(text).date()
    year, month, day = (int(part) for part in match.groups())
    return datetime.date(year, month, day)


def _timestamp(text: str, *, zoned: bool) -> str:
    match = re.fullmatch(r"(\d{4}-\d{1,2}-\d{1,2})(?:[ T](.+))?", text)
    if match is None:
        raise ValueError(text)
    day, clock = _date(match.group(1)), match.group(2) or "00:00:00"
    clock = re.sub(r"\s*(utc|z)$", "+00:00", clock.strip(), flags=re.IGNORECASE)
    clock = re.sub(r"([+-]\d\d)$", r"\1:00", clock)
    clock = re.sub(r"^(\d):", r"0\1:", clock)
    clock = re.sub(r"(\.\d{1,6})\d*", lambda m: m.group(1).ljust(7, "0"), clock)
    value = datetime.datetime.fromisoformat(f"{day.isoformat()}T{clock}")
    if zoned:
        value = value.astimezone(datetime.UTC) if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        return value.isoformat(sep=" ")
    return value.replace(tzinfo=None).isoformat(sep=" ")
