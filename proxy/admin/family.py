"""Short constructors of metric families."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Row: TypeAlias = tuple[tuple[str, ...], float]
"""(label values, value) of one sample."""


def gauge(name: str, meaning: str, value: float) -> Metric:
    """Return a gauge with one value."""
    return GaugeMetricFamily(name, meaning, value=float(value))


def counter(name: str, meaning: str, value: float) -> Metric:
    """Return a counter with one value; its name gets the suffix `_total`."""
    return CounterMetricFamily(name, meaning, value=float(value))


def gauges(name: str, meaning: str, labels: tuple[str, ...], rows: Iterable[Row]) -> Metric:
    """Return a gauge with a sample per row."""
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def counters(name: str, meaning: str, labels: tuple[str, ...], rows: Iterable[Row]) -> Metric:
    """Return a counter with a sample per row; its name gets the suffix `_total`."""
    family = CounterMetricFamily(name, meaning, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family
