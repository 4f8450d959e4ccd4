"""Which files of a table are worth rewriting. Pure: from sizes and counts to a plan.

Files are merged in tiers, as in a log-structured merge tree: a table of one-minute refreshes rewrites a row a few times
in its life and not at every maintenance. DuckLake merges only files without deletes, so small files with deletes are
rewritten once they are many, however few their deleted rows are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

MEBIBYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When files of a table are worth rewriting.

    Attributes:
        tiers: Sizes in bytes, ascending: files below the same size are merged with each other. The last is the size
            below which a file counts as small.
        min_files: Merge or rewrite small files of a partition when there are at least so many in a tier.
        delete_ratio: Rewrite files of which at least this share of rows is deleted.
        memory_limit: Memory for DuckDB.
        threads: Threads for DuckDB.
    """

    tiers: tuple[int, ...] = (MEBIBYTE, 16 * MEBIBYTE, 128 * MEBIBYTE)
    min_files: int = 8
    delete_ratio: float = 0.3
    memory_limit: str = "1GB"
    threads: int = 2


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A live data file: values of its partition as one text, size, rows and how many of them are deleted."""

    partition: str
    bytes: int
    rows: int
    deleted: int


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What to do to one table.

    Attributes:
        rewrite_from: Rewrite files of which at least this share is deleted; None for none.
        merge_below: Merge files without deletes below these sizes, in this order.
        files_to_rewrite: How many that rewrites.
        files_to_merge: How many small files without deletes there are to merge, those that a rewrite makes not counted.
    """

    rewrite_from: float | None = None
    merge_below: tuple[int, ...] = ()
    files_to_rewrite: int = 0
    files_to_merge: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the table is fine as it is."""
        return self.rewrite_from is None and not self.merge_below


def plan_table(files: Iterable[FileFacts], policy: CompactionPolicy) -> TablePlan:
    """The plan for one table's live files."""
    partitions: defaultdict[str, list[FileFacts]] = defaultdict(list)
    for file in files:
        partitions[file.partition].append(file)
    starts = [found for group in partitions.values() if (found := _rewrite_from(group, policy)) is not None]
    rewrite_from = min(starts, default=None)
    tiers: Counter[int] = Counter()
    for group in partitions.values():
        found = Counter(
            next((tier for tier in policy.tiers if file.bytes < tier), 0) for file in group if not file.deleted
        )
        tiers += Counter({tier: count for tier, count in found.items() if tier and count >= policy.min_files})
    return TablePlan(
        rewrite_from,
        tuple(sorted(tiers)),
        0
        if rewrite_from is None
        else sum(_is_from(file, rewrite_from) for group in partitions.values() for file in group),
        tiers.total(),
    )


def _is_from(file: FileFacts, ratio: float) -> bool:
    return file.deleted > 0 and _ratio(file) >= ratio


def _rewrite_from(files: Sequence[FileFacts], policy: CompactionPolicy) -> float | None:
    small = sorted(_ratio(file) for file in files if file.deleted and file.bytes < policy.tiers[-1])
    if len(small) >= policy.min_files:
        # The files with the fewest deletes wait, so that large ones with as few are not rewritten along with them.
        return min(small[policy.min_files // 2], policy.delete_ratio)
    return policy.delete_ratio if any(_ratio(file) >= policy.delete_ratio for file in files) else None


def _ratio(file: FileFacts) -> float:
    return file.deleted / file.rows if file.rows else 1.0
