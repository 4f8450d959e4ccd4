"""Projects: names, order, and mistakes found at load without a database."""

from __future__ import annotations

import pytest

from pgtrickle_assets.errors import ConfigurationError, SourceLocationError
from pgtrickle_assets.project import Project, load_configured_project
from pgtrickle_assets.query.types import INT64, VARCHAR, ColumnSchema, TableName, TableSchema, decimal
from pgtrickle_assets.schema_cache import KnownSchemas, read_cache, write_cache
from pgtrickle_assets.stream_table import StreamTable

ORDERS = TableName("public", "orders")
KNOWN = KnownSchemas(
    sources={"postgres": {ORDERS: TableSchema(ORDERS, (ColumnSchema("id", INT64, nullable=False),), ("id",))}}, lake={}
)


@pytest.fixture
def folder(tmp_path):
    def write(files):
        for name, text in {"pgtrickle.yaml": "", **files}.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path

    return write


def build(tmp_path, known=None, **queries):
    tables = [StreamTable(name=name.replace("__", "."), query=query) for name, query in queries.items()]
    return Project(tables, home=tmp_path, known=known)


def test_a_folder_is_a_schema_and_a_file_a_stream_table(folder):
    root = folder(
        {
            "stream_tables/silver/a.sql": "SELECT * FROM orders",
            "stream_tables/gold/b.sql": "/*---\nschedule: 1m\n---*/\nSELECT * FROM silver.a",
        }
    )
    project = Project.load(root)
    assert project.order == ("silver.a", "gold.b")
    assert project.stream_table("gold.b").schedule == "1m"
    assert project.source_tables == {"postgres": (ORDERS,)}
    assert project.closure(["gold.b"]) == ("silver.a", "gold.b")
    assert project.downstream["silver.a"] == ("gold.b",)


def test_a_folder_without_project_file_says_how_to_make_one(tmp_path):
    with pytest.raises(ConfigurationError, match="pgtrickle init"):
        Project.load(tmp_path)
    with pytest.raises(ConfigurationError, match="is not a folder"):
        Project.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("sorces: {}", "pgtrickle.yaml:1", "Did you mean 'sources'?"),
        ("sources:\n  shop:\n    dns: x", "pgtrickle.yaml:3", "Did you mean 'dsn'?"),
        ("sources:\n  shop:\n    schemas: []", "pgtrickle.yaml:3", "at least one schema"),
        ("sources:\n  lake: {}", "pgtrickle.yaml:1", "not 'lake'"),
        ("defaults:\n  schedule: soon", "pgtrickle.yaml:2", "1h30m"),
        ("sources:\n  shop:\n    numeric: {orders.amount: integer}", "pgtrickle.yaml:3", "decimal(20,6)"),
        (
            "sources:\n  shop:\n    columns:\n      orders:\n        id: bigit",
            "pgtrickle.yaml:3",
            "Did you mean 'bigint'?",
        ),
    ],
)
def test_a_mistake_in_the_project_file_names_its_line(folder, text, place, words):
    with pytest.raises(SourceLocationError) as caught:
        Project.load(folder({"pgtrickle.yaml": text}))
    assert str(caught.value).startswith(place)
    assert words in str(caught.value)


def test_a_project_file_may_begin_with_a_byte_order_mark_and_must_be_utf8(folder):
    root = folder({"stream_tables/a/x.sql": "SELECT 1 AS a"})
    (root / "pgtrickle.yaml").write_bytes(b"\xef\xbb\xbfname: shop")
    assert Project.load(root).name == "shop"
    (root / "pgtrickle.yaml").write_bytes(b"name: caf\xe9")
    with pytest.raises(SourceLocationError, match=r"^pgtrickle\.yaml: the file is not UTF-8"):
        Project.load(root)


