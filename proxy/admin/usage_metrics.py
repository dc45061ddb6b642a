"""Metrics of usage records; shown if usage is recorded."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from proxy.admin import family
from proxy.control.usage.tally import Kind, Loss, Tally


def families(tally: Tally) -> Iterator[Metric]:
    """Yield the metrics."""
    yield family.counters(
        "weir_usage_records",
        "Usage records written, or acknowledged by the cluster.",
        ("kind",),
        (((kind.value,), tally.written[kind]) for kind in Kind),
    )
    yield family.counters(
        "weir_usage_records_dropped",
        "Usage records that were not written.",
        ("reason",),
        (((loss.value,), tally.dropped[loss]) for loss in Loss),
    )
    yield family.counter("weir_usage_written_bytes", "Bytes of usage records written.", tally.written_bytes)
    yield family.counter(
        "weir_usage_files_finished", "Files of usage records finished.", tally.finished_files
    )
    yield family.counter(
        "weir_usage_files_deleted", "Files of usage records deleted to make room.", tally.deleted_files
    )
    yield family.gauge(
        "weir_usage_queue_records",
        "Usage records that wait to be written or acknowledged.",
        tally.queued + tally.unacknowledged,
    )
    yield family.gauge("weir_usage_available", "0 while usage records cannot be written.", not tally.failure)
    yield family.gauge(
        "weir_usage_last_write_timestamp_seconds",
        "Unix time of the last write of usage records; 0 if none.",
        tally.last_written_s,
    )
