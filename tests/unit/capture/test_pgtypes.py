import pytest

from pgtrickle_assets.capture.pgtypes import column_type, overridden, travel
from pgtrickle_assets.capture.source_table import PgType, SourceColumn
from pgtrickle_assets.errors import UnsupportedTypeError
from pgtrickle_assets.query import types as t
from pgtrickle_assets.query.types import TableName


def numeric(precision, scale):
    """A type modifier as PostgreSQL packs it."""
    return PgType("numeric", f"numeric({precision},{scale})", ((precision << 16) | (scale & 0x7FF)) + 4)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (PgType("bool", ""), t.BOOLEAN),
        (PgType("int8", ""), t.INT64),
        (PgType("bpchar", "", 9), t.VARCHAR),
        (PgType("enum", "mood"), t.VARCHAR),
        (PgType("jsonb", ""), t.JSON),
        (PgType("numeric", ""), t.decimal(38, 18)),
        (numeric(10, 2), t.decimal(10, 2)),
        (numeric(3, -2), t.decimal(5, 0)),
        (numeric(3, 5), t.decimal(5, 5)),
        (numeric(38, 38), t.decimal(38, 38)),
        (numeric(39, 2), None),
        (numeric(30, -10), None),
        (PgType("interval", ""), None),
        (PgType("other:geometry", ""), None),
        (PgType("array", "", -1, PgType("text", "")), t.list_of(t.VARCHAR)),
        (PgType("array", "", -1, numeric(4, 1)), t.list_of(t.decimal(4, 1))),
        (PgType("array", "", -1, PgType("interval", "")), None),
    ],
)
def test_lake_types(kind, expected):
    assert column_type(kind) == expected


def test_only_numerics_can_be_given_another_decimal():
    table = TableName("public", "t")
    assert overridden(table, "n", PgType("numeric", "numeric"), t.decimal(20, 4)) == t.decimal(20, 4)
    with pytest.raises(UnsupportedTypeError, match=r"column .n. of source table public\.t"):
        overridden(table, "n", PgType("text", "text"), t.decimal(20, 4))
    with pytest.raises(UnsupportedTypeError):
        overridden(table, "n", PgType("numeric", "numeric"), t.VARCHAR)


@pytest.mark.parametrize("name", ["json", "jsonb", "float4", "float8"])
def test_types_whose_equality_is_not_identity_are_grouped_by_more_than_the_value(name):
    column = SourceColumn("c", 1, t.JSON, PgType(name, name), 0, nullable=True)
    assert travel(column).keys != ("{}",)
