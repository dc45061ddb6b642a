"""Java's producer and consumer, of any Kafka release: several exchanges in one Java process."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

from tests.java.worker import run_java

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
            "exchanges": [
                {
                    "topic": exchange.topic,
                    "messages": [base64.b64encode(message).decode() for message in exchange.messages],
                    "config": {"bootstrap.servers": self._bootstrap} | dict(exchange.config),
                }
                for exchange in exchanges
            ]
        }
        found = run_java(self._release, "records_worker", "Java's clients", job)
        return [[base64.b64decode(value) for value in values] for values in found]
