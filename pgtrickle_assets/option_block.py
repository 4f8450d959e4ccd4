"""SQL files of a project: the option block in the first comment, and the query below it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from pgtrickle_assets.documents import Document, read_document, read_text, validate
from pgtrickle_assets.errors import ConfigurationError, SourceLocationError
from pgtrickle_assets.stream_table import StreamTable, StreamTableOptions, check_name_part

SQL_FOLDER: Final = "stream_tables"
"""Folder of a project's SQL files, `<schema>/<name>.sql`."""

_BLOCK: Final = re.compile(r"\A\ufeff?\s*/\*---[ \t]*\r?\n?(.*?)---\*/", re.DOTALL)
_BARE: Final = re.compile(r"\A\ufeff?\s*---[ \t]*\r?\n")
_OPENED: Final = re.compile(r"\A\ufeff?\s*/\*---")


def read_stream_table(file: Path, root: Path, defaults: dict[str, Any] | None = None) -> StreamTable:
    """Reads one SQL file of a project.

    Args:
        file: `<root>/stream_tables/<schema>/<name>.sql`.
        root: The project folder; errors name the file relative to it.
        defaults: Options that hold where the block says nothing.

    Raises:
        SourceLocationError: Naming file, line and the nearest valid name.
    """
    shown = file.relative_to(root).as_posix()
    text = read_text(file, shown)
    for part, what in ((file.parent.name, "schema"), (file.stem, "stream table")):
        try:
            check_name_part(part, what)
        except ConfigurationError as error:
            raise SourceLocationError(error.message, path=shown, hint=error.hint) from error
    return parse_stream_table(text, name=f"{file.parent.name}.{file.stem}", path=shown, defaults=defaults)


def parse_stream_table(text: str, *, name: str, path: str, defaults: dict[str, Any] | None = None) -> StreamTable:
    """Reads the text of a SQL file.

    Args:
        text: Option block and query.
        name: `schema.table`.
        path: File as shown in errors.
        defaults: Options that hold where the block says nothing.

    Raises:
        SourceLocationError: Naming file, line and the nearest valid name.
    """
    options, end = _parse_block(text, path)
    merged = Document({**(defaults or {}), **options.data}, path, options.lines)
    validated = validate(StreamTableOptions, merged)
    query = text[end:]
    lead = len(query) - len(query.lstrip())
    query_line = text.count("\n", 0, end + lead) + 1
    query = query.strip()
    try:
        return StreamTable(
            name=name, query=query, path=path, query_line=query_line, **validated.model_dump(exclude_unset=True)
        )
    except (ConfigurationError, ValidationError) as error:
        message = error.message if isinstance(error, ConfigurationError) else str(error)
        raise SourceLocationError(message.removeprefix(f"stream table {name}: "), path=path, line=query_line) from error


@dataclass(frozen=True, slots=True)
class OptionBlock:
    """The option block of a SQL file.

    Attributes:
        text: What stands between its marks; empty without a block.
        line: 1-based line on which `text` starts.
        end: Where the rest of the file begins.
    """

    text: str
    line: int
    end: int


def find_block(text: str, path: str) -> OptionBlock:
    """Finds the option block in the first comment of a SQL file.

    Raises:
        SourceLocationError: It is not closed, or not in a comment.
    """
    match = _BLOCK.match(text)
    if match is not None:
        return OptionBlock(match.group(1), text.count("\n", 0, match.start(1)) + 1, match.end())
    if _OPENED.match(text):
        line = text.count("\n", 0, text.index("/*---")) + 1
        raise SourceLocationError("the option block is not closed.", path=path, line=line, hint="End it with ---*/.")
    if _BARE.match(text):
        raise SourceLocationError(
            "the option block is not in a comment.",
            path=path,
            line=1,
            hint="Begin it with /*--- and end it with ---*/.",
        )
    return OptionBlock("", 1, 0)


def _parse_block(text: str, path: str) -> tuple[Document, int]:
    block = find_block(text, path)
    return read_document(block.text, path, first_line=block.line), block.end
