"""Files are rewritten when that pays, and each row only a few times in its life."""

from __future__ import annotations

from pgtrickle_assets.lake.compaction_plan import MEBIBYTE, CompactionPolicy, FileFacts, plan_table

POLICY = CompactionPolicy(min_files=4)
KIB = 1024


def small(count: int, *, partition: str = "", deleted: int = 0, size: int = 10 * KIB) -> list[FileFacts]:
    return [FileFacts(partition, size, 100, deleted)] * count


def test_a_table_with_few_small_files_is_left_alone() -> None:
    assert plan_table(small(3), POLICY).is_empty


def test_many_small_files_of_a_partition_are_merged() -> None:
    plan = plan_table(small(4), POLICY)
    assert (plan.merge_below, plan.rewrite_from, plan.files_to_merge) == ((MEBIBYTE,), None, 4)


def test_files_of_different_partitions_are_no_reason_to_merge() -> None:
    files = [file for day in range(20) for file in small(2, partition=str(day))]
    assert plan_table(files, POLICY).is_empty


def test_what_an_earlier_merge_made_is_merged_again_only_with_its_like() -> None:
    assert plan_table(small(4) + small(3, size=2 * MEBIBYTE), POLICY).merge_below == (MEBIBYTE,)
    assert plan_table(small(3) + small(4, size=2 * MEBIBYTE), POLICY).merge_below == (16 * MEBIBYTE,)


def test_a_file_with_many_deletes_is_rewritten_and_one_with_few_is_not() -> None:
    large = 500 * MEBIBYTE
    assert plan_table([FileFacts("", large, 100, 30)], POLICY).rewrite_from == 0.3
    assert plan_table([FileFacts("", large, 100, 29)] * 9, POLICY).is_empty


def test_small_files_with_few_deletes_do_not_pile_up() -> None:
    plan = plan_table(small(4, deleted=1), POLICY)
    assert (plan.rewrite_from, plan.files_to_rewrite) == (0.01, 4)


def test_a_large_file_with_few_deletes_is_not_rewritten_along_with_small_ones() -> None:
    large = FileFacts("", 500 * MEBIBYTE, 1_000_000, 100)
    plan = plan_table([large, *small(4, deleted=1)], POLICY)
    assert plan.rewrite_from is not None
    assert plan.rewrite_from > large.deleted / large.rows
    assert plan.files_to_rewrite == 4
