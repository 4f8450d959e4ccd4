"""Metrics count what happened to deliveries, whatever becomes of the rows that say so."""

from __future__ import annotations

import threading
import urllib.request

import pytest
from prometheus_client import generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from pgtrickle_assets.control import delivery, history, sink_counts
from pgtrickle_assets.control.statuses import InitiatedBy
from pgtrickle_assets.exporter import registry

NAMES = {
    "pg_trickle_ducklake_sink_attempts_total",
    "pg_trickle_ducklake_sink_successes_total",
    "pg_trickle_ducklake_sink_failures_total",
    "pg_trickle_ducklake_sink_bytes_written_total",
    "pg_trickle_ducklake_sink_upload_seconds_bucket",
    "pg_trickle_ducklake_sink_upload_seconds_count",
    "pg_trickle_ducklake_sink_upload_seconds_sum",
}


@pytest.fixture
def delivered(catalog, pgt_id):
    """Three failed attempts, one of them for good, and two successes of 100 bytes each."""
    for failures in ((True,), (), (True, False)):
        refresh = history.start(catalog, pgt_id, initiated_by=InitiatedBy.MANUAL)
        made = delivery.create(catalog, pgt_id, refresh_id=refresh, partitions=None).delivery_id
        for retryable in failures:
            delivery.begin_attempt(catalog, made)
            delivery.fail(catalog, made, "503", retryable=retryable, max_retries=3)
        if False not in failures:
            delivery.begin_attempt(catalog, made)
            delivery.deliver(catalog, made, snapshot_id=5, bytes_written=100, rows_written=7)


def counted(catalog):
    (row,) = sink_counts.sink_counts(catalog)
    return row.attempts, row.successes, dict(row.failures), row.bytes_written, sum(row.buckets.values())


EXPECTED = (5, 2, {"retryable": 2, "permanent": 1}, 200, 2)


def test_every_attempt_and_its_end_is_counted(catalog, delivered):
    assert counted(catalog) == EXPECTED


def test_counts_stay_when_the_history_is_pruned_and_transitions_are_added_up(catalog, delivered):
    assert sink_counts.fold(catalog, older_than_days=0) == 13
    assert counted(catalog) == EXPECTED
    assert sink_counts.fold(catalog, older_than_days=0) == 0
    assert sink_counts.prune(catalog, retention_days=0) == 13
    catalog.execute("DELETE FROM pgtrickle.pgt_refresh_history")
    assert counted(catalog) == EXPECTED


def test_a_delivery_that_another_one_overtook_is_no_failure(catalog, pgt_id):
    first, second = (
        delivery.create(
            catalog, pgt_id, refresh_id=history.start(catalog, pgt_id, initiated_by=InitiatedBy.MANUAL), partitions=None
        ).delivery_id
        for _ in range(2)
    )
    for made in (first, second):
        delivery.begin_attempt(catalog, made)
    delivery.deliver(catalog, first, snapshot_id=5, bytes_written=1, rows_written=1)
    delivery.supersede(catalog, second, "another refresh was faster")
    assert counted(catalog)[2] == {"retryable": 0, "permanent": 0}


def test_a_stream_table_without_deliveries_has_zeros(catalog, pgt_id):
    text = generate_latest(registry(lambda: sink_counts.sink_counts(catalog))).decode()
    assert 'pg_trickle_ducklake_sink_attempts_total{stream_table="silver.orders"} 0.0' in text
    assert 'pg_trickle_ducklake_sink_failures_total{kind="permanent",stream_table="silver.orders"} 0.0' in text


def test_prometheus_reads_the_five_metrics_with_their_labels_over_http(catalog, delivered):
    guard = threading.Lock()

    def read():
        with guard:
            return sink_counts.sink_counts(catalog)

    server, _ = start_http_server(0, "127.0.0.1", registry(read))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert {sample.name for sample in samples} == NAMES
    assert {frozenset(sample.labels) - {"le"} for sample in samples} == {
        frozenset({"stream_table"}),
        frozenset({"stream_table", "kind"}),
    }
    buckets = [sample for sample in samples if sample.name.endswith("_bucket")]
    assert buckets[-1].labels["le"] == "+Inf"
    assert [sample.value for sample in buckets] == sorted(sample.value for sample in buckets)
    assert buckets[-1].value == 2
