"""How far capture has come: a PostgreSQL snapshot, and proof of the history it belongs to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pgtrickle_assets.errors import SourceError

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A pg_snapshot: which transactions count as committed.

    Source of the rules: PostgreSQL manual, "Transaction ID and Snapshot Information Functions". Ids are xid8: 64 bits,
    so they never wrap around.
    """

    xmin: int
    xmax: int
    running: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Read PostgreSQL's text form, `xmin:xmax:xip_list`."""
        lowest, highest, running = text.split(":")
        return cls(int(lowest), int(highest), frozenset(int(xid) for xid in running.split(",") if xid))

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(str(xid) for xid in sorted(self.running))}"

    def sees(self, xid: int) -> bool:
        """Whether the transaction had ended when the snapshot was taken."""
        return xid < self.xmin or (xid < self.xmax and xid not in self.running)

    def covers(self, other: Snapshot) -> bool:
        """Whether all that `other` sees is seen here too."""
        not_begun_here = max(other.xmax - self.xmax, 0)
        running_there = sum(self.xmax <= xid < other.xmax for xid in other.running)
        return running_there == not_begun_here and not any(other.sees(xid) for xid in self.running)

    def common(self, other: Snapshot) -> Snapshot:
        """The snapshot that sees exactly what both see."""
        xmax = min(self.xmax, other.xmax)
        running = frozenset(xid for xid in self.running | other.running if xid < xmax)
        return Snapshot(min(running, default=xmax), xmax, running)


@dataclass(frozen=True, slots=True)
class TableState:
    """What identifies a table's captured history at a snapshot.

    Attributes:
        oid: pg_class.oid; a table that was dropped and created again has another.
        generation: Made anew each time that its buffer starts empty.
        triggers: Names the rows of pg_trigger, their versions included: disabling and enabling leaves a trace.
        columns: Names the rows of pg_attribute of captured columns, their versions included.
        file: relfilenode; with `columns` it shows a rewrite that changed values without a trigger.
        labels: Names the labels of captured enum columns; one that vanished was renamed.
        leaves: By oid of each leaf partition, what `file` and `triggers` are for the table.
    """

    oid: int
    generation: str
    triggers: str
    columns: str
    file: int
    leaves: dict[int, str] = field(default_factory=dict[int, str])
    labels: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Position:
    """One captured position; its text form is opaque to everybody else.

    Attributes:
        system: pg_control_system().system_identifier: which cluster.
        database: Oid of the database in it.
        snapshot: What has been captured.
        receipt: A token that was committed in the source after the snapshot was taken. While it is there, no restore,
            crash or failover has taken back anything that the snapshot saw.
        tables: By full name.
    """

    system: str
    database: int
    snapshot: Snapshot
    receipt: str
    tables: dict[tuple[str, str], TableState]

    def __str__(self) -> str:
        tables = [
            [*name, s.oid, s.generation, s.triggers, s.columns, s.file, [*s.leaves.items()], sorted(s.labels)]
            for name, s in sorted(self.tables.items())
        ]
        document = [_FORMAT, self.system, self.database, str(self.snapshot), self.receipt, tables]
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read what `str` wrote.

        Raises:
            SourceError: The text is not a position of this version.
        """
        try:
            version, system, database, snapshot, receipt, tables = json.loads(text)
            if version != _FORMAT:
                raise SourceError(
                    _unreadable(f"it has format {version}, this version reads {_FORMAT}"), hint=_COPY_AGAIN
                )
            return cls(system, database, Snapshot.parse(snapshot), receipt, dict(map(_table, tables)))
        except (ValueError, TypeError) as error:
            raise SourceError(_unreadable("it was not written by this program"), hint=_COPY_AGAIN) from error


_COPY_AGAIN = "Copy the tables of the source again."


def _unreadable(why: str) -> str:
    return f"the stored capture position cannot be read: {why}."


def _table(row: list[Any]) -> tuple[tuple[str, str], TableState]:
    schema, name, oid, generation, triggers, columns, file, leaves, labels = row
    state = TableState(oid, generation, triggers, columns, file, dict(leaves), frozenset(labels))
    return (schema, name), state
