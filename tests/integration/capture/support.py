"""A model of what capture must yield: each table as a multiset of rows, moved by batches only."""

from collections import Counter

import psycopg
from psycopg import sql

from pgtrickle_assets.capture.postgres import PostgresSource
from pgtrickle_assets.query.types import TableName


def table(name, schema="public"):
    return TableName(schema, name)


def execute(dsn, *statements):
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def frozen(value):
    """Hashable, and telling apart what == does not: NaN, -0.0, 1 and True."""
    if isinstance(value, float):
        return ("float", value.hex() if value == value else "nan")
    if isinstance(value, list):
        return ("list", tuple(frozen(item) for item in value))
    return (type(value).__name__, value)


def rows_of(batches):
    return [tuple(frozen(v) for v in row.values()) for batch in batches for row in batch.to_pylist()]


_SAME_FILES = """
WITH RECURSIVE tree AS (
    SELECT %s::regclass::oid AS oid UNION ALL SELECT i.inhrelid FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid)
SELECT bool_and(pg_relation_filenode(c.oid) = c.relfilenode)
FROM tree t JOIN pg_class c USING (oid) WHERE c.relkind = 'r'
"""


def read_at(dsn, snapshot, name, columns="*"):
    """The table at an exported snapshot, read by psycopg alone; None when a TRUNCATE since then took the rows away."""
    identifier = sql.Identifier(name.schema, name.name)
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        rows = connection.execute(sql.SQL("SELECT {} FROM {}").format(sql.SQL(columns), identifier)).fetchall()
        (intact,) = connection.execute(_SAME_FILES, [identifier.as_string(connection)]).fetchone()
        return Counter(tuple(frozen(v) for v in row) for row in rows) if intact else None


class Follower:
    """Stores batches as a mirror would, and checks each against the source at the same snapshot."""

    def __init__(self, source: PostgresSource, dsn: str, tables):
        self.source, self.dsn, self.tables = source, dsn, list(tables)
        self.position = None
        self.content = {}
        self.steps = self.checks = 0

    def step(self, copy=None, check=True, columns="*"):
        """One batch. With `check` off a copy is only proved by the batches after it.

        A check reads over a second connection, which would stand behind a TRUNCATE that waits for the batch.
        """
        copy = [name for name in self.tables if name not in self.content] if copy is None else copy
        with self.source.open_batch(self.position, self.tables, copy, part_bytes=64 * 8192) as batch:
            changed = {}
            for name, query in batch.change_queries.items():
                content = Counter(self.content[name])
                for row in [r for b in batch.changes(name) for r in b.to_pylist()]:
                    weight = row.pop("__pgt_weight")
                    assert weight != 0
                    content[tuple(frozen(v) for v in row.values())] += weight
                assert all(count >= 0 for count in content.values()), f"{name} loses rows it never had"
                changed[name] = +content
                if check:
                    self.compare(changed[name], query.snapshot, name, columns)
            for name, parts in batch.copies.items():
                changed[name] = Counter(rows_of(batch.content(name)))
                if check:
                    assert changed[name] == read_at(self.dsn, parts[0].snapshot, name, columns), (
                        f"copy of {name} differs"
                    )
        self.content.update(changed)
        self.position = batch.position
        self.steps += 1
        return batch

    def compare(self, content, snapshot, name, columns):
        expected = read_at(self.dsn, snapshot, name, columns)
        if expected is not None:
            self.checks += 1
            assert content == expected, f"{name}: extra {content - expected}, missing {expected - content}"

    def trim(self):
        return self.source.trim(self.position)
