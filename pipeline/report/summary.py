"""The first screen of the report: figures with their change from the week before, and gauges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from weir.pipeline.report.model import HOUR_MS, QUANTITIES, Broker, Columns, Findings, Use
from weir.pipeline.report.units import BYTES_PER_S, SECONDS, moment, number

NOUNS: Final = {"user-client-id": "client", "user": "user", "client-id": "client-id"}
"""Word for one entity, by level."""
WORDS: Final = {
    "producer_byte_rate": "produce",
    "consumer_byte_rate": "fetch",
    "request_percentage": "request time",
    "controller_mutation_rate": "mutations",
}
"""Short word for the use that a quota limits."""
BYTE_RATES: Final = ("producer_byte_rate", "consumer_byte_rate")
_FULL: Final = ((0.9, "bad"), (0.7, "warn"))
_COMPARED: Final = 0.5
"""Least recorded time of the earlier week, as a share of the latest week's, for a comparison."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the main numbers, with its change from the week before."""

    name: str
    value: str
    note: str
    change: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """The highest load of a broker for one quota."""

    name: str
    text: str
    share: float
    """Part (0 to 1, or above) of the capacity, or of the busiest broker's load if there is no capacity."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """The highest loads of a broker."""

    broker: int
    text: str
    share: float
    tone: str
    bars: tuple[Bar, ...]


def _rate(value: float) -> str:
    return BYTES_PER_S.text(value)


def when(columns: Columns, index: int) -> str:
    """Return the time at which a column begins as text."""
    return moment(columns.start(index), "%a %-d %b %H:%M" if columns.step_ms == HOUR_MS else "%a %-d %b")


def figures(use: Use, noun: str) -> tuple[Figure, ...]:
    columns, (week, before) = use.columns, use.weeks
    now, then = columns.week(0), columns.week(1)
    compared = sum(columns.recorded_s[then]) >= _COMPARED * sum(columns.recorded_s[now])
    rates = columns.rates(use.bytes_)
    top = max(range(columns.count)[now], key=lambda index: rates[index])

    def changed(new: float, old: float) -> str:
        if not compared:
            return ""
        if not old:
            return "" if not new else "none the week before"
        change = round(100 * (new / old - 1))
        return "as the week before" if not change else f"{change:+,} % on the week before"

    waits = changed(week.throttled, before.throttled)
    return (
        Figure(
            "Traffic",
            _rate(columns.rate(use.bytes_, now)),
            "average over the recorded time",
            changed(columns.rate(use.bytes_, now), columns.rate(use.bytes_, then)),
        ),
        Figure(
            f"Busiest {columns.word}",
            _rate(rates[top]),
            when(columns, top),
            changed(rates[top], max(rates[then], default=0)),
        ),
        Figure(
            f"{noun.capitalize()}s", f"{week.entities:,}", "active", changed(week.entities, before.entities)
        ),
        Figure(
            "Throttled",
            f"{week.throttled:,}",
            f"{noun}s, told to wait {SECONDS.text(week.throttle_s)}",
            waits,
            ("bad" if week.throttled > before.throttled else "good") if waits else "",
        ),
    )


def limited(found: Findings) -> list[str]:
    """Return the quotas for which brokers have a capacity."""
    return [quota for quota in found.capacity if quota != "controller_mutation_rate"]


def gauges(found: Findings, use: Use) -> tuple[Gauge, ...]:
    quotas = limited(found) or list(BYTE_RATES)
    highest = max(
        (max(highest_load(broker, quota) for quota in quotas) for broker in use.brokers), default=0.0
    )
    scales = {quota: found.capacity.get(quota) or highest for quota in quotas}
    return tuple(_gauge(broker, scales, found) for broker in use.brokers)


def highest_load(broker: Broker, quota: str) -> float:
    return max(broker.loads.get(quota, ()), default=0.0)


def _gauge(broker: Broker, scales: Mapping[str, float], found: Findings) -> Gauge:
    bars = tuple(
        Bar(
            WORDS[quota],
            QUANTITIES[quota].text(highest_load(broker, quota))
            + (f" of {QUANTITIES[quota].text(scale)}" if quota in found.capacity else ""),
            highest_load(broker, quota) / scale if scale else 0.0,
        )
        for quota, scale in scales.items()
    )
    fullest = max(bars, key=lambda bar: bar.share)
    if not limited(found):
        return Gauge(broker.broker, fullest.text, fullest.share, "", bars)
    tone = next((tone for limit, tone in _FULL if fullest.share >= limit), "good")
    return Gauge(broker.broker, f"{number(round(100 * fullest.share))} %", fullest.share, tone, bars)
