"""The queries that read a buffer or a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgtrickle_assets.capture.buffer_sql import buffer, expression, raw
from pgtrickle_assets.capture.pgtypes import travel
from pgtrickle_assets.capture.position import Snapshot
from pgtrickle_assets.capture.source_table import SourceColumn
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    from psycopg.sql import Composable, Composed


def unseen(since: Snapshot) -> Composed:
    """Condition on a buffer row: written by a transaction that `since` does not see.

    The first half is implied by the second and lets the index find the place.
    """
    from psycopg import sql

    return sql.SQL(
        "(__pgt_xid OPERATOR(pg_catalog.>=) {}::pg_catalog.xid8"
        " AND NOT pg_catalog.pg_visible_in_snapshot(__pgt_xid, {}::pg_catalog.pg_snapshot))"
    ).format(sql.Literal(str(since.xmin)), sql.Literal(str(since)))


def seen(until: Snapshot) -> Composed:
    """Condition on a buffer row: written by a transaction that `until` sees."""
    from psycopg import sql

    return sql.SQL(
        "(__pgt_xid OPERATOR(pg_catalog.<) {}::pg_catalog.xid8"
        " AND pg_catalog.pg_visible_in_snapshot(__pgt_xid, {}::pg_catalog.pg_snapshot))"
    ).format(sql.Literal(str(until.xmax)), sql.Literal(str(until)))


def changes(relid: int, columns: Sequence[SourceColumn], since: Snapshot, arrived: Sequence[TableName]) -> str:
    """The net change since a snapshot: equal rows added up by the server, zeros gone.

    Args:
        relid: The source table.
        columns: To read.
        since: What has been captured before.
        arrived: Partitions that were not in the table then: their present rows come in whole, and what the buffer
            says about them is left aside.
    """
    from psycopg import sql

    names = [sql.Identifier(c.name) for c in columns]
    skipped = sql.SQL("")
    sources: list[Composable] = []
    for leaf in arrived:
        identifier = sql.Identifier(leaf.schema, leaf.name)
        values = [expression(travel(c).stored, sql.Identifier(c.name)) for c in columns]
        sources.append(
            sql.SQL(" UNION ALL SELECT {}, 1::pg_catalog.int2 FROM ONLY {}").format(_listed(values), identifier)
        )
    if arrived:
        texts = sql.SQL(", ").join(sql.Literal(sql.Identifier(n.schema, n.name).as_string(None)) for n in arrived)
        skipped = sql.SQL(" AND __pgt_relid <> ALL (ARRAY[{}]::pg_catalog.regclass[]::pg_catalog.oid[])").format(texts)
    inner = sql.SQL("SELECT {}, __pgt_weight FROM {} WHERE {}{}").format(
        _listed(names), buffer(relid), unseen(since), skipped
    ) + sql.SQL("").join(sources)
    keys = [expression(key, name) for c, name in zip(columns, names, strict=True) for key in travel(c).keys]
    reads = [expression(travel(c).read, name) for c, name in zip(columns, names, strict=True)]
    weight = sql.SQL("pg_catalog.sum(__pgt_weight)")
    return (
        sql.SQL(
            "SELECT {reads}, {weight}::pg_catalog.int8{checks} FROM ({inner}) AS b GROUP BY {keys} HAVING {weight} <> 0"
        )
        .format(reads=_listed(reads), weight=weight, checks=_checks(columns, reads), inner=inner, keys=_listed(keys))
        .as_string(None)
    )


def content(relation: TableName, columns: Sequence[SourceColumn], first: int | None, last: int | None) -> str:
    """All rows of one relation, or those in heap pages `first` (inclusive) to `last` (exclusive, None: to the end)."""
    from psycopg import sql

    reads = [expression(travel(c).read, expression(travel(c).stored, sql.Identifier(c.name))) for c in columns]
    bounds: list[Composable] = []
    if first:
        bounds.append(sql.SQL("ctid >= {}::pg_catalog.tid").format(sql.Literal(f"({first},0)")))
    if last is not None:
        bounds.append(sql.SQL("ctid < {}::pg_catalog.tid").format(sql.Literal(f"({last},0)")))
    where = sql.SQL(" WHERE ") + sql.SQL(" AND ").join(bounds) if bounds else sql.SQL("")
    return (
        sql.SQL("SELECT {}{} FROM ONLY {}{}")
        .format(_listed(reads), _checks(columns, reads), sql.Identifier(relation.schema, relation.name), where)
        .as_string(None)
    )


def _listed(items: Sequence[Composable]) -> Composed:
    from psycopg import sql

    return sql.SQL(", ").join(items)


def _checks(columns: Sequence[SourceColumn], reads: Sequence[Composable]) -> Composed:
    """For each array column: is it something other than a plain list?"""
    from psycopg import sql

    odd = (
        ", coalesce(pg_catalog.array_ndims({value}) OPERATOR(pg_catalog.>) 1"
        " OR pg_catalog.array_lower({value}, 1) OPERATOR(pg_catalog.<>) 1, false)"
    )
    return sql.SQL("").join(
        raw(odd).format(value=read) for c, read in zip(columns, reads, strict=True) if travel(c).checks_shape
    )
