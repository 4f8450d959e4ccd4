"""What the system catalogs of a source say, read as plain rows.

All of it is SQL on catalog tables and not the server's helper functions where these would look past the snapshot: in a
repeatable-read transaction the answer is that of the snapshot, like the data next to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.capture.source_table import ForeignKey, PgType, TriggerLevel
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Relation:
    """One row of pg_class, with what decides whether and how it can be captured."""

    oid: int
    name: TableName
    kind: str
    persistence: str
    is_partition: bool
    has_children: bool
    has_parent: bool
    replicated: bool
    row_security: bool
    selectable: bool
    owned: bool
    owner: str
    file: int
    pages: int
    estimated_rows: int | None

    @property
    def partitioned(self) -> bool:
        """The rows live in partitions."""
        return self.kind == "p"

    @property
    def level(self) -> TriggerLevel:
        """Statement triggers miss writes that name another table, and what logical replication applies."""
        through_another = self.partitioned or self.is_partition or self.has_parent
        return "row" if through_another or self.replicated else "statement"


@dataclass(frozen=True, slots=True)
class Attribute:
    """One row of pg_attribute."""

    relation: int
    number: int
    name: str
    type_oid: int
    modifier: int
    text: str
    not_null: bool
    generated: str


_RELATIONS = """
SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relispartition,
       EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) AND c.relkind = 'r',
       EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid) AND NOT c.relispartition,
       EXISTS (SELECT FROM pg_subscription_rel s WHERE s.srrelid = c.oid),
       row_security_active(c.oid), has_table_privilege(c.oid, 'SELECT'), pg_has_role(c.relowner, 'USAGE'),
       pg_get_userbyid(c.relowner)::text, c.relfilenode::bigint, c.relpages,
       CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""

_USER_SCHEMAS = r"""
  AND n.nspname NOT IN ('information_schema', 'pgtrickle', 'pgtrickle_changes') AND n.nspname !~ '^pg_'
"""


def relations(connection: Connection, oids: Sequence[int] | None = None) -> dict[int, Relation]:
    """Tables and table-like objects by oid: those asked for, or all of the user's schemas."""
    if oids is None:
        rows = connection.execute((_RELATIONS + _USER_SCHEMAS).encode()).fetchall()
    else:
        rows = connection.execute((_RELATIONS + " AND c.oid = ANY(%s)").encode(), [list(oids)]).fetchall()
    return {row[0]: Relation(row[0], TableName(row[1], row[2]), *row[3:]) for row in rows}


_ATTRIBUTES = """
SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, format_type(a.atttypid, a.atttypmod),
       a.attnotnull AND NOT EXISTS (SELECT FROM pg_constraint k
           WHERE k.conrelid = a.attrelid AND k.contype = 'n' AND NOT k.convalidated AND a.attnum = ANY (k.conkey)),
       a.attgenerated::text
FROM pg_attribute a
WHERE a.attrelid = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""


def attributes(connection: Connection, oids: Sequence[int]) -> dict[int, list[Attribute]]:
    """Live columns by table, in table order."""
    found: dict[int, list[Attribute]] = defaultdict(list)
    for row in connection.execute(_ATTRIBUTES, [list(oids)]):
        found[row[0]].append(Attribute(*row))
    return found


_TYPES = """
WITH RECURSIVE needed AS (
    SELECT unnest(%s::oid[]) AS oid
    UNION
    SELECT u.oid FROM needed d JOIN pg_type y ON y.oid = d.oid
    CROSS JOIN LATERAL (VALUES (y.typbasetype), (CASE WHEN y.typcategory = 'A' THEN y.typelem ELSE 0 END)) AS u(oid)
    WHERE u.oid <> 0
)
SELECT y.oid, y.typname, y.typtype::text, y.typbasetype, y.typtypmod,
       CASE WHEN y.typcategory = 'A' THEN y.typelem ELSE 0 END, n.nspname = 'pg_catalog',
       ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = y.oid ORDER BY e.enumsortorder)
