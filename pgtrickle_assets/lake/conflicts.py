"""What other commits since the plan mean for ours.

The rules are those of DuckLake 1.0 (what two transactions may do to one table at once), at a finer grain where that is
safe: our deletes name files and positions, so it is the file that must be unchanged, and rows that others add matter
only in partitions that we touch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from pgtrickle_assets.errors import LakeConflictError
from pgtrickle_assets.lake.changes import Change
from pgtrickle_assets.lake.commit_session import PastCommit
from pgtrickle_assets.query.types import TableName

_HINT: Final = "Plan again from the newest snapshot."
INSERTS: Final = frozenset({"inserted_into_table", "inlined_insert"})
DELETES: Final = frozenset({"deleted_from_table", "inlined_delete"})
COMPACTIONS: Final = frozenset(
    {"merge_adjacent", "rewrite_delete", "compacted_table", "inline_flush", "flushed_inlined"}
)


def conflict(message: str) -> LakeConflictError:
    """The error, with its way out."""
    return LakeConflictError(message, hint=_HINT)


def of_table(window: Sequence[PastCommit], table_id: int) -> Iterator[tuple[int, str]]:
    """(snapshot, kind) of everything that the window says about one table, view or schema."""
    for past in window:
        for change in past.changes:
            if change.object_id == table_id:
                yield past.id, change.kind


def require_same_shape(window: Sequence[PastCommit], table_id: int, name: TableName) -> None:
    """Nothing may be planned on a table that was dropped or altered since.

    Raises:
        LakeConflictError: It was.
    """
    for snapshot, kind in of_table(window, table_id):
        if kind.startswith("dropped_"):
            raise conflict(f"{name} was dropped in snapshot {snapshot}")
        if kind.startswith("altered_"):
            raise conflict(f"{name} was altered in snapshot {snapshot}")


def require_not_created(window: Sequence[PastCommit], name: TableName) -> None:
    """A table or view must not have been created under the same name since the plan.

    Raises:
        LakeConflictError: It was.
    """
    for past in window:
        for change in past.changes:
            if _creates(change, name):
                raise conflict(f"{name} was created in snapshot {past.id}")


def _creates(change: Change, name: TableName) -> bool:
    wanted = (name.schema.lower(), name.name.lower())
    return change.kind in ("created_table", "created_view") and tuple(n.lower() for n in change.names) == wanted


def require_no_inline_changes(window: Sequence[PastCommit], table_id: int, name: TableName) -> None:
    """Positions and row ids were planned on inlined rows and inlined deletes that must be the same.

    Raises:
        LakeConflictError: Another writer deleted through the catalog, or moved inlined rows into files.
    """
    for snapshot, kind in of_table(window, table_id):
        if kind in ("inlined_delete", "inline_flush", "flushed_inlined"):
            raise conflict(f"rows of {name} that live in the catalog changed in snapshot {snapshot}")


def require_table_quiet(
    window: Sequence[PastCommit], table_id: int, name: TableName, kinds: Collection[str], what: str
) -> None:
    """DuckLake's table-wide rule.

    Raises:
        LakeConflictError: Another writer made one of these changes.
    """
    for snapshot, kind in of_table(window, table_id):
        if kind in kinds:
            raise conflict(f"{what} {name} in snapshot {snapshot}")


def touches(window: Sequence[PastCommit], table_id: int, kinds: Collection[str]) -> bool:
    """Whether another writer made one of these changes to a table."""
    return any(kind in kinds for _, kind in of_table(window, table_id))
