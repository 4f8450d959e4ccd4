"""The option block: what it means, and that each mistake names file, line and the nearest valid name."""

from __future__ import annotations

import pytest

from pgtrickle_assets.errors import ConfigurationError, SourceLocationError
from pgtrickle_assets.option_block import parse_stream_table, read_stream_table
from pgtrickle_assets.stream_table import StreamTable

PATH = "stream_tables/gold/revenue.sql"


def parse(text, **defaults):
    return parse_stream_table(text, name="gold.revenue", path=PATH, defaults=defaults)


def test_options_and_query_are_read():
    table = parse(
        "/*---\nschedule: 1m\npartition_by: day(d)\nowners: [team:x]\ntags: {tier: hot}\n---*/\n\nSELECT 1 AS d\n"
    )
    assert (table.schedule, table.partition_by, table.owners, table.tags) == (
        "1m",
        "day(d)",
        ("team:x",),
        {"tier": "hot"},
    )
    assert table.query == "SELECT 1 AS d"
    assert table.query_line == 8


def test_a_file_without_block_has_defaults():
    table = parse("-- a comment\nSELECT 1")
    assert (table.schedule, table.refresh_mode, table.partition_by, table.dialect) == (
        "calculated",
        "auto",
        None,
        "postgres",
    )
    assert table.query_line == 1


def test_options_of_the_block_win_over_defaults():
    assert parse("/*---\nschedule: 1m\n---*/ SELECT 1", schedule="5m", refresh_mode="full").schedule == "1m"
    assert parse("SELECT 1", schedule="5m").schedule == "5m"


def test_windows_line_ends_and_a_byte_order_mark_are_accepted():
    assert parse("\ufeff/*---\r\nschedule: 1m\r\n---*/\r\nSELECT 1").schedule == "1m"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("/*---\nschedul: 1m\n---*/\nSELECT 1", 2, "Did you mean 'schedule'?"),
        ("\n\n/*---\n\nschedule: 1q\n---*/\nSELECT 1", 5, "30s"),
        ("/*---\nschedule: 1m\nrefresh_mode: diferential\n---*/\nSELECT 1", 3, "Did you mean 'differential'?"),
        ("/*---\nschedule: 1m\nschedule: 2m\n---*/\nSELECT 1", 3, "first on line 2"),
        ("/*---\nschedule: [1\n---*/\nSELECT 1", 3, "not valid YAML"),
        ("/*---\npartition_by: dya(x)\n---*/\nSELECT 1", 2, "Did you mean 'day'?"),
        ("/*---\npartition_by: day(x, [a])\n---*/\nSELECT 1", 2, "Only value() takes a list"),
        ("/*---\npartition_by: value(x, ['a,b'])\n---*/\nSELECT 1", 2, "comma"),
        ("/*---\nowners: [finance]\n---*/\nSELECT 1", 2, "team:name"),
        ("/*---\n- schedule\n---*/\nSELECT 1", 2, "name: value"),
        ("/*---\nschedule: 1m\nSELECT 1", 1, "End it with ---*/"),
        ("---\nschedule: 1m\n---\nSELECT 1", 1, "Begin it with /*---"),
        ("/*---\ntags: &all\n  other: *all\n---*/\nSELECT 1", 2, "contains itself"),
        ("/*---\nschedule: 1m\n---*/\n\n;\n", 5, "the query is empty"),
    ],
)
def test_a_mistake_names_file_line_and_way_out(text, line, words):
    with pytest.raises(SourceLocationError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"{PATH}:{line}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mistake_in_python_names_the_stream_table():
    with pytest.raises(
        ConfigurationError, match=r"stream table gold\.x: unknown option 'schedul'. Did you mean 'schedule'\?"
    ):
        StreamTable(name="gold.x", query="SELECT 1", schedul="1m")


@pytest.mark.parametrize("name", ["gold", "a.b.c", "gold.", "gold. x", "gold.a/b", "gold." + "n" * 64])
def test_a_name_is_schema_and_table(name):
    with pytest.raises(ConfigurationError):
        StreamTable(name=name, query="SELECT 1")


@pytest.mark.parametrize("name", ["Umsatz je Tag", 'with "quotes"', "ünïcode", "n" * 63, "semi;colon", "a'b"])
def test_odd_names_are_allowed_as_file_names(tmp_path, name):
    file = tmp_path / "stream_tables" / "gold" / f"{name}.sql"
    file.parent.mkdir(parents=True)
    file.write_text("SELECT 1")
    assert read_stream_table(file, tmp_path).table.name == name


def test_a_file_that_is_not_utf8_is_named(tmp_path):
    file = tmp_path / "stream_tables" / "gold" / "x.sql"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"SELECT '\xff'")
    with pytest.raises(SourceLocationError, match=r"stream_tables/gold/x\.sql: the file is not UTF-8"):
        read_stream_table(file, tmp_path)


def test_a_byte_order_mark_is_skipped(tmp_path):
    file = tmp_path / "stream_tables" / "gold" / "x.sql"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\xef\xbb\xbfSELECT 1 AS a")
    assert read_stream_table(file, tmp_path).query == "SELECT 1 AS a"
    file.write_bytes(b"\xef\xbb\xbf/*---\nschedule: 1m\n---*/\nSELECT 1 AS a")
    assert read_stream_table(file, tmp_path).schedule == "1m"


def test_a_folder_and_a_link_that_leads_nowhere_are_named(tmp_path):
    schema = tmp_path / "stream_tables" / "gold"
    (schema / "dir.sql").mkdir(parents=True)
    (schema / "l.sql").symlink_to(tmp_path / "nowhere")
    with pytest.raises(SourceLocationError, match=r"^stream_tables/gold/dir\.sql: this is a folder"):
        read_stream_table(schema / "dir.sql", tmp_path)
    with pytest.raises(SourceLocationError, match=r"^stream_tables/gold/l\.sql: this link leads to no file"):
        read_stream_table(schema / "l.sql", tmp_path)
