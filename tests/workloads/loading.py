"""Tables of a generated workload, copied from DuckDB into PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.integration.query.tables import SampleTable


def load_postgres(
    tables: Mapping[str, SampleTable],
    source: Any,
    target: Any,
    folder: Path,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Make the tables in PostgreSQL and copy their rows from the generator."""
    for table in tables.values():
        say(table.name)
        target.execute(table.create())
        file = folder / f"{table.name}.csv"
        names = ", ".join(name for name, _ in table.columns)
        source.execute(f"COPY (SELECT {names} FROM {table.name}) TO '{file}' (FORMAT csv, HEADER false)")
        with (
            file.open("rb") as rows,
            target.cursor() as cursor,
            cursor.copy(f"COPY {table.name} FROM STDIN (FORMAT csv)") as copy,
        ):
            while chunk := rows.read(1 << 20):
                copy.write(chunk)
        file.unlink()
        target.execute(f"ANALYZE {table.name}")
