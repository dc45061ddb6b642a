"""A broker dies and comes back: its clients go on through the same Weir, and nothing is lost or doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.clients import Librdkafka, create_topic
from tests.clients.test_clients import VERSIONS, some_messages
from tests.integration.test_records import GENEROUS, entries

if TYPE_CHECKING:
    from tests.integration.conftest import StartWeir
    from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker]

PATIENCE_S = 90


@pytest.mark.parametrize("version", VERSIONS)
def test_a_producer_goes_on_when_its_broker_was_killed_and_restarted(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = fresh_cluster(version)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    create_topic(weir.bootstrap, topic)
    before, while_away = some_messages(100, 1000), some_messages(100, 1000, seed=2)
    producer = Producer({"bootstrap.servers": weir.bootstrap, "acks": "all", "max.in.flight": 1})
    send(producer, topic, before)
    assert producer.flush(PATIENCE_S) == 0
    cluster.kill(0)
    send(producer, topic, while_away)
    cluster.restart(0)
    assert producer.flush(PATIENCE_S) == 0
    seen = Librdkafka().consume(weir.bootstrap, topic, len(before + while_away), timeout_s=PATIENCE_S)
    assert seen.values == before + while_away
    assert weir.stop() == 0
    assert {entry.get("reason") for entry in entries(weir.log)} >= {"broker_closed"}
    assert "internal_error" not in weir.log


def send(producer: Producer, topic: str, messages: list[bytes]) -> None:
    """Hand all messages to the producer; it sends them when it can."""
    for message in messages:
        producer.produce(topic, message, partition=0)
