"""Smooth pacing and cluster scope in front of real brokers: the rates that raw clients get."""

from __future__ import annotations

from typing import Final

import pytest

from tests.clients import create_topic
from tests.integration.conftest import StartWeir
from tests.kafka.fixtures import StartCluster
from tests.raw import NEW, Behaviour, RawClient, drive, fetch, fill, leaders, produce
from tests.raw.rates import mean_rate

pytestmark = [pytest.mark.broker, pytest.mark.measured]

QUOTA: Final = 1_000_000
"""bytes/s"""
SETTLED_S, WINDOW_S, UNTIL_S = 2, 10, 20
TOLERANCE: Final = 0.05
"""2 % of the quota, one request, and what a busy machine adds."""
BEHAVIOURS: Final = {
    "polite": Behaviour(),
    "rude": Behaviour(obeys=False, depth=5),
    "polite-ten": Behaviour(connections=10),
    "rude-ten": Behaviour(obeys=False, depth=2, connections=10),
}
SMOOTH: Final = f"""
[[quota]]
client_id = "<default>"
producer_byte_rate = {QUOTA}
consumer_byte_rate = {QUOTA}
pacing = "smooth"
"""


def test_smooth_pacing_holds_the_quota_over_each_ten_seconds(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster = fresh_cluster("3.9.1", optimized=True)
    weir = start_weir(cluster.bootstrap, SMOOTH)
    create_topic(cluster.bootstrap, topic)
    create_topic(cluster.bootstrap, f"{topic}-produce")
    fill(cluster.bootstrap, topic)
    at = leaders(("127.0.0.1", weir.port), topic)[0]
    clients = []
    for name, behaviour in BEHAVIOURS.items():
        sent = produce(NEW, f"produce-{name}", f"{topic}-produce", 20_000)
        clients.append(RawClient(f"produce-{name}", at, sent, behaviour))
        asked = fetch(NEW, f"fetch-{name}", topic, 50_000)
        clients.append(RawClient(f"fetch-{name}", at, asked, behaviour))
    drive(tuple(clients), UNTIL_S)
    rates = {
        f"{client.name} from {start} s": mean_rate(client.answers, start, start + WINDOW_S) / QUOTA
        for client in clients
        for start in range(SETTLED_S, UNTIL_S - WINDOW_S + 1)
    }
    print(f"{min(rates.values()):.3f} to {max(rates.values()):.3f} of the quota")
    assert {what: rate for what, rate in rates.items() if abs(rate - 1) > TOLERANCE} == {}


def test_a_quota_of_cluster_scope_limits_a_client_of_two_brokers_to_the_sum(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster = fresh_cluster("3.9.1", brokers=2)
    weir = start_weir(cluster.bootstrap, f'{SMOOTH}scope = "cluster"\n')
    create_topic(cluster.bootstrap, topic, 2)
    at = leaders(("127.0.0.1", weir.port), topic)
    assert at[0] != at[1]
    clients = [
        RawClient("app", at[partition], produce(NEW, "app", topic, 20_000, partition), Behaviour())
        for partition in (0, 1)
    ]
    drive(clients, SETTLED_S + WINDOW_S)
    rates = [mean_rate(client.answers, SETTLED_S, SETTLED_S + WINDOW_S) / QUOTA for client in clients]
    assert sum(rates) == pytest.approx(1, abs=TOLERANCE)
    assert rates[0] == pytest.approx(rates[1], abs=2 * TOLERANCE)
