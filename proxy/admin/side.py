"""The two sides of quota metrics: enforced and shadow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import Metric

from proxy.admin import family


@dataclass(frozen=True, slots=True)
class Side:
    """Names and descriptions of one side's metrics."""

    prefix: str
    says: str

    def counters(
        self, name: str, meaning: str, labels: tuple[str, ...], rows: Iterable[family.Row]
    ) -> Metric:
        return family.counters(self.prefix + name, self.says + meaning, labels, rows)

    def gauges(self, name: str, meaning: str, labels: tuple[str, ...], rows: Iterable[family.Row]) -> Metric:
        return family.gauges(self.prefix + name, self.says + meaning, labels, rows)

    def counter(self, name: str, meaning: str, value: float) -> Metric:
        return family.counter(self.prefix + name, self.says + meaning, value)

    def gauge(self, name: str, meaning: str, value: float) -> Metric:
        return family.gauge(self.prefix + name, self.says + meaning, value)


ENFORCED: Final = Side("weir_", "")
SHADOW: Final = Side("weir_shadow_", "Shadow quotas, as if enforced: ")