FROM needed d JOIN pg_type y ON y.oid = d.oid JOIN pg_namespace n ON n.oid = y.typnamespace
"""


def types(connection: Connection, wanted: Sequence[Attribute]) -> dict[tuple[int, int], PgType]:
    """Types of columns by (declared type, modifier), domains resolved."""
    rows = connection.execute(_TYPES, [list({a.type_oid for a in wanted})]).fetchall()
    catalog = {row[0]: row[1:] for row in rows}
    return {(a.type_oid, a.modifier): _resolve(catalog, a.type_oid, a.modifier, a.text) for a in wanted}


def _resolve(catalog: Mapping[int, tuple[Any, ...]], oid: int, modifier: int, text: str) -> PgType:
    name, form, base, base_modifier, element, builtin, labels = catalog[oid]
    if form == "d":
        return _resolve(catalog, base, base_modifier, text)
    if form == "e":
        return PgType("enum", text, -1, None, tuple(labels))
    if element:
        # An array's modifier is its elements'.
        return PgType("array", text, modifier, _resolve(catalog, element, modifier, text))
    if not builtin and name != "citext":
        return PgType(f"other:{name}", text)
    return PgType(name, text, modifier)


_KEYS = """
SELECT i.indrelid, ARRAY(SELECT k.number::int FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, position)
                         WHERE k.position <= i.indnkeyatts ORDER BY k.position)
FROM pg_index i
WHERE i.indrelid = ANY(%s) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indrelid, i.indisprimary DESC, i.indnkeyatts, i.indexrelid
"""


def unique_keys(connection: Connection, oids: Sequence[int]) -> dict[int, list[tuple[int, ...]]]:
    """Column numbers of unique indexes over plain columns, the primary key first, then the shortest."""
    found: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for table, numbers in connection.execute(_KEYS, [list(oids)]):
        found[table].append(tuple(numbers))
    return found


_FOREIGN_KEYS = """
SELECT k.conrelid, k.conname, n.nspname, c.relname,
       ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY u(number, position)
             JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.number ORDER BY u.position),
       ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY u(number, position)
             JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.number ORDER BY u.position)
FROM pg_constraint k JOIN pg_class c ON c.oid = k.confrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND k.conparentid = 0 AND k.conrelid = ANY(%s)
ORDER BY k.conrelid, k.conname
"""


def foreign_keys(connection: Connection, oids: Sequence[int]) -> dict[int, list[ForeignKey]]:
    """Foreign keys by referring table."""
    found: dict[int, list[ForeignKey]] = defaultdict(list)
    for table, name, schema, target, columns, targets in connection.execute(_FOREIGN_KEYS, [list(oids)]):
        found[table].append(ForeignKey(name, tuple(columns), TableName(schema, target), tuple(targets)))
    return found


_LEAVES = """
WITH RECURSIVE tree AS (
    SELECT c.oid AS root, c.oid AS member FROM pg_class c WHERE c.oid = ANY(%s) AND c.relkind = 'p'
    UNION ALL
    SELECT t.root, i.inhrelid FROM tree t JOIN pg_inherits i ON i.inhparent = t.member
)
SELECT t.root, t.member, c.relkind::text, c.relfilenode::bigint, c.relpages
FROM tree t JOIN pg_class c ON c.oid = t.member
WHERE c.relkind <> 'p'
ORDER BY t.root, t.member
"""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A partition that holds rows itself; `file` is its relfilenode, which a TRUNCATE or a rewrite changes."""

    oid: int
    kind: str
    file: int
    pages: int


def leaves(connection: Connection, oids: Sequence[int]) -> dict[int, list[Leaf]]:
    """Leaf partitions by partitioned table."""
    found: dict[int, list[Leaf]] = defaultdict(list)
    for root, member, kind, file, pages in connection.execute(_LEAVES, [list(oids)]):
        found[root].append(Leaf(member, kind, file, pages))
    return found