def test_a_folder_or_a_broken_link_among_the_sql_files_is_named(folder):
    root = folder({"stream_tables/a/x.sql": "SELECT 1 AS a"})
    (root / "stream_tables/a/dir.sql").mkdir()
    with pytest.raises(SourceLocationError, match=r"^stream_tables/a/dir\.sql: "):
        Project.load(root)
    (root / "stream_tables/a/dir.sql").rmdir()
    (root / "stream_tables/a/l.sql").symlink_to("nowhere.sql")
    with pytest.raises(SourceLocationError, match=r"^stream_tables/a/l\.sql: "):
        Project.load(root)


def test_a_sql_file_outside_a_schema_folder_is_named(folder):
    with pytest.raises(SourceLocationError, match=r"stream_tables/x\.sql: .*stream_tables/<schema>/<name>\.sql"):
        Project.load(folder({"stream_tables/x.sql": "SELECT 1"}))


def test_an_unknown_table_names_file_line_and_the_nearest(folder):
    root = folder({"stream_tables/gold/b.sql": "/*---\nschedule: 1m\n---*/\n\nSELECT *\nFROM ordrs"})
    with pytest.raises(SourceLocationError, match=r"stream_tables/gold/b\.sql:6: .*'ordrs'.*Did you mean 'orders'\?"):
        Project.load(root, known=KNOWN)


def test_a_differential_mode_that_cannot_be_is_refused_at_load_with_file_line_and_reason(folder):
    query = "/*---\nrefresh_mode: differential\n---*/\nSELECT id FROM orders WHERE now() > '2024-01-01'"
    root = folder({"stream_tables/gold/b.sql": query})
    with pytest.raises(
        SourceLocationError, match=r"^stream_tables/gold/b\.sql:4: .*differential.*now\(\) moves"
    ) as caught:
        Project.load(root, known=KNOWN)
    assert "refresh_mode: auto" in caught.value.hint
    # Without the columns the query has no plan; `apply` reads them and loads again.
    assert Project.load(root, known=KnownSchemas()).order == ("gold.b",)


def test_a_differential_mode_is_checked_where_upstream_is_a_stream_table(tmp_path):
    tables = [
        StreamTable(name="silver.a", query="SELECT id FROM orders"),
        StreamTable(name="gold.b", query="SELECT random() AS r FROM silver.a", refresh_mode="differential"),
    ]
    with pytest.raises(
        ConfigurationError, match=r"stream table gold\.b: refresh_mode is differential.*random\(\) is vol"
    ):
        Project(tables, home=tmp_path, known=KNOWN)


def test_without_knowledge_a_name_is_believed(tmp_path):
    project = build(tmp_path, gold__b="SELECT * FROM ordrs JOIN marts.x ON true")
    assert project.source_tables == {"postgres": (TableName("public", "ordrs"),)}
    assert project.lake_tables == (TableName("marts", "x"),)
    assert project.plan("gold.b") is None


def test_a_syntax_error_names_the_line(folder):
    root = folder({"stream_tables/gold/b.sql": "/*---\nschedule: 1m\n---*/\nSELECT *\nFORM orders"})
    with pytest.raises(SourceLocationError, match=r"stream_tables/gold/b\.sql:\d: the query cannot be parsed"):
        Project.load(root)


def test_a_cycle_is_shown_in_full(tmp_path):
    with pytest.raises(
        ConfigurationError,
        match=r"(a\.\w -> ){3}a\.\w\.",
    ):
        build(tmp_path, a__x="SELECT * FROM a.y", a__y="SELECT * FROM a.z", a__z="SELECT * FROM a.x")


def test_a_stream_table_may_have_the_name_of_the_source_it_reads(tmp_path):
    project = build(tmp_path, KNOWN, silver__orders="SELECT * FROM orders")
    assert project.references["silver.orders"][("orders",)].source_table == ORDERS


def test_a_name_that_means_two_things_shows_both(tmp_path):
    with pytest.raises(
        ConfigurationError, match=r"stream table silver\.orders and source table postgres\.public\.orders"
    ):
        build(tmp_path, KNOWN, silver__orders="SELECT * FROM orders", silver__b="SELECT * FROM orders")


