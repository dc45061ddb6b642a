"""The same mutations under a broker's own quota and under Weir's, side by side: see
docs/reference/mutations.md.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pytest

from tests.integration.conftest import StartWeir
from tests.kafka.fixtures import StartCluster
from tests.mutations.client import await_mutation_quota, set_mutation_quota
from tests.mutations.compare import differences, gaps, undisturbed
from tests.mutations.play import Lane, play
from tests.mutations.sequences import DEFAULT_PARTITIONS, RATE, SAMPLES, SECONDS, SEEDS, WINDOW_S, sequence
from tests.raw import Address

pytestmark = [pytest.mark.broker, pytest.mark.measured]

APART_S = 0.23
"""Between the beginnings of lanes: few requests are under way at a time, and at all times of a second."""
ROUNDS = 3
ENOUGH = 0.6
"""Of all steps must have been played at their time, or nothing can be said."""

SETTINGS = {
    "controller.quota.window.num": str(SAMPLES),
    "controller.quota.window.size.seconds": str(WINDOW_S),
    "num.partitions": str(DEFAULT_PARTITIONS),
}
OPTIONS = (
    *("--controller-quota-window-num", str(SAMPLES)),
    *("--controller-quota-window-size-seconds", str(WINDOW_S)),
)
QUOTAS = f'[[quota]]\nclient_id = "<default>"\ncontroller_mutation_rate = {RATE}\n'


class Pair(NamedTuple):
    own: Lane
    """Under the broker's quota."""
    weir: Lane
    steps: int
    """How many of its steps say something."""


def test_weir_admits_and_throttles_mutations_as_brokers_do(
    fresh_cluster: StartCluster, start_weir: StartWeir
) -> None:
    cluster = fresh_cluster("3.9.1", settings=SETTINGS, optimized=True)
    weir = start_weir(cluster.bootstrap, QUOTAS, options=OPTIONS)
    broker = ("127.0.0.1", cluster.ports[0])
    pairs = play_undisturbed(broker, ("127.0.0.1", weir.port))
    throttled = [gap for pair in pairs for gap in gaps(*pair)]
    compared, steps = sum(pair.steps for pair in pairs), sum(len(pair.own.steps) for pair in pairs)
    print(f"{compared} of {steps} steps compared, {len(throttled)} of them throttled")
    print(f"throttle times, Weir's less the broker's, ms: {spread([gap.told for gap in throttled])}")
    print(f"balance back at zero, the same: {spread([gap.zero for gap in throttled])}")
    wrong = [difference for pair in pairs for difference in differences(*pair)]
    assert not wrong, "\n".join(wrong)
    assert compared > ENOUGH * steps, "the machine was too slow to say anything"


def play_undisturbed(broker: Address, weir: Address) -> list[Pair]:
    """Every sequence; those that the machine disturbed are played again, and the longer part counts."""
    best: dict[int, Pair] = {}
    for attempt in range(ROUNDS):
        left = [seed for seed in SEEDS if seed not in best or best[seed].steps < len(best[seed].own.steps)]
        for seed, pair in play_once(broker, weir, left, attempt).items():
            if seed not in best or pair.steps > best[seed].steps:
                best[seed] = pair
    return list(best.values())


def play_once(broker: Address, weir: Address, seeds: Iterable[int], attempt: int) -> dict[int, Pair]:
    """Sequences side by side, with clients and topics that were never there before."""
    begins = itertools.count(step=APART_S)
    lanes = {
        seed: (
            lane("broker", broker, seed, attempt, next(begins)),
            lane("weir", weir, seed, attempt, next(begins)),
        )
        for seed in seeds
    }
    give_quotas(broker, [own.client_id for own, _ in lanes.values()])
    play([one for both in lanes.values() for one in both])
    return {seed: Pair(*both, undisturbed(both)) for seed, both in lanes.items()}


def lane(side: str, address: Address, seed: int, attempt: int, begins_s: float) -> Lane:
    name = f"{seed}-{attempt}"
    return Lane(side, name, address, sequence(seed, name, SECONDS), begins_s)


def give_quotas(broker: Address, client_ids: Iterable[str]) -> None:
    """Return once the broker enforces them: the last one given, which no other client has, is tried."""
    for client_id in client_ids:
        set_mutation_quota(broker, client_id, RATE)
    probe = f"probe-{time.monotonic_ns()}"
    set_mutation_quota(broker, probe, RATE)
    await_mutation_quota(broker, probe)


def spread(gaps: Sequence[float]) -> str:
    return f"median {statistics.median(gaps):.0f}, from {min(gaps):.0f} to {max(gaps):.0f}"
