"""Partition keys, the rows they mean and the lake's transforms agree with each other."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.lake.partition_values import transform_values
from pgtrickle_assets.partitions import (
    ALL_KEY,
    NULL_KEY,
    PartitionBy,
    PartitionSlice,
    canonical_keys,
    count_by_key,
    key_of,
    lake_partition_fields,
    parse_partition_by,
    parse_time_key,
    same_partitioning,
    slice_of,
)
from pgtrickle_assets.query.types import BOOLEAN, DATE, INT64, TIMESTAMP, VARCHAR, decimal


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("day(order_date)", PartitionBy("day", "order_date")),
        ("DAY( Order_Date )", PartitionBy("day", "order_date")),
        ('month("Order ""x""")', PartitionBy("month", 'Order "x"')),
        ("value(region)", PartitionBy("value", "region")),
        ("value(region, [EU, 'U S', \"x\"])", PartitionBy("value", "region", ("EU", "U S", "x"))),
        ("value(region, ['it''s'])", PartitionBy("value", "region", ("it's",))),
        ("bucket(3, id)", PartitionBy("bucket", "id", ("0", "1", "2"))),
        ('Bucket( 2 ,"Id")', PartitionBy("bucket", "Id", ("0", "1"))),
    ],
)
def test_forms(text, expected):
    assert parse_partition_by(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "day",
        "day()",
        "day(a, b)",
        "bucket(c)",
        "bucket(0, c)",
        "bucket(5000, c)",
        "bucket(c, 4)",
        "bucket(4, c, [a])",
        "day(4, c)",
        "value(c, [])",
        "value(c, [a, a])",
        "value(c, [a b', c])",
        "value(c, [.a])",
    ],
)
def test_anything_else_is_an_error(text):
    with pytest.raises(ConfigurationError):
        parse_partition_by(text)


@pytest.mark.parametrize(
    ("kind", "key", "lower", "upper"),
    [
        ("hour", "2024-07-01-23:00", datetime(2024, 7, 1, 23), datetime(2024, 7, 2)),
        ("day", "2024-02-29", datetime(2024, 2, 29), datetime(2024, 3, 1)),
        ("week", "2024-07-01", datetime(2024, 7, 1), datetime(2024, 7, 8)),
        ("month", "2024-12-01", datetime(2024, 12, 1), datetime(2025, 1, 1)),
    ],
)
def test_a_time_key_is_a_half_open_window(kind, key, lower, upper):
    assert slice_of(PartitionBy(kind, "c"), key) == PartitionSlice("c", lower=lower, upper=upper)


def test_null_has_a_key_of_its_own():
    for by in (PartitionBy("day", "c"), PartitionBy("value", "c", ("a",))):
        assert key_of(by, None) == NULL_KEY
        assert slice_of(by, NULL_KEY) == PartitionSlice("c", is_null=True)


def test_a_key_of_another_unit_is_refused():
    with pytest.raises(ConfigurationError, match="not a day partition"):
        parse_time_key(PartitionBy("day", "c"), "2024-07")


@pytest.mark.parametrize(
    ("by", "kind", "written", "stored"),
    [
        (PartitionBy("day", "c"), DATE, "2024-7-1", "2024-07-01"),
        (PartitionBy("week", "c"), DATE, "2024-07-01", "2024-07-01"),
        (PartitionBy("hour", "c"), TIMESTAMP, "2024-07-01-5:00", "2024-07-01-05:00"),
        (PartitionBy("day", "c"), DATE, NULL_KEY, NULL_KEY),
        (PartitionBy("value", "c", ("EU", "US")), VARCHAR, "EU", "EU"),
        (PartitionBy("value", "c"), VARCHAR, "anything", "anything"),
        (PartitionBy("value", "c"), None, "007", "007"),
        (PartitionBy("value", "c"), INT64, "007", "7"),
        (PartitionBy("value", "c"), DATE, "20240701", "2024-07-01"),
        (PartitionBy("value", "c"), decimal(6, 2), "1.5", "1.50"),
        (PartitionBy("value", "c"), BOOLEAN, "true", "true"),
        (None, None, ALL_KEY, ALL_KEY),
    ],
)
def test_a_key_that_a_user_names_is_spelled_as_it_is_stored(by, kind, written, stored):
    assert canonical_keys(by, [written, stored], stream_table="gold.t", kind=kind) == (stored,)


