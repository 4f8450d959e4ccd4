"""One commit = one PostgreSQL transaction = one DuckLake snapshot, or nothing.

Order (from the rules that the official extension follows, and the ways it can be raced):

1. Advisory lock: orders our own writers, held for this transaction only.
2. Head, and what was committed since the plan; conflicts are decided from the change log and the files themselves.
3. The row in `ducklake_snapshot`, first of all writes: its primary key is the mutex against writers without our lock.
4. Everything else, the caller's rows included, then COMMIT.

A lost race is retried from step 1 with a jittered pause. When the connection dies at COMMIT, a new connection takes the
lock (so the old transaction has ended) and looks for this commit's id in `commit_extra_info`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from pgtrickle_assets.lake.commit_rounds import Attempt, CommitPolicy, CommitResult, find_commit
from pgtrickle_assets.lake.table_writing import resolve_writes

if TYPE_CHECKING:
    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.lake.commit_rounds import Within
    from pgtrickle_assets.lake.commit_session import Operation
    from pgtrickle_assets.lake.model import TableChange

__all__ = ["CommitPolicy", "CommitResult", "commit", "find_commit", "run_commit"]


def commit(
    lake: Lake,
    *,
    base: int,
    changes: Sequence[TableChange],
    author: str,
    message: str,
    extra_info: Mapping[str, object] | None = None,
    within: Within | None = None,
    policy: CommitPolicy | None = None,
    operations: Sequence[Operation] = (),
) -> CommitResult:
    """Commit changes of one or more tables as one snapshot.

    Args:
        lake: The lake.
        base: Snapshot that the changes were planned on.
        changes: At most one for each table.
        author: Stored with the snapshot.
        message: Stored with the snapshot.
        extra_info: Stored with the snapshot as JSON. With a key `delivery_id`, a commit that finds this delivery
            already committed after `base` does nothing and says so.
        within: Called with an open cursor and the new snapshot id just before COMMIT, to write rows of the same
            transaction; what it raises undoes everything, and errors of the database come out as ours. It may be
            called again after a lost round.
        policy: Limits.
        operations: Further operations of the same snapshot (`lake.ddl`, `lake.views`).

    Raises:
        ValueError: No changes, or two for one table.
        LakeConflictError: Another writer changed what was planned on.
        CommitStateUnknownError: The connection was lost during COMMIT and the outcome could not be found out.
        LakeUnavailableError: The catalog could not be reached, or the race was lost too often.
    """
    if not changes and not operations:
        raise ValueError("a commit needs at least one change")
    used = policy or CommitPolicy()
    writes = resolve_writes(lake, base, changes, used.conflict_scope, str((extra_info or {}).get("delivery_id", "")))
    return run_commit(
        lake,
        base=base,
        operations=(*writes, *operations),
        author=author,
        message=message,
        extra_info=extra_info,
        within=within,
        policy=used,
    )


def run_commit(
    lake: Lake,
    *,
    base: int,
    operations: Sequence[Operation],
    author: str,
    message: str,
    extra_info: Mapping[str, object] | None = None,
    within: Within | None = None,
    policy: CommitPolicy | None = None,
) -> CommitResult:
    """Commit any operations as one snapshot; see `commit` for arguments and errors."""
    used = policy or CommitPolicy()
    info = {**(extra_info or {}), "commit_id": str(uuid4())}
    attempt = Attempt(lake, base, operations, (author, message, info), within, used)
    try:
        result = attempt.run_all()
    except BaseException:
        # Interrupted in the middle of COMMIT: files may be in use, and the clean-up of orphans can tell later.
        if attempt.stage != "committing":
            _finish(operations, committed=False)
        raise
    _finish(operations, committed=not result.repeated)
    return result


def _finish(operations: Sequence[Operation], *, committed: bool) -> None:
    for operation in operations:
        operation.finish(committed=committed)
