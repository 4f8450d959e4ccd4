"""After every operation of ours, DuckDB and we see the same rows at every snapshot, and both can go on writing."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from lake_pair import Pair, attached, bag

from pgtrickle_assets.errors import LakeConflictError, LakeError, LakeHistoryExpiredError, LakeTableReplacedError
from pgtrickle_assets.lake.ddl import (
    AddColumn,
    Comment,
    CreateSchema,
    DropColumn,
    DropSchema,
    DropTable,
    RenameColumn,
    RenameTable,
)
from pgtrickle_assets.lake.lint import lint
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.lake.model import TableChange, TableDefinition
from pgtrickle_assets.lake.views import CreateView, DropView
from pgtrickle_assets.query import types as t
from pgtrickle_assets.query.types import ColumnSchema, TableName

ORDERS = TableName("gold", "orders")
DEFINITION = TableDefinition(
    ORDERS,
    (
        ColumnSchema("id", t.INT64, nullable=False),
        ColumnSchema("name", t.VARCHAR),
        ColumnSchema("price", t.decimal(12, 2)),
        ColumnSchema("score", t.FLOAT64),
        ColumnSchema("day", t.DATE),
        ColumnSchema("tags", t.list_of(t.VARCHAR)),
    ),
    comment="all orders",
)


def order(number: int, **changes: object) -> dict[str, object]:
    return {
        "id": number,
        "name": f"n{number}",
        "price": Decimal(number) / 4,
        "score": number / 3,
        "day": date(2024, 1, 1 + number % 28),
        "tags": [f"t{number}", None],
        **changes,
    }


def orders(*numbers: int) -> list[dict[str, object]]:
    return [order(number) for number in numbers]


def expected(*rows: dict[str, object]) -> object:
    return bag(row.values() for row in rows)


def test_a_table_is_created_with_its_schema_rows_and_comment(pair: Pair) -> None:
    result = pair.create(DEFINITION, orders(1, 2, 3))
    assert result.snapshot_id == 1
    pair.check(ORDERS, expected=expected(*orders(1, 2, 3)))
    assert pair.duckdb("SELECT comment FROM duckdb_tables() WHERE table_name = 'orders'") == [("all orders",)]
    assert pair.lake.schemas() == ("gold", "main")
    pair.duckdb("INSERT INTO gold.orders SELECT 4, 'd', 1.5, 2, DATE '2024-02-02', ['x']")
    pair.check(ORDERS)


def test_rows_are_appended_deleted_twice_and_the_file_ends_when_empty(pair: Pair) -> None:
    pair.create(DEFINITION, orders(1, 2, 3))
    pair.check(ORDERS)
    pair.append(ORDERS, orders(4, 5))
    pair.check(ORDERS, expected=expected(*orders(1, 2, 3, 4, 5)))
    pair.delete(ORDERS, id=2)
    pair.check(ORDERS, expected=expected(*orders(1, 3, 4, 5)))
    pair.delete(ORDERS, id=3)
    pair.check(ORDERS, expected=expected(*orders(1, 4, 5)))
    pair.delete(ORDERS, id=1)
    pair.check(ORDERS, expected=expected(*orders(4, 5)))
    assert len(pair.lake.scan(pair.table(ORDERS)).files) == 1


def test_duckdb_goes_on_writing_after_our_deletes_and_we_after_its(pair: Pair) -> None:
    pair.create(DEFINITION, orders(*range(20)))
    pair.delete(ORDERS, id=3)
    pair.duckdb("DELETE FROM gold.orders WHERE id = 4")
    pair.check(ORDERS)
    pair.delete(ORDERS, id=5)
    pair.check(ORDERS)
    pair.duckdb("UPDATE gold.orders SET name = 'new' WHERE id IN (6, 7)")
    pair.check(ORDERS)
    pair.delete(ORDERS, id=6)
    pair.delete(ORDERS, id=8)
    pair.check(ORDERS)
    pair.duckdb("INSERT INTO gold.orders SELECT * REPLACE (id + 100 AS id) FROM gold.orders")
    pair.append(ORDERS, orders(200, 201))
    pair.check(ORDERS)


def test_a_table_is_overwritten_in_one_snapshot(pair: Pair) -> None:
    pair.create(DEFINITION, orders(1, 2, 3))
    pair.append(ORDERS, orders(4))
    pair.delete(ORDERS, id=1)
    pair.check(ORDERS)
    table = pair.table(ORDERS)
    removed = pair.lake.scan(table).files
    pair.commit(TableChange(ORDERS, added_files=pair.files(table, orders(7, 8)), removed_files=removed))
    pair.check(ORDERS, expected=expected(*orders(7, 8)))
    changes = pair.duckdb("SELECT changes FROM ducklake_snapshots('lake') ORDER BY snapshot_id DESC LIMIT 1")
    assert set(changes[0][0]) == {"tables_inserted_into", "tables_deleted_from"}
    pair.duckdb("DELETE FROM gold.orders WHERE id = 7")
    pair.check(ORDERS, expected=expected(*orders(8)))


def test_several_tables_of_one_new_schema_appear_in_one_snapshot(pair: Pair) -> None:
    names = [TableName("silver", name) for name in ("a", "b", 'ünïcode "x"', "n" * 63)]
    columns = (ColumnSchema("k", t.INT32), ColumnSchema("v,\"'", t.VARCHAR))
    changes = []
    for name in names:
        definition = TableDefinition(name, columns)
        files = pair.files(pair.lake.plan_table(definition), [{"k": 1, "v,\"'": "x"}])
        changes.append(TableChange(name, create=definition, added_files=files))
    result = pair.commit(*changes)
    assert result.snapshot_id == 1
    pair.check(*names, expected=bag([(1, "x")]))
    for name in names:
        pair.append(name, [{"k": 2, "v,\"'": None}])
    pair.check(*names)


def test_statistics_stay_right_through_nulls_nan_and_unknown_bounds(pair: Pair) -> None:
    pair.create(DEFINITION, [order(1, name=None, price=None, score=None, day=None, tags=None)])
    pair.check(ORDERS)
    pair.append(ORDERS, [order(2, score=float("nan")), order(3, score=float("inf"))])
    pair.check(ORDERS)
    pair.append(ORDERS, [order(4, name="\x00nul"), order(5, name="z" * 1000), order(6, name="")])
    pair.append(ORDERS, [order(7, score=-0.0, price=Decimal("-99.99"), day=date(1, 1, 1))])
    pair.check(ORDERS)
    pair.duckdb("INSERT INTO gold.orders SELECT 8, 'zzzz', 1000, 5, DATE '2030-01-01', []")
    pair.check(ORDERS)


def test_all_types_agree(pair: Pair) -> None:
    name = TableName("gold", "types")
    kinds = [
        ("b", t.BOOLEAN, True), ("i2", t.INT16, -5), ("i4", t.INT32, 2**31 - 1), ("i8", t.INT64, -(2**63)),
        ("f4", t.FLOAT32, 1.1), ("f8", t.FLOAT64, 1e300), ("d", t.decimal(38, 10), Decimal("1.0000000001")),
        ("s", t.VARCHAR, "ä😀"), ("x", t.BLOB, b"\x00\xff"), ("dt", t.DATE, date(9999, 12, 31)),
        ("tm", t.TIME, time(23, 59, 59, 999999)), ("ts", t.TIMESTAMP, datetime(2024, 1, 2, 3, 4, 5, 600000)),
        ("tz", t.TIMESTAMPTZ, datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("u", t.UUID, "94f78054-d913-494d-b107-8b3893d9c3b4"), ("j", t.JSON, '{"a": 1}'),
        ("l", t.list_of(t.list_of(t.INT32)), [[1, None], None]),
    ]  # fmt: skip
    definition = TableDefinition(name, tuple(ColumnSchema(column, kind) for column, kind, _ in kinds))
    full = {column: value for column, _, value in kinds}
    pair.create(definition, [full, dict.fromkeys(full)])
    pair.append(name, [full])
    pair.duckdb("INSERT INTO gold.types SELECT * FROM gold.types")
    pair.check(name)
    assert [str(column.type) for column in pair.table(name).columns] == [str(kind) for _, kind, _ in kinds]


def test_a_partitioned_table_takes_appends_deletes_and_overwrites_by_partition(pair: Pair) -> None:
    name = TableName("gold", "daily")
    definition = TableDefinition(
        name,
        (ColumnSchema("day", t.DATE), ColumnSchema("region", t.VARCHAR), ColumnSchema("v", t.INT32)),
        partition_by=(("day", "year"), ("day", "month"), ("day", "day"), ("region", "identity")),
    )
    rows = [{"day": date(2024, 1, d), "region": r, "v": d} for d in (1, 2) for r in ("a/b", "ü", None)]
    pair.create(definition, rows)
    pair.check(name, expected=bag(row.values() for row in rows))
    assert {file.partition_values for file in pair.lake.scan(pair.table(name)).files} == {
        ("2024", "1", str(d), r) for d in (1, 2) for r in ("a/b", "ü", None)
    }
    pair.append(name, [{"day": date(2024, 1, 1), "region": "a/b", "v": 9}])
    pair.delete(name, v=2, region="ü")
    pair.duckdb("INSERT INTO gold.daily VALUES (DATE '2024-01-02', 'x', 5)")
    pair.check(name)
    pair.duckdb("CALL ducklake_merge_adjacent_files('lake')")
    pair.check(name)


def test_columns_are_added_renamed_dropped_and_files_keep_their_names(pair: Pair) -> None:
    pair.create(DEFINITION, orders(1, 2))
    pair.check(ORDERS)
    pair.alter(AddColumn(ORDERS, ColumnSchema("extra", t.INT32), default="7"))
    pair.check(ORDERS)
    pair.append(ORDERS, [order(3, extra=8)])
    pair.check(ORDERS)
    pair.alter(RenameColumn(ORDERS, "name", "title"))
    pair.check(ORDERS)
    pair.duckdb("INSERT INTO gold.orders SELECT * REPLACE (id + 10 AS id) FROM gold.orders")
    pair.check(ORDERS)
    pair.alter(DropColumn(ORDERS, "tags"))
    pair.check(ORDERS)
    pair.alter(AddColumn(ORDERS, ColumnSchema("tags", t.list_of(t.INT32))))
    pair.check(ORDERS)
    pair.duckdb("ALTER TABLE gold.orders RENAME title TO name", "UPDATE gold.orders SET tags = [1] WHERE id = 1")
    pair.check(ORDERS)
    pair.duckdb("CALL ducklake_merge_adjacent_files('lake')")
    pair.check(ORDERS)
    pair.duckdb("DELETE FROM gold.orders WHERE id IN (2, 12)")
    pair.duckdb("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.1)")
    pair.check(ORDERS)


def test_wrong_alterations_say_what_is_wrong(pair: Pair) -> None:
    pair.create(DEFINITION, orders(1))
    for operation, text in (
        (AddColumn(ORDERS, ColumnSchema("ID", t.INT32)), "has a column ID already"),
        (AddColumn(ORDERS, ColumnSchema("n", t.INT32, nullable=False)), "NOT NULL"),
        (DropColumn(ORDERS, "nope"), "has no column nope"),
        (RenameColumn(ORDERS, "id", "name"), "has a column name already"),
        (DropTable(TableName("gold", "nope")), "no table gold.nope"),
        (RenameTable(ORDERS, "orders"), "exists already"),
        (CreateSchema("GOLD"), "exists already"),
        (DropSchema("gold"), "still holds orders"),
        (DropView(ORDERS), "no view gold.orders"),
    ):
        with pytest.raises(LakeError, match=text):
            pair.alter(operation)
    assert pair.lake.head() == 1
    assert lint(pair.lake) == ()


def test_tables_are_renamed_commented_and_dropped(pair: Pair) -> None:
    pair.create(DEFINITION, orders(1))
    pair.alter(Comment(ORDERS, "new text"), Comment(ORDERS, "the key", column="id"))
    assert pair.duckdb("SELECT comment FROM duckdb_tables() WHERE table_name = 'orders'") == [("new text",)]
    assert pair.duckdb("SELECT comment FROM duckdb_columns() WHERE column_name = 'id'") == [("the key",)]
    pair.alter(RenameTable(ORDERS, "old_orders"))
    renamed = TableName("gold", "old_orders")
    pair.check(renamed)
    pair.append(renamed, orders(2))
    pair.duckdb("INSERT INTO gold.old_orders SELECT * REPLACE (9 AS id) FROM gold.old_orders")
    pair.check(renamed)
    pair.alter(DropTable(renamed))
    assert pair.lake.table(renamed) is None
    assert pair.lake.table(ORDERS, 1) is not None
    assert attached(pair.location).execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(0,)]
    pair.alter(DropSchema("gold"))
    assert pair.lake.schemas() == ("main",)
    assert lint(pair.lake) == ()


def test_views_are_created_replaced_and_dropped(pair: Pair) -> None:
    pair.create(DEFINITION, orders(1, 2))
    view = TableName("reports", "big orders")
    pair.alter(CreateView(view, "SELECT id FROM {DUCKLAKE_CATALOG}.gold.orders WHERE id > 1", comment="big"))
    assert pair.duckdb('SELECT * FROM reports."big orders"') == [(2,)]
    first = pair.lake.head()
    pair.alter(CreateView(view, "SELECT id, name FROM {DUCKLAKE_CATALOG}.gold.orders"))
    other = attached(pair.location)
    assert other.execute('SELECT * FROM reports."big orders" ORDER BY 1').fetchall() == [(1, "n1"), (2, "n2")]
    assert pair.lake.views() == (view,)
    with pytest.raises(LakeError, match="a table called"):
        pair.alter(CreateView(ORDERS, "SELECT 1"))
    pair.alter(DropView(view))
    assert pair.lake.views() == ()
    assert pair.lake.views(first) == (view,)
    pair.duckdb("CREATE VIEW reports.v AS SELECT 1 AS x")
    pair.alter(CreateView(TableName("reports", "v"), "SELECT 2 AS x"))
    assert pair.duckdb("SELECT x FROM reports.v") == [(2,)]
    assert lint(pair.lake) == ()


def test_compaction_is_no_change(pair: Pair) -> None:
    pair.create(DEFINITION, orders(*range(10)))
    for number in range(10, 14):
        pair.append(ORDERS, orders(number))
    pair.check(ORDERS)
    before = pair.lake.head()
    pair.duckdb("CALL ducklake_merge_adjacent_files('lake')")
    pair.check(ORDERS)
    assert pair.lake.delta(pair.table(ORDERS), before).is_empty
    pair.delete(ORDERS, id=3)
    pair.delete(ORDERS, id=11)
    pair.check(ORDERS)
    before = pair.lake.head()
    pair.duckdb("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.01)")
    pair.check(ORDERS)
    assert pair.lake.delta(pair.table(ORDERS), before).is_empty
    pair.append(ORDERS, orders(50))
    pair.check(ORDERS)
    delta = pair.lake.delta(pair.table(ORDERS), before)
    assert (delta.inserted_rows, delta.deleted_rows) == (1, 0)


def test_a_delta_over_a_merge_counts_only_the_new_rows(pair: Pair) -> None:
    pair.create(DEFINITION, orders(*range(100)))
    start = pair.lake.head()
    pair.append(ORDERS, orders(100, 101))
    pair.append(ORDERS, orders(102))
    pair.duckdb("CALL ducklake_merge_adjacent_files('lake')")
    delta = pair.lake.delta(pair.table(ORDERS), start)
    assert (delta.inserted_rows, delta.deleted_rows) == (3, 0)
    pair.delete(ORDERS, id=101)
    pair.delete(ORDERS, id=5)
    delta = pair.lake.delta(pair.table(ORDERS), start)
    assert delta.inserted_rows == 2
    pair.check(ORDERS)


def test_inlined_rows_of_duckdb_are_read_changed_and_flushed(location: LakeLocation) -> None:
    import pgtrickle_assets.services.duckdb as services

    setup = services.connect()
    setup.execute(
        f"ATTACH 'ducklake:postgres:{location.catalog_dsn}' AS lake"
        f" (DATA_PATH '{location.data_path}/', METADATA_SCHEMA 'main')"
    )
    setup.execute("CREATE SCHEMA lake.gold")
    setup.execute(
        "CREATE TABLE lake.gold.t"
        " (id INTEGER, name VARCHAR, moment TIMESTAMPTZ, d DATE, l INTEGER[], n DECIMAL(9,2), f FLOAT)"
    )
    setup.close()
    pair = Pair(location)
    name = TableName("gold", "t")
    row = "({0}, 'n{0}', TIMESTAMPTZ '2024-01-01 00:00:{0}+00', DATE '2024-01-01', [{0}, NULL], {0}.25, 1.1)"
    pair.duckdb("INSERT INTO gold.t VALUES " + ", ".join(row.format(n) for n in range(10, 15)))
    pair.check(name)
    pair.duckdb("DELETE FROM gold.t WHERE id = 11", "UPDATE gold.t SET name = 'x' WHERE id = 12")
    pair.check(name)
    table = pair.table(name)
    scan = pair.lake.scan(table)
    assert len(scan.inlined.rows) == 4
    victim = scan.inlined.row_ids[[r[0] for r in scan.inlined.rows].index(13)]
    pair.commit(TableChange(name, removed_inlined_rows=(victim,)))
    pair.check(name)
    pair.append(name, [{"id": 99, "name": "ours", "moment": None, "d": None, "l": [], "n": None, "f": 2.5}])
    pair.duckdb("DELETE FROM gold.t WHERE id = 99")
    pair.check(name)
    pair.append(
        name, [{"id": n, "name": "ours", "moment": None, "d": None, "l": [], "n": None, "f": 2.5} for n in range(5)]
    )
    pair.duckdb("DELETE FROM gold.t WHERE id = 2")
    pair.delete(name, id=3)
    pair.check(name)
    pair.alter(AddColumn(name, ColumnSchema("more", t.VARCHAR), default="dflt"))
    pair.check(name)
    pair.duckdb("INSERT INTO gold.t VALUES (50, 'q', NULL, NULL, NULL, NULL, NULL, 'given')")
    pair.check(name)
    pair.alter(
        RenameColumn(name, "name", "title"),
    )
    pair.duckdb("INSERT INTO gold.t VALUES (51, 'q', NULL, NULL, NULL, NULL, NULL, 'given')")
    pair.check(name)
    pair.duckdb("CALL ducklake_flush_inlined_data('lake')")
    pair.check(name)
    pair.duckdb("CALL ducklake_merge_adjacent_files('lake')")
    pair.check(name)
    pair.long_lived.close()


def test_an_expired_start_and_a_replaced_table_are_told_apart(pair: Pair) -> None:
    pair.create(DEFINITION, orders(1))
    pair.append(ORDERS, orders(2))
    pair.alter(DropTable(ORDERS))
    pair.create(DEFINITION, orders(3))
    with pytest.raises(LakeTableReplacedError):
        pair.lake.delta(pair.table(ORDERS), 2)
    assert pair.lake.delta(pair.table(ORDERS), 3).inserted_rows == 1
    pair.duckdb("CALL ducklake_expire_snapshots('lake', versions => [0, 1, 2])")
    with pytest.raises(LakeHistoryExpiredError):
        pair.lake.delta(pair.table(ORDERS), 2)
    with pytest.raises(LakeHistoryExpiredError):
        pair.lake.table(ORDERS, 1)
    with pytest.raises(LakeError, match="no snapshot 99 yet"):
        pair.lake.table(ORDERS, 99)
    with pytest.raises(LakeConflictError):
        pair.commit(TableChange(ORDERS, removed_files=pair.lake.scan(pair.table(ORDERS)).files), base=1)
    assert lint(pair.lake) == ()


def test_maintenance_of_duckdb_succeeds_after_our_writes(pair: Pair) -> None:
    pair.create(DEFINITION, orders(1, 2, 3))
    for number in range(4, 8):
        pair.append(ORDERS, orders(number))
        pair.delete(ORDERS, id=number - 3)
    pair.duckdb("CALL ducklake_merge_adjacent_files('lake')")
    pair.duckdb("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
    pair.check(ORDERS, expected=expected(*orders(5, 6, 7)))
    pair.duckdb("CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 DAY)")
    pair.duckdb("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    listed = pair.duckdb("CALL ducklake_delete_orphaned_files('lake', dry_run => true, cleanup_all => true)")
    assert listed == []
    pair.history.clear()
    pair.check(ORDERS, expected=expected(*orders(5, 6, 7)))
