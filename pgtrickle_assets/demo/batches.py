"""Plays days of an airline's work as transactions on the example's database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Final, LiteralString, cast


@dataclass(frozen=True, slots=True)
class Batch:
    """What happens between two refreshes.

    Attributes:
        name: Shown in the report.
        scripts: SQL scripts of the example, run in order; each holds whole transactions.
        days: Days by which the calendar moves on before the scripts run.
    """

    name: str
    scripts: tuple[str, ...]
    days: int = 1


BATCHES: Final[Sequence[Batch]] = (
    Batch("arrivals and master data", ("arrivals", "master_data")),
    Batch("corrections and cancellations", ("arrivals", "corrections", "cancellations")),
    Batch("undone", ("undone",), days=0),
)
"""The batches of the demo, in order."""


def last_day(dsn: str) -> date:
    """The last day that has flights in the example's database."""
    import psycopg

    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT max(flight_date) FROM flights").fetchone()
    return cast(date, row[0]) if row else date.min


def play(dsn: str, batch: Batch, scripts: Path) -> date:
    """Run one batch on the day after the last one that the database knows.

    What a batch does depends on the day and on the stored rows alone, so the same start gives the same rows.

    Args:
        dsn: Connection string of the example's database.
        batch: What to do.
        scripts: Folder with the example's batch scripts.

    Returns:
        The day that was played.
    """
    import psycopg

    day = last_day(dsn) + timedelta(days=batch.days)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT set_config('demo.day', %s, false)", (day.isoformat(),))
        for name in batch.scripts:
            # Without parameters psycopg sends a script as it is, with its own BEGIN and COMMIT.
            connection.execute(cast(LiteralString, (scripts / f"{name}.sql").read_text("utf-8")))
    return day
