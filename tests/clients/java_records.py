"""Java's producer and consumer, of any Kafka release: several exchanges in one Java process."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.clients.java_worker import run_java
from tests.kafka.jars import version_tuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WORKER = Path(__file__).with_name("java_records_worker.py")


class Exchange(NamedTuple):
    """Messages to send to partition 0 of a topic that is empty, and to read from it again."""

    topic: str
    messages: Sequence[bytes]
    config: Mapping[str, str]
    """Of producer and consumer alike, besides bootstrap.servers."""


class JavaRecords:
    """The clients of Kafka `release`, which must be one that the tests have jars of."""

    def __init__(self, release: str, bootstrap: str) -> None:
        self._release = release
        self._bootstrap = bootstrap

    def run(self, *exchanges: Exchange) -> list[list[bytes]]:
        """What each exchange's consumer got, in order. Raises ClientError."""
        job = {
            "timed_poll": version_tuple(self._release) < (2, 0),
            "exchanges": [
                {
                    "topic": exchange.topic,
                    "messages": [base64.b64encode(message).decode() for message in exchange.messages],
                    "config": {"bootstrap.servers": self._bootstrap} | dict(exchange.config),
                }
                for exchange in exchanges
            ],
        }
        found = run_java(self._release, _WORKER, "Java's clients", job)
        return [[base64.b64decode(value) for value in values] for values in found]
