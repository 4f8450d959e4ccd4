from __future__ import annotations

import pyarrow as pa
import pytest

from pgtrickle_assets.errors import UnsupportedTypeError
from pgtrickle_assets.lake.types import arrow_type, column_type, duckdb_type, from_arrow, nodes, spark_type
from pgtrickle_assets.query import types as t

ALL = [
    t.BOOLEAN, t.INT16, t.INT32, t.INT64, t.FLOAT32, t.FLOAT64, t.VARCHAR, t.BLOB, t.DATE, t.TIME, t.TIMESTAMP,
    t.TIMESTAMPTZ, t.UUID, t.JSON, t.decimal(38, 18), t.list_of(t.list_of(t.decimal(5, 0))),
]  # fmt: skip


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_a_type_survives_the_catalog(kind: t.ColumnType) -> None:
    names = nodes(kind)
    found = column_type(names[-1])
    for name in reversed(names[:-1]):
        found = column_type(name, [found])
    assert found == kind


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_every_engine_has_a_name_for_every_type(kind: t.ColumnType) -> None:
    assert spark_type(kind)
    assert duckdb_type(kind)
    expected = t.VARCHAR if kind.name in ("uuid", "json") else kind
    assert from_arrow(arrow_type(kind)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("int8", t.INT16),
        ("uint8", t.INT16),
        ("uint32", t.INT64),
        ("uint64", t.decimal(20, 0)),
        ("timestamp_s", t.TIMESTAMP),
    ],
)
def test_foreign_types_that_fit_are_widened(name: str, expected: t.ColumnType) -> None:
    assert column_type(name) == expected


@pytest.mark.parametrize(
    "name", ["int128", "struct", "map", "interval", "timestamp_ns", "timetz", "geometry", "variant", "list"]
)
def test_types_that_don_t_fit_are_not_carried(name: str) -> None:
    assert column_type(name) is None


@pytest.mark.parametrize("kind", [t.UNKNOWN, t.INTERVAL], ids=str)
def test_expression_types_are_not_stored(kind: t.ColumnType) -> None:
    for convert in (spark_type, duckdb_type, arrow_type, nodes):
        with pytest.raises(UnsupportedTypeError):
            convert(kind)


def test_an_arrow_type_without_counterpart_is_an_error() -> None:
    for kind in (pa.timestamp("ns"), pa.uint64(), pa.struct([("x", pa.int32())])):
        with pytest.raises(UnsupportedTypeError):
            from_arrow(kind)
