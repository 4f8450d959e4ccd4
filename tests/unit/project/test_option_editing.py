"""Changing a SQL file leaves everything else in it as it is, and says what was asked for when it is read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtrickle_assets.errors import ConfigurationError
from pgtrickle_assets.option_block import parse_stream_table
from pgtrickle_assets.option_editing import file_of, rendered

TEXT = """/*---
schedule: 1m                      # duration | cron
# how
refresh_mode: auto                # auto
owners:
  - team:a
  - team:b
# at the end
tags: {tier: hot}
---*/
-- the query
SELECT 1 AS one
"""


def changed(options, query=None, text=TEXT, defaults=None):
    return rendered("gold.t", text, options, query, defaults or {})


def test_a_value_is_replaced_where_it_stands():
    assert changed({"schedule": "5m"}) == TEXT.replace("1m  ", "5m  ")


def test_a_list_goes_without_the_comment_behind_it():
    assert changed({"owners": ["team:c"]}) == TEXT.replace("  - team:a\n  - team:b", "- team:c")
    assert changed({"owners": None}) == TEXT.replace("owners:\n  - team:a\n  - team:b\n", "")


def test_a_new_option_comes_last():
    assert changed({"description": "x: y # z"}) == TEXT.replace("hot}\n", "hot}\ndescription: 'x: y # z'\n")


def test_the_query_is_replaced_and_the_block_stays():
    assert changed({}, "SELECT 2 AS two\n") == TEXT.replace("-- the query\nSELECT 1 AS one", "SELECT 2 AS two")


def test_a_file_without_options_has_no_block():
    assert changed({}, "SELECT 1 AS one", text="") == "SELECT 1 AS one\n"
    assert changed({"schedule": None}, text="/*---\nschedule: 1m\n---*/\nSELECT 1 AS one") == "SELECT 1 AS one\n"


def test_what_the_defaults_say_is_not_written():
    text = changed({"refresh_mode": "full"}, "SELECT 1 AS one", text="", defaults={"schedule": "1h"})
    assert text == "/*---\nrefresh_mode: full\n---*/\nSELECT 1 AS one\n"


@pytest.mark.parametrize("text", ["ends ---*/ here", "---*/"])
def test_an_option_that_would_end_the_comment_is_refused(text):
    with pytest.raises(ConfigurationError):
        changed({"description": text})


@given(
    description=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    owner=st.sampled_from(["team:ü x", "a@b.c"]),
)
def test_whatever_is_written_is_read_again_or_refused(description, owner):
    try:
        text = changed({"description": description, "owners": [owner]})
    except ConfigurationError:
        return
    table = parse_stream_table(text, name="gold.t", path=file_of("gold.t"))
    assert (table.description, table.owners) == (description, (owner,))
    assert (table.schedule, table.tags, table.query) == ("1m", {"tier": "hot"}, "-- the query\nSELECT 1 AS one")
