"""Every value arrives as it was, through a copy and through changes alike."""

import math
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from support import execute, table

from pgtrickle_assets.capture.postgres import PostgresSource
from pgtrickle_assets.errors import SourceValueError, UnsupportedTypeError
from pgtrickle_assets.query.types import decimal

T = table("t")
LONG = "ä\U0001f600\u0301" * 3000

CASES = {
    "boolean": ("boolean", ["true", "false"], [True, False]),
    "smallint": ("smallint", ["-32768", "32767"], [-(2**15), 2**15 - 1]),
    "integer": ("integer", ["-2147483648", "2147483647"], [-(2**31), 2**31 - 1]),
    "bigint": ("bigint", ["-9223372036854775808", "9223372036854775807"], [-(2**63), 2**63 - 1]),
    "real": (
        "real",
        ["1.1", "3.4028235e38", "1e-45", "-0"],
        [1.100000023841858, 3.4028234663852886e38, 1.401298464324817e-45, -0.0],
    ),
    "double": (
        "double precision",
        ["0.1", "1.7976931348623157e308", "5e-324", "Infinity", "-Infinity", "-0", "0"],
        [0.1, 1.7976931348623157e308, 5e-324, math.inf, -math.inf, -0.0, 0.0],
    ),
    "numeric_scaled": (
        "numeric(38,10)",
        ["9999999999999999999999999999.9999999999", "-0.0000000001", "0"],
        [Decimal("9999999999999999999999999999.9999999999"), Decimal("-0.0000000001"), Decimal("0E-10")],
    ),
    "numeric_bare": (
        "numeric",
        ["1.50", "12345678901234567890.000000000000000001", "1.5000000000000000000000000000000000000000"],
        [Decimal("1.5"), Decimal("12345678901234567890.000000000000000001"), Decimal("1.5")],
    ),
    "numeric_negative_scale": ("numeric(3,-2)", ["12345", "-99949"], [Decimal("12300"), Decimal("-99900")]),
    "numeric_small": ("numeric(3,5)", ["0.00123"], [Decimal("0.00123")]),
    "text": ("text", ["", " a ", "NULL", "\\N", '"', "\t\r\n", LONG], ["", " a ", "NULL", "\\N", '"', "\t\r\n", LONG]),
    "varchar": ("varchar(3)", ["a  ", "äöü"], ["a  ", "äöü"]),
    "char": ("char(5)", ["ab", ""], ["ab", ""]),
    "internal_char": ('"char"', ["x"], ["x"]),
    "name": ("name", ["n"], ["n"]),
    "bytea": ("bytea", ["\\x00ff", "\\x"], [b"\x00\xff", b""]),
    "date": (
        "date",
        ["0001-01-01", "9999-12-31", "1582-10-10"],
        [date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 10)],
    ),
    "time": ("time", ["00:00", "23:59:59.999999"], [time(0), time(23, 59, 59, 999999)]),
    "timestamp": (
        "timestamp",
        ["0001-01-01 00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999"],
        [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1969, 12, 31, 23, 59, 59, 999999)],
    ),
    "timestamptz": (
        "timestamptz",
        ["2024-03-31 02:30:00.000001+02", "1800-01-01 00:00+00"],
        [datetime(2024, 3, 31, 0, 30, 0, 1, UTC), datetime(1800, 1, 1, tzinfo=UTC)],
    ),
    "uuid": ("uuid", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"], ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    "json": ("json", ['{"b":1, "a": 1.00}', "null"], ['{"b":1, "a": 1.00}', "null"]),
    "jsonb": ("jsonb", ['{"b":1, "a": 1.00}', '"\\u00e4"'], ['{"a": 1.00, "b": 1}', '"ä"']),
    "enum": ("mood", ["so so", "ÄRGER"], ["so so", "ÄRGER"]),
    "domain": ("positive", ["1.50"], [Decimal("1.50")]),
    "domain_of_enum": ("mood_domain", ["so so"], ["so so"]),
    "citext": ("citext", ["Abc", "aBC"], ["Abc", "aBC"]),
    "ints": ("int[]", ["{}", "{1,NULL,-3}"], [[], [1, None, -3]]),
    "texts": ("text[]", ['{"a,b",NULL,"NULL",""}'], [["a,b", None, "NULL", ""]]),
    "chars": ("char(3)[]", ["{a}"], [["a"]]),
    "numerics": ("numeric(6,2)[]", ["{1.5,NULL}"], [[Decimal("1.50"), None]]),
    "floats": ("float8[]", ["{-0,Infinity}"], [[-0.0, math.inf]]),
    "dates": ("date[]", ["{2024-02-29}"], [[date(2024, 2, 29)]]),
    "stamps": ("timestamptz[]", ["{2024-01-01 00:00+05}"], [[datetime(2023, 12, 31, 19, tzinfo=UTC)]]),
    "uuids": ("uuid[]", ["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}"], [["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]]),
    "jsons": ("jsonb[]", ['{"{\\"a\\": 1.0}",NULL}'], [['{"a": 1.0}', None]]),
    "byteas": ("bytea[]", ['{"\\\\x01"}'], [[b"\x01"]]),
    "bools": ("bool[]", ["{t,f,NULL}"], [[True, False, None]]),
    "times": ("time[]", ["{12:00}"], [[time(12)]]),
    "enums": ("mood[]", ["{so so}"], [["so so"]]),
    "domains": ("positive[]", ["{2.5}"], [[Decimal("2.50")]]),
}

TYPES = """
CREATE EXTENSION citext;
CREATE TYPE mood AS ENUM ('so so', 'ÄRGER');
CREATE DOMAIN positive AS numeric(6,2) CHECK (value > 0);
CREATE DOMAIN mood_domain AS mood;
"""


def key(value):
    """Tells apart what == does not (-0.0, types), and not what only prints differently (zones, trailing zeros)."""
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Decimal):
        return f"decimal {value.normalize():f}"
    return repr([key(item) for item in value]) if isinstance(value, list) else repr(value)


def counted(rows, weight=None):
    counts = Counter()
    for row in rows:
        counts[key(row["v"])] += row[weight] if weight else 1
    return counts


@pytest.fixture(scope="module")
def travelled(postgres_server):
    """All cases through one copy and two batches: rows copied, inserted, and both deleted again."""
    dsn = postgres_server.create_database("capture_values")
    names = {case: table(f"v_{case}") for case in CASES}
    with psycopg.connect(dsn) as connection:
        connection.execute(TYPES)
        for case, (pg_type, _, _) in CASES.items():
            connection.execute(f"CREATE TABLE v_{case} (id int, v {pg_type})")
    source = PostgresSource("s", dsn)
    tables = list(names.values())
    source.install(tables)
    fill(dsn)
    first = source.read_batch(None, tables, tables)
    fill(dsn)
    second = source.read_batch(first.position, tables)
    execute(dsn, *(f"DELETE FROM v_{case}" for case in CASES))
    third = source.read_batch(second.position, tables)
    yield {case: (first.copied[n], second.changes[n], third.changes[n]) for case, n in names.items()}
    postgres_server.drop_database("capture_values")


def fill(dsn):
    with psycopg.connect(dsn) as connection:
        for case, (_, written, _) in CASES.items():
            for number, value in enumerate([*written, None]):
                connection.execute(f"INSERT INTO v_{case} VALUES (%s, %s)", [number, value])


@pytest.mark.parametrize("case", CASES)
def test_values_travel_exactly(travelled, case):
    copied, inserted, deleted = travelled[case]
    expected = Counter(key(value) for value in [*CASES[case][2], None])
    assert counted(copied.to_pylist()) == expected
    assert inserted.schema == copied.schema.append(pa.field("__pgt_weight", pa.int64(), nullable=False))
    assert counted(inserted.to_pylist(), "__pgt_weight") == expected
    assert counted(deleted.to_pylist(), "__pgt_weight") == {k: -2 * n for k, n in expected.items()}


def test_nan_is_one_value(database):
    execute(database, "CREATE TABLE t (v float8)")
    source = PostgresSource("s", database)
    source.install([T])
    position = source.read_batch(None, [T], [T]).position
    execute(database, "INSERT INTO t VALUES ('NaN'), ('NaN')")
    (row,) = source.read_batch(position, [T]).changes[T].to_pylist()
    assert math.isnan(row["v"])
    assert row["__pgt_weight"] == 2


@pytest.mark.parametrize(
    ("pg_type", "before", "after"),
    [
        ("float8", "0", "-0"),
        ("float8[]", "{0}", "{-0}"),
        ("citext", "a", "A"),
        ("jsonb", "1.0", "1.00"),
        ("json", '{"a":1}', '{"a": 1}'),
    ],
)
def test_a_change_between_values_that_postgres_calls_equal_is_a_change(database, pg_type, before, after):
    execute(database, TYPES, f"CREATE TABLE t (v {pg_type})", f"INSERT INTO t VALUES ('{before}')")
    source = PostgresSource("s", database)
    source.install([T])
    position = source.read_batch(None, [T], [T]).position
    execute(database, f"UPDATE t SET v = '{after}'")
    changes = source.read_batch(position, [T]).changes[T].to_pylist()
    assert sorted(row["__pgt_weight"] for row in changes) == [-1, 1]


INEXACT = (
    ("numeric", "NaN", "numeric nan"),
    ("numeric", "Infinity", "numeric inf"),
    ("numeric", "0.0000000000000000001", "numeric 0.0000000000000000001"),
    ("numeric", "123456789012345678901", "123456789012345678901"),
    ("numeric(5,2)", "NaN", "decimal(5,2)"),
    ("numeric[]", "{1,NaN}", "numeric nan"),
    ("date", "infinity", "infinity"),
    ("date", "0044-03-15 BC", "outside the years"),
    ("timestamp", "-infinity", "infinity"),
    ("timestamptz", "10000-01-01", "outside the years"),
    ("timestamptz[]", "{infinity}", "infinity"),
    ("time", "24:00", "24:00:00"),
    ("int[]", "{{1,2},{3,4}}", "several dimensions"),
    ("int[]", "[0:1]={1,2}", "does not start at index 1"),
)


@pytest.mark.parametrize("copied", [True, False])
def test_a_value_without_exact_counterpart_is_an_error_that_names_its_place(database, copied):
    names = [table(f"t{number}") for number in range(len(INEXACT))]
    execute(
        database,
        *(f'CREATE TABLE {n.name} (id int, "A b" {kind})' for n, (kind, _, _) in zip(names, INEXACT, strict=True)),
    )
    source = PostgresSource("s", database)
    source.install(names)
    position = source.read_batch(None, names, names).position
    execute(
        database,
        *(f"INSERT INTO {n.name} VALUES (1, '{value}')" for n, (_, value, _) in zip(names, INEXACT, strict=True)),
    )
    with source.open_batch(position, names, names if copied else []) as batch:
        for name, (_, _, words) in zip(names, INEXACT, strict=True):
            with pytest.raises(SourceValueError, match=f"column 'A b' of source table public.{name.name} ") as error:
                list(batch.content(name) if copied else batch.changes(name))
            assert words in str(error.value)


def test_a_value_that_is_gone_again_before_the_batch_is_no_error(database):
    execute(database, "CREATE TABLE t (v numeric)")
    source = PostgresSource("s", database)
    source.install([T])
    position = source.read_batch(None, [T], [T]).position
    execute(database, "INSERT INTO t VALUES ('NaN')", "DELETE FROM t")
    assert source.read_batch(position, [T]).changes[T].num_rows == 0


def test_a_numeric_can_be_given_another_decimal(database):
    execute(
        database,
        "CREATE TABLE t (v numeric, w numeric(50,2))",
        "INSERT INTO t VALUES (12345678901234567890123456789, 1)",
    )
    with pytest.raises(UnsupportedTypeError, match="column 'w'"):
        PostgresSource("s", database).describe([T])
    source = PostgresSource("s", database, column_types={T: {"v": decimal(38, 2), "w": decimal(38, 2)}})
    source.install([T])
    copied = source.read_batch(None, [T], [T]).copied[T]
    assert copied.to_pylist() == [{"v": Decimal("12345678901234567890123456789.00"), "w": Decimal("1.00")}]


def test_generated_columns_are_captured_with_their_value(database):
    execute(database, "CREATE TABLE t (id int, twice int GENERATED ALWAYS AS (id * 2) STORED)")
    source = PostgresSource("s", database)
    source.install([T])
    position = source.read_batch(None, [T], [T]).position
    execute(database, "INSERT INTO t VALUES (4)", "UPDATE t SET id = 5")
    assert source.read_batch(position, [T]).changes[T].to_pylist() == [{"id": 5, "twice": 10, "__pgt_weight": 1}]
