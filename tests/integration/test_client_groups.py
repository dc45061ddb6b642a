"""Groups of users before real brokers: two workers keep one limit, and leave a client its floor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.clients import create_topic
from tests.clients.sasl import Login, java, librdkafka
from tests.integration.conftest import StartWeir
from tests.integration.with_sasl import Front, assert_untold
from tests.java import paced
from tests.kafka.fixtures import StartCluster
from tests.kafka.sasl import ALICE, BOB, ODD, SCRAM_256, User
from tests.raw import Address, Behaviour, RawClient, broker_versions_of, drive, produce
from tests.raw.client import Answer
from tests.raw.rates import swing_rate
from tests.raw.sasl import entrance

pytestmark = [pytest.mark.broker, pytest.mark.measured]

LIMIT: Final = 600_000
"""Bytes per second of the group, and of all clients."""
FLOOR: Final = 200_000
CANARY: Final = 0.8 * FLOOR
"""It pauses after each answer: after a stall of the machine, too, it never exceeds its floor to catch up."""
SHARE_KEPT: Final = 0.5
"""Of the rate of its twin, who sends to the broker itself: the machine's other work slows both."""
QUOTAS: Final = f"""
[[group]]
name = "payments"
users = ["{ALICE.name}", "{BOB.name[:2]}*"]

[[quota]]
group = "payments"
producer_byte_rate = {LIMIT}

[[quota]]
group = "<all>"
producer_byte_rate = {LIMIT}

[[quota]]
user = "{ODD.name}"
producer_byte_floor = {FLOOR}
"""
FROM_S, UNTIL_S = 14.0, 69.0
"""Time (s) that is measured: after the first window, which clients may use up at once."""
SIZE: Final = 6_000
VERSION: Final = "3.9.1"
"""Release of the broker and of Java's client."""


@pytest.mark.core
def test_users_of_a_group_share_its_limit_and_the_one_with_a_floor_never_waits(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path
) -> None:
    cluster = kafka_cluster(VERSION)
    create_topic(cluster.bootstrap, topic)
    front = Front(start_weir, cluster, tmp_path, QUOTAS, "--set", "workers=2")

    def client(user: User, behaviour: Behaviour, at: Address = front.broker) -> RawClient:
        request = produce(broker_versions_of(VERSION), user.name, topic, SIZE)
        enter = entrance(SCRAM_256, *user, version=0)
        return RawClient(user.name, at, request, behaviour, enter=enter)

    greedy = [client(user, Behaviour(connections=4)) for user in (ALICE, BOB)]
    calm, (host, _, port) = Behaviour(pause_s=SIZE / CANARY), cluster.sasl_bootstrap.partition(":")
    canary, twin = client(ODD, calm), client(ODD, calm, (host, int(port)))
    stop, began_s = tmp_path / "stop", time.monotonic()
    with ThreadPoolExecutor() as others:
        of_java = others.submit(_by_java, front.bootstrap, topic, stop)
        of_librdkafka = others.submit(lambda: list(_by_librdkafka(front.bootstrap, topic, stop)))
        try:
            drive([*greedy, canary, twin], UNTIL_S)
        finally:
            stop.touch()
        acked = [
            [Answer(at_s - began_s, SIZE, 0) for at_s in its.result()] for its in (of_java, of_librdkafka)
        ]
    members = [*acked, *(one.answers for one in greedy)]
    answers = sorted(chain.from_iterable(members), key=lambda answer: answer.at_s)
    each = [swing_rate(its, FROM_S, UNTIL_S) / LIMIT for its in members]
    rates = [swing_rate(its, FROM_S, UNTIL_S) / LIMIT for its in (answers, canary.answers, twin.answers)]
    print(f"the group, the canary, its twin {rates} of the limit; members {each}")
    assert {answer.throttle_ms for answer in canary.answers} == {0}
    assert rates[1] > SHARE_KEPT * rates[2]
    assert min(each) > 0.02, "nobody starves"
    assert 0.95 <= sum(rates[:2]) <= 1.05
    page = front.admin.metrics()
    assert page.value("weir_entity_bytes_total", group="payments", broker="0", quota="producer_byte_rate") > 0
    assert_untold(front, [])


def _by_java(bootstrap: str, topic: str, stop: Path) -> list[float]:
    """Return the times (s) at which Java's producer got its acknowledgements as alice."""
    config = java(Login(SCRAM_256, ALICE)) | {"bootstrap.servers": bootstrap, "buffer.memory": "262144"}
    load = paced.Pace(topic, 1, 100_000, 2 * LIMIT / SIZE, str(stop), SIZE)
    sent = paced.produce(VERSION, config, load)
    assert {one.error for one in sent} == {None}
    return [one.acked_s for one in sent if one.acked_s is not None]


def _by_librdkafka(bootstrap: str, topic: str, stop: Path) -> Iterator[float]:
    """Yield the times (s) at which librdkafka's producer got its acknowledgements as bob."""
    few = {"queue.buffering.max.messages": 40, "batch.size": 2 * SIZE, "linger.ms": 0}
    producer, acked = Producer(librdkafka(Login(SCRAM_256, BOB)) | few | {"bootstrap.servers": bootstrap}), []
    while not stop.exists():
        if len(producer) < 40:
            producer.produce(
                topic, bytes(SIZE), on_delivery=lambda error, _its: acked.append((error, time.monotonic()))
            )
        producer.poll(0.01 if len(producer) >= 40 else 0)
    producer.flush(60)
    assert {error for error, _at_s in acked} == {None}
    yield from (at_s for _error, at_s in acked)
