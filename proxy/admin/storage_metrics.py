"""List the metrics of storage budgets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import Metric

from weir.proxy.admin.exposition import SHADOW, WEIR
from weir.proxy.control.snapshots.names import shortened
from weir.quotas.storage import StorageBudgets, StorageReading

LABELS: Final = ("topic", "topic_prefix", "group", "quota")


def families(budgets: StorageBudgets) -> Iterator[Metric]:
    readings = list(budgets.readings())
    for make, is_shadow in ((WEIR, False), (SHADOW, True)):
        shown = [(_labels(each), each) for each in readings if each.is_shadow == is_shadow]
        yield make.gauge(
            "storage_bytes",
            "Stored bytes or usable bytes, depending on the quota; absent while unknown.",
            [(labels, each.number) for labels, each in shown if each.number is not None],
            *LABELS,
        )
        yield make.gauge(
            "storage_mark_bytes",
            "Limit of the quota: stored_bytes_max or usable_bytes_min.",
            [(labels, each.mark.value) for labels, each in shown],
            *LABELS,
        )
        yield make.gauge(
            "storage_over",
            "1 while over_byte_rate is in force.",
            [(labels, int(each.is_over)) for labels, each in shown],
            *LABELS,
        )


def _labels(reading: StorageReading) -> tuple[str, str, str, str]:
    entity, key, _value = reading.mark
    named = entity.topic, entity.topic_prefix, entity.group
    topic, prefix, group = (shortened(name or "") for name in named)
    return topic, prefix, group, key.value
