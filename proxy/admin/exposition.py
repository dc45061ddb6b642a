"""Prometheus' text format: short constructors of metric families, and the text of a scrape, in short steps.

prometheus-client takes 10 to 20 µs per line, so a thousand lines would delay the sockets. It is given a part
of a metric at a time; the headers that it repeats, and OpenMetrics' end marks, are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import trio
from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

LINES: Final = 100
"""Number of samples (lines) written in one step; sockets are served between the steps."""
END: Final = b"# EOF\n"

Row: TypeAlias = tuple[tuple[str, ...], float]
"""One sample of a metric: its label values and its number."""
Value: TypeAlias = float | Mapping[str, float] | Iterable[Row]
"""Samples of a metric in one of three forms: one number, for a metric without labels; numbers by label value,
for a metric with one label; or rows.
"""


@dataclass(frozen=True, slots=True)
class Families:
    """Makes metrics whose names begin with `prefix`, and whose descriptions begin with `says`."""

    prefix: str
    says: str = ""

    def gauge(self, name: str, meaning: str, value: Value, *labels: str) -> Metric:
        """Return a gauge with this name, description, samples and label names."""
        return _filled(GaugeMetricFamily(self.prefix + name, self.says + meaning, labels=labels), value)

    def counter(self, name: str, meaning: str, value: Value, *labels: str) -> Metric:
        """Return a counter with this name, description, samples and label names. Its name gets the suffix
        `_total`.
        """
        return _filled(CounterMetricFamily(self.prefix + name, self.says + meaning, labels=labels), value)


WEIR: Final = Families("weir_")
SHADOW: Final = Families("weir_shadow_", "Shadow quotas, as if enforced: ")


def _filled(family: GaugeMetricFamily | CounterMetricFamily, value: Value) -> Metric:
    if isinstance(value, int | float):
        family.add_metric((), float(value))
    else:
        for labels, number in _rows(value) if isinstance(value, Mapping) else value:
            family.add_metric(labels, number)
    return family


def _rows(values: Mapping[str, float]) -> Iterator[Row]:
    return (((label,), value) for label, value in values.items())


class _Given(Collector):
    """Collector that hands given metrics to prometheus-client."""

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


async def render(families: Iterator[Metric | None], accept: str) -> tuple[bytes, str]:
    """Return the text of the metrics and its content type. The Accept header decides between Prometheus' text
    format and OpenMetrics.
    """
    encode, content_type = choose_encoder(accept)
    text = bytearray()
    for family in families:
        for part in _parts(family) if family is not None else ():
            text += _body(encode(_Given(part)), first=part is family)
            await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
    text += await trio.to_thread.run_sync(_process_text, encode)
    return bytes(text + encode(_Given())), content_type


def _parts(family: Metric) -> Iterator[Metric]:
    """Yield the metric in parts, each with at most `LINES` samples."""
    samples = family.samples
    family.samples = samples[:LINES]
    yield family
    for start in range(LINES, len(samples), LINES):
        rest = Metric(family.name, family.documentation, family.type)
        rest.samples = samples[start : start + LINES]
        yield rest


def _body(text: bytes, *, first: bool) -> bytes:
    """Return the text of a part of a metric without OpenMetrics' end mark, and, unless the part is the first,
    without the header. Sample lines begin with the metric's name, so a `#` marks a header.
    """
    text = text.removesuffix(END)
    while not first and text.startswith(b"# "):
        text = text.partition(b"\n")[2]
    return text


def _process_text(encode: Callable[[Collector], bytes]) -> bytes:
    """Return process metrics as text: CPU, memory, descriptors. Runs in a thread, because counting 40,000
    descriptors takes long.
    """
    return encode(_Given(*ProcessCollector(registry=None).collect())).removesuffix(END)
