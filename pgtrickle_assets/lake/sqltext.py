"""SQL text for the catalog: one template, one quoted schema, one cached statement."""

from __future__ import annotations

from functools import cache
from typing import Final

VISIBLE: Final = "{a}.begin_snapshot <= %(at)s AND ({a}.end_snapshot IS NULL OR %(at)s < {a}.end_snapshot)"

# Not to_regclass(): that may answer from before the lock that its transaction has just waited for.
TABLE_EXISTS: Final = (
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = %s AND c.relname = %s)"
)


def quoted(name: str) -> str:
    """A quoted SQL identifier, safe inside a statement with psycopg placeholders."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


@cache
def statement(template: str, schema: str) -> bytes:
    """`template` with `{c}` replaced by the quoted catalog schema and `{visible:x}` by the visibility rule for alias x.

    The result must be executed with parameters (an empty tuple at least), because percent signs are doubled.
    """
    text = template
    while (start := text.find("{visible:")) >= 0:
        end = text.index("}", start)
        text = text[:start] + VISIBLE.replace("{a}", text[start + 9 : end]) + text[end + 1 :]
    return text.replace("{c}", quoted(schema)).encode()
