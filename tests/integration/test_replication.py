"""Real brokers that reach each other through Weir: followers stay in sync, also after restarts."""

from __future__ import annotations

from typing import Final

import pytest

from tests.clients import Librdkafka
from tests.integration.admin_port import Admin
from tests.integration.replicated import ReplicatedCluster
from tests.integration.traffic import create_spread, wait_in_sync

pytestmark = pytest.mark.broker

EVERYWHERE: Final = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
"""The replicas of three partitions, each led by another broker."""
FROM_BROKERS: Final = {"from": "brokers"}
"""Label of bytes that Weir has received from brokers."""
MESSAGES: Final = [b"x" * 1000] * 300


@pytest.mark.parametrize("version", ["3.9.1", "2.8.2", "0.10.2.2"])
def test_followers_get_and_stay_in_sync_through_weir(version: str, topic: str) -> None:
    client, admin = Librdkafka(), Admin()
    with ReplicatedCluster(version, weir_options=admin.options) as replicated:
        cluster = replicated.cluster
        create_spread(cluster.bootstrap, topic, EVERYWHERE, min_in_sync=2)
        client.produce(cluster.bootstrap, topic, MESSAGES, acks="all")
        wait_in_sync(cluster.bootstrap, topic)
        copied_bytes = 2 * sum(map(len, MESSAGES))
        received_bytes = admin.settled().value("weir_received_bytes_total", **FROM_BROKERS)
        assert received_bytes > copied_bytes, "followers fetch through Weir"

        cluster.kill(2)
        cluster.wait_until_ready()
        client.produce(replicated.weir.bootstrap, topic, MESSAGES, acks="all")
        cluster.restart(2)
        wait_in_sync(cluster.bootstrap, topic)

        replicated.stop_weir()
        replicated.start_weir()
        client.produce(replicated.weir.bootstrap, topic, MESSAGES, acks="all")
        wait_in_sync(cluster.bootstrap, topic)
        found = client.consume(replicated.weir.bootstrap, topic, 3 * len(MESSAGES))
        assert found.values == 3 * MESSAGES
        assert admin.settled()["weir_requests_not_understood_total"] == 0
