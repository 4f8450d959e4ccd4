from __future__ import annotations

import pyarrow as pa
import pytest

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.model import LakeColumn, LakeTable, PartitionField
from pgtrickle_assets.lake.partition_values import directory, murmur3_32, split, transform_values
from pgtrickle_assets.query import types as t
from pgtrickle_assets.query.types import TableName


def test_murmur3_matches_the_published_vectors():
    assert murmur3_32(b"") == 0
    assert murmur3_32(b"test") == 0xBA6BD213
    assert murmur3_32(b"Hello, world!") == 0xC0363E43


def test_rows_split_by_combination_with_null_as_a_value():
    keys = [pa.array(["a", "b", "a", None, None]), pa.array(["1", "1", "1", None, "1"])]
    found = {values: rows.to_pylist() for values, rows in split(keys, 5)}
    assert found == {("a", "1"): [0, 2], ("b", "1"): [1], (None, None): [3], (None, "1"): [4]}


def test_directories_are_named_like_duckdbs():
    fields = (PartitionField(1, "identity"), PartitionField(2, "month"), PartitionField(1, "bucket(4)"))
    table = LakeTable(
        1, TableName("s", "t"), (LakeColumn(1, "a b", t.VARCHAR), LakeColumn(2, "d", t.DATE)), "/t/", 1, 1, 1, fields
    )
    assert directory(table, ("x/=%", "3", None)) == "a%20b=x%2F%3D%25/month=3/bucket=__HIVE_DEFAULT_PARTITION__/"
    assert directory(table, ("", None, "0")) == "a%20b=/month=__HIVE_DEFAULT_PARTITION__/bucket=0/"


def test_an_unknown_transform_is_refused():
    with pytest.raises(LakeError, match="quarter"):
        transform_values(pa.array([1]), t.INT32, "quarter")
