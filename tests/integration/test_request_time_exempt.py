"""What costs no request time at a broker costs none in Weir, with one difference that is meant.

Each is asked of a broker with a quota of its own and of Weir, with the same quota and window: the flood of a
producer that wants no answers (exempt at both), and a fetch that claims to come from a broker (exempt at
brokers whoever sends it; in Weir a consumer's, as anybody may claim it on a listener for clients).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients import create_topic
from tests.integration.calibrated import SETTINGS, WINDOW_NUM
from tests.raw import Behaviour, RawClient, drive, leaders, loops, set_quotas
from tests.wire.connection import Connection

if TYPE_CHECKING:
    from tests.integration.conftest import StartWeir
    from tests.kafka.fixtures import StartCluster
    from tests.raw import Address, Request

pytestmark = [pytest.mark.broker, pytest.mark.measured]

PERCENT: Final = 1
"""10 ms of a thread within the first second."""
FLOOD: Final = 5000
"""At 20 µs each ten times as much."""
LOOP_S: Final = 1.5
WHO: Final = ("flood", "answered", "consumer", "replica")
QUOTAS: Final = "\n".join(
    f'[[quota]]\nclient_id = "{who}-by-weir"\nrequest_percentage = {PERCENT}\n' for who in WHO
)


class Places:
    """A broker that holds client-ids that end in `by-broker`, and a Weir that holds those in `by-weir`."""

    def __init__(self, kafka_cluster: StartCluster, start_weir: StartWeir, topic: str) -> None:
        cluster = kafka_cluster("3.9.1", settings=SETTINGS, optimized=True)
        weir = start_weir(cluster.bootstrap, QUOTAS, options=("--quota-window-num", str(WINDOW_NUM)))
        create_topic(cluster.bootstrap, topic)
        self.bootstrap = cluster.bootstrap
        self.addresses: dict[str, Address] = {
            "by-broker": ("127.0.0.1", next(iter(cluster.ports.values()))),
            "by-weir": leaders(("127.0.0.1", weir.port), topic)[0],
        }
        direct = self.addresses["by-broker"]
        set_quotas(direct, {f"{who}-by-broker": {"request_percentage": PERCENT} for who in WHO})
        warm = [
            loops.metadata("warm", [topic]),
            loops.produce("warm", topic, 1),
            loops.fetch("warm", topic, 1),
        ]
        drive([RawClient("warm", direct, request, Behaviour()) for request in warm], LOOP_S)


def throttled(address: Address, request: Request) -> bool:
    """Whether a closed loop of it is told to wait."""
    client = RawClient("loop", address, request, Behaviour())
    drive([client], LOOP_S)
    return any(answer.throttle_ms > 0 for answer in client.answers)


def records(bootstrap: str, topic: str) -> int:
    """How many the only partition has got."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10.0)
    finally:
        consumer.close()
    return end


@pytest.mark.parametrize("held", ["by-broker", "by-weir"])
def test_acks_0_requests_are_not_throttled_for_request_time(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, held: str
) -> None:
    places = Places(kafka_cluster, start_weir, topic)
    before = records(places.bootstrap, topic)
    silent = loops.produce(f"flood-{held}", topic, 1, acks=0)
    then = loops.metadata(f"flood-{held}", [topic])
    with Connection(places.addresses[held]) as connection:
        for _ in range(FLOOD):
            connection.send(silent.frame)
        told = then.outcome(connection.exchange(then.frame))
    assert told.throttle_ms == 0
    assert records(places.bootstrap, topic) == before + FLOOD
    answered = loops.produce(f"answered-{held}", topic, 1)
    assert throttled(places.addresses[held], answered), "with acks=1 it would have been"


def test_a_client_that_claims_a_replica_id_is_charged_as_a_consumer(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    places = Places(kafka_cluster, start_weir, topic)
    seen = {
        (who, held): throttled(address, loops.fetch(f"{who}-{held}", topic, 1, replica_id))
        for who, replica_id in (("consumer", -1), ("replica", 7))
        for held, address in places.addresses.items()
    }
    assert seen == {
        ("consumer", "by-broker"): True,
        ("consumer", "by-weir"): True,
        ("replica", "by-broker"): False,
        ("replica", "by-weir"): True,
    }
