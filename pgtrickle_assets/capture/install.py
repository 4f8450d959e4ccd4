"""Put triggers and change buffers into a source, keep them right, and take them out again."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pgtrickle_assets.capture import buffer_sql, catalog, registry
from pgtrickle_assets.capture.locks import LockPolicy, in_short_transaction
from pgtrickle_assets.capture.registry import Captured
from pgtrickle_assets.capture.source_table import SourceColumn, SourceTable
from pgtrickle_assets.errors import SourcePrivilegeError
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

InstallOutcome = Literal["created", "rebuilt", "extended", "unchanged"]
"""`created` and `rebuilt` start an empty buffer, so the table has to be copied; the others keep what was recorded."""

_ADVISORY = "SELECT pg_advisory_xact_lock(hashtextextended('pgtrickle_changes install', 0))"


@dataclass(frozen=True, slots=True)
class TriggerState:
    """One expected trigger; `enabled` means that it fires for every session, replica role included."""

    table: TableName
    relation: str
    trigger: str
    present: bool
    enabled: bool

    @property
    def healthy(self) -> bool:
        """It records what it should."""
        return self.present and self.enabled


def install(
    connection: Connection, tables: Mapping[TableName, SourceTable], consumer: str, policy: LockPolicy
) -> dict[TableName, InstallOutcome]:
    """Make every table's changes be recorded, columns of all consumers together.

    Args:
        connection: In autocommit mode.
        tables: As described now.
        consumer: Who reads them.
        policy: How long to insist on locks. Writers are blocked for the moment of CREATE TRIGGER alone.

    Raises:
        SourcePrivilegeError: The role does not own a table, or may not create the capture schema.
        SourceBusyError: A table stays locked.
    """
    if registry.exists(connection) and not registry.belongs_here(connection):
        _remove_foreign(connection, policy)
    in_short_transaction(connection, policy, list, "installing capture", lambda: _prepare(connection))
    outcomes: dict[TableName, InstallOutcome] = {}
    for name, table in tables.items():
        outcomes[name] = in_short_transaction(
            connection,
            policy,
            lambda oid=table.oid, leaves=table.leaves: [oid, *leaves],
            f"installing capture on source table {name}",
            lambda table=table: _install_table(connection, table, consumer),
        )
    return outcomes


def _prepare(connection: Connection) -> None:
    connection.execute(_ADVISORY)
    registry.create(connection)


def _install_table(connection: Connection, table: SourceTable, consumer: str) -> InstallOutcome:
    connection.execute(_ADVISORY)
    known = list(registry.captured(connection).values())
    for former in known:
        if former.name == table.name and former.relid != table.oid:
            _remove_table(connection, former.relid)
    before = next((c for c in known if c.relid == table.oid), None)
    columns = _wanted(connection, table, before, consumer)
    outcome: InstallOutcome = "unchanged"
    if before is None or _differs(before, table, columns) or not _healthy(connection, before):
        _require_owner(connection, table)
        _build(connection, table, columns, before)
        outcome = "created" if before is None else "rebuilt"
    elif _guard_leaves(connection, table.oid, table.leaves, columns):
        outcome = "extended"
    registry.subscribe(connection, consumer, table.oid, [column.name for column in table.columns])
    return outcome


def _wanted(
    connection: Connection, table: SourceTable, before: Captured | None, consumer: str
) -> tuple[SourceColumn, ...]:
    """This consumer's columns, and those of the others that are still as they were registered."""
    if before is None:
        return table.columns
    own = {column.name for column in table.columns}
    others = registry.subscribed(connection, table.oid, besides=consumer) - own
    now = {a.number: a for a in catalog.attributes(connection, [table.oid])[table.oid]}
    kept = [
        c
        for c in before.columns
        if c.name in others and c.number in now and (now[c.number].name, now[c.number].type_oid) == (c.name, c.type_oid)
    ]
    return tuple(sorted((*table.columns, *kept), key=lambda column: column.number))


def _differs(before: Captured, table: SourceTable, columns: Sequence[SourceColumn]) -> bool:
    return before.level != table.level or before.name != table.name or _facts(before.columns) != _facts(columns)


