"""Keeping a lake healthy: what `pgtrickle maintain` and the job of that name do.

Every step is safe to repeat and to kill, and only one process at a time maintains a lake; a second one finds that out
and does nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from pgtrickle_assets.control import delivery as deliveries
from pgtrickle_assets.control import history, retention, sink_counts, sql_definitions
from pgtrickle_assets.lake.compaction_plan import CompactionPolicy
from pgtrickle_assets.lake.kept_statistics import mend_statistics
from pgtrickle_assets.lake.maintenance import (
    Compaction,
    clean_up,
    compact,
    expire_snapshots,
    only_maintainer,
    plan_compaction,
)
from pgtrickle_assets.lake.orphans import RemovedFiles, remove_orphans
from pgtrickle_assets.query.types import TableName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.settings import Settings

_FOREIGN_FACTOR: Final = 7
"""So much longer than ours do files of DuckDB stay that no snapshot names: nobody can ask whether it still runs."""


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """What maintenance did, or would do.

    Attributes:
        dry_run: Whether it only looked.
        skipped: Why it did nothing; empty when it did its work.
        compacted: Tables of which files were merged or rewritten, as `schema.table`.
        merged_files: Small files that were merged.
        rewritten_files: Files with deleted rows that were written anew.
        left_alone: Tables that another writer changed meanwhile, with what DuckDB said; the next time does them.
        expired_snapshots: Snapshots that went.
        kept_from: Oldest snapshot that is still needed.
        held_back_by: Stream tables whose frontier alone keeps snapshots that are old enough to go.
        deleted_files: Files removed that compaction and expiry had replaced.
        orphaned_files: Files removed that no snapshot named.
        freed_bytes: Bytes of the orphaned files.
        history_rows: Entries removed from the refresh history.
    """

    dry_run: bool = False
    skipped: str = ""
    compacted: tuple[str, ...] = ()
    merged_files: int = 0
    rewritten_files: int = 0
    left_alone: dict[str, str] = field(default_factory=dict)
    expired_snapshots: int = 0
    kept_from: int | None = None
    held_back_by: tuple[str, ...] = ()
    deleted_files: int = 0
    orphaned_files: int = 0
    freed_bytes: int = 0
    history_rows: int = 0

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {**asdict(self), "compacted": list(self.compacted), "held_back_by": list(self.held_back_by)}


def maintain(lake: Lake, settings: Settings, *, dry_run: bool = False) -> UpkeepReport:
    """Compact, expire, clean up and prune.

    Args:
        lake: The lake, with the control schema in its catalog's database.
        settings: Retention times and compaction limits.
        dry_run: Only say what would be done.

    Raises:
        LakeError: The lake cannot be reached or DuckDB refuses.
    """
    with only_maintainer(lake) as alone:
        if not alone:
            return UpkeepReport(dry_run=dry_run, skipped="another process maintains this lake")
        if dry_run:
            return _look(lake, settings)
        mend_statistics(lake)
        compactions = compact(lake, policy=_policy(settings), tables=_tables(lake, settings))
        expired = expire_snapshots(
            lake, older_than=_hours(settings.snapshot_retention_hours), keep_from=lambda: _keep_from(lake)
        )
        deleted = clean_up(lake, older_than=_hours(settings.old_files_retention_hours))
        orphans = _orphans(lake, settings, dry_run=False)
        days = settings.history_retention_days
        with lake.connection() as connection, connection.transaction():
            sink_counts.fold(connection)
            sink_counts.prune(connection, retention_days=days)
            pruned = history.prune(connection, retention_days=days)
            sql_definitions.prune_requests(connection, retention_days=days)
            retention.prune_provenance(connection, retention_days=days, kept_from=lake.oldest())
        return _report(lake, settings, compactions, expired, deleted, orphans, pruned, dry_run=False)


def _look(lake: Lake, settings: Settings) -> UpkeepReport:
    plans = plan_compaction(lake, _policy(settings), _tables(lake, settings))
    expirable = expire_snapshots(
        lake,
        older_than=_hours(settings.snapshot_retention_hours),
        keep_from=lambda: _keep_from(lake),
        dry_run=True,
    )
    deletable = clean_up(lake, older_than=_hours(settings.old_files_retention_hours), dry_run=True)
    orphans = _orphans(lake, settings, dry_run=True)
    with lake.connection() as connection:
        prunable = history.prunable(connection, retention_days=settings.history_retention_days)
    compactions = [
        Compaction(name, merged_files=plan.files_to_merge, rewritten_files=plan.files_to_rewrite)
        for name, plan in plans.items()
    ]
    return _report(lake, settings, compactions, expirable, deletable, orphans, prunable, dry_run=True)


def _report(
    lake: Lake,
    settings: Settings,
    compactions: Sequence[Compaction],
    expired: Sequence[int],
    deleted: int,
    orphans: RemovedFiles,
    pruned: int,
    *,
    dry_run: bool,
) -> UpkeepReport:
    needed = _keep_from(lake)
    wanted = expire_snapshots(
        lake, older_than=_hours(settings.snapshot_retention_hours), keep_from=lambda: None, dry_run=True
    )
    beyond = [snapshot for snapshot in wanted if needed is not None and snapshot >= needed]
    with lake.connection() as connection:
        holders = retention.held_back_by(connection, needed) if beyond and needed is not None else []
    return UpkeepReport(
        dry_run=dry_run,
        compacted=tuple(str(done.table) for done in compactions if done.merged_files or done.rewritten_files),
        merged_files=sum(done.merged_files for done in compactions),
        rewritten_files=sum(done.rewritten_files for done in compactions),
        left_alone={str(done.table): done.skipped for done in compactions if done.skipped},
        expired_snapshots=len(expired),
        kept_from=needed,
        held_back_by=tuple(holders),
        deleted_files=deleted,
        orphaned_files=len(orphans.paths),
        freed_bytes=orphans.bytes,
        history_rows=pruned,
    )


def _orphans(lake: Lake, settings: Settings, *, dry_run: bool) -> RemovedFiles:
    with lake.connection() as connection:
        running = deliveries.protected_ids(connection)

    def is_running(file_name: str) -> bool:
        return any(delivery_id in file_name for delivery_id in running)

    age = _hours(settings.orphan_retention_hours)
    return remove_orphans(
        lake, is_running=is_running, minimum_age=age, foreign_minimum_age=age * _FOREIGN_FACTOR, dry_run=dry_run
    )


def _keep_from(lake: Lake) -> int | None:
    with lake.connection() as connection:
        return retention.keep_from(connection)


def _tables(lake: Lake, settings: Settings) -> frozenset[TableName] | None:
    if settings.maintenance_tables == "all":
        return None
    with lake.connection() as connection:
        return frozenset(TableName(*names) for names in retention.own_tables(connection))


def _policy(settings: Settings) -> CompactionPolicy:
    return CompactionPolicy(
        min_files=settings.compaction_min_files,
        delete_ratio=settings.compaction_delete_threshold,
        memory_limit=settings.compaction_memory,
    )


def _hours(hours: float) -> timedelta:
    return timedelta(hours=hours)