@pytest.mark.parametrize(
    ("by", "kind", "key", "hint"),
    [
        (PartitionBy("day", "c"), DATE, "nonsense", "A day looks like 2024-07-01"),
        (PartitionBy("day", "c"), DATE, "2024-07-01 12:00", "Did you mean '2024-07-01'?"),
        (PartitionBy("week", "c"), DATE, "2024-07-03", "Did you mean '2024-07-01'?"),
        (PartitionBy("month", "c"), DATE, "2024-07", "Did you mean '2024-07-01'?"),
        (PartitionBy("hour", "c"), TIMESTAMP, "2024-07-01", "Did you mean '2024-07-01-00:00'?"),
        (PartitionBy("hour", "c"), TIMESTAMP, "2024-07-01-05:30", "Did you mean '2024-07-01-05:00'?"),
        (PartitionBy("value", "c", ("EU", "US")), VARCHAR, "EUR", "Did you mean 'EU'?"),
        (PartitionBy("value", "c"), INT64, "nonsense", "of type int64"),
        (PartitionBy("value", "c"), BOOLEAN, "yes", "'true' or 'false'"),
        (PartitionBy("value", "c"), decimal(6, 2), "1.505", r"of type decimal\(6,2\)"),
        (PartitionBy("value", "c"), VARCHAR, "a,b", "no comma"),
        (None, None, "nonsense", "its one partition is 'all'"),
    ],
)
def test_a_key_that_no_row_can_have_is_refused_with_what_to_write(by, kind, key, hint):
    with pytest.raises(ConfigurationError, match=f"'{key}' is not a partition of gold.t.*{hint.replace('?', '.')}"):
        canonical_keys(by, [key], stream_table="gold.t", kind=kind)


def test_naming_no_partition_is_refused():
    with pytest.raises(ConfigurationError, match=r"no partition of gold\.t"):
        canonical_keys(PartitionBy("day", "c"), [], stream_table="gold.t")


@given(st.sampled_from(["hour", "day", "week", "month"]), st.datetimes(datetime(2, 1, 1), datetime(9999, 11, 30)))
def test_each_moment_lies_in_the_window_of_its_key(kind, moment):
    by = PartitionBy(kind, "c")
    window = slice_of(by, key_of(by, moment))
    assert window.lower <= moment < window.upper
    assert key_of(by, window.lower) == key_of(by, moment)
    assert key_of(by, window.upper) != key_of(by, moment)


def test_a_time_with_zone_is_placed_in_utc():
    late = datetime(2024, 7, 1, 23, 30, tzinfo=timezone(timedelta(hours=-2)))
    assert key_of(PartitionBy("day", "c"), late) == "2024-07-02"
    assert key_of(PartitionBy("day", "c"), late.astimezone(UTC)) == "2024-07-02"


@pytest.mark.parametrize(
    ("value", "key"),
    [("EU", "EU"), (True, "true"), (7, "7"), (date(2024, 7, 1), "2024-07-01"), (Decimal("1.50"), "1.50")],
)
def test_a_value_key_is_the_text_of_the_value(value, key):
    assert key_of(PartitionBy("value", "c"), value) == key


def test_rows_are_counted_by_key():
    column = pa.chunked_array([[date(2024, 7, 1), None], [date(2024, 7, 1), date(2024, 8, 1)]])
    assert count_by_key(PartitionBy("month", "c"), column, 4) == {"2024-07-01": 2, NULL_KEY: 1, "2024-08-01": 1}
    assert count_by_key(None, None, 4) == {ALL_KEY: 4}
    assert count_by_key(None, None, 0) == {}


def test_a_day_is_kept_apart_in_the_lake_by_year_month_and_day():
    assert lake_partition_fields(PartitionBy("day", "d")) == (("d", "year"), ("d", "month"), ("d", "day"))
    assert lake_partition_fields(PartitionBy("value", "d")) == (("d", "identity"),)
    assert lake_partition_fields(None) == ()


def test_tables_map_one_to_one_only_with_the_same_keys():
    assert same_partitioning(PartitionBy("day", "a"), PartitionBy("day", "b"))
    assert same_partitioning(None, None)
    assert not same_partitioning(PartitionBy("day", "a"), PartitionBy("month", "a"))
    assert not same_partitioning(PartitionBy("value", "a", ("x",)), PartitionBy("value", "a", ("y",)))
    assert not same_partitioning(None, PartitionBy("day", "a"))


def test_a_bucket_is_the_number_that_the_lake_writes():
    by = parse_partition_by("bucket(4, c)")
    assert lake_partition_fields(by) == (("c", "bucket(4)"),)
    values = [1, 2, 3, 3, -(2**63), 2**63 - 1, None]
    counts = count_by_key(by, pa.chunked_array([pa.array(values)]), len(values))
    lake = transform_values(pa.array(values), INT64, "bucket(4)").to_pylist()
    assert counts == Counter(NULL_KEY if number is None else number for number in lake)


def test_the_rows_of_a_bucket_are_told_by_its_number_and_those_without_value_by_null():
    by = parse_partition_by("bucket(4, c)")
    assert slice_of(by, "3") == PartitionSlice("c", value="3", buckets=4)
    assert slice_of(by, NULL_KEY) == PartitionSlice("c", is_null=True)
    assert canonical_keys(by, ["3", NULL_KEY], stream_table="t") == ("3", NULL_KEY)
    with pytest.raises(ConfigurationError):
        canonical_keys(by, ["4"], stream_table="t")


def test_buckets_of_other_columns_or_counts_do_not_map_to_each_other():
    left = parse_partition_by("bucket(4, a)")
    assert same_partitioning(left, parse_partition_by("bucket(4, a)"))
    assert not same_partitioning(left, parse_partition_by("bucket(4, b)"))
    assert not same_partitioning(left, parse_partition_by("bucket(8, a)"))
    assert not same_partitioning(left, parse_partition_by("value(a, [0, 1, 2, 3])"))