def _facts(columns: Sequence[SourceColumn]) -> set[tuple[object, ...]]:
    return {column.shape for column in columns}


def _healthy(connection: Connection, before: Captured) -> bool:
    return all(state.healthy for state in inventory(connection, [before]) if not state.trigger.endswith("_truncate"))


def _require_owner(connection: Connection, table: SourceTable) -> None:
    for relation in catalog.relations(connection, [table.oid, *table.leaves]).values():
        if not relation.owned:
            raise SourcePrivilegeError(
                f"creating triggers on source table {relation.name} needs its owner {relation.owner!r}.",
                hint=f'Log in as that role, or GRANT "{relation.owner}" to the user of the source.',
            )


def _build(
    connection: Connection, table: SourceTable, columns: Sequence[SourceColumn], before: Captured | None
) -> None:
    """Start an empty buffer under a lock that no writer of the table can hold at the same time."""
    from psycopg import sql

    name, relid = table.name, table.oid
    source = sql.Identifier(name.schema, name.name)
    connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(source))
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(buffer_sql.buffer(relid)))
    connection.execute(buffer_sql.create_buffer(relid, columns))
    shape = _shape(connection, relid, columns)
    wanted = buffer_sql.events(table.level)
    for event in (*wanted, "truncate"):
        connection.execute(buffer_sql.create_function(relid, event, columns, shape))
    for event in wanted:
        connection.execute(buffer_sql.create_trigger(name, relid, event))
    if before is not None and before.level != table.level:
        _drop_triggers(connection, relid, [buffer_sql.trigger_name(relid, e) for e in buffer_sql.events(before.level)])
    if not table.partitioned:
        connection.execute(buffer_sql.create_trigger(name, relid, "truncate"))
    registry.register(connection, Captured(relid, name, table.level, tuple(columns), str(uuid.uuid4()), None))
    _guard_leaves(connection, relid, table.leaves, columns)


def _shape(connection: Connection, relid: int, columns: Sequence[SourceColumn]) -> str:
    row = connection.execute(
        "SELECT pgtrickle_changes.shape(%s, %s::text[])", [relid, [column.name for column in columns]]
    ).fetchone()
    return row[0] if row else ""


def _guard_leaves(
    connection: Connection, relid: int, leaves: Sequence[int], columns: Sequence[SourceColumn]
) -> list[TableName]:
    """Give leaf partitions their TRUNCATE trigger: unlike row triggers it is not inherited."""
    trigger = buffer_sql.trigger_name(relid, "truncate")
    rows = connection.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = ANY(%s)"
        " AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = %s AND t.tgenabled = 'A')"
        " ORDER BY c.oid",
        [list(leaves), trigger],
    ).fetchall()
    missing = [TableName(schema, name) for schema, name in rows]
    for leaf in missing:
        connection.execute(buffer_sql.create_trigger(leaf, relid, "truncate"))
    return missing


def inventory(connection: Connection, tables: Sequence[Captured]) -> list[TriggerState]:
    """Every trigger that captured tables should have, and whether it is there and fires."""
    leaves = catalog.leaves(connection, [table.relid for table in tables])
    expected: list[tuple[Captured, int, str]] = []
    for table in tables:
        names = [buffer_sql.trigger_name(table.relid, event) for event in buffer_sql.events(table.level)]
        truncate = buffer_sql.trigger_name(table.relid, "truncate")
        members = [leaf.oid for leaf in leaves.get(table.relid, [])]
        expected += [(table, table.relid, name) for name in names]
        expected += [(table, leaf, name) for leaf in members for name in names]
        expected += [(table, oid, truncate) for oid in members or [table.relid]]
    rows = connection.execute(
        "SELECT w.relid, w.name, coalesce(w.relid::regclass::text, ''), t.oid IS NOT NULL,"
        " coalesce(t.tgenabled = 'A', false)"
        " FROM unnest(%s::oid[], %s::text[]) AS w(relid, name)"
        " LEFT JOIN pg_trigger t ON t.tgrelid = w.relid AND t.tgname = w.name",
        [[relid for _, relid, _ in expected], [name for _, _, name in expected]],
    ).fetchall()
    found = {(relid, name): rest for relid, name, *rest in rows}
    return [TriggerState(table.name, found[o, n][0], n, found[o, n][1], found[o, n][2]) for table, o, n in expected]


