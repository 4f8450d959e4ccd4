"""What test processes do to one lake at the same time; started with `spawn`, so that nothing is inherited."""

from __future__ import annotations

import os
import signal
from datetime import date
from multiprocessing.connection import Connection

import pyarrow as pa
from lake_pair import attached

from pgtrickle_assets.errors import LakeConflictError
from pgtrickle_assets.lake.arrow_read import read_table_arrow
from pgtrickle_assets.lake.catalog import Lake
from pgtrickle_assets.lake.commit import commit
from pgtrickle_assets.lake.location import LakeLocation
from pgtrickle_assets.lake.model import RowDeletes, TableChange
from pgtrickle_assets.lake.parquet_columns import arrow_schema
from pgtrickle_assets.lake.write import write_rows
from pgtrickle_assets.query.types import TableName

EVENTS = TableName("gold", "events")
DAILY = TableName("gold", "daily")


def bootstrap(location: LakeLocation, start: Connection, done: Connection) -> None:
    start.recv()
    done.send(Lake.bootstrap(location).head())


def append(location: LakeLocation, writer: int, commits: int, start: Connection, done: Connection) -> None:
    """Append one row a commit to `EVENTS`."""
    lake = Lake.open(location)
    start.recv()
    snapshots: list[int] = []
    for number in range(commits):
        base = lake.head()
        table = lake.table(EVENTS, base)
        assert table is not None
        rows = pa.Table.from_pylist([{"writer": writer, "n": number}], schema=arrow_schema(table.columns))
        files = write_rows(rows, table, delivery_id=f"w{writer}-{number}")
        change = TableChange(EVENTS, added_files=files)
        snapshots.append(commit(lake, base=base, changes=[change], author="t", message="m").snapshot_id)
    done.send(snapshots)


def insert_with_duckdb(location: LakeLocation, writer: int, commits: int, start: Connection, done: Connection) -> None:
    connection = attached(location)
    start.recv()
    for number in range(commits):
        connection.execute("INSERT INTO gold.events VALUES (?, ?)", [writer, number])
    done.send([])


def replace_partition(location: LakeLocation, day: int, rounds: int, start: Connection, done: Connection) -> None:
    """In each round delete the row of one's own day and add its successor; a conflict would be an error."""
    lake = Lake.open(location)
    start.recv()
    conflicts = 0
    for number in range(rounds):
        while True:
            base = lake.head()
            table = lake.table(DAILY, base)
            assert table is not None
            scan = lake.scan(table)
            mine = [file for file in scan.files if file.partition_values[-1] == str(day)]
            deletes = tuple(RowDeletes(file, (0,)) for file in mine if file.live_rows == file.record_count)
            rows = [{"day": date(2024, 1, day), "v": number}, {"day": date(2024, 1, day), "v": -number}]
            added = write_rows(
                pa.Table.from_pylist(rows, schema=arrow_schema(table.columns)), table, delivery_id=f"d{day}-{number}"
            )
            try:
                change = TableChange(DAILY, added_files=added, deletes=deletes)
                commit(lake, base=base, changes=[change], author="t", message="m")
            except LakeConflictError:
                conflicts += 1
                continue
            break
    table = lake.table(DAILY)
    assert table is not None
    assert read_table_arrow(lake.scan(table), ["v"]).num_rows > 0
    done.send(conflicts)


def die_in_commit(location: LakeLocation, start: Connection, done: Connection) -> None:
    """Killed with everything written and the lock held, just before COMMIT."""
    lake = Lake.open(location)
    start.recv()
    table = lake.table(EVENTS)
    assert table is not None
    rows = pa.Table.from_pylist([{"writer": 0, "n": 0}], schema=arrow_schema(table.columns))
    change = TableChange(EVENTS, added_files=write_rows(rows, table, delivery_id="dead"))
    commit(
        lake,
        base=lake.head(),
        changes=[change],
        author="t",
        message="m",
        within=lambda cursor, snapshot: os.kill(os.getpid(), signal.SIGKILL),
    )
    done.send("never")
