"""What is known and staged between taking the catalog lock and committing one snapshot.

Questions are collected and go out together, and so do writes: one round trip each, because others wait for the lock.
Writes are staged first, because the row of the snapshot has to be the first write (its primary key is the mutex against
writers that don't know our lock) and carries the counters that the staged writes used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pgtrickle_assets.errors import LakeConflictError
from pgtrickle_assets.lake.changes import Change
from pgtrickle_assets.lake.sqltext import statement

if TYPE_CHECKING:
    from psycopg import ClientCursor

    from pgtrickle_assets.lake.connections import CatalogConnection

Parameters = Sequence[object] | Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Head:
    """Counters of the newest snapshot."""

    id: int
    schema_version: int
    next_catalog_id: int
    next_file_id: int


@dataclass(frozen=True, slots=True)
class PastCommit:
    """A snapshot that was committed after the planned one."""

    id: int
    changes: tuple[Change, ...]


class Answer:
    """Rows of a question; fetching sends what is not sent yet."""

    def __init__(self, session: CommitSession) -> None:
        self._session = session
        self._rows: list[tuple[Any, ...]] | None = None

    def fill(self, rows: list[tuple[Any, ...]]) -> None:
        """Give the rows that arrived."""
        self._rows = rows

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows."""
        if self._rows is None:
            self._session.send()
        return self._rows or []

    def row(self) -> tuple[Any, ...] | None:
        """The first row, if any."""
        return next(iter(self.rows()), None)


class Operation(Protocol):
    """One part of a commit. The methods are called in this order, all again when a round is lost."""

    def prepare(self) -> None:
        """Do what needs no lock, such as writing files."""
        ...

    def read(self, session: CommitSession) -> None:
        """Ask (`session.ask`); answers must not be fetched yet."""
        ...

    def stage(self, session: CommitSession) -> None:
        """Check what was planned against the head, and stage writes; LakeConflictError stops the commit."""
        ...

    def finish(self, *, committed: bool) -> None:
        """Once the outcome is certain: drop what is not needed. Must not raise."""
        ...


class CatalogOperation:
    """Base of operations that only touch the catalog."""

    def prepare(self) -> None:
        """Nothing to prepare."""

    def finish(self, *, committed: bool) -> None:
        """Nothing to drop."""


class HeadMovedError(Exception):
    """What was written ahead for one snapshot id does not fit the one that the commit gets; the round is repeated."""


