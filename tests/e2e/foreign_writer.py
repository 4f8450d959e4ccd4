"""DuckDB with the official extension as a writer in a process of its own, for some seconds; reports what it committed.

It knows nothing of this project but where the lake is.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.services.duckdb import connect

if TYPE_CHECKING:
    import duckdb

OWN_IDS = 1_000_000
"""Ids that one writer of rows has for itself."""

_TRANSACTIONS_PER_SESSION = 25

Row = tuple[int, int, int]
Rows = dict[int, Row]


@dataclass
class ForeignWriter:
    """One writer.

    Attributes:
        config: `location`, `kind`, `seed`, `seconds`, `history_seconds`, `report`; for a writer of rows, `table` and
            `statements`, some of insert, update and delete.
        rows: What its committed transactions leave of its rows, by id.
        committed: Names of its transactions that were committed, in order; each is the message of its snapshot.
        done: What it did how often.
        refused: What DuckDB said to transactions that it did not commit.
    """

    config: dict[str, Any]
    rows: Rows = field(default_factory=dict)
    committed: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Write until the time is over, in sessions of several transactions."""
        until = time.monotonic() + self.config["seconds"]
        choice = random.Random(self.config["seed"])
        works = {"rows": self._rows, "columns": self._columns, "files": self._files}[self.config["kind"]](choice)
        while time.monotonic() < until:
            with connect(config={"threads": 1, "memory_limit": "256MB"}) as connection:
                attach(connection, LakeLocation(*self.config["location"]))
                for _ in range(_TRANSACTIONS_PER_SESSION):
                    if time.monotonic() < until:
                        next(works)(connection)
                        time.sleep(choice.uniform(0, 0.3))

    def report(self) -> dict[str, Any]:
        """What the test compares the lake with."""
        return {
            "rows": list(self.rows.values()),
            "committed": self.committed,
            "done": dict(self.done),
            "refused": self.refused,
        }

    def _transaction(self, connection: duckdb.DuckDBPyConnection, what: str, statements: Sequence[str]) -> bool:
        """Whether it was committed."""
        import duckdb

        name = f"writer {self.config['seed']}: {len(self.committed) + len(self.refused)}"
        try:
            connection.execute("BEGIN")
            connection.execute(f"CALL lake.set_commit_message('foreign', '{name}')")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")
        except duckdb.Error as error:
            self.refused.append(f"{what}: {type(error).__name__}: {error}"[:1000])
            # A failed COMMIT has ended it.
            with suppress(duckdb.TransactionException):
                connection.execute("ROLLBACK")
            return False
        self.committed.append(name)
        self.done[what] += 1
        return True

    def _rows(self, choice: random.Random) -> Iterator[Callable[[duckdb.DuckDBPyConnection], None]]:
        """Statements on rows with ids of its own, one or two in a transaction."""
        first = self.config["seed"] * OWN_IDS
        unused = first
        while True:
            after, statements = dict(self.rows), []
            kinds = choice.choices(self.config["statements"], k=choice.choice((1, 1, 2)))
            for kind in kinds:
                statement, after, unused = self._statement(kind, choice, after, unused)
                statements.append(statement)
            yield partial(self._write_rows, "+".join(kinds), statements, after)

    def _write_rows(
        self, what: str, statements: Sequence[str], after: Rows, connection: duckdb.DuckDBPyConnection
    ) -> None:
        if self._transaction(connection, what, statements):
            self.rows = after

    def _statement(self, kind: str, choice: random.Random, rows: Rows, unused: int) -> tuple[str, Rows, int]:
        """A statement, the rows that it leaves, and the first id that no statement has used."""
        table, first = self.config["table"], self.config["seed"] * OWN_IDS
        own = f"id >= {first} AND id < {first + OWN_IDS}"
        if kind == "insert":
            ids = range(unused, unused + choice.randrange(1, 30))
            added = {id_: (id_, id_ % 5, id_ % 11) for id_ in ids}
            text = (
                f"INSERT INTO lake.main.{table} (id, shop, price)"
                f" SELECT i, i % 5, i % 11 FROM range({ids.start}, {ids.stop}) t(i)"
            )
            return text, rows | added, ids.stop
        some = choice.randrange(13)
        if kind == "update":
            new = "price = price + 1, shop = (shop + 1) % 5"
            text = f"UPDATE lake.main.{table} SET {new} WHERE id % 13 = {some} AND {own}"
            changed = {i: (i, (shop + 1) % 5, price + 1) for i, shop, price in rows.values() if i % 13 == some}
            return text, rows | changed, unused
        text = f"DELETE FROM lake.main.{table} WHERE id % 13 = {some} AND {own}"
        return text, {id_: row for id_, row in rows.items() if id_ % 13 != some}, unused

    def _columns(self, choice: random.Random) -> Iterator[Callable[[duckdb.DuckDBPyConnection], None]]:
        """Adds, renames and drops columns that no query reads, and renames for a moment one that a query reads."""
        number = 0
        while True:
            number += 1
            table = choice.choice(("items", "parts", "unread"))
            yield from (
                partial(self._until_committed, text)
                for text in (
                    "ALTER TABLE lake.main.tariffs RENAME COLUMN tariff TO rate",
                    "ALTER TABLE lake.main.tariffs RENAME COLUMN rate TO tariff",
                    f"ALTER TABLE lake.main.{table} ADD COLUMN note_{number} VARCHAR",
                    f"ALTER TABLE lake.main.{table} RENAME COLUMN note_{number} TO remark_{number}",
                    f"ALTER TABLE lake.main.{table} DROP COLUMN remark_{number}",
                    f"CREATE TABLE lake.main.scratch_{number} AS SELECT {number} AS n",
                    f"DROP TABLE lake.main.scratch_{number}",
                )
            )

    def _until_committed(self, statement: str, connection: duckdb.DuckDBPyConnection) -> None:
        for _ in range(20):
            if self._transaction(connection, statement.split()[0].lower(), [statement]):
                return
        raise AssertionError(f"never committed: {statement}")

    def _files(self, choice: random.Random) -> Iterator[Callable[[duckdb.DuckDBPyConnection], None]]:
        """Compacts every table of the lake, expires snapshots and removes the files that they alone had."""
        old = f"older_than => now() - INTERVAL {self.config['history_seconds']} SECOND"
        while True:
            statement = choice.choice(
                (
                    "CALL ducklake_merge_adjacent_files('lake')",
                    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)",
                    "CALL ducklake_rewrite_data_files('lake', 'items', delete_threshold => 0.0)",
                    f"CALL ducklake_expire_snapshots('lake', {old})",
                    f"CALL ducklake_cleanup_old_files('lake', {old})",
                )
            )
            yield partial(self._statement_alone, statement)

    def _statement_alone(self, statement: str, connection: duckdb.DuckDBPyConnection) -> None:
        import duckdb

        what = statement.removeprefix("CALL ducklake_").split("(")[0]
        try:
            connection.execute(statement)
        except duckdb.Error as error:
            self.refused.append(f"{what}: {type(error).__name__}: {error}"[:1000])
        else:
            self.done[what] += 1


def main() -> None:
    writer = ForeignWriter(json.loads(sys.argv[1]))
    writer.run()
    # A pipe would hold a long report until somebody reads it.
    Path(writer.config["report"]).write_text(json.dumps(writer.report()), encoding="utf-8")


if __name__ == "__main__":
    main()
