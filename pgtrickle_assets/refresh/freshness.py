"""Whether a stream table is behind what it reads, by how much, and whether its schedule allows that.

All from the catalog and the control schema, by the clock of their database: no file is read and Spark is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from pgtrickle_assets.control import frontier as frontiers
from pgtrickle_assets.control.database import scalar
from pgtrickle_assets.control.frontier import EVERY_PARTITION, Frontier
from pgtrickle_assets.errors import LakeDeltaUnknownError
from pgtrickle_assets.lake.change_times import first_change
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh.model import Freshness, Lag
from pgtrickle_assets.schedules import Calculated, Cron, Every, Schedule, previous_time

if TYPE_CHECKING:
    from pgtrickle_assets.control.registry import StreamTableRow
    from pgtrickle_assets.lake.catalog import Lake

GRACE: Final = timedelta(minutes=5)
"""Time that a refresh may take to be noticed, to start and to end."""


def lag_of(lake: Lake, row: StreamTableRow | None) -> Lag:
    """Why a stream table is behind the lake; change buffers do not count.

    An input whose state at the frontier is gone (expired, or another table by now) counts as moved: what to do then is
    for the refresh to decide.
    """
    if row is None or row.needs_reinit:
        return Lag(unfilled=True)
    with lake.connection() as connection:
        stored = frontiers.frontiers(connection, row.pgt_id)
    if EVERY_PARTITION not in stored:
        return Lag(unfilled=True)
    head = lake.head()
    return Lag(moved=tuple(table for table, since in _oldest(stored).items() if _has_moved(lake, table, since, head)))


def freshness(lake: Lake, schedule: Schedule, rows: Sequence[StreamTableRow], *, waiting: bool) -> Freshness:
    """Judge one stream table.

    Args:
        lake: The lake.
        schedule: When the stream table is due.
        rows: What it reads at any distance, and last the stream table itself.
        waiting: Whether changes for it wait in the buffers of sources.
    """
    with lake.connection() as connection:
        now: datetime = scalar(connection, "SELECT clock_timestamp()")
        whole = frontiers.frontiers(connection, rows[-1].pgt_id).get(EVERY_PARTITION)
    own = rows[-1]
    if own.data_timestamp is None:
        age = (now - own.created_at).total_seconds()
        return Freshness(False, age, _allowed(schedule, now), None, "has not been filled yet")
    behind = [moment for row in rows for moment in _behind_since(lake, row)]
    if waiting:
        # The buffers do not say when; what was read last was all there was then.
        behind.append(own.data_timestamp)
    cut = whole.cut if whole else None
    if not behind:
        return Freshness(True, 0.0, _allowed(schedule, now), cut, "holds everything there is")
    return judge(schedule, min(behind), now, cut)


def judge(schedule: Schedule, since: datetime, now: datetime, cut: int | None) -> Freshness:
    """Whether content that has been behind since a moment is still fresh enough."""
    allowed = _allowed(schedule, now)
    age = max((now - since).total_seconds(), 0.0)
    if allowed is None:
        return Freshness(True, age, None, cut, f"is {_spoken(age)} behind; its schedule is manual")
    fresh = age <= allowed
    text = f"is {_spoken(age)} behind; {_spoken(allowed)} {'are' if fresh else 'were'} allowed"
    return Freshness(fresh, age, allowed, cut, text)


def _allowed(schedule: Schedule, now: datetime) -> float | None:
    """Seconds that content may be behind now: an interval, or the time since the last one named, and some grace."""
    match schedule:
        case Every(seconds):
            return seconds + GRACE.total_seconds()
        case Cron():
            # What came up after a time that has passed is not due before the next.
            return (now - previous_time(schedule, now - GRACE)).total_seconds()
        case Calculated():
            return GRACE.total_seconds()
        case _:
            return None


def _behind_since(lake: Lake, row: StreamTableRow) -> Iterator[datetime]:
    lag = lag_of(lake, row)
    known = row.data_timestamp or row.created_at
    if lag.unfilled:
        yield known
        return
    if not lag.moved:
        return
    with lake.connection() as connection:
        oldest = _oldest(frontiers.frontiers(connection, row.pgt_id))
    for name in lag.moved:
        table = lake.table(_table_name(name))
        moment = None if table is None else first_change(lake, table, oldest[name])
        yield moment or known


def _oldest(stored: Mapping[str, Frontier]) -> dict[str, int]:
    """Snapshot of each input up to which all partitions are built; some may be further."""
    found: dict[str, int] = {}
    for frontier in stored.values():
        for table, since in frontier.inputs.items():
            found[table] = min(since, found.get(table, since))
    return found


def _has_moved(lake: Lake, table: str, since: int, head: int) -> bool:
    now = lake.table(_table_name(table), head)
    if now is None:
        return True
    try:
        then = lake.table(now.name, min(since, head))
        if then is not None and now.renamed_since(then):
            return True
        return not lake.delta(now, min(since, head)).is_empty
    except LakeDeltaUnknownError:
        return True


def _table_name(text: str) -> TableName:
    return TableName(*text.split(".", 1))


def _spoken(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
