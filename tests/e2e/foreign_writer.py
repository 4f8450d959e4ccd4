"""A DuckDB process that works on a lake without knowing of us, until its standard input closes.

It reads its orders as one line of JSON, says `ready`, and prints at the end what it did: how often each kind of
statement went through and was refused as a conflict, and what its tables must hold. Any other error ends it.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pgtrickle_assets.lake.duckdb_attach import attach
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.services.duckdb import connect

if TYPE_CHECKING:
    import duckdb


class Writer:
    """Runs statements and counts."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.random = random.Random(number)
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.rows: Counter[int] = Counter()
        self._next = number * 1_000_000

    def run(self, kind: str, statement: str) -> bool:
        """Run a statement; False when another writer was in its way."""
        import duckdb

        try:
            self.connection.execute(statement)
        except duckdb.TransactionException:
            self.refused[kind] += 1
            return False
        self.done[kind] += 1
        return True

    def source(self) -> None:
        """Write rows of `items`, a source of stream tables; sometimes give it a column and take it away again."""
        choice = self.random.random()
        if choice < 0.5:
            first, self._next = self._next, self._next + 5
            columns = "id, shop, price"
            self.run("insert", f"INSERT INTO items ({columns}) SELECT {first} + i, i % 12 + 1, i FROM range(5) t(i)")
        elif choice < 0.75:
            self.run("update", f"UPDATE items SET price = price + 1 WHERE id % 7 = {self.random.randrange(7)}")
        elif choice < 0.92:
            self.run("delete", f"DELETE FROM items WHERE id % 23 = {self.random.randrange(23)}")
        else:
            name = f"extra_{self.number}"
            if self.run("alter", f"ALTER TABLE items ADD COLUMN IF NOT EXISTS {name} INTEGER"):
                self.run("alter", f"ALTER TABLE items DROP COLUMN IF EXISTS {name}")

    def other(self) -> None:
        """Write rows of a table of its own, and remember what must be in it."""
        name, key = f"other_{self.number}", self._next
        choice = self.random.random()
        if choice < 0.6:
            self._next += 1
            if self.run("insert", f"INSERT INTO {name} (id, n) VALUES ({key}, 1)"):
                self.rows[key] = 1
        elif choice < 0.8 and self.rows:
            chosen = self.random.choice(list(self.rows))
            if self.run("update", f"UPDATE {name} SET n = n + 1 WHERE id = {chosen}"):
                self.rows[chosen] += 1
        elif choice < 0.95 and self.rows:
            chosen = self.random.choice(list(self.rows))
            if self.run("delete", f"DELETE FROM {name} WHERE id = {chosen}"):
                del self.rows[chosen]
        elif self.run("alter", f"ALTER TABLE {name} ADD COLUMN c{self._next} INTEGER"):
            self._next += 1

    def compact(self) -> None:
        """Merge and rewrite files of all tables."""
        kind = self.random.choice(["merge", "rewrite"])
        if kind == "merge":
            self.run(kind, "CALL ducklake_merge_adjacent_files('lake')")
        else:
            self.run(kind, "CALL ducklake_rewrite_data_files('lake', 'items', delete_threshold => 0.0)")


def main() -> None:
    orders: dict[str, Any] = json.loads(sys.stdin.readline())
    location = LakeLocation(orders["dsn"], "main", orders["path"], orders["options"])
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    with connect(config={"threads": 1}) as connection:
        attach(connection, location)
        connection.execute("USE lake.main")
        writer = Writer(connection, orders["number"])
        step: Callable[[], None] = getattr(writer, orders["job"])
        if orders["job"] == "other":
            connection.execute(f"CREATE TABLE other_{writer.number} (id INTEGER, n INTEGER)")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not stop.is_set():
            step()
            stop.wait(orders["pause"])
    result = {"done": writer.done, "refused": writer.refused, "rows": writer.rows, "number": writer.number}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
