from __future__ import annotations

import pytest

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.catalog import check_metadata
from pgtrickle_assets.lake.duckdb_attach import attach_statements, redact
from pgtrickle_assets.lake.location import LakeLocation, same_place, with_slash
from pgtrickle_assets.lake.model import TableDefinition
from pgtrickle_assets.lake.naming import directory_of, number_columns, table_path
from pgtrickle_assets.lake.schema_ddl import create_statements, parse_tables
from pgtrickle_assets.lake.sqltext import quoted, statement
from pgtrickle_assets.query import types as t
from pgtrickle_assets.query.types import ColumnSchema, TableName

GOOD = {"version": "1.0", "data_path": "/data/lake/", "encrypted": "false"}
SECRET = "s3cr'et"
LOCATION = LakeLocation("host=db port=5433 user=u dbname=d sslmode=require password='s3cr\\'et'", "cat", "/data/lake")


def test_secrets_stay_out_of_texts_about_a_lake() -> None:
    assert SECRET not in repr(LOCATION)
    assert "s3cr" not in repr(LOCATION)
    statements = attach_statements(LOCATION, "lake")
    assert "s3cr" not in statements[-1]
    assert "sslmode='require'" in statements[-1].replace("''", "'")
    assert SECRET not in redact(f"cannot connect with {SECRET}", LOCATION)


def test_an_attached_snapshot_or_a_read_only_lake_is_asked_for() -> None:
    assert "SNAPSHOT_VERSION 7" in attach_statements(LOCATION, "lake", at=7)[-1]
    assert "READ_ONLY" in attach_statements(LOCATION, "lake", read_only=True)[-1]
    assert 'AS "my ""lake"""' in attach_statements(LOCATION, 'my "lake"')[-1]


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({}, "holds no DuckLake"),
        ({**GOOD, "version": "1.1"}, "version 1.1, and only 1.0"),
        ({**GOOD, "version": "0.4"}, "AUTOMATIC_MIGRATION"),
        ({**GOOD, "encrypted": "true"}, "encrypted"),
        ({**GOOD, "data_path": "s3://other/"}, "s3://other/, but the setting says /data/lake"),
    ],
)
def test_a_lake_that_can_t_be_used_safely_is_refused(metadata: dict[str, str], text: str) -> None:
    with pytest.raises(LakeError, match=text.replace(".", r"\.")):
        check_metadata(metadata, LOCATION)


def test_data_paths_are_compared_by_meaning() -> None:
    check_metadata(GOOD, LOCATION)
    assert same_place("/a/b", "file:///a/b/")
    assert not same_place("/a/b", "/a/c")
    assert with_slash("") == ""


@pytest.mark.parametrize(("name", "plain"), [("orders_2-x", True), ("größe", False), ("a b", False), ("a/../b", False)])
def test_only_plain_names_become_directories(name: str, plain: bool) -> None:
    directory = directory_of("gold", name)
    assert (directory == f"{name}/") == plain
    assert directory == directory_of("gold", name)
    assert directory.count("/") == 1


def test_a_new_table_s_columns_are_numbered_depth_first() -> None:
    definition = TableDefinition(
        TableName("s", "t"),
        (ColumnSchema("a", t.INT32), ColumnSchema("l", t.list_of(t.list_of(t.INT32))), ColumnSchema("z", t.INT32)),
    )
    assert [(column.id, column.child_ids) for column in number_columns(definition)] == [(1, ()), (2, (3, 4)), (5, ())]
    assert table_path("/lake/", "s/", True, definition) == "/lake/s/t/"
    assert table_path("/lake/", "/elsewhere/s/", False, definition) == "/elsewhere/s/t/"


def test_the_catalog_has_the_28_tables_of_the_specification() -> None:
    tables = parse_tables()
    assert len(tables) == 28
    assert len(tables["column"]) == 13
    assert len(tables["data_file"]) == 16
    assert all("{c}" in text for text in create_statements())


def test_the_catalog_s_schema_is_quoted_wherever_it_stands() -> None:
    assert quoted('a"b%') == '"a""b%%"'
    assert statement("SELECT 1 FROM {c}.t x WHERE {visible:x}", "m y").startswith(
        b'SELECT 1 FROM "m y".t x WHERE x.begin'
    )
