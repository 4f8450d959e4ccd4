"""SQL files of a project: the option block in the first comment, and the query below it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from pgtrickle_assets.documents import Document, read_document, validate
from pgtrickle_assets.errors import ConfigurationError, SourceLocationError
from pgtrickle_assets.stream_table import StreamTable, StreamTableOptions, check_name_part

_BLOCK: Final = re.compile(r"\A\ufeff?\s*/\*---[ \t]*\r?\n?(.*?)---\*/", re.DOTALL)
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
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SourceLocationError("the file is not UTF-8.", path=shown, hint="Save it as UTF-8.") from error
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


def _parse_block(text: str, path: str) -> tuple[Document, int]:
    match = _BLOCK.match(text)
    if match is None:
        if _OPENED.match(text):
            line = text.count("\n", 0, text.index("/*---")) + 1
            raise SourceLocationError(
                "the option block is not closed.", path=path, line=line, hint="End it with ---*/."
            )
        return Document({}, path, {(): 1}), 0
    first_line = text.count("\n", 0, match.start(1)) + 1
    return read_document(match.group(1), path, first_line=first_line), match.end()
