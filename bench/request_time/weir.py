"""Weir in front of the broker: charges the request time of every client without throttling any client, and
shows the charges at the admin endpoint.
"""

from __future__ import annotations

import urllib.request
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from bench.targets.target import Surroundings
from bench.targets.weir import NEVER_REACHED, THIS_TREE, start
from tests.kafka import wire
from tests.kafka.ports import free_range
from tests.kafka.processes import Processes
from tests.kafka.settings import HOST

QUOTAS: Final = f"""\
[[quota]]
client_id = "<default>"
request_percentage = {NEVER_REACHED}
"""
SAMPLE: Final = "weir_request_time_seconds_total"
_US: Final = 1e6
_SCRAPE_S: Final = 30.0


class Weir:
    """A running Weir. It ends when `processes` ends the processes that it started."""

    def __init__(self, processes: Processes, broker_port: int) -> None:
        """Start Weir. Raises TargetError, OSError."""
        admin = free_range(1)
        options = ["--admin", f"{HOST}:{admin}"]
        running = start(Surroundings(broker_port, processes), "weir", THIS_TREE, QUOTAS, *options)
        brokers, _ = wire.metadata(HOST, running.port)
        ((host, port),) = brokers.values()
        self.address = host, port
        """Address (host, port) at which clients reach the broker through Weir."""
        self._url = f"http://{HOST}:{admin}/metrics"

    def charged_us(self) -> dict[str, float]:
        """Return the request time (µs) charged so far, by client-id. Raises OSError, ValueError."""
        with urllib.request.urlopen(self._url, timeout=_SCRAPE_S) as answer:  # noqa: S310 (our own, on loopback)
            return parse(answer.read().decode())


def parse(text: str) -> dict[str, float]:
    """Return the request time (µs of one thread) charged, by client-id, from the metrics of the admin
    endpoint.
    """
    charged: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == SAMPLE:
                client_id = sample.labels["client_id"]
                charged[client_id] = charged.get(client_id, 0.0) + sample.value * _US
    return charged
