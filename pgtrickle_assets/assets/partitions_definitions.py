"""Dagster partitions of stream tables.

A time-partitioned stream table has time windows, so that the UI shows a calendar, ranges can be backfilled and a key
needs no registration. A lake partition that the definition does not list (NULL in a time column, a date before the
start, a value that `value(c, [...])` leaves out) still exists: every refresh of the whole stream table maintains it,
and its materializations carry its key. A run over all listed partitions is a refresh of the whole stream table too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import dagster as dg

from pgtrickle_assets.partitions import (
    ALL_KEY,
    NULL_KEY,
    PartitionBy,
    next_window,
    parse_time_key,
    same_partitioning,
    window_start,
)
from pgtrickle_assets.schema_cache import TimeBounds

if TYPE_CHECKING:
    from pgtrickle_assets.stream_table import StreamTable

# Far enough back for most data, few enough keys for the UI, when nothing is known of the data yet.
_UNKNOWN_START: Final = {
    "hour": datetime(2020, 1, 1, tzinfo=UTC),
    "day": datetime(2000, 1, 1, tzinfo=UTC),
    "week": datetime(2000, 1, 3, tzinfo=UTC),
    "month": datetime(2000, 1, 1, tzinfo=UTC),
}
_MONDAY: Final = 1


def partitions_definition(
    table: StreamTable, bounds: TimeBounds | None = None, *, now: datetime | None = None
) -> dg.PartitionsDefinition:
    """The `partitions_def` of a stream table.

    Args:
        table: The stream table.
        bounds: How far its data reaches, when that is known; `partition_start` and `partition_end` win over it.
        now: The present, for windows that begin in the future.
    """
    by = table.partitioning
    if by is None:
        return dg.StaticPartitionsDefinition([ALL_KEY])
    if by.is_time:
        return _time_windows(table, by, bounds, now or datetime.now(UTC))
    if by.values is not None:
        return dg.StaticPartitionsDefinition([*by.values, NULL_KEY])
    return dg.DynamicPartitionsDefinition(name=dynamic_partitions_name(table))


def dynamic_partitions_name(table: StreamTable) -> str:
    """Name under which Dagster keeps the keys of `value(c)`."""
    return f"pgtrickle/{table.name}"


def _time_windows(
    table: StreamTable, by: PartitionBy, bounds: TimeBounds | None, now: datetime
) -> dg.TimeWindowPartitionsDefinition:
    start = _limit(table.partition_start) or (bounds.lower if bounds else _UNKNOWN_START[by.kind].replace(tzinfo=None))
    end = _limit(table.partition_end)
    start = window_start(by, start)
    end_offset = 0
    if end is None and bounds is not None:
        end_offset = _windows_after(by, now.astimezone(UTC).replace(tzinfo=None), bounds.upper)
    match by.kind:
        case "hour":
            return dg.HourlyPartitionsDefinition(start, end_date=end, end_offset=end_offset, timezone="UTC")
        case "week":
            return dg.WeeklyPartitionsDefinition(
                start, end_date=end, end_offset=end_offset, day_offset=_MONDAY, timezone="UTC"
            )
        case "month":
            return dg.MonthlyPartitionsDefinition(start, end_date=end, end_offset=end_offset, timezone="UTC")
        case _:
            return dg.DailyPartitionsDefinition(start, end_date=end, end_offset=end_offset, timezone="UTC")


def _limit(text: str | None) -> datetime | None:
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _windows_after(by: PartitionBy, now: datetime, latest: datetime) -> int:
    """Windows beyond the last complete one that must be listed for `latest` to be in one."""
    count, start = 0, window_start(by, now)
    while start <= latest:
        count, start = count + 1, next_window(by, start)
    return count


def widened_bounds(by: PartitionBy, bounds: TimeBounds | None, keys: Sequence[str]) -> TimeBounds:
    """Bounds that also hold the windows of `keys`."""
    starts = [parse_time_key(by, key) for key in keys]
    if bounds is not None:
        starts += [bounds.lower, bounds.upper]
    return TimeBounds(min(starts), max(starts))


def partition_mapping(upstream: StreamTable, downstream: StreamTable) -> dg.PartitionMapping:
    """How partitions of `downstream` depend on those of `upstream`: one to one when they are the same, else on all."""
    left, right = upstream.partitioning, downstream.partitioning
    if left is None or right is None or not same_partitioning(left, right):
        return dg.AllPartitionMapping()
    return dg.TimeWindowPartitionMapping() if left.is_time else dg.IdentityPartitionMapping()


def asked_partitions(context: dg.AssetExecutionContext) -> tuple[str, ...] | None:
    """The partitions a run is to refresh; None when it is the whole stream table."""
    if not context.has_partition_key and not context.has_partition_key_range:
        return None
    keys: Sequence[str] = context.partition_keys
    definition = context.assets_def.partitions_def
    if definition is None or len(keys) == len(definition.get_partition_keys(dynamic_partitions_store=context.instance)):
        return None
    return tuple(keys)
