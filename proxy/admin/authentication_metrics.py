"""Metrics of SASL exchanges."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from proxy.admin import family
from proxy.counters import Counters


def families(counters: Counters) -> Iterator[Metric]:
    """Yield results of exchanges by mechanism, and the number of clients without a visible name."""
    ends = {"success": counters.authentications_succeeded, "failure": counters.authentications_failed}
    yield family.counters(
        "weir_authentications",
        "SASL exchanges that brokers have accepted or refused.",
        ("mechanism", "result"),
        (
            ((mechanism, result), count)
            for result, by_mechanism in ends.items()
            for mechanism, count in sorted(by_mechanism.items())
        ),
    )
    yield family.counter(
        "weir_authentications_hidden",
        "Accepted exchanges that showed no name.",
        counters.names_hidden,
    )
