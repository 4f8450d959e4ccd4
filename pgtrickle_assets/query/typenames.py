"""Type names as written in a query."""

from __future__ import annotations

from sqlglot import exp

from pgtrickle_assets.errors import UnsupportedTypeError
from pgtrickle_assets.query.parse import line_of
from pgtrickle_assets.query.types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    INTERVAL,
    JSON,
    MAX_DECIMAL_PRECISION,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    ColumnType,
    decimal,
    list_of,
)

_TYPES = {
    "BOOLEAN": BOOLEAN, "SMALLINT": INT16, "INT": INT32, "BIGINT": INT64, "FLOAT": FLOAT32, "DOUBLE": FLOAT64,
    "TEXT": VARCHAR, "VARCHAR": VARCHAR, "CHAR": VARCHAR, "NAME": VARCHAR, "BPCHAR": VARCHAR, "NCHAR": VARCHAR,
    "VARBINARY": BLOB, "BINARY": BLOB, "BLOB": BLOB, "DATE": DATE, "TIME": TIME, "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP, "TIMESTAMPTZ": TIMESTAMPTZ, "UUID": UUID, "JSON": JSON, "JSONB": JSON,
    "INTERVAL": INTERVAL, "DATETIME": TIMESTAMP,
}  # fmt: skip


def _parameters(kind: exp.DataType) -> list[int]:
    found: list[int] = []
    for part in kind.expressions:
        if not isinstance(part, exp.DataTypeParam):
            continue
        number = part.this
        sign = 1
        if isinstance(number, exp.Neg):
            sign, number = -1, number.this
        found.append(sign * int(number.name))
    return found


def column_type(kind: exp.DataType) -> tuple[ColumnType | None, int | None]:
    """The type that a name stands for, and the length of a varchar(n) or char(n).

    Returns:
        (None, None) for `numeric` without precision: the digits of the value decide.

    Raises:
        QueryError: The type is not supported.
    """
    name = str(kind.this.name if hasattr(kind.this, "name") else kind.this)
    line = line_of(kind)
    parameters = _parameters(kind)
    if name in ("ARRAY", "LIST"):
        element = kind.expressions[0]
        inner, _ = column_type(element)
        return list_of(inner or decimal(MAX_DECIMAL_PRECISION, 18)), None
    if name == "DECIMAL":
        return _decimal(parameters, line), None
    if name == "DOUBLE" and parameters:
        return (FLOAT32 if parameters[0] < 25 else FLOAT64), None
    found = _TYPES.get(name)
    if found is None:
        raise UnsupportedTypeError(f"type {kind.sql(dialect='postgres').lower()} is not supported", line=line)
    if name in ("TIMESTAMP", "TIMESTAMPTZ", "TIME") and parameters and parameters[0] < 6:
        raise UnsupportedTypeError(
            f"{name.lower()}({parameters[0]}) is not supported", line=line, hint="Use precision 6."
        )
    if name in ("CHAR", "NCHAR", "BPCHAR"):
        raise UnsupportedTypeError(
            "casts to char(n) are not supported: its values are padded with blanks", line=line, hint="Use varchar(n)."
        )
    return found, parameters[0] if parameters and found is VARCHAR else None


def _decimal(parameters: list[int], line: int | None) -> ColumnType | None:
    if not parameters:
        return None
    precision = parameters[0]
    scale = parameters[1] if len(parameters) > 1 else 0
    if precision > MAX_DECIMAL_PRECISION or not 0 <= scale <= precision:
        raise UnsupportedTypeError(
            f"numeric({precision},{scale}) does not fit: Spark and DuckLake hold at most {MAX_DECIMAL_PRECISION} "
            "digits, with a scale between 0 and the precision",
            line=line,
        )
    return decimal(precision, scale)
