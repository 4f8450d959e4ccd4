"""The SQL that capture installs in a source: registry, change buffers, trigger functions, triggers.

Every name is quoted and every literal escaped by psycopg. Inside the trigger functions all names are qualified and the
search path is fixed, because they run with the rights of their owner on behalf of any writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from pgtrickle_assets.capture.pgtypes import travel
from pgtrickle_assets.capture.source_table import SourceColumn, TriggerLevel
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    from typing import LiteralString

    from psycopg.sql import SQL, Composable, Composed

SCHEMA = "pgtrickle_changes"
XID, WEIGHT, LEAF = "__pgt_xid", "__pgt_weight", "__pgt_relid"
GAP = 0
"""Weight of a buffer row that stands for changes which could not be recorded."""

REGISTRY = """
CREATE TABLE IF NOT EXISTS pgtrickle_changes.identity (
    system_identifier text NOT NULL,
    database_oid oid NOT NULL
);
COMMENT ON TABLE pgtrickle_changes.identity IS
    'pgtrickle: the database that this schema was installed in; another one means that it came from a dump';
CREATE TABLE IF NOT EXISTS pgtrickle_changes.captured (
    relid oid PRIMARY KEY,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    level text NOT NULL CHECK (level IN ('statement', 'row')),
    columns jsonb NOT NULL,
    generation uuid NOT NULL,
    trimmed pg_snapshot
);
COMMENT ON TABLE pgtrickle_changes.captured IS
    'pgtrickle: one row per source table with a change buffer changes_<relid>';
CREATE TABLE IF NOT EXISTS pgtrickle_changes.subscriptions (
    consumer text NOT NULL,
    relid oid NOT NULL REFERENCES pgtrickle_changes.captured ON DELETE CASCADE,
    columns text[] NOT NULL,
    position pg_snapshot,
    PRIMARY KEY (consumer, relid)
);
COMMENT ON TABLE pgtrickle_changes.subscriptions IS
    'pgtrickle: who reads a buffer, which columns, and how far it has been consumed';
