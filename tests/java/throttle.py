"""What Java's producer and consumer, of any Kafka release, say of being throttled: their metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.java.worker import run_java
from tests.kafka.jars import version_tuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Throttles(NamedTuple):
    """In ms, as the clients' metrics have them."""

    produce_avg: float
    """`produce-throttle-time-avg`, and so on."""
    produce_max: float
    fetch_avg: float
    fetch_max: float
    read: int
    """How many records the consumer got."""


def java_throttles(
    release: str, bootstrap: str, topic: str, count: int, config: Mapping[str, str] | None = None
) -> Throttles:
    """Have the clients of Kafka `release` send so many records one after another to partition 0 of a topic
    that is empty, and read them. Raises ClientError.
    """
    job = {
        "topic": topic,
        "count": count,
        "config": {"bootstrap.servers": bootstrap} | dict(config or {}),
        "old_metrics": version_tuple(release) < (1, 0),
    }
    return Throttles(**run_java(release, "throttle_worker", "Java's clients", job))
