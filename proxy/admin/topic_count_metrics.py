"""List the metrics of limits on the number of topics and partitions by prefix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import Metric

from weir.proxy.admin.exposition import SHADOW, WEIR
from weir.proxy.control.snapshots.names import shortened
from weir.quotas.topic_counts import CountReading, TopicCounts

LABELS: Final = ("topic_prefix", "quota")


def families(counts: TopicCounts) -> Iterator[Metric]:
    readings = list(counts.readings())
    for make, is_shadow in ((WEIR, False), (SHADOW, True)):
        shown = [(_labels(each), each) for each in readings if each.limit.is_shadow == is_shadow]
        yield make.gauge(
            "topic_prefix_count",
            "Number of topics with the prefix, or of their partitions, including those being created.",
            [(labels, each.number) for labels, each in shown],
            *LABELS,
        )
        yield make.gauge(
            "topic_prefix_limit",
            "Limit of the quota: topics_max or partitions_max.",
            [(labels, each.limit.value) for labels, each in shown],
            *LABELS,
        )
        yield make.counter(
            "topic_prefix_refused_topics",
            "Topics that Weir refused with POLICY_VIOLATION or reported to clients as unknown.",
            [(labels, each.refused) for labels, each in shown],
            *LABELS,
        )


def _labels(reading: CountReading) -> tuple[str, str]:
    return shortened(reading.limit.prefix), reading.limit.key.value