@pytest.mark.parametrize(
    "name", ["postgres.public.orders", "public.orders", "raw.orders", "PUBLIC.Orders", '"public"."orders"']
)
def test_a_qualified_name_means_the_source(tmp_path, name):
    project = build(
        tmp_path, KNOWN, silver__orders="SELECT 1 AS x FROM public.orders", silver__b=f"SELECT * FROM {name}"
    )
    (reference,) = project.references["silver.b"].values()
    assert (reference.kind, reference.table) == ("source", TableName("raw", "orders"))


def test_a_quoted_name_keeps_its_case(tmp_path):
    with pytest.raises(ConfigurationError, match="no table 'Orders'"):
        build(tmp_path, KNOWN, silver__b='SELECT * FROM "Orders"')


def test_common_table_expressions_are_not_tables(tmp_path):
    query = "WITH orders AS (SELECT * FROM orders), b AS (SELECT * FROM orders) SELECT * FROM b, orders"
    assert list(build(tmp_path, KNOWN, silver__b=query).references["silver.b"]) == [("orders",)]


def test_the_same_name_twice_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match=r"two stream tables called a\.x"):
        Project([StreamTable(name="a.x", query="SELECT 1"), StreamTable(name="a.x", query="SELECT 2")], home=tmp_path)


def test_names_that_differ_only_in_case_are_an_error_that_names_both_and_the_file(folder):
    # By hand: a file system that ignores case cannot hold both files.
    def table(name):
        return StreamTable(name=name, query="SELECT 1 AS a", path=f"stream_tables/{name.replace('.', '/')}.sql")

    root = folder({})
    with pytest.raises(
        SourceLocationError, match=r"^stream_tables/gold/x\.sql: .*gold\.X \(.*\) and gold\.x differ only"
    ):
        Project([table("gold.X"), table("gold.x")], home=root)
    with pytest.raises(SourceLocationError, match=r"^stream_tables/gold/y\.sql: the schemas .*Gold\.x .* and gold\.y "):
        Project([table("Gold.x"), table("gold.y")], home=root)
    with pytest.raises(ConfigurationError, match=r"gold\.X and gold\.x differ only in case"):
        build(root, gold__X="SELECT 1", gold__x="SELECT 1")


@pytest.mark.parametrize("schema", ["pg_catalog", "information_schema", "raw", "Raw", "pgtrickle_state"])
def test_a_schema_that_others_fill_is_refused(tmp_path, schema):
    with pytest.raises(ConfigurationError, match=f"schema '{schema}', which is kept for"):
        build(tmp_path, **{f"{schema}__x": "SELECT 1 AS a"})


def test_a_listed_partition_must_be_a_value_of_the_column(tmp_path):
    def listed(values):
        table = StreamTable(
            name="gold.x", query="SELECT 1 AS a, DATE '2024-07-01' AS d", partition_by=f"value({values})"
        )
        return Project([table], home=tmp_path).plan("gold.x")

    assert listed("a, [1, 2]") is not None
    with pytest.raises(ConfigurationError, match="lists 'one', which no row has as its a"):
        listed("a, [1, one]")
    with pytest.raises(ConfigurationError, match="Write '1'"):
        listed("a, ['01']")
    with pytest.raises(ConfigurationError, match="lists 'July'"):
        listed("d, [2024-07-01, July]")


def test_a_name_that_differs_from_another_writers_table_only_in_case_is_an_error(tmp_path):
    other = TableName("gold", "x")
    known = KnownSchemas(sources={}, lake={other: TableSchema(other, (ColumnSchema("id", INT64),))})
    with pytest.raises(ConfigurationError, match=r"gold\.X and the lake table gold\.x, .* differ only in case"):
        build(tmp_path, known, gold__X="SELECT 1 AS a")


