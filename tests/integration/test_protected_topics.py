"""Weir's quota topic in front of a real broker: only admins write to it and change it through Weir."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions

from tests.clients import create_topic
from tests.integration.admin_port import Admin
from tests.integration.conftest import StartWeir
from tests.integration.quota_changes import TIGHT, alter
from tests.integration.traffic import until
from tests.integration.weir import Weir
from tests.kafka.fixtures import StartCluster
from tests.wire.connection import Connection
from weir.protocol.messages import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MetadataRequest,
    MetadataResponse,
)
from weir.proxy.control.stores.records import alteration
from weir.quotas import Entity, QuotaTable
from weir.quotas.table.quota_table import QuotaKey

pytestmark = [pytest.mark.broker]

REFUSED = 29
"""TOPIC_AUTHORIZATION_FAILED."""


class Client:
    """librdkafka, at Weir."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.properties: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
        self.topic = topic
        self.admin = AdminClient(self.properties)

    def produce(self, key: bytes, value: bytes | None) -> int:
        """The error code of one record; 0 if it was written."""
        codes: list[int] = []
        producer = Producer({**self.properties, "message.timeout.ms": 20_000})
        producer.produce(
            self.topic,
            key=key,
            value=value,
            on_delivery=lambda error, _message: codes.append(0 if error is None else error.code()),
        )
        assert producer.flush(30) == 0
        return codes[0]

    def grow(self) -> int:
        return _code(lambda: self.admin.create_partitions([NewPartitions(self.topic, 2)])[self.topic])

    def configure(self) -> int:
        entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=[entry])
        return _code(lambda: self.admin.incremental_alter_configs([resource])[resource])

    def delete(self) -> int:
        return _code(lambda: self.admin.delete_topics([self.topic])[self.topic])


def _code(call: Callable[[], object]) -> int:
    try:
        call().result(30)  # type: ignore[attr-defined]  # a future
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def _delete_by_id(weir: Weir, topic: str) -> int:
    wanted = MetadataRequest.MetadataRequestTopic(name=topic)
    with Connection(("127.0.0.1", weir.port + 1)) as connection:
        asked = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
        (found,) = connection.ask(asked, MetadataResponse, 12).topics
        state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=found.topic_id)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=20_000)
        (result,) = connection.ask(request, DeleteTopicsResponse, 6).responses
    return result.error_code


def _refused(admin: Admin, api: str) -> float:
    rows = admin.settled().rows("weir_protected_topic_requests_refused_total")
    return rows.get(frozenset({("api", api)}), 0)


def test_only_an_admin_writes_to_the_quota_topic_and_changes_it(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster, ours, admin = kafka_cluster("3.9.1"), f"{topic}-quotas", Admin()
    create_topic(cluster.bootstrap, topic)
    store = ("--quotas", f"topic:{ours}")
    plain = start_weir(cluster.bootstrap, options=(*store, *admin.options, "--log-level", "info"))
    trusting = start_weir(cluster.bootstrap, options=(*store, "--quota-admins", "User:ANONYMOUS"))
    victim = {(Entity(client_id="victim"), QuotaKey.PRODUCER_BYTE_RATE): 1.0}
    ((key, value),) = alteration(QuotaTable(), victim)

    ordinary = Client(plain.bootstrap, ours)
    assert ordinary.produce(key, value) == REFUSED
    assert ordinary.produce(key, None) == REFUSED
    assert (ordinary.grow(), ordinary.configure(), ordinary.delete()) == (REFUSED, REFUSED, REFUSED)
    assert _delete_by_id(plain, ours) == REFUSED
    assert Client(plain.bootstrap, topic).produce(b"k", b"v") == 0
    assert admin.metrics()["weir_quotas_configured"] == 0
    until(lambda: _refused(admin, "Produce") == 2, lambda: "the worker to count refused writes")
    until(lambda: _refused(admin, "DeleteTopics") == 2, lambda: "the worker to count refused deletions")
    assert '"change of protected topics refused"' in plain.log

    trusted = Client(trusting.bootstrap, ours)
    assert trusted.produce(key, value) == 0
    until(lambda: admin.metrics()["weir_quotas_configured"] == 1, lambda: "the other Weir to follow")
    alter(trusting.port, "app", TIGHT)
    until(lambda: admin.metrics()["weir_quotas_configured"] == 2, lambda: "the other Weir to follow")
    assert admin.metrics()["weir_quota_topic_foreign_records_total"] == 1, "not the record that a Weir wrote"
    assert "without a Weir's mark" in plain.log
    assert '"protected topics changed"' in trusting.log
    assert (trusted.configure(), _delete_by_id(trusting, ours)) == (0, 0)
