"""What identifies captured tables at a snapshot, and what has happened to them since another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.capture import buffer_sql, catalog
from pgtrickle_assets.capture.catalog import Attribute, Relation
from pgtrickle_assets.capture.position import TableState
from pgtrickle_assets.capture.registry import Captured
from pgtrickle_assets.capture.source_table import SourceColumn, significant_modifier
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class ObservedTable:
    """A captured table as the catalogs show it.

    Attributes:
        captured: As registered.
        relation: Its row of pg_class, or None when it was dropped.
        attributes: Its live columns.
        state: What goes into a position.
        files: relfilenode by oid of every relation that holds its rows.
        leaf_names: By oid, of its leaf partitions.
        guarded: Leaf partitions whose TRUNCATE is recorded.
        has_triggers: All of its own triggers are there and fire always.
    """

    captured: Captured
    relation: Relation | None
    attributes: tuple[Attribute, ...]
    state: TableState
    files: Mapping[int, int]
    leaf_names: Mapping[int, TableName]
    guarded: frozenset[int]
    has_triggers: bool


_TRIGGERS = """
SELECT w.root, t.tgrelid, bool_and(t.tgenabled = 'A'), count(*),
       md5(string_agg(format('%%s:%%s:%%s', t.oid, t.xmin, t.tgenabled), ',' ORDER BY t.tgname))