class CommitSession:
    """The open transaction of one round.

    Attributes:
        connection: In a transaction that holds the catalog lock once the first answers are in.
        base: Snapshot that the changes were planned on.
        head: Newest snapshot; None until the first results are in.
        window: Commits after `base` up to the head.
        changes: Entries for the change log of the new snapshot.
        new_schemas: Ids of schemas that this commit creates, by name; several tables may need the same one.
    """

    def __init__(self, connection: CatalogConnection, schema: str, data_path: str, base: int) -> None:
        self.connection = connection
        self.schema = schema
        self.data_path = data_path
        self.base = base
        self.window: tuple[PastCommit, ...] = ()
        self.changes: list[Change] = []
        self.new_schemas: dict[str, int] = {}
        self._head: Head | None = None
        self._questions: list[tuple[Answer, bytes, Parameters]] = []
        self._catalog_ids = 0
        self._file_ids = 0
        self._shape_changed = False
        self._statements: list[tuple[bytes, Parameters]] = []
        self._checks: list[tuple[int, Callable[[int], str | None]]] = []

    @property
    def head(self) -> Head:
        """The newest snapshot, known once the first results are in."""
        if self._head is None:
            raise AssertionError("the head is read before operations stage their writes")
        return self._head

    @head.setter
    def head(self, head: Head) -> None:
        self._head = head

    @property
    def snapshot_id(self) -> int:
        """Id of the snapshot that is being made."""
        return self.head.id + 1

    @property
    def schema_version(self) -> int:
        """Schema version of the new snapshot, as far as staged."""
        return self.head.schema_version + (1 if self._shape_changed else 0)

    @property
    def counters(self) -> tuple[int, int, int]:
        """(schema version, next catalog id, next file id) of the new snapshot, once all is staged."""
        head = self.head
        return self.schema_version, head.next_catalog_id + self._catalog_ids, head.next_file_id + self._file_ids

    @property
    def statements(self) -> Sequence[tuple[bytes, Parameters]]:
        """Staged writes, in order."""
        return self._statements

    def ask(self, template: str, parameters: Parameters) -> Answer:
        """A question; it is sent with all others that are open when one of the answers is fetched."""
        answer = Answer(self)
        self._questions.append((answer, statement(template, self.schema), parameters))
        return answer

    def send(self) -> None:
        """Send the open questions and take in the answers."""
        asked, self._questions = self._questions, []
        results = run_together(self.connection, [(text, parameters) for _, text, parameters in asked])
        for (answer, _, _), (rows, _) in zip(asked, results, strict=True):
            answer.fill(rows)

    def write(self, template: str, parameters: Parameters, *, check: Callable[[int], str | None] | None = None) -> None:
        """Stage a write.

        Args:
            template: Statement.
            parameters: Values.
            check: Gets the number of rows written; a text it returns is the conflict that stops the commit.
        """
        if check is not None:
            self._checks.append((len(self._statements), check))
        self._statements.append((statement(template, self.schema), parameters))

    def write_rows(self, table: str, types: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Stage one INSERT of many full rows, sent as one array for each column."""
        columns = list(zip(*rows, strict=True))
        if not columns:
            return
        arrays = ", ".join(f"%s::{kind}[]" for kind in types)
        self.write(f"INSERT INTO {{c}}.ducklake_{table} SELECT * FROM unnest({arrays})", [list(c) for c in columns])  # noqa: S608

    def check_written(self, counts: Sequence[int]) -> None:
        """Compare the numbers of rows written with what was expected.

        Raises:
            LakeConflictError: A row that was to be changed is gone.
        """
        for place, check in self._checks:
            if problem := check(counts[place]):
                raise LakeConflictError(problem, hint="Plan again from the newest snapshot.")

    def note(self, change: Change) -> None:
        """Add an entry to the change log."""
        self.changes.append(change)

    def new_catalog_id(self) -> int:
        """An unused id for a schema, table, view or partition spec."""
        self._catalog_ids += 1
        return self.head.next_catalog_id + self._catalog_ids - 1

    def new_file_id(self) -> int:
        """An unused id for a data or delete file."""
        self._file_ids += 1
        return self.head.next_file_id + self._file_ids - 1

    def bump_file_ids(self) -> None:
        """Use up a file id, so that sessions which cache statistics by it read them again."""
        self._file_ids += 1

    def shape_changed(self) -> None:
        """The catalog's shape changes: the snapshot gets a new schema version."""
        self._shape_changed = True


def run_together(
    connection: CatalogConnection, statements: Sequence[tuple[bytes, Parameters]]
) -> list[tuple[list[tuple[Any, ...]], int]]:
    """Run statements in one round trip; (rows, number of rows) for each.

    Values are quoted by the driver on this side, which is what lets PostgreSQL take many statements in one message.
    """
    from psycopg import ClientCursor

    with ClientCursor(connection) as cursor:
        cursor.execute(";\n".join(_bound(cursor, text, parameters) for text, parameters in statements).encode())
        results: list[tuple[list[tuple[Any, ...]], int]] = []
        for _ in statements:
            results.append((cursor.fetchall() if cursor.description else [], cursor.rowcount))
            cursor.nextset()
    return results


def _bound(cursor: ClientCursor[tuple[Any, ...]], text: bytes, parameters: Parameters) -> str:
    return cursor.mogrify(text, parameters)
