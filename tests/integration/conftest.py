"""Real clusters, with Weir in front of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest
from confluent_kafka import Producer

from tests.integration.weir import Weir
from tests.kafka.fixtures import fresh_cluster, kafka_cluster, topic

__all__ = ["StartWeir", "fresh_cluster", "kafka_cluster", "start_weir", "topic"]


class StartWeir(Protocol):
    """What `start_weir` hands to a test."""

    def __call__(
        self, upstream: str, quotas: str = "", *, host: str = ..., options: tuple[str, ...] = ...
    ) -> Weir: ...


@pytest.fixture
def upstream() -> Iterator[str]:
    """The addresses of librdkafka's mock cluster of three brokers, in this process."""
    owner = Producer({"bootstrap.servers": "unused:1", "test.mock.num.brokers": 3, "log_level": 0})
    brokers = owner.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.flush(0)


@pytest.fixture
def start_weir(request: pytest.FixtureRequest) -> Iterator[StartWeir]:
    """Call it for a running Weir that ends with the test; its log is kept and named if the test failed."""
    started: list[Weir] = []
    failed_before = request.session.testsfailed

    def start(
        upstream: str, quotas: str = "", *, host: str = "127.0.0.1", options: tuple[str, ...] = ()
    ) -> Weir:
        weir = Weir(upstream, quotas, host=host, options=options)
        started.append(weir)
        return weir.start()

    yield start
    for weir in started:
        weir.close(keep_logs=request.session.testsfailed > failed_before)
