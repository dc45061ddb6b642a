"""A storage budget in front of a real broker: passed at full speed, held, freed by retention; and a Weir that
may not read what the broker stores, or cannot.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.integration.admin_port import Admin
from tests.integration.conftest import StartWeir
from tests.integration.traffic import PATIENCE_S, until
from tests.integration.weir_log import entries
from tests.kafka.fixtures import StartCluster
from tests.kafka.settings import HOST
from tests.raw import Address, ask
from weir.protocol.messages import AlterConfigsRequest, AlterConfigsResponse

pytestmark = [pytest.mark.broker, pytest.mark.measured]

MARK, OVER = 10_000_000, 100_000
RECORD: Final = b"x" * 10_000
QUOTAS: Final = f'[[quota]]\ntopic_prefix = "fill."\nstored_bytes_max = {MARK}\nover_byte_rate = {OVER}\n'
OPTIONS: Final = ("--set", "refresh_s=1", "--set", "quota_pacing=smooth")
RETENTION: Final = {"log.retention.check.interval.ms": "1000", "allow.everyone.if.no.acl.found": "true"}
OLD_AUTHORIZER: Final = "kafka.security.auth.SimpleAclAuthorizer"
NEW_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLUSTER: Final = ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, "User:ANONYMOUS", "*"
ALLOW: Final = (*CLUSTER, AclOperation.ALL, AclPermissionType.ALLOW)
DENY: Final = (*CLUSTER, AclOperation.DESCRIBE, AclPermissionType.DENY)
WINDOW_S: Final = 8.0


class Filler(threading.Thread):
    """Produces at full speed until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        config = {"bootstrap.servers": bootstrap, "batch.size": 20_000, "log_level": 0, "linger.ms": 5}
        self._producer = Producer(config | {"queue.buffering.max.messages": 1000, "max.in.flight": 1})
        self._topic, self._stopped = topic, threading.Event()
        self.stored = 0
        """Number of bytes that the broker has acknowledged."""
        self.errors = list[object]()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._producer.produce(self._topic, RECORD, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.stored += len(RECORD)
        else:
            self.errors.append(error)

    def rate(self, span_s: float) -> float:
        began_s, before = time.monotonic(), self.stored
        time.sleep(span_s)  # the span whose rate is measured
        return (self.stored - before) / (time.monotonic() - began_s)

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        self._producer.purge()


def shorten_retention(broker: Address, topic: str, configs: dict[str, str]) -> None:
    values = [AlterConfigsRequest.AlterableConfig(name=name, value=value) for name, value in configs.items()]
    resource = AlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name=topic, configs=values)
    request = AlterConfigsRequest(resources=[resource], validate_only=False)
    assert ask(broker, request, AlterConfigsResponse, 0).responses[0].error_code == 0


@pytest.mark.parametrize("version", ["1.1.1", "4.4.0"])
def test_producers_are_held_while_a_prefix_stores_too_much_and_until_retention_has_freed_it(
    fresh_cluster: StartCluster, start_weir: StartWeir, version: str
) -> None:
    authorizer = OLD_AUTHORIZER if version == "1.1.1" else NEW_AUTHORIZER
    settings = RETENTION | {"authorizer.class.name": authorizer, "log.initial.task.delay.ms": "1000"}
    cluster, admin, topic = fresh_cluster(version, settings=settings), Admin(), "fill.a"
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    segments = {"segment.bytes": "1048576", "file.delete.delay.ms": "1000"}
    client.create_topics([NewTopic(topic, 1, 1, config=segments)])[topic].result(PATIENCE_S)
    weir = start_weir(cluster.bootstrap, QUOTAS, options=(*OPTIONS, *admin.options))

    def lines(event: str) -> list[dict[str, object]]:
        return [entry for entry in entries(weir.log) if entry["event"] == event]

    def problems() -> str:
        told = json.loads(admin.get("/api/status")[1])["problems"]
        return " ".join(problem["what"] for problem in told)

    filler = Filler(weir.bootstrap, topic)
    filler.start()
    began_s = time.monotonic()
    until(lambda: bool(lines("storage budget over")), lambda: "the mark to be passed")
    full = filler.stored / (time.monotonic() - began_s)
    (over,) = lines("storage budget over")
    rate = filler.rate(WINDOW_S)
    print(f"{version}: {full:,.0f} bytes/s, then {rate:,.0f}; found at {over['bytes']:,} of {MARK:,}")
    assert rate == pytest.approx(OVER, rel=0.2)
    assert "stored_bytes_max of topic prefix fill. is exceeded" in problems()

    for created in client.create_acls([AclBinding(*ALLOW), AclBinding(*DENY)]).values():
        created.result(PATIENCE_S)
    until(lambda: "Weir may not describe the cluster" in problems(), lambda: "the refusal")
    assert "is exceeded" in problems()
    for deleted in client.delete_acls([AclBindingFilter(*DENY)]).values():
        assert deleted.result(PATIENCE_S)
    until(lambda: "Weir may not describe" not in problems(), lambda: "the end of the refusal")

    shorten_retention((HOST, cluster.ports[0]), topic, segments | {"retention.ms": "1000"})
    until(lambda: bool(lines("storage budget kept again")), lambda: "retention")
    freed_s = time.monotonic()
    until(lambda: filler.rate(0.5) > 2 * OVER, lambda: "full speed")
    print(f"{version}: full speed {time.monotonic() - freed_s:.1f} s after the budget was kept again")
    assert time.monotonic() - freed_s < 60
    filler.stop()
    assert not filler.errors

    (node_id,) = cluster.ports
    cluster.kill(node_id)
    until(lambda: f"Storage is not read: broker {node_id}" in problems(), lambda: "the broker to be away")
