from __future__ import annotations

import pytest

from pgtrickle_assets.errors import LakeConflictError
from pgtrickle_assets.lake import conflicts
from pgtrickle_assets.lake.changes import parse_changes
from pgtrickle_assets.lake.commit_session import PastCommit
from pgtrickle_assets.query.types import TableName

NAME = TableName("gold", "orders")


def window(*texts: str) -> list[PastCommit]:
    return [PastCommit(number, parse_changes(text)) for number, text in enumerate(texts, 5)]


@pytest.mark.parametrize("text", ["dropped_table:1", "altered_table:1", "inserted_into_table:2,altered_table:1"])
def test_nothing_is_written_to_a_table_whose_shape_changed(text: str) -> None:
    with pytest.raises(LakeConflictError, match="snapshot 5"):
        conflicts.require_same_shape(window(text), 1, NAME)


@pytest.mark.parametrize(
    "text", ["altered_table:2", "inserted_into_table:1", "deleted_from_table:1", "merge_adjacent:1"]
)
def test_other_tables_and_rows_don_t_change_a_shape(text: str) -> None:
    conflicts.require_same_shape(window(text), 1, NAME)


@pytest.mark.parametrize("text", ['created_table:"gold"."orders"', 'created_view:"GOLD"."Orders"'])
def test_a_name_can_be_taken_once(text: str) -> None:
    with pytest.raises(LakeConflictError):
        conflicts.require_not_created(window('created_table:"gold"."other"', text), NAME)


def test_a_name_in_another_schema_is_free() -> None:
    conflicts.require_not_created(window('created_table:"silver"."orders"', 'created_schema:"orders"'), NAME)


@pytest.mark.parametrize("text", ["inlined_delete:1", "inline_flush:1", "inlined_insert:1,inlined_delete:1"])
def test_positions_planned_on_inlined_rows_must_still_hold(text: str) -> None:
    with pytest.raises(LakeConflictError):
        conflicts.require_no_inline_changes(window(text), 1, NAME)


def test_the_table_wide_rule_names_the_snapshot() -> None:
    with pytest.raises(LakeConflictError, match=r"another writer changed gold.orders in snapshot 6"):
        conflicts.require_table_quiet(
            window("inserted_into_table:2", "inserted_into_table:1"),
            1,
            NAME,
            conflicts.INSERTS,
            "another writer changed",
        )
