"""Overloads of mathematical functions.

Source: PostgreSQL 18 documentation 9.3. An integer argument of a function that exists for numeric and double precision
goes to double precision, which is the preferred type.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.functions.registry import register
from pgtrickle_assets.query.functions.signatures import argument_type, define, merged_decimal
from pgtrickle_assets.query.plan import Expression, Literal
from pgtrickle_assets.query.types import MAX_DECIMAL_PRECISION, ColumnType, decimal


def _rounded(args: Sequence[Expression]) -> ColumnType:
    kind = args[0].type
    digits = args[1] if len(args) > 1 else None
    if digits is not None and not (isinstance(digits, Literal) and isinstance(digits.value, int)):
        raise QueryError("rounding to a number of digits that is not a constant is not supported")
    places = int(digits.value) if isinstance(digits, Literal) and isinstance(digits.value, int) else 0
    integers = (kind.precision or 0) - (kind.scale or 0) + 1
    scale = min(max(places, 0), MAX_DECIMAL_PRECISION - 1)
    return decimal(max(min(integers + scale, MAX_DECIMAL_PRECISION), scale, 1), scale)


for _kind in ("int2", "int4", "int8", "numeric", "float4", "float8"):
    define(f"abs({_kind})", argument_type(0))
define("ceil(numeric)", _rounded)
define("ceil(float8) -> float8")
define("ceiling(numeric)", _rounded, canonical="ceil")
define("ceiling(float8) -> float8", canonical="ceil")
define("floor(numeric)", _rounded)
define("floor(float8) -> float8")
define("round(numeric)", _rounded, canonical="round_decimal")
define("round(numeric, int4)", _rounded, canonical="round_decimal")
define("round(float8) -> float8", canonical="round_float")
# PostgreSQL has none; Spark and DuckDB do, and whoever casts to double before rounding means it.
define("round(float8, int4) -> float8", canonical="round_float_places")
define("trunc(numeric)", _rounded)
define("trunc(numeric, int4)", _rounded)
define("trunc(float8) -> float8")
define("sign(numeric)", lambda args: decimal(1, 0), canonical="sign_decimal")
define("sign(float8) -> float8", canonical="sign_float")
for _kind in ("int2", "int4", "int8"):
    define(f"mod({_kind}, {_kind})", argument_type(0), canonical="%")
define("mod(numeric, numeric)", merged_decimal, canonical="%")
for _kind in ("int4", "int8"):
    define(f"gcd({_kind}, {_kind})", argument_type(0))
define("gcd(numeric, numeric)", merged_decimal)
define("width_bucket(numeric, numeric, numeric, int4) -> int4")
define("width_bucket(float8, float8, float8, int4) -> int4")
define("factorial(int8)", lambda args: decimal(MAX_DECIMAL_PRECISION, 0))
define("min_scale(numeric) -> int4")
for _name in ("sqrt", "cbrt", "exp", "ln", "degrees", "radians"):
    define(f"{_name}(float8) -> float8")
define("log(float8) -> float8", canonical="log10")
define("log10(float8) -> float8")
define("power(float8, float8) -> float8")
define("pow(float8, float8) -> float8", canonical="power")
define("pi() -> float8")
for _name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"):
    define(f"{_name}(float8) -> float8")
define("atan2(float8, float8) -> float8")
register("random", "rand()", "random()", volatility="volatile")
define("random() -> float8", volatility="volatile")
register("gen_random_uuid", "uuid()", "CAST(gen_random_uuid() AS VARCHAR)", volatility="volatile")
define("gen_random_uuid() -> uuid", volatility="volatile")
define("uuidv4() -> uuid", canonical="gen_random_uuid", volatility="volatile")