FROM unnest(%s::oid[], %s::text[]) AS w(root, name)
JOIN pg_trigger t ON t.tgname = w.name
GROUP BY w.root, t.tgrelid
"""

_COLUMNS = """
SELECT w.relid, md5(string_agg(format('%%s:%%s', a.attnum, a.xmin), ',' ORDER BY a.attnum))
FROM unnest(%s::oid[], %s::int[]) AS w(relid, number)
JOIN pg_attribute a ON a.attrelid = w.relid AND a.attnum = w.number
GROUP BY w.relid
"""

_LABELS = """
SELECT w.relid, array_agg(DISTINCT left(md5(format('%%s:%%s', e.oid, e.enumlabel)), 12))
FROM unnest(%s::oid[], %s::int[]) AS w(relid, number)
JOIN pg_attribute a ON a.attrelid = w.relid AND a.attnum = w.number
JOIN pg_type y ON y.oid = a.atttypid
LEFT JOIN pg_type b ON b.oid = CASE WHEN y.typtype = 'd' THEN y.typbasetype ELSE 0 END
JOIN pg_enum e ON e.enumtypid IN (y.oid, b.oid, CASE WHEN y.typcategory = 'A' THEN y.typelem ELSE 0 END)
GROUP BY w.relid
"""


def observe(connection: Connection, tables: Sequence[Captured]) -> dict[TableName, ObservedTable]:
    """Look at captured tables; inside a repeatable-read transaction, as of its snapshot."""
    oids = [table.relid for table in tables]
    relations = catalog.relations(connection, oids)
    attributes = catalog.attributes(connection, oids)
    leaves = catalog.leaves(connection, oids)
    names = {
        oid: r.name for oid, r in catalog.relations(connection, [x.oid for v in leaves.values() for x in v]).items()
    }
    own, truncate = _triggers(connection, tables)
    pairs = [(table.relid, column.number) for table in tables for column in table.columns]
    columns = dict(connection.execute(_COLUMNS, _transposed(pairs)).fetchall())
    labels = dict(connection.execute(_LABELS, _transposed(pairs)).fetchall())
    observed: dict[TableName, ObservedTable] = {}
    for table in tables:
        oid, relation = table.relid, relations.get(table.relid)
        prints, parts = own[oid], leaves.get(oid, [])
        members = {leaf.oid: leaf.file for leaf in parts}
        state = TableState(
            oid=oid,
            generation=table.generation,
            triggers=prints.get(oid, ("", False))[0],
            columns=columns.get(oid, ""),
            file=relation.file if relation else 0,
            leaves={leaf.oid: f"{leaf.file}/{prints.get(leaf.oid, ('', False))[0][:12]}" for leaf in parts},
            labels=frozenset(labels.get(oid, ())),
        )
        observed[table.name] = ObservedTable(
            captured=table,
            relation=relation,
            attributes=tuple(attributes.get(oid, ())),
            state=state,
            files=members if relation and relation.partitioned else {oid: state.file},
            leaf_names={leaf: names[leaf] for leaf in members},
            guarded=frozenset(truncate[oid]),
            has_triggers=all(prints.get(member, ("", False))[1] for member in (oid, *members)),
        )
    return observed


def _transposed(pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    return [[left for left, _ in pairs], [right for _, right in pairs]]


def _triggers(
    connection: Connection, tables: Sequence[Captured]
) -> tuple[dict[int, dict[int, tuple[str, bool]]], dict[int, set[int]]]:
    """Per table: print and completeness of its recording triggers by relation; relations whose TRUNCATE is recorded."""
    own: dict[int, dict[int, tuple[str, bool]]] = defaultdict(dict)
    truncate: dict[int, set[int]] = defaultdict(set)
    wanted = [
        (table.relid, buffer_sql.trigger_name(table.relid, event))
        for table in tables
        for event in buffer_sql.events(table.level)
    ]
    expected = {table.relid: len(buffer_sql.events(table.level)) for table in tables}
    rows = connection.execute(_TRIGGERS, [[root for root, _ in wanted], [name for _, name in wanted]])
    for root, relid, always, count, text in rows:
        own[root][relid] = (text, always and count == expected[root])
    ends = [(table.relid, buffer_sql.trigger_name(table.relid, "truncate")) for table in tables]
    for root, relid, always, _, _ in connection.execute(_TRIGGERS, [[r for r, _ in ends], [n for _, n in ends]]):
        if always:
            truncate[root].add(relid)
    return own, truncate


def shape_changes(observed: ObservedTable, columns: Collection[str]) -> list[str]:
    """What happened to the definition of a table that readers of `columns` cannot ignore; empty if nothing did."""
    relation, captured = observed.relation, observed.captured
    if relation is None:
        return ["the table was dropped"]
    if relation.name != captured.name:
        return [f"the table was renamed to {relation.name}"]
    if relation.level != captured.level:
        return ["the table became, or is no longer, part of another one or of a subscription"]
    now = {a.number: a for a in observed.attributes}
    found = [_column_change(column, now.get(column.number)) for column in captured.columns if column.name in columns]
    return [text for text in found if text]


def _column_change(before: SourceColumn, after: Attribute | None) -> str:
    if after is None:
        return f"column {before.name!r} was dropped"
    if after.name != before.name:
        return f"column {before.name!r} was renamed to {after.name!r}"
    if (after.type_oid, significant_modifier(after.type_oid, after.modifier)) != (before.shape[2], before.shape[3]):
        return f"column {before.name!r} changed its type from {before.pg_type.text} to {after.text}"
    return ""


def gap(before: TableState | None, observed: ObservedTable) -> str:
    """Why the changes since `before` are not all known; empty when they are."""
    after = observed.state
    if before is None:
        return "it was not captured before"
    if not observed.has_triggers:
        return "a trigger of its capture is missing or disabled"
    if (before.oid, before.generation) != (after.oid, after.generation):
        return "its capture was installed anew"
    if before.triggers != after.triggers:
        return "a trigger of its capture was disabled or replaced for a time"
    if not before.labels <= after.labels:
        return "a label of one of its enum types was renamed"
    if before.columns != after.columns and _rewritten(before, after):
        return "it was rewritten by ALTER TABLE"
    return _leaf_gap(before, observed)


def _rewritten(before: TableState, after: TableState) -> bool:
    if before.file != after.file:
        return True
    return any(after.leaves.get(oid, text) != text for oid, text in before.leaves.items())


def _leaf_gap(before: TableState, observed: ObservedTable) -> str:
    for oid, text in before.leaves.items():
        now = observed.state.leaves.get(oid)
        if now is None:
            return "a partition was detached or dropped"
        if now.split("/")[1] != text.split("/")[1]:
            return "a partition was detached for a time, or its triggers were disabled"
        if now != text and oid not in observed.guarded:
            return "a partition was truncated or rewritten before its TRUNCATE was recorded"
    return ""


def arrivals(before: TableState, observed: ObservedTable) -> list[int]:
    """Leaf partitions that were not in the table before: their rows may have come in without a trigger."""
    return [oid for oid in observed.state.leaves if oid not in before.leaves]
