"""What a plan looks like as SQL."""

from __future__ import annotations

import pytest

from pgtrickle_assets.query.functions.registry import registered
from pgtrickle_assets.query.plan import (
    Aggregate,
    AggregateCall,
    Call,
    Column,
    ColumnRef,
    Expression,
    Filter,
    Join,
    Literal,
    Node,
    Scan,
    SetOperation,
    SortKey,
    TopK,
    UnionAll,
    Values,
    Version,
)
from pgtrickle_assets.query.render import render
from pgtrickle_assets.query.rewrite import IdGenerator, free_columns, ref, rename_ids
from pgtrickle_assets.query.types import BOOLEAN, INT32, INT64, VARCHAR, decimal

A, B = Column("c1", INT32), Column("c2", VARCHAR)
WEIGHT = Column("c3", INT64, nullable=False)
TABLE = Scan("public.t", (A, B), ("a", 'odd "name"'))


def text(node: Node, dialect: object = "duckdb") -> str:
    sql = render(node, dialect, lambda scan: f'"{scan.relation}"')  # type: ignore[arg-type]
    return " ".join(sql.split())


def other() -> Scan:
    return Scan("public.u", (Column("c11", INT32), Column("c12", VARCHAR)), ("a", "b"))


def equal() -> Expression:
    return Call("=", (ColumnRef("c1", INT32), ColumnRef("c11", INT32)), BOOLEAN)


def test_a_scan_names_columns_by_their_ids() -> None:
    assert 'SELECT "a" AS "c1", "odd ""name""" AS "c2" FROM "public.t"' in text(TABLE)


def test_a_weighted_scan_exposes_the_weight_column_last() -> None:
    scan = Scan("delta_t", (A,), ("a",), Version.DELTA, WEIGHT)
    assert 'SELECT "a" AS "c1", "__pgt_weight" AS "c3" FROM "delta_t"' in text(scan)


@pytest.mark.parametrize(
    ("kind", "spark", "duckdb"),
    [
        ("inner", "INNER JOIN", "INNER JOIN"),
        ("left", "LEFT JOIN", "LEFT JOIN"),
        ("full", "FULL JOIN", "FULL JOIN"),
        ("semi", "LEFT SEMI JOIN", "SEMI JOIN"),
        ("anti", "LEFT ANTI JOIN", "ANTI JOIN"),
    ],
)
def test_joins(kind: object, spark: str, duckdb: str) -> None:
    join = Join(kind, TABLE, other(), equal())  # type: ignore[arg-type]
    assert spark in text(join, "spark")
    assert duckdb in text(join)
    names = [column.id for column in join.output]
    assert names == (["c1", "c2"] if kind in ("semi", "anti") else ["c1", "c2", "c11", "c12"])


def test_joins_within_one_task_are_by_hash_and_stay_in_one_partition() -> None:
    less = Call("<", (ref(A), ref(other().output[0])), BOOLEAN)

    def joined(kind: object, condition: Expression, dialect: object = "spark") -> str:
        node = Join(kind, TABLE, other(), condition)  # type: ignore[arg-type]
        sql = render(node, dialect, lambda scan: f'"{scan.relation}"', one_task=True)  # type: ignore[arg-type]
        return " ".join(sql.split())

    assert "SELECT /*+ COALESCE(1), SHUFFLE_HASH(pgt_1, pgt_2) */ `c1`" in joined("inner", equal())
    assert "SELECT /*+ SHUFFLE_HASH(pgt_1, pgt_2) */ `c1`" in joined("anti", equal())
    assert "SELECT /*+ COALESCE(1) */ `c1`" in joined("inner", less)
    assert "/*+" not in joined("left", less)
    assert "/*+" not in joined("inner", equal(), "duckdb")


def test_a_join_without_condition_is_a_cross_join() -> None:
    assert "CROSS JOIN" in text(Join("inner", TABLE, other()))


def test_null_safe_equality_has_the_engine_operator() -> None:
    test = Call("is_not_distinct_from", (ref(A), ref(A)), BOOLEAN, nullable=False)
    assert "<=>" in text(Filter(TABLE, test), "spark")
    assert "IS NOT DISTINCT FROM" in text(Filter(TABLE, test))


def test_sums_carry_38_digits() -> None:
    money = Column("c5", decimal(10, 2))
    scan = Scan("t", (money,), ("m",))
    call = AggregateCall("sum", (ref(money),), decimal(38, 2))
    sql = text(Aggregate(scan, (), ((Column("c6", decimal(38, 2)), call),)), "spark")
    assert "sum(CAST(`c5` AS DECIMAL(28, 2)))" in sql


def test_an_aggregate_without_keys_has_no_group_by() -> None:
    count = (Column("c6", INT64), AggregateCall("count", (), INT64, nullable=False))
    assert "GROUP BY" not in text(Aggregate(TABLE, (), (count,)))
    assert 'GROUP BY "c1"' in text(Aggregate(TABLE, (A,), (count,)))


def test_set_operations_match_by_position() -> None:
    columns = (Column("c21", INT32), Column("c22", VARCHAR))
    assert 'SELECT "c11" AS "c21", "c12" AS "c22"' in text(UnionAll((TABLE, other()), columns))
    assert "EXCEPT ALL" in text(SetOperation("except", True, TABLE, other(), columns))
    assert "INTERSECT SELECT" in text(SetOperation("intersect", False, TABLE, other(), columns))


def test_top_per_partition_ranks_rows() -> None:
    keys = (SortKey(ref(A), descending=True, nulls_first=True),)
    assert 'ORDER BY "c1" DESC NULLS FIRST LIMIT 3 OFFSET 1' in text(TopK(TABLE, keys, 3, 1))
    sql = text(TopK(TABLE, keys, 3, 1, (B,)))
    assert 'row_number() OVER (PARTITION BY "c2" ORDER BY "c1" DESC NULLS FIRST)' in sql
    assert "pgt_rank > 1 AND pgt_rank <= 4" in sql


def test_values_are_typed_and_may_be_empty() -> None:
    assert "CAST(CAST('1' AS INTEGER) AS INTEGER) AS \"c1\"" in text(Values((A,), ((Literal(1, INT32),),)))
    assert "WHERE FALSE" in text(Values((A,), ()))


def test_a_text_with_a_newline_stays_on_one_line() -> None:
    literal = Literal("a\nb'\\", VARCHAR)
    assert "E'a\\nb\\'\\\\'" in text(Filter(TABLE, Call("=", (ref(B), literal), BOOLEAN)))


def test_copies_have_fresh_ids() -> None:
    join = Join("inner", TABLE, other(), equal())
    copy, renamed = rename_ids(join, IdGenerator.after(join))
    assert set(renamed) == {"c1", "c2", "c11", "c12"}
    assert not {column.id for column in copy.output} & {column.id for column in join.output}
    assert not free_columns(copy)


def test_every_function_has_a_text_for_both_engines() -> None:
    assert len(registered()) > 100
    assert all(function.spark and function.duckdb for function in registered())
