"""The text in `ducklake_snapshot_changes.changes_made`: what a snapshot changed, by object.

Grammar (DuckLake 1.0): comma-separated `token:value`, where a value is an id or dot-joined names in double quotes with
`"` doubled. Names may hold commas, colons and dots, so the text is read character by character.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pgtrickle_assets.errors import LakeError

NAMED: Final = frozenset(
    {"created_schema", "created_table", "created_view", "created_scalar_macro", "created_table_macro"}
)
NUMBERED: Final = frozenset(
    {
        "dropped_schema", "dropped_table", "dropped_view", "dropped_scalar_macro", "dropped_table_macro",
        "inserted_into_table", "deleted_from_table", "altered_table", "altered_view", "inlined_insert",
        "inlined_delete", "inline_flush", "flushed_inlined", "merge_adjacent", "rewrite_delete", "compacted_table",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One entry: `object_id` for ids, `names` (schema, object) for created objects."""

    kind: str
    object_id: int | None = None
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.object_id is not None:
            return f"{self.kind}:{self.object_id}"
        return f"{self.kind}:{'.'.join(_quote(name) for name in self.names)}"


def created(kind: str, *names: str) -> Change:
    """The entry for a created schema, table, view or macro."""
    return Change(f"created_{kind}", names=names)


def touched(kind: str, object_id: int) -> Change:
    """The entry for a change of an existing object, e.g. `inserted_into_table`."""
    return Change(kind, object_id=object_id)


def format_changes(changes: Iterable[Change]) -> str:
    """The text for the catalog; equal entries once, in the order given."""
    return ",".join(dict.fromkeys(str(change) for change in changes))


def parse_changes(text: str | None) -> tuple[Change, ...]:
    """The entries of one snapshot; nothing for NULL and ''.

    Raises:
        LakeError: The text does not follow the grammar, or has a token that DuckLake 1.0 does not know.
    """
    changes: list[Change] = []
    position = 0
    source = text or ""
    while position < len(source):
        colon = source.find(":", position)
        kind = source[position:colon].strip()
        if colon < 0 or (kind not in NAMED and kind not in NUMBERED):
            raise LakeError(f"the catalog's change log has an entry we don't know: {source[position:]!r}")
        if kind in NAMED:
            names, position = _read_names(source, colon + 1)
            changes.append(Change(kind, names=names))
        else:
            object_id, position = _read_number(source, colon + 1)
            changes.append(Change(kind, object_id=object_id))
        if position < len(source):
            if source[position] != ",":
                raise LakeError(f"the catalog's change log is malformed at {source[position:]!r}")
            position += 1
    return tuple(changes)


def _read_number(source: str, start: int) -> tuple[int, int]:
    end = start
    while end < len(source) and source[end].isdigit():
        end += 1
    if end == start:
        raise LakeError(f"the catalog's change log has no id at {source[start:]!r}")
    return int(source[start:end]), end


def _read_names(source: str, start: int) -> tuple[tuple[str, ...], int]:
    names: list[str] = []
    position = start
    while True:
        name, position = _read_quoted(source, position)
        names.append(name)
        if position >= len(source) or source[position] != ".":
            return tuple(names), position
        position += 1


def _read_quoted(source: str, start: int) -> tuple[str, int]:
    if start >= len(source) or source[start] != '"':
        raise LakeError(f"the catalog's change log has no quoted name at {source[start:]!r}")
    parts: list[str] = []
    position = start + 1
    while True:
        end = source.find('"', position)
        if end < 0:
            raise LakeError(f"the catalog's change log has an unfinished name at {source[start:]!r}")
        parts.append(source[position:end])
        if source[end + 1 : end + 2] != '"':
            return "".join(parts), end + 1
        parts.append('"')
        position = end + 2


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
