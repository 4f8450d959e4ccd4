"""Writing SQL files of a project: a new one from options and query, or changes that leave the rest as it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

import yaml

from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.option_block import SQL_FOLDER, find_block, parse_stream_table
from pgtrickle_assets.stream_table import StreamTable

_WIDE: Final = 2**20


def file_of(name: str) -> str:
    """Where the SQL file of a stream table is, relative to the project folder."""
    schema, _, table = name.partition(".")
    return PurePosixPath(SQL_FOLDER, schema, f"{table}.sql").as_posix()


def written(text: str, changes: Mapping[str, Any], query: str | None = None) -> str:
    """The text of a SQL file with some options and the query changed; comments and other options stay.

    Args:
        text: The file as it is; empty for a new one.
        changes: New value by option; None takes the option out.
        query: The new query; the old one when None.

    Raises:
        SourceLocationError: The block cannot be read.
    """
    found = find_block(text, "")
    block = found.text
    for option, value in changes.items():
        block = _changed(block, option, value)
    body = text[found.end :].strip() if query is None else query.strip()
    if not block.strip():
        return f"{body}\n"
    return f"/*---\n{block.strip(chr(10))}\n---*/\n{body}\n"


def rendered(name: str, text: str, options: Mapping[str, Any], query: str | None, defaults: Mapping[str, Any]) -> str:
    """The text of a stream table's file, read back to be sure that it says what was asked for.

    Args:
        name: `schema.table`.
        text: The file as it is; empty for a new one.
        options: New value by option; None takes the option out.
        query: The new query; the old one when None.
        defaults: Options that hold where the block says nothing.

    Raises:
        ConfigurationError: An option or its value is not allowed, or cannot be written into a SQL comment.
    """
    path = file_of(name)
    before = parse_stream_table(text, name=name, path=path).model_dump(exclude_unset=True) if text else {}
    kept = {key: value for key, value in before.items() if key not in (*options, "query", "path", "query_line", "name")}
    given = {key: value for key, value in options.items() if value is not None}
    wanted = StreamTable(
        **{**defaults, **kept, **given}, name=name, query=(before["query"] if query is None else query).strip()
    )
    after = written(text, options, query)
    read = parse_stream_table(after, name=name, path=path, defaults=dict(defaults))
    meant = {"path": path, "query_line": read.query_line}
    if read.model_dump() != {**wanted.model_dump(), **meant}:
        raise ConfigurationError(
            f"stream table {name}: an option or the query cannot be written into a SQL file.",
            hint="An option must not contain ---*/, and a query must not begin with /*---.",
        )
    return after


def _changed(block: str, option: str, value: Any) -> str:
    """An option block with one top-level option set, or taken out."""
    new = "" if value is None else yaml.safe_dump({option: value}, allow_unicode=True, sort_keys=False, width=_WIDE)
    new = new.rstrip("\n")
    place = _place_of(block, option)
    if place is None:
        rest = block.rstrip("\n")
        return f"{rest}\n{new}\n" if new else block
    start, end = place
    if new:
        return block[:start] + new + block[end:]
    line_end = block.find("\n", end)
    return block[:start] + (block[line_end + 1 :] if line_end >= 0 else "")


def _place_of(block: str, option: str) -> tuple[int, int] | None:
    """Where a top-level option stands in a block, without a comment behind it."""
    node = yaml.compose(block, Loader=yaml.SafeLoader)
    if not isinstance(node, yaml.MappingNode):
        return None
    for key, value in node.value:
        if key.value == option:
            start, end = key.start_mark.index, value.end_mark.index
            lines = block[start:end].split("\n")
            # A block of items ends where the next token begins: comments in between are not its own.
            while not lines[-1].strip() or (_is_block(value) and lines[-1].lstrip().startswith("#")):
                lines.pop()
            return start, start + len("\n".join(lines).rstrip())
    return None


def _is_block(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and not node.flow_style
