"""Prometheus metrics of the deliveries, computed from the catalog at each scrape: nothing is counted in a process.

Names and labels are those of the reference system's version 0.69.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from pgtrickle_assets.control.sink_counts import BOUNDS, SinkCounts

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_PREFIX: Final = "pg_trickle_ducklake_sink"


class SinkCollector(Collector):
    """The five metrics.

    Args:
        read: Gives the counts of all stream tables.
    """

    def __init__(self, read: Callable[[], Sequence[SinkCounts]]) -> None:
        self._read = read

    def describe(self) -> list[Metric]:
        """Names alone, so that registering asks no database."""
        return list(_families([]))

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        yield from _families(self._read())


def registry(read: Callable[[], Sequence[SinkCounts]]) -> CollectorRegistry:
    """A registry with these metrics and no others."""
    made = CollectorRegistry(auto_describe=False)
    made.register(SinkCollector(read))
    return made


def _families(counts: Sequence[SinkCounts]) -> Iterator[Metric]:
    label = ["stream_table"]
    attempts = CounterMetricFamily(f"{_PREFIX}_attempts", "Delivery attempts that began.", labels=label)
    successes = CounterMetricFamily(f"{_PREFIX}_successes", "Deliveries that were committed.", labels=label)
    failures = CounterMetricFamily(f"{_PREFIX}_failures", "Delivery attempts that failed.", labels=[*label, "kind"])
    size = CounterMetricFamily(f"{_PREFIX}_bytes_written", "Bytes of committed files.", labels=label)
    seconds = HistogramMetricFamily(
        f"{_PREFIX}_upload_seconds", "Time from the start of an attempt to its commit.", labels=label
    )
    for row in counts:
        name = [row.stream_table]
        attempts.add_metric(name, row.attempts)
        successes.add_metric(name, row.successes)
        for kind, count in sorted(row.failures.items()):
            failures.add_metric([*name, kind], count)
        size.add_metric(name, row.bytes_written)
        seconds.add_metric(name, _cumulative(row), row.seconds)
    yield from (attempts, successes, failures, size, seconds)


def _cumulative(row: SinkCounts) -> list[tuple[str, float]]:
    return [
        *((str(bound), sum(n for most, n in row.buckets.items() if most <= bound)) for bound in BOUNDS),
        ("+Inf", row.successes),
    ]
