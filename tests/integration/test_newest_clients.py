"""Java's clients of Kafka 4.4 directly and through Weir, throttled and not: transactions and share groups."""

from __future__ import annotations

from typing import Final

import pytest

from tests.integration.admin_port import Admin
from tests.integration.conftest import StartWeir
from tests.java import newest
from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker]

RELEASE: Final = "4.4.0"
RECORDS: Final = 400
QUOTAS: Final = """
[[quota]]
client_id = "throttled"
producer_byte_rate = 30000
consumer_byte_rate = 30000
request_percentage = 50
"""


def test_transactions_and_share_groups_of_java_are_the_same_directly_and_through_weir(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster, admin = kafka_cluster(RELEASE), Admin()
    weir = start_weir(cluster.bootstrap, QUOTAS, options=admin.options)
    at = {"direct": cluster.bootstrap, "unthrottled": weir.bootstrap, "throttled": weir.bootstrap}
    configs = [{"bootstrap.servers": where, "client.id": name} for name, where in at.items()]
    found = newest.run(RELEASE, configs, topic, RECORDS)
    every = list(range(RECORDS))
    assert dict(zip(at, found, strict=True)) == dict.fromkeys(at, newest.Read(every, every))
    throttles = admin.settled().rows("weir_entity_throttles_total")
    for quota in ("producer_byte_rate", "consumer_byte_rate"):
        assert sum(count for labels, count in throttles.items() if ("quota", quota) in labels) > 0
