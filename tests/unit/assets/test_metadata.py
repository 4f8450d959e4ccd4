"""Metadata: complete where columns are known, bounded in size, and shown as it is."""

from __future__ import annotations

from pgtrickle_assets import Project, StreamTable
from pgtrickle_assets.assets import metadata
from pgtrickle_assets.assets.metadata import MAX_TEXT, delivered_metadata, maintenance_text
from pgtrickle_assets.query.types import INT64, VARCHAR, ColumnSchema, TableName, TableSchema
from pgtrickle_assets.schema_cache import KnownSchemas

ORDERS = TableSchema(TableName("public", "orders"), (ColumnSchema("id", INT64), ColumnSchema("r", VARCHAR)), ("id",))


def project(tmp_path, query="SELECT r, count(*) AS n FROM orders GROUP BY r", **options):
    table = StreamTable(name="gold.t", query=query)
    known = KnownSchemas(sources={"shop": {ORDERS.name: ORDERS}}, lake={})
    return Project([table], sources={"shop": {"dsn": "postgresql://none"}}, home=tmp_path, known=known, **options)


def test_a_definition_says_how_the_stream_table_is_maintained(tmp_path):
    found = project(tmp_path)
    shown = metadata.definition_metadata(found, found.stream_table("gold.t"), found.plan("gold.t"))
    assert "group_by" in shown["maintenance"].value
    assert "raw.orders" in shown["maintenance"].value


def test_the_file_of_the_query_is_linked_from_definition_and_materialization(tmp_path):
    folder = tmp_path / "project"
    (folder / "stream_tables" / "gold").mkdir(parents=True)
    (folder / "pgtrickle.yaml").write_text("sources:\n  shop:\n    dsn: postgresql://none\n")
    (folder / "stream_tables" / "gold" / "t.sql").write_text("SELECT id FROM orders\n")
    found = Project.load(folder, known=KnownSchemas(sources={"shop": {ORDERS.name: ORDERS}}, lake={}))
    table = found.stream_table("gold.t")
    assert delivered_metadata(found, table)["sql_file"].value == str(folder / "stream_tables" / "gold" / "t.sql")
    (link,) = metadata.definition_metadata(found, table, None)["dagster/code_references"].code_references
    assert link.file_path.endswith("t.sql")


def test_columns_are_left_out_while_they_are_unknown(tmp_path):
    table = StreamTable(name="gold.t", query="SELECT id FROM orders")
    unknown = Project([table], sources={"shop": {"dsn": "postgresql://none"}}, home=tmp_path, known=KnownSchemas())
    assert delivered_metadata(unknown, unknown.stream_table("gold.t")) == {}


def test_long_texts_are_cut_and_say_where_the_rest_is(tmp_path):
    wide = ", ".join(f"coalesce(r, 'a rather long text that takes much room {i}') AS c{i}" for i in range(400))
    text = maintenance_text(project(tmp_path, f"SELECT {wide} FROM orders"), "gold.t")
    assert len(text) < MAX_TEXT + 200
    assert "`pgtrickle explain gold.t` shows all of it." in text


def test_statements_are_shown_up_to_a_size(tmp_path):
    statements = [(f"step_{i}", "SELECT " + "x" * 9000) for i in range(20)]
    text = metadata._statements(statements)
    assert len(text) < MAX_TEXT + 500
    assert "18 more statements." in text
    assert "SELECT xxx ..." not in text


def test_a_fence_in_a_query_does_not_end_the_block():
    text = metadata._fenced("SELECT '```'", "sql")
    assert text.startswith("````sql\n")
    assert text.endswith("\n````")