def test_mirrors_that_differ_only_in_case_are_an_error_that_names_both_and_the_file(folder):
    query = 'SELECT 1 AS a FROM t, "T"'
    with pytest.raises(
        SourceLocationError,
        match=r"^stream_tables/a/x\.sql:1: .*postgres\.public\.T and .*postgres\.public\.t .*only in",
    ) as caught:
        Project.load(folder({"stream_tables/a/x.sql": query}))
    assert "second source" in caught.value.hint
    yaml = "sources:\n  shop:\n    tables: [s.t, S.t]"
    with pytest.raises(
        SourceLocationError, match=r"^pgtrickle\.yaml: .*raw\.S_t and raw\.s_t, which differ only in case"
    ):
        Project.load(folder({"stream_tables/a/x.sql": "SELECT 1 AS a", "pgtrickle.yaml": yaml}))
    yaml = "sources:\n  one: {mirror_schema: raw}\n  two: {mirror_schema: RAW}"
    with pytest.raises(
        SourceLocationError, match=r"^pgtrickle\.yaml: the mirror schemas 'raw' .* 'RAW' of source 'two'"
    ):
        Project.load(folder({"pgtrickle.yaml": yaml}))


@pytest.mark.parametrize("schema", ["raw", "Raw", "pgtrickle_state"])
def test_schemas_of_mirrors_and_states_are_kept(tmp_path, schema):
    with pytest.raises(ConfigurationError, match="Move it"):
        Project([StreamTable(name=f"{schema}.x", query="SELECT 1")], home=tmp_path)


def test_two_mirrors_cannot_be_one_lake_table(tmp_path):
    table = StreamTable(name="a.x", query="SELECT 1 FROM one.public.t, two.public.t")
    with pytest.raises(ConfigurationError, match=r"both be lake table raw\.t"):
        Project([table], sources={"one": {}, "two": {}}, home=tmp_path)
    project = Project([table], sources={"one": {}, "two": {"mirror_schema": "raw2"}}, home=tmp_path)
    assert {str(r.table) for r in project.references["a.x"].values()} == {"raw.t", "raw2.t"}


def test_mirrors_leave_out_columns_and_take_overrides(tmp_path):
    source = {
        "columns": {"orders": {"id": "bigint not null", "secret": "text", "amount": "numeric"}},
        "exclude_columns": {"orders": ["secret"]},
        "numeric": {"orders.amount": "decimal(20,6)"},
    }
    project = Project([StreamTable(name="a.x", query="SELECT id FROM orders")], sources={"shop": source}, home=tmp_path)
    schema = project.mirror_schema("shop", ORDERS)
    assert schema.name == TableName("raw", "orders")
    assert schema.columns == (ColumnSchema("id", INT64, nullable=False), ColumnSchema("amount", decimal(20, 6)))


def test_secrets_are_filled_in_when_used_and_never_shown(tmp_path, monkeypatch):
    project = Project([], sources={"shop": {"dsn": "${SHOP_DSN}"}}, home=tmp_path)
    monkeypatch.delenv("SHOP_DSN", raising=False)
    with pytest.raises(ConfigurationError, match="source 'shop' needs the environment variable SHOP_DSN"):
        project.sources["shop"].connection("shop")
    monkeypatch.setenv("SHOP_DSN", "postgresql://u:secret@h/d")
    connection = project.sources["shop"].connection("shop")
    assert connection.get_secret_value() == "postgresql://u:secret@h/d"
    assert "secret" not in repr(connection) + repr(project.sources)


def test_the_cache_gives_back_what_it_was_given(tmp_path):
    table = TableSchema(ORDERS, (ColumnSchema("a", decimal(10, 2)), ColumnSchema("ü", VARCHAR, nullable=False)), ("ü",))
    known = KnownSchemas(sources={"postgres": {ORDERS: table}, "empty": {}}, lake={})
    write_cache(tmp_path, known)
    assert read_cache(tmp_path) == known
    assert [file.name for file in tmp_path.iterdir()] == ["schemas.json"]


def test_a_damaged_cache_says_what_to_do(tmp_path):
    (tmp_path / "schemas.json").write_text("{")
    with pytest.raises(ConfigurationError, match="pgtrickle apply"):
        read_cache(tmp_path)


def test_the_variable_names_the_project(folder, monkeypatch):
    monkeypatch.setenv("PGTRICKLE_PROJECT", str(folder({"stream_tables/a/x.sql": "SELECT 1"})))
    assert load_configured_project().order == ("a.x",)
