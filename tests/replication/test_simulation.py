"""The model of replication finds no seed that breaks a rule, and finds each planted fault."""

from __future__ import annotations

import gc
from collections.abc import Callable
from random import SystemRandom
from typing import Final

import pytest
from hypothesis import settings

from tests.interpreted import interpreted
from tests.properties import EXPLORING
from tests.replication.follower import FetchLimits
from tests.replication.script import (
    FollowerScript,
    Produce,
    Script,
    Throttle,
    Throttles,
    generate,
    rate,
    replicas,
)
from tests.replication.world import World, simulate
from weir.proxy.handlers.replication import fetched_replicas
from weir.proxy.handlers.replication.fetched_replicas import FetchedReplica
from weir.proxy.handlers.replication.replica_fetcher import ReplicaFetcher
from weir.proxy.handlers.replication.replica_session import ReplicaSession
from weir.quotas.replication.budgets import ReplicationBudget
from weir.quotas.replication.throttles import Role

PARTS: Final = 4
SEEDS: Final = 30
SEEDS_SLOW: Final = 1000
PARTITION: Final = ("t0", 0)


def first_seed(part: int, seeds: int) -> int:
    """Return the first seed of a part; a random one in `make test-all`."""
    return (
        SystemRandom().randrange(10**9) if settings.get_current_profile_name() == EXPLORING else part * seeds
    )


def broken(first: int, seeds: int) -> list[str]:
    """Return the seeds that break a rule, with the rule."""
    found = ((seed, simulate(seed)) for seed in range(first, first + seeds))
    return [f"python -m tests.replication --seed {seed}: {rule}" for seed, rule in found if rule]


@pytest.mark.parametrize("part", range(PARTS))
def test_replication_through_weir_breaks_no_rule_of_replication_or_throttles(part: int) -> None:
    assert not broken(first_seed(part, SEEDS), SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_replication_through_weir_breaks_no_rule_in_thousands_of_runs(part: int) -> None:
    assert not broken(first_seed(10 + part, SEEDS_SLOW), SEEDS_SLOW)


def filling(
    version: int, throttles: Throttles, size: int, *, followers: int = 1, slots: int = 1000, count: int = 600
) -> World:
    """Return the world after followers have copied a long log under these throttles."""
    scripts = tuple(FollowerScript(2 + n, version, FetchLimits(), (PARTITION,)) for n in range(followers))
    logs = (Produce(PARTITION, (size,) * count),)
    world = World(Script(1, scripts, logs, throttles=throttles, cache_slots=slots, buffer_bytes=16384))
    world.execute()
    return world


@pytest.mark.parametrize("version", [2, 3, 6, 7, 12, 17])
@pytest.mark.parametrize("bytes_per_s", [3_000, 30_000, 200_000])
@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("slots", [0, 1000], ids=["without sessions", "with sessions"])
def test_a_long_log_is_copied_at_90_to_101_percent_of_the_rate(
    version: int, bytes_per_s: int, role: Role, slots: int
) -> None:
    size = bytes_per_s // 15
    began_ms = 1_000_000
    world = filling(version, (rate(role, bytes_per_s), replicas(role, "t0")), size, slots=slots)
    expected_s = 600 * size / bytes_per_s
    taken_s = (world.now_ms - began_ms) / 1000
    assert 0.9 <= expected_s / taken_s <= 1.01 + 2 / expected_s
    # a second's bytes are free at the beginning


@pytest.mark.parametrize("version", [3, 12, 17])
def test_followers_share_the_rate_of_their_leader(version: int) -> None:
    throttles = rate(Role.LEADER, 30_000), replicas(Role.LEADER, "t0")
    world = filling(version, throttles, 1000, followers=3, count=300)
    expected_s = 3 * 300 * 1000 / 30_000
    taken_s = (world.now_ms - 1_000_000) / 1000
    assert 0.9 <= expected_s / taken_s <= 1.15


@pytest.mark.parametrize("version", [3, 12, 17])
def test_each_follower_has_a_rate_of_its_own(version: int) -> None:
    throttles = rate(Role.FOLLOWER, 30_000), replicas(Role.FOLLOWER, "t0")
    world = filling(version, throttles, 1000, followers=3, count=600)
    expected_s = 600 * 1000 / 30_000
    taken_s = (world.now_ms - 1_000_000) / 1000
    assert 0.9 <= expected_s / taken_s <= 1.15


@interpreted
def test_only_budgets_and_progress_are_kept_when_connections_have_ended() -> None:
    script = generate(3)
    world = World(script)
    world.execute()
    quotas = world.replication.quotas
    for link in world.links.values():
        link.wire.session.end(world.now_ms)
    del world, link
    gc.collect()
    kept = ReplicaFetcher | ReplicaSession | FetchedReplica
    assert not [thing for thing in gc.get_objects() if isinstance(thing, kept)]
    assert quotas.budgets


def _plant_uncharged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicationBudget, "charge", lambda *_args: None)


def _plant_impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicationBudget, "wait_ms", lambda *_args: 0)


def _plant_lost_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(replica: FetchedReplica, asked: object, now_ms: int) -> None:
        true_ask(replica, asked, now_ms)
        replica.is_mentioned = False

    true_ask: Callable[..., None] = FetchedReplica.ask
    monkeypatch.setattr(FetchedReplica, "ask", ask)


def _plant_wrong_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    def answered(session: ReplicaSession, *, by_leader: bool) -> None:
        del by_leader
        session.epoch += 1
        session.leader_epoch += 1

    monkeypatch.setattr(ReplicaSession, "answered", answered)


def _plant_held_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched_replicas.Progress, "is_in_sync", False)


def _plant_uncut(monkeypatch: pytest.MonkeyPatch) -> None:
    true_choose = fetched_replicas.choose
    monkeypatch.setattr(
        "weir.proxy.handlers.replication.replica_fetcher.choose",
        lambda *args, **options: true_choose(*args, **{**options, "cut": False}),
    )


def _plant_kept_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "weir.proxy.handlers.replication.replica_fetcher._completed", lambda told, *_args: told
    )


@interpreted
@pytest.mark.parametrize(
    ("plant", "saying"),
    [
        (_plant_uncharged, "bytes of throttled replicas"),
        (_plant_impatience, "empty fetches in a second"),
        (_plant_lost_offsets, "is fetched as"),
        (_plant_wrong_epochs, "wrong session epoch"),
        (_plant_held_in_sync, "was held"),
        (_plant_uncut, "bytes of throttled replicas"),
        (_plant_kept_partitions, "discarded"),
    ],
)
def test_the_model_of_replication_finds_a_planted_fault(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], saying: str
) -> None:
    plant(monkeypatch)
    assert any(saying in (simulate(seed) or "") for seed in range(200))
