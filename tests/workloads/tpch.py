"""TPC-H: schemas, the 22 queries, data from DuckDB's generator in PostgreSQL and DuckDB, and refresh sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pgtrickle_assets.query.types import TableSchema
from tests.integration.query.tables import SampleTable

QUERIES = Path(__file__).parent / "tpch"
NUMBERS = range(1, 23)


def _columns(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((part.split()[0], part.split()[1]) for part in text.split(", "))


_MONEY = "numeric(15,2)"
TABLES = {
    table.name: table
    for table in (
        SampleTable("region", _columns("r_regionkey int4, r_name text, r_comment text"), ("r_regionkey",), ""),
        SampleTable(
            "nation", _columns("n_nationkey int4, n_name text, n_regionkey int4, n_comment text"), ("n_nationkey",), ""
        ),
        SampleTable(
            "supplier",
            _columns(
                "s_suppkey int8, s_name text, s_address text, s_nationkey int4, s_phone text, "
                f"s_acctbal {_MONEY}, s_comment text"
            ),
            ("s_suppkey",),
            "",
        ),
        SampleTable(
            "customer",
            _columns(
                "c_custkey int8, c_name text, c_address text, c_nationkey int4, c_phone text, "
                f"c_acctbal {_MONEY}, c_mktsegment text, c_comment text"
            ),
            ("c_custkey",),
            "",
        ),
        SampleTable(
            "part",
            _columns(
                "p_partkey int8, p_name text, p_mfgr text, p_brand text, p_type text, p_size int4, p_container text, "
                f"p_retailprice {_MONEY}, p_comment text"
            ),
            ("p_partkey",),
            "",
        ),
        SampleTable(
            "partsupp",
            _columns(f"ps_partkey int8, ps_suppkey int8, ps_availqty int8, ps_supplycost {_MONEY}, ps_comment text"),
            ("ps_partkey", "ps_suppkey"),
            "",
        ),
        SampleTable(
            "orders",
            _columns(
                f"o_orderkey int8, o_custkey int8, o_orderstatus text, o_totalprice {_MONEY}, o_orderdate date, "
                "o_orderpriority text, o_clerk text, o_shippriority int4, o_comment text"
            ),
            ("o_orderkey",),
            "",
        ),
        SampleTable(
            "lineitem",
            _columns(
                f"l_orderkey int8, l_partkey int8, l_suppkey int8, l_linenumber int8, l_quantity {_MONEY}, "
                f"l_extendedprice {_MONEY}, l_discount {_MONEY}, l_tax {_MONEY}, l_returnflag text, l_linestatus text, "
                "l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct text, "
                "l_shipmode text, l_comment text"
            ),
            ("l_orderkey", "l_linenumber"),
            "",
        ),
    )
}


def resolve(parts: tuple[str, ...]) -> TableSchema | None:
    """The schema of a TPC-H table."""
    table = TABLES.get(parts[-1])
    return None if table is None else table.schema()


def generate(scale: float) -> Any:
    """A DuckDB with the tables at a scale."""
    from pgtrickle_assets.services.duckdb import connect

    connection = connect(extensions=("tpch",))
    connection.execute(f"CALL dbgen(sf = {scale})")
    return connection


def query(number: int) -> str:
    """The text of a query, in PostgreSQL's dialect and with the specification's validation parameters."""
    return (QUERIES / f"q{number:02}.sql").read_text("utf-8")


INDEXES = (
    "CREATE INDEX ON lineitem (l_partkey, l_suppkey)",
    "CREATE INDEX ON orders (o_custkey)",
)
"""What PostgreSQL needs to answer the correlated queries in seconds at scale 1."""

_PER_SCALE = {"supplier": 10_000, "customer": 150_000, "part": 200_000, "partsupp": 800_000, "orders": 1_500_000}


def refresh_set(cycle: int, churn: float, scale: float, table: Callable[[str], str] = str) -> list[str]:
    """Statements of one cycle; they touch about the share `churn` of the rows of every table but nation and region.

    A third of the changed orders is new, a third is deleted, both with their lineitems, and of the last third some
    move to another customer, some to another date, and some keep both while their lineitems move to another part, to
    another supplier, to other dates or to another price. New orders take the gaps that TPC-H leaves between its order
    keys, so the changes lie all over the key range. Of customers, suppliers, parts and their offers, half of what
    changes gets another join key, the other half another balance, size or price.

    Args:
        cycle: Number of the cycle; the same number gives the same statements.
        churn: Share of the rows.
        scale: Scale factor of the tables.
        table: Name in SQL of a table.
    """

    def chosen(key: str, name: str, share: float, salt: int) -> str:
        step = max(1, min(round(1 / (churn * share)), round(_PER_SCALE[name] * scale / 2)))
        return f"{key} % {step} = {(cycle * 7 + salt) % step}"

    orders, lineitem = table("orders"), table("lineitem")
    order_columns = ", ".join(name for name, _ in TABLES["orders"].columns[1:])
    line_columns = ", ".join(name for name, _ in TABLES["lineitem"].columns[1:])
    shift = 8 * (1 + cycle % 3)
    new = f"{{0}} % 32 < 8 AND {chosen('{0}', 'orders', 1 / 3, 1)}"
    gone = chosen("o_orderkey", "orders", 1 / 3, 2)
    customers, parts, suppliers = (max(1, round(_PER_SCALE[n] * scale)) for n in ("customer", "part", "supplier"))

    def lines(salt: int) -> str:
        return chosen("l_orderkey", "orders", 1 / 15, salt)

    return [
        f"DELETE FROM {lineitem} WHERE {gone.replace('o_orderkey', 'l_orderkey')}",
        f"DELETE FROM {orders} WHERE {gone}",
        f"INSERT INTO {orders} SELECT o_orderkey + {shift}, {order_columns} FROM {orders} "
        f"WHERE {new.format('o_orderkey')}",
        f"INSERT INTO {lineitem} SELECT l_orderkey + {shift}, {line_columns} FROM {lineitem} "
        f"WHERE {new.format('l_orderkey')}",
        f"UPDATE {orders} SET o_custkey = (o_custkey + 3) % {customers} + 1 "
        f"WHERE {chosen('o_orderkey', 'orders', 1 / 6, 3)}",
        f"UPDATE {orders} SET o_orderdate = o_orderdate + 45 WHERE {chosen('o_orderkey', 'orders', 1 / 6, 4)}",
        f"UPDATE {lineitem} SET l_partkey = l_partkey % {parts} + 1 WHERE {lines(5)}",
        f"UPDATE {lineitem} SET l_suppkey = l_suppkey % {suppliers} + 1 WHERE {lines(6)}",
        f"UPDATE {lineitem} SET l_shipdate = l_shipdate + 40, l_receiptdate = l_receiptdate - 20 WHERE {lines(7)}",
        f"UPDATE {lineitem} SET l_extendedprice = l_extendedprice + 0.01, l_discount = 0.06, l_quantity = 5, "
        f"l_shipmode = 'AIR', l_shipinstruct = 'DELIVER IN PERSON' WHERE {lines(8)}",
        f"UPDATE {lineitem} SET l_quantity = 51 - l_quantity, l_shipmode = 'MAIL' WHERE {lines(9)}",
        f"UPDATE {table('customer')} SET c_nationkey = (c_nationkey + 1) % 25 "
        f"WHERE {chosen('c_custkey', 'customer', 1 / 2, 1)}",
        f"UPDATE {table('customer')} SET c_acctbal = -c_acctbal WHERE {chosen('c_custkey', 'customer', 1 / 2, 2)}",
        f"UPDATE {table('supplier')} SET s_nationkey = (s_nationkey + 3) % 25 "
        f"WHERE {chosen('s_suppkey', 'supplier', 1 / 2, 1)}",
        f"UPDATE {table('supplier')} SET s_acctbal = s_acctbal + 1 WHERE {chosen('s_suppkey', 'supplier', 1 / 2, 2)}",
        f"UPDATE {table('partsupp')} SET ps_supplycost = ps_supplycost + 1.25, ps_availqty = ps_availqty + 1 "
        f"WHERE {chosen('ps_partkey', 'part', 1, 1)}",
        f"UPDATE {table('part')} SET p_size = p_size % 50 + 1, p_brand = 'Brand#12', p_container = 'SM CASE' "
        f"WHERE {chosen('p_partkey', 'part', 1 / 2, 1)}",
        f"UPDATE {table('part')} SET p_type = 'PROMO BRUSHED STEEL', p_container = 'MED BOX' "
        f"WHERE {chosen('p_partkey', 'part', 1 / 2, 2)}",
    ]
