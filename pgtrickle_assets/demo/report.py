"""What a demo run found, as a table for people or one document for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_COLUMNS: Final[tuple[str, ...]] = (
    "stream table", "strategy", "reason", "delta in", "delta out", "seconds", "full", "snapshot", "checks",
)  # fmt: skip
_NUMBERS: Final = frozenset({"delta in", "delta out", "seconds", "full", "snapshot"})
_LEFT_OUT: Final = (
    (),
    ("snapshot",),
    ("snapshot", "checks"),
    ("reason",),
    ("reason", "snapshot"),
    ("reason", "snapshot", "checks"),
)
"""Columns that a narrow terminal goes without; the first choice that fits holds."""

_LEAST_REASON: Final = 20
_GAP: Final = 2
_PIPE_WIDTH: Final = 160
"""Width of output that is no terminal, whose width nobody knows."""


@dataclass(frozen=True, slots=True)
class RefreshRow:
    """One stream table in one refresh.

    Attributes:
        stream_table: `schema.table`.
        batch: What was played before the refresh; `initial` for the first one.
        strategy: `no_change`, `differential` or `full`.
        reason: Why this strategy, as recorded in the history.
        delta_in: Changed rows in the inputs between frontier and cut.
        delta_out: Rows inserted into and deleted from the stream table.
        seconds: Time of this refresh.
        full_seconds: Time of running the defining query in full on the same Spark and the same lake, without writing
            its rows, as the comparison after the batch took it; None when it was not measured.
        snapshot: Lake snapshot at which the stream table is up to date.
    """

    stream_table: str
    batch: str
    strategy: str
    reason: str
    delta_in: int
    delta_out: int
    seconds: float
    full_seconds: float | None
    snapshot: int


@dataclass(frozen=True, slots=True)
class CheckRow:
    """A check on one stream table; passed if it passed after every batch."""

    stream_table: str
    check: str
    passed: bool


@dataclass(frozen=True, slots=True)
class LakeReference:
    """How to attach the lake: connection string of its catalog, and the folder of its files."""

    catalog: str
    data_path: str


@dataclass(frozen=True, slots=True)
class LakeSample:
    """What a DuckDB with the DuckLake extension answers to a query."""

    query: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class DemoReport:
    """Everything that the demo shows.

    Attributes:
        refreshes: One row per stream table and refresh, in order.
        checks: Outcome of the comparisons.
        source: Connection string of the source.
        lake: How to attach the lake.
        sample: Shown to people; not in the JSON document.
    """

    refreshes: tuple[RefreshRow, ...]
    checks: tuple[CheckRow, ...]
    source: str
    lake: LakeReference
    sample: LakeSample | None = None

    @property
    def passed(self) -> bool:
        """True if there were checks and all of them passed."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    def to_json(self) -> str:
        """The report as one JSON document."""
        document = asdict(self)
        del document["sample"]
        return json.dumps(document, indent=2)

    def render(self, width: int) -> RenderableType:
        """The report as a table of at most `width` characters, one line per refresh, one block per batch."""
        from rich.table import Table

        failed = {check.stream_table for check in self.checks if not check.passed}
        cells: list[Mapping[str, Text]] = [
            dict(zip(_COLUMNS, _cells(row, row.stream_table in failed), strict=True)) for row in self.refreshes
        ]
        shown = _shown_columns(cells, width)
        table = Table(title="Refreshes", title_justify="left", header_style="bold", box=None, pad_edge=False)
        for name in shown:
            # The reason alone may be cut; it is the only text without a limit.
            justify = "right" if name in _NUMBERS else "left"
            table.add_column(name, justify=justify, no_wrap=name != "reason", overflow="ellipsis")
        for batch in dict.fromkeys(row.batch for row in self.refreshes):
            table.add_row()
            table.add_row(Text(batch, style="bold"))
            for row, texts in zip(self.refreshes, cells, strict=True):
                if row.batch == batch:
                    table.add_row(*(texts[name] for name in shown))
        return table

    def print(self, console: Console) -> None:
        """Write the table and the outcome of the checks."""
        wide = console.width if console.is_terminal else max(console.width, _PIPE_WIDTH)
        with _of_width(console, wide):
            console.print(self.render(wide))
            console.print()
            for line in _summary(self.checks):
                console.print(line)
            if self.sample is not None:
                console.print(f"\nDuckDB, through its own DuckLake extension:\n[bold]{self.sample.query}[/bold]")
                console.print(_answer(self.sample))


def _answer(sample: LakeSample) -> RenderableType:
    from rich.table import Table

    table = Table(header_style="bold")
    for column in sample.columns:
        table.add_column(column)
    for row in sample.rows:
        table.add_row(*("" if value is None else str(value) for value in row))
    return table


def _cells(row: RefreshRow, failed: bool) -> tuple[Text, ...]:
    """What a row shows, by `_COLUMNS`."""
    full = "" if row.full_seconds is None else f"{row.full_seconds:.2f}"
    numbers = (f"{row.delta_in:,}", f"{row.delta_out:,}", f"{row.seconds:.2f}", full, str(row.snapshot))
    outcome = Text("failed", "red") if failed else Text("passed", "green")
    reason = Text(row.reason, no_wrap=True, overflow="ellipsis")
    return (Text(row.stream_table), Text(row.strategy), reason, *map(Text, numbers), outcome)


def _shown_columns(rows: Sequence[Mapping[str, Text]], width: int) -> tuple[str, ...]:
    """The columns that fit, the reason cut before it is left out; what is said below the table goes first."""
    widths = {name: max(len(name), *(row[name].cell_len for row in rows)) for name in _COLUMNS} if rows else {}
    widths["reason"] = min(widths.get("reason", 0), _LEAST_REASON)
    for left_out in _LEFT_OUT:
        shown = tuple(name for name in _COLUMNS if name not in left_out)
        if sum(widths.get(name, 0) for name in shown) + _GAP * (len(shown) - 1) <= width:
            return shown
    return tuple(name for name in _COLUMNS if name not in _LEFT_OUT[-1])


@contextmanager
def _of_width(console: Console, width: int) -> Iterator[None]:
    before, console.width = console.width, width
    try:
        yield
    finally:
        console.width = before


def _summary(checks: Sequence[CheckRow]) -> list[str]:
    lines: list[str] = []
    for name in dict.fromkeys(check.check for check in checks):
        of_kind = [check for check in checks if check.check == name]
        failed = [check.stream_table for check in of_kind if not check.passed]
        outcome = f"[red]failed for {', '.join(failed)}[/red]" if failed else "[green]passed[/green]"
        lines.append(f"{name}: {len(of_kind)} stream tables, {outcome}")
    return lines
