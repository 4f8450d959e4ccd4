"""DuckDB dates rows wrongly that it deletes in a commit that is tried again; we read and compare them right."""

from __future__ import annotations

from contextlib import closing

import pytest
from lake_pair import Pair, Rows, attached
from lake_writers import EVENTS

from pgtrickle_assets.errors import LakeDeletesUndatedError
from pgtrickle_assets.lake.catalog import Lake
from pgtrickle_assets.lake.model import TableDefinition
from pgtrickle_assets.query import types as t
from pgtrickle_assets.query.types import ColumnSchema, TableName

DEFINITION = TableDefinition(EVENTS, (ColumnSchema("writer", t.INT32), ColumnSchema("n", t.INT32)))
OTHER = TableDefinition(TableName("main", "other"), (ColumnSchema("n", t.INT32),))


def delete_overtaken(pair: Pair, condition: str, *meanwhile: str) -> int:
    """Delete in a DuckDB session that others overtake before its commit; the snapshot before that commit."""
    with closing(attached(pair.location)) as session:
        session.execute("BEGIN")
        session.execute(f"DELETE FROM {EVENTS} WHERE {condition}")
        for statement in meanwhile:
            pair.duckdb(statement)
        before = pair.lake.head()
        session.execute("COMMIT")
    return before


def history(pair: Pair) -> dict[int, Rows]:
    """Two files that both have a cumulative delete file soon; what each snapshot held while it was the newest."""
    pair.create(DEFINITION, [{"writer": 0, "n": n} for n in range(20)])
    pair.append(EVENTS, [{"writer": 1, "n": n} for n in range(20)])
    pair.create(OTHER)
    pair.duckdb(f"DELETE FROM {EVENTS} WHERE n = 0")
    return {pair.lake.head(): pair.ours(EVENTS)}


def expect(pair: Pair, states: dict[int, Rows]) -> None:
    """Every snapshot still reads as it did, and every delta leads from one to another."""
    for at, rows in states.items():
        assert pair.ours(EVENTS, at) == rows, at
    for since, old in states.items():
        for until, new in states.items():
            if since < until:
                pair.check_delta(pair.table(EVENTS, until), since, ["writer", "n"], old, new)


def test_rows_deleted_by_a_commit_that_was_tried_again_go_when_it_was_committed(pair: Pair) -> None:
    states = history(pair)
    for n in (1, 2, 3):
        before = delete_overtaken(pair, f"n = {n}", *["INSERT INTO main.other VALUES (1)"] * n)
        states[before] = next(reversed(states.values()))
        states[pair.lake.head()] = pair.ours(EVENTS)
    assert sum(next(reversed(states.values())).values()) == 32
    expect(pair, states)
    table = pair.table(EVENTS, list(states)[1])
    assert [file.deletes.is_misdated for file in pair.lake.scan(table).files if file.deletes] == [True, True]


def test_duckdb_itself_reads_such_a_snapshot_wrongly(pair: Pair) -> None:
    """Once this fails, DuckDB has mended it, and the comparison with DuckDB need not refuse such snapshots."""
    states = history(pair)
    before = delete_overtaken(pair, "n = 1", "INSERT INTO main.other VALUES (1)")
    with closing(attached(pair.location)) as fresh:
        found = sum(pair.theirs(fresh, EVENTS, before).values())
    assert (found, sum(next(iter(states.values())).values())) == (36, 38)


def test_a_file_s_deletes_are_told_from_those_of_another_writer_in_the_same_table(pair: Pair) -> None:
    states = history(pair)
    before = delete_overtaken(pair, "writer = 0 AND n = 1", f"DELETE FROM {EVENTS} WHERE writer = 1 AND n = 5")
    states[before] = pair.ours(EVENTS, before)
    assert sum(states[before].values()) == 37
    states[pair.lake.head()] = pair.ours(EVENTS)
    expect(pair, states)


def deleted_again(pair: Pair) -> tuple[int, dict[int, Rows]]:
    """States where the one file lost rows around a delete from the other; the snapshot of that one in between."""
    states = history(pair)
    between = delete_overtaken(pair, "writer = 0 AND n = 1", f"DELETE FROM {EVENTS} WHERE writer = 1 AND n = 5")
    states[between] = pair.ours(EVENTS, between)
    for n in (6, 7):
        states[pair.lake.head()] = pair.ours(EVENTS)
        pair.duckdb(f"DELETE FROM {EVENTS} WHERE n = {n}")
    states[pair.lake.head()] = pair.ours(EVENTS)
    return between, states


def test_the_file_that_a_delete_came_in_tells_while_it_is_there(pair: Pair) -> None:
    between, states = deleted_again(pair)
    assert sum(states[between].values()) == 37
    expect(pair, states)


def test_what_cannot_be_told_is_refused(pair: Pair) -> None:
    between, states = deleted_again(pair)
    pair.duckdb("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    del states[between]
    expect(pair, states)
    for lake in (pair.lake, Lake.open(pair.location)):
        with pytest.raises(LakeDeletesUndatedError, match=f"several writers deleted rows of gold.events .* {between}"):
            lake.delta(pair.table(EVENTS), between)
    with pytest.raises(LakeDeletesUndatedError, match="which of the rows were deleted by then"):
        pair.ours(EVENTS, between)


def test_our_own_deletes_need_no_such_file(pair: Pair) -> None:
    states = history(pair)
    for writer, n in ((0, 1), (1, 1), (0, 2), (1, 2), (0, 3)):
        pair.delete(EVENTS, writer=writer, n=n)
        states[pair.lake.head()] = pair.ours(EVENTS)
    pair.duckdb("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert sum(next(reversed(states.values())).values()) == 33
    expect(pair, states)


@pytest.mark.parametrize("with_rows", [True, False])
def test_deletes_that_were_flushed_from_the_catalog_keep_their_snapshots(pair: Pair, with_rows: bool) -> None:
    pair.duckdb("CALL lake.set_option('data_inlining_row_limit', 10)")
    states = history(pair)
    for n in (1, 2, 3):
        if with_rows:
            pair.duckdb("INSERT INTO main.other VALUES (1)")
        pair.duckdb(f"DELETE FROM {EVENTS} WHERE n = {n}")
        states[pair.lake.head()] = pair.ours(EVENTS)
    last = pair.lake.head()
    pair.duckdb("CALL ducklake_flush_inlined_data('lake')")
    states[pair.lake.head()] = pair.ours(EVENTS)
    if not with_rows:
        # Such a flush looks like a delete that was committed late.
        del states[last]
        with pytest.raises(LakeDeletesUndatedError):
            pair.lake.delta(pair.table(EVENTS), last)
    expect(pair, states)
