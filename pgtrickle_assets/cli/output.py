"""What commands print: tables for people or one JSON document; progress and errors go to standard error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pgtrickle_assets.errors import with_hint

_PIPE_WIDTH = 400
"""Width of output that is no terminal: wide enough that no line is broken."""

stdout = Console(soft_wrap=True, highlight=False)
stderr = Console(stderr=True, soft_wrap=True, highlight=False)


def print_json(document: Any) -> None:
    """Prints one JSON document, readable for people and exact for machines."""
    print(json.dumps(document, default=_plain, ensure_ascii=False, indent=2))  # noqa: T201 - this is the command's output


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Prints rows with a heading, or `empty` when there are none."""
    if not rows:
        stdout.print(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    width = None if stdout.is_terminal else _PIPE_WIDTH
    Console(width=width, highlight=False).print(table)


def print_error(message: str, hint: str = "") -> None:
    """Prints an error as one line that says what to do next."""
    text = " ".join(with_hint(message, hint).split())
    stderr.print(f"error: {text}", style="red", markup=False)


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:.2f}"
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case int() if not isinstance(value, bool):
            return f"{value:,}"
        case _:
            return str(value)


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    match value:
        case Enum():
            return value.value
        case datetime():
            return value.isoformat()
        case Mapping():
            return dict(value)
        case set() | frozenset():
            return sorted(value, key=str)
        case Path():
            return str(value)
        case _:
            return str(value)
