"""What a demo run found, as a table for people or one document for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


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
        full_seconds: Time of running the defining query in full on the same Spark, at the end of the demo and without
            writing its rows; None when it was not measured.
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

    def render(self) -> RenderableType:
        """The report as a table, one block of rows per batch."""
        from rich.table import Table

        failed = {check.stream_table for check in self.checks if not check.passed}
        table = Table(title="Refreshes", title_justify="left", header_style="bold")
        for name in ("stream table", "strategy", "reason"):
            table.add_column(name, overflow="fold")
        for name in ("delta in", "delta out", "seconds", "full", "snapshot"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("checks")
        for batch in dict.fromkeys(row.batch for row in self.refreshes):
            table.add_section()
            table.add_row(f"[bold]{batch}[/bold]")
            for row in self.refreshes:
                if row.batch == batch:
                    table.add_row(*_cells(row, row.stream_table in failed))
        return table

    def print(self, console: Console) -> None:
        """Write the table and the outcome of the checks."""
        console.print(self.render())
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


def _cells(row: RefreshRow, failed: bool) -> tuple[str, ...]:
    return (
        row.stream_table,
        row.strategy,
        row.reason,
        f"{row.delta_in:,}",
        f"{row.delta_out:,}",
        f"{row.seconds:.2f}",
        "" if row.full_seconds is None else f"{row.full_seconds:.2f}",
        str(row.snapshot),
        "[red]failed[/red]" if failed else "[green]passed[/green]",
    )


def _summary(checks: Sequence[CheckRow]) -> list[str]:
    lines: list[str] = []
    for name in dict.fromkeys(check.check for check in checks):
        of_kind = [check for check in checks if check.check == name]
        failed = [check.stream_table for check in of_kind if not check.passed]
        outcome = f"[red]failed for {', '.join(failed)}[/red]" if failed else "[green]passed[/green]"
        lines.append(f"{name}: {len(of_kind)} stream tables, {outcome}")
    return lines
