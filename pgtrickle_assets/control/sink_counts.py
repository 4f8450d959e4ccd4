"""How often deliveries went from status to status, and how long they took: the numbers behind the metrics.

A trigger writes every transition down. Those older than a day are added up and marked, so that reading the numbers
costs as much after months as after a day.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pgtrickle_assets.control.database import fetch, run

if TYPE_CHECKING:
    from pgtrickle_assets.control.database import Handle

BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histogram's buckets, in seconds."""

_ROWS: Final = """
SELECT t.stream_table_id, t.status,
       (%s::float8[])[width_bucket(coalesce(t.seconds, 0), %s::float8[]) + 1] AS seconds_at_most,
       count(*) AS transitions, coalesce(sum(t.bytes_written), 0)::bigint AS bytes_written,
       coalesce(sum(t.seconds), 0)::float8 AS seconds
FROM pgtrickle.pgt_ducklake_sink_transitions AS t WHERE NOT t.counted AND t.at < now() - make_interval(secs => %s)
GROUP BY 1, 2, 3
"""
_COUNTED: Final = "SELECT * FROM pgtrickle.pgt_ducklake_sink_totals UNION ALL " + _ROWS  # noqa: S608 (constants)
_FOLD: Final = (
    """
    INSERT INTO pgtrickle.pgt_ducklake_sink_totals AS old
        (stream_table_id, status, seconds_at_most, transitions, bytes_written, seconds)
    """
    + _ROWS
    + """
    ON CONFLICT (stream_table_id, status, seconds_at_most) DO UPDATE
    SET transitions = old.transitions + excluded.transitions,
        bytes_written = old.bytes_written + excluded.bytes_written, seconds = old.seconds + excluded.seconds
    """
)
_LIMITS: Final = [*BOUNDS, float("inf")]
_NOTHING_IS_TOO_YOUNG: Final = -86400.0


@dataclass(frozen=True, slots=True)
class SinkCounts:
    """Deliveries of one stream table since it was created.

    Attributes:
        stream_table: Its name, `schema.table`.
        attempts: Attempts that began.
        successes: Deliveries that were committed.
        failures: Failed attempts by kind: `retryable`, or `permanent` for those that gave the delivery up. A delivery
            that another one made unnecessary is none.
        bytes_written: Bytes of the files of committed deliveries.
        seconds: Time from the beginning of the attempt to its commit, of all committed deliveries together.
        buckets: Committed deliveries by upper bound of that time; not cumulative.
    """

    stream_table: str
    attempts: int = 0
    successes: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    bytes_written: int = 0
    seconds: float = 0.0
    buckets: Mapping[float, int] = field(default_factory=dict)


def sink_counts(handle: Handle) -> list[SinkCounts]:
    """Counts of every stream table, by name."""
    names = fetch(
        handle, _Name, "SELECT pgt_id, pgt_schema || '.' || pgt_name AS name FROM pgtrickle.pgt_stream_tables"
    )
    found: defaultdict[int, list[_Row]] = defaultdict(list)
    for row in fetch(handle, _Row, _COUNTED, (_LIMITS, list(BOUNDS), _NOTHING_IS_TOO_YOUNG)):
        found[row.stream_table_id].append(row)
    return [_counts(table.name, found[table.pgt_id]) for table in sorted(names, key=lambda table: table.name)]


def fold(handle: Handle, *, older_than_days: float = 1.0) -> int:
    """Add transitions up that are old enough for nobody to be in the middle of them; returns how many.

    Call it in a transaction, from one process at a time.
    """
    seconds = older_than_days * 86400.0
    run(handle, _FOLD, (_LIMITS, list(BOUNDS), seconds))
    return run(
        handle,
        """
        UPDATE pgtrickle.pgt_ducklake_sink_transitions SET counted = true
        WHERE NOT counted AND at < now() - make_interval(secs => %s)
        """,
        (seconds,),
    )


def prune(handle: Handle, *, retention_days: int) -> int:
    """Remove transitions that were added up and are older than the retention time; returns how many."""
    return run(
        handle,
        "DELETE FROM pgtrickle.pgt_ducklake_sink_transitions"
        " WHERE counted AND at < clock_timestamp() - make_interval(days => %s)",
        (retention_days,),
    )


def _counts(name: str, rows: Sequence[_Row]) -> SinkCounts:
    totals: Counter[str] = Counter()
    buckets: Counter[float] = Counter()
    for row in rows:
        totals[row.status] += row.transitions
        if row.status == "DELIVERED":
            buckets[row.seconds_at_most] += row.transitions
    return SinkCounts(
        name,
        totals["WRITING"],
        totals["DELIVERED"],
        {"retryable": totals["FAILED_RETRYABLE"], "permanent": totals["FAILED_PERMANENT"]},
        sum(row.bytes_written for row in rows if row.status == "DELIVERED"),
        sum(row.seconds for row in rows if row.status == "DELIVERED"),
        dict(buckets),
    )


@dataclass(frozen=True, slots=True)
class _Name:
    pgt_id: int
    name: str


@dataclass(frozen=True, slots=True)
class _Row:
    stream_table_id: int
    status: str
    seconds_at_most: float
    transitions: int
    bytes_written: int
    seconds: float
