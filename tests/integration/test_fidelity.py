"""The same clients under a broker's own quotas and under Weir's, side by side: see
docs/background/fidelity.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pytest

from tests.clients import create_topic
from tests.integration.conftest import StartWeir
from tests.kafka.fixtures import StartCluster
from tests.raw import (
    NEW,
    Address,
    Behaviour,
    Pace,
    RawClient,
    drive,
    fetch,
    fill,
    leaders,
    produce,
    set_quotas,
)
from tests.raw.rates import Throttling, throttling, trend_rate

pytestmark = [pytest.mark.broker, pytest.mark.alone]

QUOTA = 1_000_000
"""bytes/s"""
EVENLY_UNTIL_S = 11.0
"""The default window has eleven samples of one second."""
FROM_S, UNTIL_S = 14.0, 74.0
"""What is compared: a minute."""

KEYS = {"produce": "producer_byte_rate", "fetch": "consumer_byte_rate"}
OBEDIENT = Behaviour()
RUDE = Behaviour(obeys=False, depth=5)


RECONNECTING = Behaviour(obeys=False, reconnects=True, pause_s=0.05)
PARALLEL = Behaviour(obeys=False, depth=2, connections=10)


class Case(NamedTuple):
    """One kind of client. Its requests are so large that few a second make up the quota, for slow machines.

    Those of ten connections add up, and a fetch that is over quota is delivered whole by Weir, not by the
    broker: so fetches are smaller.
    """

    name: str
    kind: str
    behaviour: Behaviour
    request_bytes: int = 200_000


CASES = (
    Case("produce-obedient", "produce", OBEDIENT),
    Case("produce-rude", "produce", RUDE),
    Case("fetch-obedient", "fetch", OBEDIENT, 100_000),
    Case("fetch-rude", "fetch", RUDE, 100_000),
    Case("fetch-reconnecting", "fetch", RECONNECTING),
    Case("fetch-parallel", "fetch", PARALLEL, 50_000),
)
KEPT_CONNECTION = CASES[:4]
"""Whose throttled responses can be compared; see docs/background/fidelity.md for the others."""
STARTS = ("evenly", "cold")
Key = tuple[str, str, str]
"""Who limits ("broker" or "weir"), start, case."""

RATE_BOUND = 0.05
THROTTLED_BOUND = 0.15
"""Of the time that a client was told to wait in all."""
EACH_BOUND = 0.5
"""Of the number of throttled responses, and of their mean. A client that the machine held up catches up
without being throttled and is then throttled for longer: fewer and longer times, or more and shorter ones,
that come to the same in all.
"""
NEAR_QUOTA = 0.2
"""Beyond that, clients were not limited at all, or could not ask for their quota on a machine this slow."""


class Seen(NamedTuple):
    rate: float
    """bytes/s: `trend_rate`."""
    told: Throttling
    answers: int


def test_weir_throttles_byte_rates_as_a_broker_does(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster = fresh_cluster("3.9.1", optimized=True)
    weir = start_weir(cluster.bootstrap, "".join(weir_quotas()))
    create_topic(cluster.bootstrap, f"{topic}-fetch")
    create_topic(cluster.bootstrap, f"{topic}-produce")
    fill(cluster.bootstrap, f"{topic}-fetch")
    broker = ("127.0.0.1", cluster.ports[0])
    set_quotas(broker, {name("broker", start, case): {KEYS[case.kind]: QUOTA} for start, case in runs()})
    at = {"broker": broker, "weir": leaders(("127.0.0.1", weir.port), f"{topic}-fetch")[0]}
    clients = {
        (limiter, start, case.name): make(limiter, at[limiter], topic, start, case)
        for limiter in at
        for start, case in runs()
    }
    drive(tuple(clients.values()), UNTIL_S)
    seen = {key: look(client) for key, client in clients.items()}
    print("\n".join(table(seen)))
    assert {key: one.rate for key, one in seen.items() if abs(one.rate / QUOTA - 1) > NEAR_QUOTA} == {}
    assert apart(seen, STARTS, CASES, lambda one: one.rate, RATE_BOUND) == {}
    assert apart(seen, STARTS, KEPT_CONNECTION, lambda one: one.told.total_s, THROTTLED_BOUND) == {}
    assert apart(seen, ("evenly",), KEPT_CONNECTION, lambda one: one.told.responses, EACH_BOUND) == {}
    assert apart(seen, ("evenly",), KEPT_CONNECTION, lambda one: one.told.mean_ms, EACH_BOUND) == {}


def apart(
    seen: Mapping[Key, Seen],
    starts: tuple[str, ...],
    cases: tuple[Case, ...],
    figure: Callable[[Seen], float],
    bound: float,
) -> dict[str, tuple[float, float]]:
    """Where a figure of the broker and of Weir are further apart than `bound`, as a share of the broker's."""
    figures = {
        f"{start} {case.name}": (
            figure(seen["broker", start, case.name]),
            figure(seen["weir", start, case.name]),
        )
        for start in starts
        for case in cases
    }
    return {
        what: (brokers, weirs)
        for what, (brokers, weirs) in figures.items()
        if not abs(weirs - brokers) < bound * brokers
    }


def runs() -> Iterator[tuple[str, Case]]:
    return ((start, case) for start in STARTS for case in CASES)


def name(limiter: str, start: str, case: Case) -> str:
    return f"{limiter}-{start}-{case.name}"


def weir_quotas() -> Iterator[str]:
    for start, case in runs():
        yield f'[[quota]]\nclient_id = "{name("weir", start, case)}"\n{KEYS[case.kind]} = {QUOTA}\n'


def make(limiter: str, address: Address, topic: str, start: str, case: Case) -> RawClient:
    client_id = name(limiter, start, case)
    build = produce if case.kind == "produce" else fetch
    pace = Pace(QUOTA, EVENLY_UNTIL_S, case.request_bytes) if start == "evenly" else None
    request = build(NEW, client_id, f"{topic}-{case.kind}", case.request_bytes)
    return RawClient(client_id, address, request, case.behaviour, pace)


def look(client: RawClient) -> Seen:
    answers = client.answers
    return Seen(
        trend_rate(answers, FROM_S, UNTIL_S),
        throttling(answers, FROM_S, UNTIL_S),
        sum(FROM_S <= answer.at_s < UNTIL_S for answer in answers),
    )


def table(seen: Mapping[Key, Seen]) -> Iterator[str]:
    yield "case; then broker | weir: MB/s, answers, throttled, mean ms, total s"
    for start, case in runs():
        sides = [seen[limiter, start, case.name] for limiter in ("broker", "weir")]
        yield f"{start:6} {case.name:18} " + " | ".join(
            f"{side.rate / 1e6:.3f} {side.answers:6} {side.told.responses:6}"
            f" {side.told.mean_ms:5.0f} {side.told.total_s:6.1f}"
            for side in sides
        )
