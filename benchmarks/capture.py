"""What change capture costs a writer: the same statements with and without triggers, in one run.

Each kind of statement runs alternately on a captured and on a plain table of the same shape; the median of the repeats
counts. `--json` prints one document. `--dsn` names an existing database; without it a temporary server is started.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg  # noqa: TID253 (a script is not loaded by a code location)

from pgtrickle_assets.capture.postgres import PostgresSource
from pgtrickle_assets.query.types import TableName

SHAPE = """(id bigint PRIMARY KEY, customer int NOT NULL, state text NOT NULL, amount numeric(12,2) NOT NULL,
            note text, placed timestamptz NOT NULL)"""
ROW = "i, i % 1000, 'open', i % 10000 / 100.0, 'note ' || i, now()"
TABLES = ("plain", "captured", "captured_rows")


def statements(table: str, rows: int) -> dict[str, list[str]]:
    """Kinds of work; each list runs as one transaction and leaves the table as it was."""
    single = [f"INSERT INTO {table} SELECT {ROW} FROM generate_series({n}, {n}) i" for n in range(-200, 0)]
    return {
        "insert_many": [f"INSERT INTO {table} SELECT {ROW} FROM generate_series(1, {rows}) i"],
        "update_many": [f"UPDATE {table} SET amount = amount + 1 WHERE id > 0"],
        "delete_many": [f"DELETE FROM {table} WHERE id > 0"],
        "insert_single": single,
        "update_single": [f"UPDATE {table} SET state = 'paid' WHERE id = {n}" for n in range(-200, 0)],
        "delete_single": [f"DELETE FROM {table} WHERE id = {n}" for n in range(-200, 0)],
    }


def timed(connection: psycopg.Connection, work: list[str]) -> float:
    """Seconds of one transaction."""
    started = time.perf_counter()
    for statement in work:
        connection.execute(statement.encode())
    connection.commit()
    return time.perf_counter() - started


def measure(dsn: str, rows: int, repeats: int) -> list[dict[str, object]]:
    """Cost of each kind of work with statement triggers and with row triggers (as partitions have them)."""
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE plain " + SHAPE)
        connection.execute("CREATE TABLE captured " + SHAPE)
        # A child of another table is captured by row triggers.
        connection.execute("CREATE TABLE root (id bigint)")
        connection.execute("CREATE TABLE captured_rows " + SHAPE + " INHERITS (root)")
        connection.commit()
        source = PostgresSource("benchmark", dsn)
        names = [TableName("public", table) for table in TABLES[1:]]
        source.install(names)
        work = {table: statements(table, rows) for table in TABLES}
        seconds: dict[tuple[str, str], list[float]] = {}
        for _ in range(repeats):
            for kind in work["plain"]:
                for table in TABLES:
                    seconds.setdefault((kind, table), []).append(timed(connection, work[table][kind]))
        read = _read(source, names)
    return [_result(kind, rows, seconds) for kind in work["plain"]] + [read]


def _result(kind: str, rows: int, seconds: dict[tuple[str, str], list[float]]) -> dict[str, object]:
    count = rows if kind.endswith("many") else 200
    median = {table: statistics.median(seconds[kind, table]) for table in TABLES}
    return {
        "work": kind,
        "rows": count,
        "plain_us_per_row": round(median["plain"] / count * 1e6, 2),
        "statement_trigger_us_per_row": round((median["captured"] - median["plain"]) / count * 1e6, 2),
        "row_trigger_us_per_row": round((median["captured_rows"] - median["plain"]) / count * 1e6, 2),
        "statement_trigger_ratio": round(median["captured"] / median["plain"], 2),
        "row_trigger_ratio": round(median["captured_rows"] / median["plain"], 2),
    }


def _read(source: PostgresSource, names: list[TableName]) -> dict[str, object]:
    """How fast the recorded rows are added up, read and trimmed."""
    position = source.read_batch(None, names, names).position
    waiting = sum(source.pending(None).values())
    trimmed = time.perf_counter()
    source.trim(position)
    return {"work": "trim", "rows": waiting, "us_per_row": round((time.perf_counter() - trimmed) / waiting * 1e6, 2)}


@contextmanager
def server(dsn: str | None) -> Iterator[str]:
    """The given database, or an embedded server for the time of the run."""
    if dsn:
        yield dsn
        return
    from pgtrickle_assets.services.postgres import EmbeddedPostgres

    with tempfile.TemporaryDirectory() as folder:
        embedded = EmbeddedPostgres(Path(folder) / "postgres")
        embedded.start()
        try:
            yield embedded.create_database("capture_benchmark")
        finally:
            embedded.stop()


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dsn")
    parser.add_argument("--rows", type=int, default=50_000, help="rows per statement of the bulk kinds")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with server(options.dsn) as dsn:
        results = measure(dsn, options.rows, options.repeats)
    if options.json:
        print(json.dumps({"capture": results}))
        return
    for result in results:
        print("  ".join(f"{name}={value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
