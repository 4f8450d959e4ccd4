from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtrickle_assets.errors import LakeError
from pgtrickle_assets.lake.changes import NUMBERED, Change, created, format_changes, parse_changes, touched

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
CHANGES = st.one_of(
    st.builds(touched, st.sampled_from(sorted(NUMBERED)), st.integers(0, 2**40)),
    st.builds(lambda name: created("schema", name), NAMES),
    st.builds(lambda kind, a, b: created(kind, a, b), st.sampled_from(["table", "view", "table_macro"]), NAMES, NAMES),
)


@settings(deadline=None)
@given(st.lists(CHANGES, unique=True))
def test_what_is_written_is_read_back(changes: list[Change]) -> None:
    assert list(parse_changes(format_changes(changes))) == changes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, []),
        ("", []),
        ('created_table:"a,b"."c:""d"""', [created("table", "a,b", 'c:"d"')]),
        (
            'created_table:"s"."t.u",inserted_into_table:7',
            [created("table", "s", "t.u"), touched("inserted_into_table", 7)],
        ),
        ('dropped_view:2,created_view:"main"."v"', [touched("dropped_view", 2), created("view", "main", "v")]),
    ],
)
def test_separators_inside_names_don_t_separate(text: str | None, expected: list[Change]) -> None:
    assert list(parse_changes(text)) == expected


@pytest.mark.parametrize(
    "text",
    ["invented:1", "inserted_into_table:", "created_table:x", 'created_table:"x', "altered_table:1;altered_table:2"],
)
def test_an_unknown_or_broken_entry_is_an_error(text: str) -> None:
    with pytest.raises(LakeError):
        parse_changes(text)


def test_an_entry_stands_once() -> None:
    assert format_changes([touched("deleted_from_table", 1)] * 2) == "deleted_from_table:1"
