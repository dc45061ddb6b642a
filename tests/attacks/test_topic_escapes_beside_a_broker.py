"""Ways around the rate of a topic, at Weir's rate and at a broker's quota of the same size.

Brokers have no rates of topics. From a few connections, and by fetches, at most a tenth more must get through
Weir than the rate allows. Where many connections produce, the first request of each passes, at brokers too:
then the bound is what the broker's quota of a client-id lets the same client do.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.attacks.escapes import rude
from tests.attacks.sides import (
    NAMES,
    RATE,
    Produce,
    addresses,
    fetched,
    judge,
    limit,
    limit_user,
    produced,
    topic_of,
    topic_rate,
)
from tests.integration.conftest import StartWeir
from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker, pytest.mark.measured]

PER_REQUEST: Final = rude(4, reconnects=True, pause_s=0.05)
PRODUCES: Final = {
    "a few connections": (
        Produce("1 connection, pipelined", rude()),
        Produce("1 connection, pipelined, acks=0", rude(answered=False), 0),
        Produce("4 connections, a new one for each request", PER_REQUEST),
        Produce("the same, behind 300 kB of another topic", PER_REQUEST, behind=True),
    ),
    "a hundred connections": (
        Produce("100 connections, pipelined", rude(100)),
        Produce("100 connections, pipelined, acks=0", rude(100, answered=False), 0),
    ),
    "a thousand connections": (Produce("1,000 connections, pipelined", rude(1000)),),
}
FETCHES: Final = {
    "a hundred connections": (
        ("1 connection, 5 under way", rude(depth=5)),
        ("4 connections, a new one for each request", PER_REQUEST),
        ("100 connections, 2 under way on each", rude(100, depth=2)),
    ),
    "a thousand connections": (("1,000 connections", rude(1000, depth=1)),),
}
TURNS: Final = Produce("20 client-ids in turn, 100 connections", rude(100))


@pytest.mark.parametrize("which", PRODUCES)
def test_producers_get_no_more_through_weirs_rate_of_a_topic_than_it_allows(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str, which: str
) -> None:
    cluster, group = fresh_cluster("3.9.1", optimized=True), PRODUCES[which]
    quotas = "".join(topic_rate(topic_of(topic, "weir", case.name)) for case in group)
    at = addresses(cluster, start_weir(cluster.bootstrap, quotas))
    limit(at["broker"], *(([("client-id", f"broker-{case.name}")], RATE) for case in group))
    judge(list(produced(cluster, at, topic, group)), by_rate=which == "a few connections")


@pytest.mark.parametrize("which", FETCHES)
def test_consumers_get_no_more_through_weirs_rate_of_a_topic_than_it_allows(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str, which: str
) -> None:
    cluster, group = fresh_cluster("3.9.1", optimized=True), FETCHES[which]
    quotas = "".join(topic_rate(topic_of(topic, "read", name)) for name, _ in group)
    at = addresses(cluster, start_weir(cluster.bootstrap, quotas))
    limit(at["broker"], *(([("client-id", f"broker-fetch {name}")], RATE) for name, _ in group))
    judge(list(fetched(cluster, at, topic, group)), by_rate=True)


def test_client_ids_in_turn_get_no_more_through_weirs_rate_of_a_topic_than_it_allows(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster = fresh_cluster("3.9.1", optimized=True)
    quotas = topic_rate(topic_of(topic, "weir", TURNS.name))
    at = addresses(cluster, start_weir(cluster.bootstrap, quotas))
    limit_user(at["broker"], RATE)
    judge(list(produced(cluster, at, topic, [TURNS], names=NAMES)))