CREATE TABLE IF NOT EXISTS pgtrickle_changes.receipts (
    token uuid PRIMARY KEY,
    consumer text NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE pgtrickle_changes.receipts IS
    'pgtrickle: proof that a captured position belongs to the history of this database';
CREATE OR REPLACE FUNCTION pgtrickle_changes.shape(relid oid, names text[]) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    RETURN (SELECT md5(coalesce(string_agg(format('%s %s %s', a.attname, a.atttypid,
                                           CASE WHEN a.atttypid IN (1700, 1231) THEN a.atttypmod ELSE -1 END), ','
                                           ORDER BY a.attname), ''))
            FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = relid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname = ANY (names));
COMMENT ON FUNCTION pgtrickle_changes.shape IS 'pgtrickle: fingerprint of names and types of columns';
CREATE OR REPLACE FUNCTION pgtrickle_changes.has_shape(relid oid, names text[], expected text) RETURNS boolean
    LANGUAGE sql IMMUTABLE AS 'SELECT pgtrickle_changes.shape(relid, names) OPERATOR(pg_catalog.=) expected';
COMMENT ON FUNCTION pgtrickle_changes.has_shape IS
    'pgtrickle: immutable on purpose, so that a plan holds the answer until DDL on the table invalidates the plan';
"""
"""What is there once per database."""


def buffer_name(relid: int) -> str:
    """Name of a table's change buffer in the capture schema."""
    return f"changes_{relid}"


def buffer(relid: int) -> Composed:
    """The qualified buffer."""
    from psycopg import sql

    return sql.SQL("{}").format(sql.Identifier(SCHEMA, buffer_name(relid)))


def raw(text: str) -> SQL:
    """SQL text of this package's own, put together at run time."""
    from psycopg import sql

    return sql.SQL(cast("LiteralString", text))


def expression(template: str, value: Composable) -> Composed:
    """Put a value into a template that has `{}` where the value goes."""
    return raw(template).format(value)


def create_buffer(relid: int, columns: Sequence[SourceColumn]) -> Composed:
    """DDL of an empty change buffer with its index by transaction."""
    from psycopg import sql

    fields = [raw("{} " + travel(column).buffer_type).format(sql.Identifier(column.name)) for column in columns]
    return sql.SQL(
        "CREATE TABLE {buffer} (__pgt_xid pg_catalog.xid8 NOT NULL, __pgt_weight pg_catalog.int2 NOT NULL,"
        " __pgt_relid pg_catalog.oid, {fields})"
        # Consumed rows are deleted all the time; left to the defaults, a large buffer would stay large.
        " WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);"
        " CREATE INDEX ON {buffer} (__pgt_xid);"
        " CREATE INDEX ON {buffer} (__pgt_xid) WHERE __pgt_weight = 0"
    ).format(buffer=buffer(relid), fields=sql.SQL(", ").join(fields))


def function_name(relid: int, event: str) -> str:
    """Name of a trigger function in the capture schema."""
    return f"capture_{relid}_{event}"


def trigger_name(relid: int, event: str) -> str:
    """Name of our trigger for an event; a partition can carry those of its root and its own."""
    return f"pgtrickle_{relid}_{event}"


def events(level: TriggerLevel) -> tuple[str, ...]:
    """The triggers of a table, TRUNCATE aside."""
    return ("insert", "update", "delete") if level == "statement" else ("row",)


def _insert(relid: int, columns: Sequence[SourceColumn], weight: int, row: str, source: str, leaf: str) -> Composed:
    """INSERT of the rows that alias `row` yields; `source` is the text after the select list."""
    from psycopg import sql

    names = [sql.Identifier(c.name) for c in columns]
    values = [expression(travel(c).stored, raw(row + ".{}").format(sql.Identifier(c.name))) for c in columns]
    return raw(
        "INSERT INTO {buffer} (__pgt_xid, __pgt_weight, __pgt_relid, {names})"
        " SELECT pg_catalog.pg_current_xact_id(), {weight}, " + leaf + ", {values}" + source
    ).format(
        buffer=buffer(relid),
        names=sql.SQL(", ").join(names),
        weight=sql.Literal(weight),
        values=sql.SQL(", ").join(values),
    )


def _gap(relid: int) -> Composed:
    from psycopg import sql

    return sql.SQL("INSERT INTO {} (__pgt_xid, __pgt_weight) VALUES (pg_catalog.pg_current_xact_id(), 0)").format(
        buffer(relid)
    )


def create_function(relid: int, event: str, columns: Sequence[SourceColumn], shape: str) -> Composed:
    """DDL of a trigger function.

    A table whose captured columns are no longer what they were keeps accepting writes: the function then notes a gap
    instead of the rows, and the next read says what changed.
    """
    from psycopg import sql

    body = _row_body(relid, columns) if event == "row" else _statement_body(relid, event, columns, shape)
    return sql.SQL(
        "CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        " SET search_path = pg_catalog, pg_temp {extra} AS {body}; REVOKE ALL ON FUNCTION {name}() FROM PUBLIC"
    ).format(
        name=sql.Identifier(SCHEMA, function_name(relid, event)),
        extra=sql.SQL("SET row_security = off" if event == "truncate" else ""),
        body=sql.Literal(body.as_string(None)),
    )


def _statement_body(relid: int, event: str, columns: Sequence[SourceColumn], shape: str) -> Composed:
    from psycopg import sql

    makers = {"insert": _on_insert, "delete": _on_delete, "update": _on_update, "truncate": _on_truncate}
    test = sql.SQL("pgtrickle_changes.has_shape({}, {}, {})")
    names = sql.Literal([column.name for column in columns])
    if event == "truncate":
        fits = test.format(sql.SQL("TG_RELID"), names, sql.Literal(shape))
    else:
        # The reference to the transition table makes the plan depend on the source's definition and costs nothing.
        transition = sql.SQL("__pgt_old" if event == "delete" else "__pgt_new")
        fits = sql.SQL("(SELECT {} WHERE NOT EXISTS (SELECT FROM {} WHERE false))").format(
            test.format(sql.Literal(relid), names, sql.Literal(shape)), transition
        )
    return sql.SQL(
        "#variable_conflict use_column\nBEGIN\n  IF {} THEN\n{}\n  ELSE\n    {};\n  END IF;\n  RETURN NULL;\nEND"
    ).format(fits, makers[event](relid, columns), _gap(relid))


def _row_body(relid: int, columns: Sequence[SourceColumn]) -> Composed:
    """Once per row there is no plan to hold an answer, so the row's own fields are looked at.

    A field that is missing raises, which the inner block catches; it writes nothing, so it takes no transaction id.
    """
    from psycopg import sql

    def fits(row: str) -> Composed:
        test = row + ".{}) OPERATOR(pg_catalog.=) {}::pg_catalog.oid"
        texts = [
            raw("pg_catalog.pg_typeof(" + test).format(sql.Identifier(c.name), sql.Literal(c.type_oid)) for c in columns
        ]
        return sql.SQL(" AND ").join(texts)

    return sql.SQL(
        "#variable_conflict use_column\nDECLARE\n  __pgt_fits boolean;\nBEGIN\n  BEGIN\n"
        "    IF TG_OP = 'INSERT' THEN __pgt_fits := {new}; ELSE __pgt_fits := {old}; END IF;\n"
        "  EXCEPTION WHEN OTHERS THEN __pgt_fits := false;\n  END;\n"
        "  IF __pgt_fits THEN\n{work}\n  ELSE\n    {gap};\n  END IF;\n  RETURN NULL;\nEND"
    ).format(new=fits("NEW"), old=fits("OLD"), work=_on_row(relid, columns), gap=_gap(relid))


def _on_insert(relid: int, columns: Sequence[SourceColumn]) -> Composed:
    return _insert(relid, columns, 1, "n", " FROM __pgt_new n;", "NULL")


def _on_delete(relid: int, columns: Sequence[SourceColumn]) -> Composed:
    return _insert(relid, columns, -1, "o", " FROM __pgt_old o;", "NULL")


def _on_update(relid: int, columns: Sequence[SourceColumn]) -> Composed:
    return _on_delete(relid, columns) + _on_insert(relid, columns)


def _on_row(relid: int, columns: Sequence[SourceColumn]) -> Composed:
    from psycopg import sql

    gone = _insert(relid, columns, -1, "OLD", "", "TG_RELID")
    come = _insert(relid, columns, 1, "NEW", "", "TG_RELID")
    return sql.SQL("IF TG_OP <> 'INSERT' THEN {}; END IF; IF TG_OP <> 'DELETE' THEN {}; END IF;").format(gone, come)


def _on_truncate(relid: int, columns: Sequence[SourceColumn]) -> Composed:
    """Every row goes out at -1, read under the exclusive lock that TRUNCATE already holds.

    With a snapshot older than that lock the read could miss rows, so above READ COMMITTED the gap is noted instead. The
    table is named by its oid at run time: it may have been renamed.
    """
    from psycopg import sql

    rows = _insert(relid, columns, -1, "t", " FROM ONLY ", "$1").as_string(None)
    return sql.SQL(
        "IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN {};"
        " ELSE EXECUTE {} || TG_RELID::pg_catalog.regclass || ' t' USING TG_RELID; END IF;"
    ).format(_gap(relid), sql.Literal(rows))


def create_trigger(table: TableName, relid: int, event: str) -> Composed:
    """DDL of a trigger that also fires for sessions in replica role."""
    from psycopg import sql

    old, new = "OLD TABLE AS __pgt_old", "NEW TABLE AS __pgt_new"
    when = {
        "insert": f"AFTER INSERT ON {{table}} REFERENCING {new} FOR EACH STATEMENT",
        "update": f"AFTER UPDATE ON {{table}} REFERENCING {old} {new} FOR EACH STATEMENT",
        "delete": f"AFTER DELETE ON {{table}} REFERENCING {old} FOR EACH STATEMENT",
        "row": "AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW",
        "truncate": "BEFORE TRUNCATE ON {table} FOR EACH STATEMENT",
    }[event]
    return raw(
        "CREATE OR REPLACE TRIGGER {trigger} " + when + " EXECUTE FUNCTION {function}();"
        " ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}"
    ).format(
        trigger=sql.Identifier(trigger_name(relid, event)),
        table=sql.Identifier(table.schema, table.name),
        function=sql.Identifier(SCHEMA, function_name(relid, event)),
    )
