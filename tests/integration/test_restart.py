"""Restarts that clients do not notice: remembered brokers, and take-overs, with real brokers and clients."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients import Librdkafka, create_topics, sasl
from tests.clients.exchange import some_messages
from tests.clients.sasl import Login
from tests.integration.admin_port import HOST
from tests.integration.takeovers import Generations, RdkafkaLoad, Running
from tests.kafka import Cluster
from tests.kafka.fixtures import StartCluster
from tests.kafka.sasl import ALICE, PLAIN

pytestmark = [pytest.mark.broker]

TAKEOVERS: Final = int(os.environ.get("TAKEOVERS", "5"))


def is_refused(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex((HOST, port)) != 0


def test_a_restarted_weir_without_credentials_serves_clients_that_remember_a_broker(
    kafka_cluster: StartCluster, topic: str, tmp_path: Path
) -> None:
    """The fault of kroxylicious#416: SASL brokers list nothing to a Weir without a login of its own."""
    cluster = kafka_cluster("3.9.1")
    create_topics(cluster.bootstrap, [topic])
    login = sasl.librdkafka(Login(PLAIN, ALICE))
    messages = some_messages(5, 100)
    options = ("--set", f"state_dir={tmp_path}")
    with Generations(cluster.sasl_bootstrap, options=options) as weirs:
        broker = weirs.port + 1
        assert b"no broker is known" in weirs.admin.wait_for(503)
        assert is_refused(broker)
        with Librdkafka().running() as client:
            client.produce(weirs.bootstrap, topic, messages, client_id="before", config=login)
        assert weirs.admin.wait_for(200) == b"ready\n"
        assert not is_refused(broker)
        assert weirs.stop() == 0
        weirs.start()
        weirs.admin.wait_for(200)
        assert not is_refused(broker)
        with Librdkafka().running() as client:  # no bootstrap: it begins at the broker's listener
            client.produce(f"{HOST}:{broker}", topic, messages, client_id="after", config=login)
            read = client.consume(f"{HOST}:{broker}", topic, 10, client_id="after", config=login)
        assert read.values == messages * 2


def test_no_produce_fails_over_many_takeovers(kafka_cluster: StartCluster, topic: str) -> None:
    """`TAKEOVERS=200` in the environment for more."""
    cluster = kafka_cluster("3.9.1")
    names = [f"{topic}-{n}" for n in range(3)]
    create_topics(cluster.bootstrap, names)
    with Generations(cluster.bootstrap) as weirs:
        loads = (
            RdkafkaLoad(weirs.bootstrap, names[0], acks="all"),
            RdkafkaLoad(weirs.bootstrap, names[1], acks="1"),
            RdkafkaLoad(weirs.bootstrap, names[2], **{"enable.idempotence": True}),
        )
        with Running(*loads) as running:
            running.wait_for_more()
            for _ in range(TAKEOVERS):
                number = weirs.start()
                assert weirs.ended(number - 1) == 0
                assert weirs.admin.get("/readyz") == (200, b"ready\n")
                running.wait_for_more()
        print([(load.tally.delivered, round(load.tally.longest_s, 2)) for load in loads])
        assert [load.tally.failures for load in loads] == [[], [], []]
        counts = [stored(cluster, name) for name in names]
        delivered = [load.tally.delivered for load in loads]
        assert all(count >= least for count, least in zip(counts, delivered, strict=True))
        assert counts[2] == delivered[2], "an idempotent producer has no duplicates"


def stored(cluster: Cluster, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    try:
        _first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return int(end)
    finally:
        consumer.close()
