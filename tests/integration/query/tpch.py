"""TPC-H at tiny scale: schemas, and data from DuckDB's generator in PostgreSQL and DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pgtrickle_assets.query.types import TableSchema
from tests.integration.query.tables import SampleTable

QUERIES = Path(__file__).parent / "tpch"


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


def load_postgres(source: Any, target: Any, folder: Path) -> None:
    """Copy all tables from the generator into PostgreSQL."""
    for table in TABLES.values():
        target.execute(table.create())
        file = folder / f"{table.name}.csv"
        names = ", ".join(name for name, _ in table.columns)
        source.execute(f"COPY (SELECT {names} FROM {table.name}) TO '{file}' (FORMAT csv, HEADER false)")
        with target.cursor().copy(f"COPY {table.name} FROM STDIN (FORMAT csv)") as copy:
            copy.write(file.read_bytes())
        target.execute(f"ANALYZE {table.name}")
