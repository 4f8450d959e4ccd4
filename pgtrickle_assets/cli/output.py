"""What commands print: tables for people or one JSON document; progress and errors go to standard error."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.table import Table

from pgtrickle_assets.errors import with_hint

_PIPE_WIDTH = 400
"""Width of output that is no terminal: wide enough that no line is broken."""

stdout = Console(soft_wrap=True, highlight=False)
stderr = Console(stderr=True, soft_wrap=True, highlight=False)


class Progress:
    """What a command is doing: one line that changes on a terminal, a line for each step elsewhere."""

    def __init__(self, status: Status | None) -> None:
        self._status = status
        self._last = ""

    def update(self, text: str) -> None:
        """Say what is done now."""
        if self._status is not None:
            self._status.update(text)
        elif text != self._last:
            stderr.print(text, markup=False)
        self._last = text

    def stop(self) -> None:
        """Take the line away."""
        if self._status is not None:
            self._status.stop()


@contextmanager
def progress(text: str) -> Iterator[Progress]:
    """Show what the block does, on standard error."""
    if stderr.is_terminal:
        with stderr.status(text) as status:
            yield Progress(status)
    else:
        shown = Progress(None)
        shown.update(text)
        yield shown


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
