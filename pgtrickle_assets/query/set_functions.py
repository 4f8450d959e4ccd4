"""Which set-returning functions a query may use in FROM, and what to write instead of the others."""

from __future__ import annotations

from typing import Final

from pgtrickle_assets.errors import QueryError

SUPPORTED: Final = frozenset(
    {
        "unnest", "generate_series", "json_array_elements", "jsonb_array_elements", "json_array_elements_text",
        "jsonb_array_elements_text", "json_object_keys", "jsonb_object_keys", "string_to_table",
    }
)  # fmt: skip
"""Those that `set_returning` plans."""

_BY_KEY: Final = "Take the values by their keys, with ->> or ->."
_BY_COLUMN: Final = "Use json_array_elements, and take the columns with ->> and a cast."
_INSTEAD: Final = {
    "json_each": _BY_KEY,
    "json_each_text": _BY_KEY,
    "json_to_record": _BY_KEY,
    "json_populate_record": _BY_KEY,
    "json_to_recordset": _BY_COLUMN,
    "json_populate_recordset": _BY_COLUMN,
    "json_path_query": "Take the values with -> and json_array_elements.",
    "regexp_matches": "Use substring(text from pattern) for the first match.",
    "regexp_split_to_table": "Use string_to_table with a constant separator.",
    "generate_subscripts": "Use unnest(...) WITH ORDINALITY.",
}


def refusal(name: str, line: int | None, *, in_from: bool) -> QueryError | None:
    """The error for a set-returning function that cannot stand where it is; None for any other function.

    Args:
        name: The function, as PostgreSQL folds it.
        line: Line of the call.
        in_from: Whether it stands in FROM.
    """
    advice = _INSTEAD.get(name.replace("jsonb_", "json_", 1))
    if advice is not None:
        return QueryError(f"set-returning function {name} is not supported.", line=line, hint=advice)
    if name in SUPPORTED and not in_from:
        return QueryError(f"set-returning function {name} is supported in FROM only", line=line)
    return None
