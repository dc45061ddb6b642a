"""Families of metrics, made in one line each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Row: TypeAlias = tuple[tuple[str, ...], float]
"""Label values, value."""


def gauge(name: str, meaning: str, value: float) -> Metric:
    """One value that goes up and down."""
    return GaugeMetricFamily(name, meaning, value=float(value))


def counter(name: str, meaning: str, value: float) -> Metric:
    """One value that only grows; `_total` is put behind the name."""
    return CounterMetricFamily(name, meaning, value=float(value))


def gauges(name: str, meaning: str, labels: tuple[str, ...], rows: Iterable[Row]) -> Metric:
    """A gauge per row."""
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def counters(name: str, meaning: str, labels: tuple[str, ...], rows: Iterable[Row]) -> Metric:
    """A counter per row; `_total` is put behind the name."""
    family = CounterMetricFamily(name, meaning, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family
