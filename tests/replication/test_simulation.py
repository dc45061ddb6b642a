"""The model of replication finds no seed that breaks a rule, and finds each planted fault."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

import pytest

from tests.interpreted import interpreted
from tests.matrix import first_core, in_one_test
from tests.properties import first_seed
from tests.replication.follower import FetchLimits
from tests.replication.script import LEADER, FollowerScript, Produce, Script, Throttles, rate, replicas
from tests.replication.world import BEGIN_MS, World, simulate
from weir.proxy.handlers.replication.fetched_replicas import FetchedReplica
from weir.proxy.handlers.replication.replica_fetcher import ReplicaFetcher
from weir.proxy.handlers.replication.replica_session import ReplicaSession
from weir.quotas.replication.budgets import ReplicationBudget
from weir.quotas.replication.replication_quotas import ReplicaProgress
from weir.quotas.replication.throttles import Role

PARTS: Final = 4
SEEDS: Final = 5
SEEDS_SLOW: Final = 60
PARTITION: Final = ("t0", 0)


def broken(first: int, seeds: int) -> list[str]:
    found = ((seed, simulate(seed)) for seed in range(first, first + seeds))
    return [f"python -m tests.replication --seed {seed}: {rule}" for seed, rule in found if rule]


@pytest.mark.parametrize("part", range(PARTS))
def test_replication_through_weir_breaks_no_rule_of_replication_or_throttles(
    part: int, drawn_seed: int | None
) -> None:
    assert not broken(first_seed(drawn_seed, part, SEEDS), SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_replication_through_weir_breaks_no_rule_in_more_runs(part: int, drawn_seed: int | None) -> None:
    assert not broken(first_seed(drawn_seed, 10 + part, SEEDS_SLOW), SEEDS_SLOW)


def filling(
    version: int, throttles: Throttles, size: int, *, followers: int = 1, slots: int = 1000, count: int = 600
) -> World:
    """Return the world after followers have copied a long log under these throttles."""
    scripts = tuple(FollowerScript(2 + n, version, FetchLimits(), (PARTITION,)) for n in range(followers))
    logs = (Produce(PARTITION, (size,) * count),)
    world = World(Script(1, scripts, logs, throttles=throttles, cache_slots=slots, buffer_bytes=16384))
    world.execute()
    return world


def filled(world: World) -> float:
    """Return the bytes/s that all followers together have appended."""
    logs = [followed.log for link in world.links.values() for followed in link.follower.followed.values()]
    return 1000 * sum(log.readable_bytes(0) for log in logs) / (world.now_ms - BEGIN_MS)


@in_one_test
@pytest.mark.parametrize("version", [3, 17])
@pytest.mark.parametrize(("bytes_per_s", "batches_per_s"), [(3_000, 3), (200_000, 15)])
@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("slots", [0, 1000], ids=["without sessions", "with sessions"])
def test_a_long_log_is_copied_at_90_to_101_percent_of_the_rate(
    version: int, bytes_per_s: int, batches_per_s: int, role: Role, slots: int
) -> None:
    size, count = bytes_per_s // batches_per_s, 40 * batches_per_s
    throttles = rate(role, bytes_per_s), replicas(role, "t0")
    assert 0.9 <= filled(filling(version, throttles, size, slots=slots, count=count)) / bytes_per_s <= 1.01


@pytest.mark.parametrize("role", list(Role))
def test_versions_without_whole_batches_are_limited_in_the_mean_of_whole_responses(role: Role) -> None:
    throttles = rate(role, 200_000), replicas(role, "t0")
    world = filling(2, throttles, 10_000, count=1500)
    assert 0.9 <= filled(world) / 200_000 <= 1.15


@pytest.mark.parametrize("version", [3, 12, 17])
def test_followers_share_the_rate_of_their_leader(version: int) -> None:
    throttles = rate(Role.LEADER, 30_000), replicas(Role.LEADER, "t0")
    assert 0.9 <= filled(filling(version, throttles, 1000, followers=3, count=300)) / 30_000 <= 1.15


@pytest.mark.parametrize("version", [3, 12, 17])
def test_each_follower_has_a_rate_of_its_own(version: int) -> None:
    throttles = rate(Role.FOLLOWER, 30_000), replicas(Role.FOLLOWER, "t0")
    world = filling(version, throttles, 1000, followers=3, count=900)
    assert 0.9 <= filled(world) / 3 / 30_000 <= 1.05


@interpreted
def test_only_budgets_and_progress_are_kept_when_connections_have_ended() -> None:
    world = filling(17, (rate(Role.LEADER, 30_000), replicas(Role.LEADER, "t0")), 1000, count=50)
    quotas = world.replication.quotas
    for link in world.links.values():
        link.wire.connection.end(world.now_ms)
    del world, link
    gc.collect()
    kept = ReplicaFetcher | ReplicaSession | FetchedReplica
    assert not [thing for thing in gc.get_objects() if isinstance(thing, kept)]
    assert quotas.budgets.keys() == {(Role.LEADER, LEADER), (Role.FOLLOWER, 2)}
    assert quotas.progress.keys() == {("t0", 0, 2)}


def _plant_uncharged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicationBudget, "charge", lambda *_args: None)


def _plant_lost_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(replica: FetchedReplica, asked: object, now_ms: int) -> None:
        true_ask(replica, asked, now_ms)
        replica.is_mentioned = False

    true_ask: Callable[..., None] = FetchedReplica.ask
    monkeypatch.setattr(FetchedReplica, "ask", ask)


def _plant_held_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicaProgress, "is_in_sync", False)


def _plant_kept_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "weir.proxy.handlers.replication.replica_fetcher._completed", lambda told, *_args: told
    )


@interpreted
@pytest.mark.parametrize(
    ("plant", "saying"),
    first_core(
        [
            (_plant_uncharged, "bytes of throttled replicas"),
            (_plant_lost_offsets, "is fetched as"),
            (_plant_held_in_sync, "was held"),
            (_plant_kept_partitions, "discarded"),
        ],
        4,
    ),
)
def test_the_model_of_replication_finds_a_planted_fault(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], saying: str
) -> None:
    plant(monkeypatch)
    assert any(saying in (simulate(seed) or "") for seed in range(200))