def uninstall(connection: Connection, names: Sequence[TableName] | None, consumer: str, policy: LockPolicy) -> None:
    """End a consumer's capture of tables (None: all of its tables), and remove what nobody else reads.

    Raises:
        SourceBusyError: A table stays locked: dropping a trigger needs it alone.
    """
    if not registry.exists(connection):
        return
    for table in registry.captured(connection).values():
        if names is None or table.name in names:
            in_short_transaction(
                connection,
                policy,
                lambda oid=table.relid: [oid],
                f"removing capture from source table {table.name}",
                lambda table=table: _uninstall_table(connection, table, consumer),
            )
    in_short_transaction(connection, policy, list, "removing capture", lambda: _drop_schema_if_unused(connection))


def _uninstall_table(connection: Connection, table: Captured, consumer: str) -> None:
    connection.execute(_ADVISORY)
    connection.execute(
        "DELETE FROM pgtrickle_changes.subscriptions WHERE relid = %s AND consumer = %s", [table.relid, consumer]
    )
    row = connection.execute(
        "SELECT count(*) FROM pgtrickle_changes.subscriptions WHERE relid = %s", [table.relid]
    ).fetchone()
    if not row or row[0] == 0:
        _remove_table(connection, table.relid)


def _remove_table(connection: Connection, relid: int) -> None:
    from psycopg import sql

    every = ("insert", "update", "delete", "row", "truncate")
    _drop_triggers(connection, relid, [buffer_sql.trigger_name(relid, event) for event in every])
    for event in every:
        function = sql.Identifier(buffer_sql.SCHEMA, buffer_sql.function_name(relid, event))
        connection.execute(sql.SQL("DROP FUNCTION IF EXISTS {}()").format(function))
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(buffer_sql.buffer(relid)))
    connection.execute("DELETE FROM pgtrickle_changes.captured WHERE relid = %s", [relid])


def _drop_triggers(connection: Connection, relid: int, names: Sequence[str]) -> None:
    """Drop triggers by name wherever they are; those on partitions that are clones go with their parent's."""
    from psycopg import sql

    rows = connection.execute(
        "SELECT n.nspname, c.relname, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_proc p ON p.oid = t.tgfoid"
        " WHERE t.tgname = ANY(%s) AND t.tgparentid = 0 AND p.pronamespace = to_regnamespace('pgtrickle_changes')",
        [list(names)],
    ).fetchall()
    for schema, table, trigger in rows:
        statement = sql.SQL("DROP TRIGGER {} ON {}")
        connection.execute(statement.format(sql.Identifier(trigger), sql.Identifier(schema, table)))


def _drop_schema_if_unused(connection: Connection) -> None:
    """Remove the schema with its last table, where the role could create it again."""
    connection.execute(_ADVISORY)
    row = connection.execute(
        "SELECT NOT EXISTS (SELECT FROM pgtrickle_changes.captured),"
        " has_database_privilege(current_database(), 'CREATE')"
        " AND pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'pgtrickle_changes'), 'USAGE')"
    ).fetchone()
    if row and row[0]:
        connection.execute(_DROP_OBJECTS.encode())
        if row[1]:
            connection.execute("DROP SCHEMA pgtrickle_changes")


_DROP_OBJECTS = """
DROP TABLE pgtrickle_changes.subscriptions, pgtrickle_changes.captured, pgtrickle_changes.receipts,
           pgtrickle_changes.identity;
DROP FUNCTION pgtrickle_changes.has_shape(oid, text[], text);
DROP FUNCTION pgtrickle_changes.shape(oid, text[]);
"""


def _remove_foreign(connection: Connection, policy: LockPolicy) -> None:
    """Clear what a dump of another database brought along: its table oids mean nothing here."""
    for table in registry.captured(connection).values():
        in_short_transaction(
            connection,
            policy,
            list,
            "removing restored capture",
            lambda oid=table.relid: _remove_table(connection, oid),
        )
    connection.execute("DELETE FROM pgtrickle_changes.receipts")
    connection.execute("DELETE FROM pgtrickle_changes.identity")
