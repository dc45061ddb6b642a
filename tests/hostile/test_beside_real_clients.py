"""A real client in front of a real broker, while a mob is at the same ports."""

from __future__ import annotations

import random
import socket
import threading
from typing import Self

import pytest

from tests.clients import Librdkafka, create_topic
from tests.clients.exchange import some_messages
from tests.clients.pairs import VERSIONS
from tests.hostile.files import resident_bytes
from tests.hostile.stage import until
from tests.integration.conftest import StartWeir
from tests.integration.descriptors import open_count
from tests.integration.weir import Weir
from tests.kafka.fixtures import StartCluster
from tests.kafka.settings import HOST
from tests.proxy.rigs import reset
from tests.wire.frames import request
from weir.protocol.messages import FetchRequest, MetadataRequest, ProduceRequest

pytestmark = [pytest.mark.broker]

PATIENCE_S = 60
MOB_BYTES = 30_000_000
PAUSE_S = 0.2
"""Between rounds."""
CROWD_MAX = 20
"""Descriptors that Weir may have beyond those before the mob when a round begins: a broker's own queue of
connections is 50 long, and on a busy machine its clients would wait there for a minute.
"""
LISTENED_TO = [request(MetadataRequest(topics=[]), 1), request(ProduceRequest(acks=1, timeout_ms=1000), 2)]
GARBAGE = [b"GET / HTTP/1.1\r\n\r\n", bytes.fromhex("1603010200010001fc0303") + bytes(40), bytes(50)]

REASONS = {"client_closed", "client_reset", "tls_on_plain_port", "request_too_large", "request_too_short"}
"""Each of them happens in every round, or nearly."""


class Mob:
    """Connects, talks nonsense or half of what it means, and leaves in the worst way; a context manager."""

    def __init__(self, weir: Weir, topic: str) -> None:
        """Prepare; nothing is sent before it is entered."""
        self._ports = (weir.port, weir.port + 1)
        self._pid = weir.pid
        self._crowded = open_count(weir.pid) + CROWD_MAX
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._rage, name="mob")
        self._chance = random.Random(4)
        self.rounds = 0
        self.failure: Exception | None = None

    def _rage(self) -> None:
        try:
            while not self._over.wait(PAUSE_S):
                if open_count(self._pid) < self._crowded:
                    self._round()
                    self.rounds += 1
        except Exception as error:  # noqa: BLE001  # told at the end, in the test's own thread
            self.failure = error

    def _round(self) -> None:
        chance = self._chance
        idle = [self._connect() for _ in range(10)]
        for garbage in (*GARBAGE, chance.randbytes(200)):
            self._say(garbage)
        conversation = b"".join(LISTENED_TO)
        for _ in range(20):
            self._say(conversation[: chance.randrange(len(conversation))])
        greedy = self._connect()
        greedy.sendall(self._fetch() * 50)
        for sock in idle:
            sock.close()
        reset(greedy)

    def _fetch(self) -> bytes:
        """Ask for all that the topic has; the answer is not read."""
        kind = FetchRequest.FetchTopic
        partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = kind(topic=self._topic, partitions=[partition])
        return request(
            FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic]), 3
        )

    def _connect(self) -> socket.socket:
        return socket.create_connection((HOST, self._chance.choice(self._ports)), PATIENCE_S)

    def _say(self, data: bytes) -> None:
        sock = self._connect()
        sock.sendall(data)
        if self._chance.random() < 0.5:
            sock.close()
        else:
            reset(sock)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        assert self.failure is None, f"the mob could not go on: {self.failure!r}"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_record_of_real_clients_arrives_beside_hostile_ones(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap)
    create_topic(weir.bootstrap, topic)
    client, first, beside = Librdkafka(), some_messages(2000, 500), some_messages(2000, 500, seed=2)
    client.produce(weir.bootstrap, topic, first)
    descriptors, memory = open_count(weir.pid), resident_bytes(weir.pid)
    with Mob(weir, topic) as mob:
        until(lambda: mob.rounds > 0 or mob.failure is not None, lambda: "the mob has begun")
        client.produce(weir.bootstrap, topic, beside)
        consumed = client.consume(weir.bootstrap, topic, len(first + beside), timeout_s=PATIENCE_S)
        grown = resident_bytes(weir.pid) - memory
    assert consumed.values == first + beside
    assert grown < MOB_BYTES, f"{grown} bytes more after {mob.rounds} rounds"
    until(
        lambda: open_count(weir.pid) <= descriptors,
        lambda: f"{open_count(weir.pid)} descriptors fall to {descriptors}, as before the mob",
    )
    assert weir.stop() == 0
    assert "internal_error" not in weir.log
    ended = {reason for reason in REASONS if f'"{reason}"' in weir.log}
    assert ended == REASONS, f"missing: {REASONS - ended}"
