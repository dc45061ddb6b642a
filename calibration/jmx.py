"""Read request costs from the broker's metric `request-time` (percent of a thread), which a JMX exporter
shows.

The metric's MBean is `kafka.server:type=Request,client-id=...` (with or without `user=`). A broker keeps the
metric of a client-id while a request quota applies to the client-id. An exporter's rules determine the
metric's name; with all known rules, the name of the sample ends with request_time, and one label is the
client-id.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import trio

from weir.calibration.broker_connection import CalibrationError
from weir.calibration.fixture import CLIENT_ID_START
from weir.quotas.costs.calibration import Windows, measured_us

if TYPE_CHECKING:
    from weir.calibration.probe import QuotaProbe
    from weir.calibration.run import PendingReading
    from weir.quotas.table.quota_table import Quota

Scrape = Callable[[], Awaitable[str]]
"""Function that fetches the exporter's page as text. Raises CalibrationError if the page cannot be fetched.
"""

GATHER_S: Final = 1.5
"""Time (s) for which finished loads are collected before one scrape reads the cost of all of them: a scrape
is slow, and a broker's metric forgets usage after 10 s.
"""
SCRAPE_S: Final = 20.0
SCRAPE_BYTES_MAX: Final = 256 * 1024 * 1024
NEVER_PERCENT: Final = 1e9
"""Request quota (percent of a thread) that no client exceeds; it only makes the broker keep the metric."""
_NAME: Final = "request_time"
_NOT: Final = ("exempt", "throttle")
LOOKED_FOR: Final = (
    "a metric whose name ends with request_time (of kafka.server:type=Request), one of whose labels is the "
    "client-id, such as kafka_server_request_request_time{client_id=...} or "
    'kafka_server_quota_request_time{resource="Request",clientId=...}'
)
_KEPT_WHILE: Final = (
    "a broker keeps it while a request quota applies to the client-id: set one that nobody exceeds "
    "(kafka-configs.sh --alter --entity-type clients --entity-default "
    "--add-config request_percentage=1000000), and remove it afterwards; or the exporter's rules leave it out"
)


class JmxProbe:
    """Reads the broker's request time per client-id from a JMX exporter. It sets request quotas that throttle
    no client, because without a quota the broker keeps no metric.
    """

    until_throttled = False
    gather_s = GATHER_S

    def __init__(self, scrape: Scrape, quotas: QuotaProbe) -> None:
        self._scrape = scrape
        self._quotas = quotas
        self._has_quotas = False

    async def look(self) -> list[Quota]:
        """Check that the exporter answers; return the quotas that an earlier run left behind. If the broker
        does not let Weir set quotas, the operator must have set one that keeps the metric. Raises
        CalibrationError if the exporter does not answer, QuestionError.
        """
        await self._scrape()
        with suppress(CalibrationError):  # the operator's own quota keeps the metric
            left = await self._quotas.look()
            self._has_quotas = True
            return left
        return []

    async def arm(self, wanted: Mapping[str, float], canary: str, windows: Windows) -> None:
        """Set a quota that no client exceeds for each client-id in `wanted`, so that the broker keeps its
        metric. If the broker refuses, continue without quotas. Raises QuestionError.
        """
        if self._has_quotas:
            never = dict.fromkeys(wanted, NEVER_PERCENT * 10_000.0 * windows.span_s)
            try:
                await self._quotas.arm(never, canary, windows)
            except CalibrationError:
                await self._quotas.disarm()
                self._has_quotas = False

    async def costs_us(self, pending: Sequence[PendingReading], windows: Windows) -> list[float | str]:
        """Scrape the exporter once. Return, for each load in `pending`, the broker's time (µs) that its
        requests took, or the reason why the time is unknown. Raises CalibrationError if the exporter shows
        none of the client-ids.
        """
        before_s = trio.current_time()
        text = await self._scrape()
        at_s = (before_s + trio.current_time()) / 2
        rates = rates_of(text)
        if not any(one.client_id in rates for one in pending):
            raise CalibrationError(_nothing(self._has_quotas))
        return [
            measured_us(rates[one.client_id], at_s - one.result.began_s, windows)
            if one.client_id in rates
            else "the exporter shows no request time of this client-id"
            for one in pending
        ]

    async def disarm(self) -> None:
        """Remove the quotas that `arm` has set. Raises CalibrationError, QuestionError."""
        if self._has_quotas:
            await self._quotas.disarm()

    async def remove(self, quotas: Sequence[Quota]) -> None:
        """Remove these request quotas from the broker. Raises CalibrationError, QuestionError."""
        await self._quotas.remove(quotas)


def rates_of(text: str) -> dict[str, float]:
    """Return the request time (percent of a thread) of each of the calibrator's client-ids on the exporter's
    page, without NaN. Raises CalibrationError if `text` is not in Prometheus' format.
    """
    from prometheus_client.parser import (
        text_string_to_metric_families,  # takes 0.1 s; only this probe needs it
    )

    found = {}
    lines = [line for line in text.splitlines() if CLIENT_ID_START in line]
    try:
        for family in text_string_to_metric_families("\n".join([*lines, ""])):
            for sample in family.samples:
                name = sample.name.lower().replace("-", "_")
                client_ids = [value for value in sample.labels.values() if value.startswith(CLIENT_ID_START)]
                is_it = name.endswith(_NAME) and not any(word in name for word in _NOT)
                if client_ids and is_it and math.isfinite(sample.value):
                    found[client_ids[0]] = float(sample.value)
    except ValueError as error:
        raise CalibrationError(f"--jmx-prometheus: not metrics in Prometheus' format: {error}") from None
    return found


def _nothing(has_quotas: bool) -> str:
    what = f"the exporter has nothing about {CLIENT_ID_START}*: looked for {LOOKED_FOR}"
    return f"--jmx-prometheus: {what}; {'its rules may leave it out' if has_quotas else _KEPT_WHILE}"


def scraper(url: str) -> Scrape:
    """Return a function that fetches the exporter's page at `url`. Raises CalibrationError if `url` is
    neither HTTP nor HTTPS.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise CalibrationError(f"--jmx-prometheus is {url!r}, must be http://HOST:PORT/metrics")

    def fetch() -> str:
        with urlopen(url, timeout=SCRAPE_S) as answer:  # noqa: S310  # the scheme was checked
            content: bytes = answer.read(SCRAPE_BYTES_MAX)
            return content.decode("utf-8", "replace")

    async def scrape() -> str:
        try:
            return await trio.to_thread.run_sync(fetch)
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise CalibrationError(f"--jmx-prometheus {url}: {reason}") from None

    return scrape
