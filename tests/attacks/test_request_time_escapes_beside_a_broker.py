"""Ways around `request_percentage`, tried at a broker's own quota and at Weir's at the same time.

A broker counts the time of its threads, Weir an estimate. The test compares the charges of each side to its
client, by its own account: a larger charge at Weir that is above the quota is a way around the rule, and
fails. It prints the time that Weir's client costs the broker, by the broker's account (JMX): the difference
from Weir's charge is the error of the estimate. One request of each connection passes in a second, however
much its client has used, because no throttle time is longer: that is Kafka's rule, and added to the quota.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from bench.request_time.truth import Truth
from tests.attacks.escapes import Client, Manner, attempt, rude
from tests.attacks.sides import NAMES, SECONDS, SIDES, UNLIMITED, Found, addresses, judge, limit, limit_user
from tests.integration.admin_port import Admin
from tests.integration.conftest import StartWeir
from tests.kafka.fixtures import StartCluster
from tests.raw import loops
from tests.wire.connection import Address

pytestmark = [pytest.mark.broker, pytest.mark.measured]

KEY: Final = "request_percentage"
PERCENT: Final = 2.0
TOPICS: Final = [f"no-{number}" for number in range(100)]
"""Topics that do not exist, in each Metadata request."""
THROTTLE_MS: Final = loops.metadata("", TOPICS).outcome
WARM_S: Final = 10.0
"""For a broker that has just started: its requests become ten times cheaper."""
ATTACKS: Final[Mapping[str, Mapping[str, Manner]]] = {
    "up to a hundred connections": {
        "1 connection, pipelined": rude(depth=100),
        "4 connections, a new one for each request": rude(4, reconnects=True, pause_s=0.01),
        "100 connections, pipelined": rude(100, depth=5),
    },
    "a thousand connections": {"1,000 connections": rude(1000, depth=2)},
}


@pytest.mark.parametrize("which", ATTACKS)
def test_ways_around_request_time_are_charged_no_more_at_weir_than_at_a_broker(
    fresh_cluster: StartCluster, start_weir: StartWeir, tmp_path: Path, which: str
) -> None:
    attacks, admin = ATTACKS[which], Admin()
    cluster = fresh_cluster("3.9.1", optimized=True, with_jmx=True)
    quotas = "".join(
        f'[[quota]]\nclient_id = "{id_of("weir", case)}"\n{KEY} = {PERCENT}\n' for case in attacks
    )
    at = addresses(cluster, start_weir(cluster.bootstrap, quotas, options=admin.options))
    for side, percent in (("broker", PERCENT), ("weir", UNLIMITED)):
        limit(at["broker"], *(([("client-id", id_of(side, case))], percent) for case in attacks), key=KEY)
    warm(at["broker"])
    clients = {
        (side, case): Client(case, at[side], frames([id_of(side, case)]), manner, throttle_ms)
        for side in SIDES
        for case, manner in attacks.items()
    }
    with Truth(cluster.jmx(0), tmp_path) as truth:
        attempt(list(clients.values()), SECONDS)
        at_broker, at_weir = truth.percents(), charged(admin)
    told(clients)
    print("| case | broker's account of Weir's client, % of a thread | Weir's estimate ÷ that |")
    print("| --- | ---: | ---: |")
    for case in attacks:
        cost, (estimate, _) = at_broker[id_of("weir", case)], at_weir[id_of("weir", case)]
        print(f"| {case} | {cost:.2f} | {estimate / cost:.2f} |")
    judge(
        [
            found(case, clients["weir", case], at_broker[id_of("broker", case)], at_weir[id_of("weir", case)])
            for case in attacks
        ]
    )


def test_client_ids_in_turn_are_charged_no_more_request_time_at_weir_than_their_user_may_use(
    fresh_cluster: StartCluster, start_weir: StartWeir
) -> None:
    """The broker tells its account by client-id only: what it charges the user is not known."""
    cluster, admin = fresh_cluster("3.9.1", optimized=True), Admin()
    quota = f'[[quota]]\nuser = "ANONYMOUS"\n{KEY} = {PERCENT}\n'
    at = addresses(cluster, start_weir(cluster.bootstrap, quota, options=admin.options))
    limit_user(at["broker"], PERCENT, KEY)
    warm(at["broker"], "weir-0")
    case, manner = "20 client-ids in turn, 100 connections", rude(100, depth=5)
    in_turn = {side: frames([f"{side}-{number}" for number in range(NAMES)]) for side in SIDES}
    clients = {(side, case): Client(case, at[side], in_turn[side], manner, throttle_ms) for side in SIDES}
    attempt(list(clients.values()), SECONDS)
    told(clients)
    judge([found(case, clients["weir", case], 0.0, charged(admin)[""])])


def id_of(side: str, case: str) -> str:
    """A client-id without characters that JMX would quote."""
    return f"{side}-{case}".replace(",", "").replace(" ", "-")


def frames(client_ids: Sequence[str]) -> Iterator[bytes]:
    return itertools.cycle([loops.metadata(client_id, TOPICS).frame for client_id in client_ids])


def throttle_ms(frame: bytes) -> int:
    return THROTTLE_MS(frame).throttle_ms


def warm(address: Address, client_id: str = "warm") -> None:
    """Have the broker compile the code that the attacks need."""
    attempt([Client("warm", address, frames([client_id]), rude(2, depth=1))], WARM_S)


def charged(admin: Admin) -> dict[str, tuple[float, float]]:
    """Weir's account: client-id, empty under a user's quota, to the rate of its request time in percent of a
    thread, and to its sum in percent-seconds.
    """
    page = admin.metrics()
    rates, sums = page.rows("weir_entity_rate_percent"), page.rows("weir_entity_request_seconds_total")
    return {dict(labels).get("client_id", ""): (rate, 100 * sums[labels]) for labels, rate in rates.items()}


def found(case: str, client: Client, at_broker: float, at_weir: tuple[float, float]) -> Found:
    """The charges of a case; the quota and one request of each connection in a second are allowed."""
    rate, total = at_weir
    allowed = PERCENT + client.behaviour.connections * total / len(client.got)
    return Found(case, "% of a thread", at_broker, rate, allowed)


def told(clients: Mapping[tuple[str, str], Client]) -> None:
    """Print how many requests were answered on both sides, and their throttle times."""
    print("| case | side | answers | with a throttle time | mean of these, ms | longest, ms |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for (side, case), client in clients.items():
        waits = [wait for _, wait in client.got if wait > 0]
        mean = sum(waits) / max(len(waits), 1)
        figures = f"{len(client.got)} | {len(waits)} | {mean:.0f} | {max(waits, default=0)}"
        print(f"| {case} | {side} | {figures} |")
