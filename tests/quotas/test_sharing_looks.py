"""Looks at limiters see each charge, and look at no limiter that clients do not use."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

import pytest

from tests.interpreted import interpreted
from tests.matrix import first_core
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.workers.charges import ChargeReader
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable
from weir.quotas.limiters.counters import CountingLimiter
from weir.quotas.sharing.blindness import Blindness
from weir.quotas.sharing.own import OwnUsage
from weir.quotas.sharing.shared import SharedLimiters
from weir.quotas.table.options import Options, Pacing, Scope
from weir.quotas.table.quota_table import Quota
from weir.quotas.used import LOOK_MAX

IDLE: Final = 2 * LOOK_MAX
MUTATIONS: Final = QuotaKey.CONTROLLER_MUTATION_RATE
RATES: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
PACED: Final = RATES[:2]
EACH: Final = Entity(client_id=DEFAULT)


def table(
    scope: Scope, pacing: Pacing = Pacing.KAFKA, keys: tuple[QuotaKey, ...] = (*RATES, MUTATIONS)
) -> QuotaTable:
    paced = Options(scope=scope, pacing=pacing)
    options: dict[Quota, Options] = {
        (EACH, key): paced if key in PACED else Options(scope=scope) for key in keys if key in RATES
    }
    return QuotaTable({(EACH, key): 1e12 for key in keys}, options=options)


def charge(registry: QuotaRegistry, client_id: str, key: QuotaKey, units: int, now_ms: int) -> None:
    broker = registry.of(1)
    ledger = broker.ledger("", client_id, now_ms)
    if key == QuotaKey.PRODUCER_BYTE_RATE:
        ledger.charge_produce(units, now_ms)
    elif key == QuotaKey.CONSUMER_BYTE_RATE:
        ledger.charge_fetch(units, now_ms)
    elif key == QuotaKey.REQUEST_PERCENTAGE:
        ledger.charge_request(3, units * 10_000, now_ms)
    else:
        mutations = broker.mutation_ledger("", client_id, now_ms)
        assert mutations is not None
        late = mutations.begin_late()
        late.charge(units, now_ms)
        late.finish(now_ms)


class Shared:
    def __init__(self, registry: QuotaRegistry) -> None:
        self.registry = registry
        self.own = OwnUsage("w", 1)
        blindness = Blindness(0)
        blindness.heard(1, 0)
        self.limiters = SharedLimiters(self.own, blindness, registry.memory_ms, registry.sample_ms)

    def look(self, now_ms: int) -> float:
        for name, quotas, window_s in self.registry.shared():
            self.limiters.join(name, quotas, window_s)
        before = self.own.units
        self.limiters.look(now_ms)
        return self.own.units - before


class OfWorker:
    def __init__(self, registry: QuotaRegistry) -> None:
        self.charged = ChargeReader(registry)

    def look(self, now_ms: int) -> float:
        found = [each for each in self.charged.look(now_ms) if each]
        return sum(units for each in found for _age_ms, units in each.used.charges)


@pytest.mark.parametrize("kind", [Shared, OfWorker])
@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("pacing", Pacing)
@pytest.mark.parametrize("window_s", first_core([1, 7]))
def test_the_next_look_finds_each_charge_however_long_its_client_was_silent(
    kind: type[Shared | OfWorker], scope: Scope, pacing: Pacing, window_s: int
) -> None:
    chance = Random(window_s)
    registry = QuotaRegistry(table(scope, pacing), window_s=window_s)
    looks, now_ms, next_ms, charged = kind(registry), 0, 0, 0.0
    for _ in range(150):
        now_ms += chance.choice([0, 1, 30, 400, 800, 1010, 2500, 3500, 6500, 12_000])
        while next_ms <= now_ms:
            assert looks.look(next_ms) == pytest.approx(charged, rel=1e-9)
            charged = 0.0
            next_ms += 250
        key, units = chance.choice([*RATES, MUTATIONS]), chance.randrange(1, 1000)
        charge(registry, chance.choice("ab"), key, units, now_ms)
        charged += units * (10_000 if kind is Shared and key == QuotaKey.REQUEST_PERCENTAGE else 1)


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("pacing", Pacing)
def test_the_next_look_finds_each_charge_of_a_topic_also_after_the_table_was_changed(
    scope: Scope, pacing: Pacing
) -> None:
    def topics(pacing: Pacing, limit: float) -> QuotaTable:
        quota = (Entity(topic="t"), QuotaKey.PRODUCER_BYTE_RATE)
        return QuotaTable({quota: limit}, options={quota: Options(pacing, scope)})

    registry = QuotaRegistry(topics(pacing, 1e12))
    looks, now_ms, charged = OfWorker(registry), 0, 0
    for wait_ms in (0, 400, 3500, 800, 0, 6000, 900, 12_000):
        for later_ms in range(0, wait_ms + 1, 100):
            assert looks.look(now_ms + later_ms) == charged
            charged = 0
        now_ms += wait_ms
        if wait_ms == 800:
            registry.use(topics(Pacing.SMOOTH, 1e12))
        rates = registry.of(1).topics
        assert rates is not None
        rates.produce.charge({b"t": 7}, now_ms)
        charged += 7


@interpreted
@pytest.mark.parametrize("kind", [Shared, OfWorker])
@pytest.mark.parametrize("scope", Scope)
def test_a_look_does_not_visit_limiters_that_are_not_used(
    kind: type[Shared | OfWorker], scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = QuotaRegistry(table(scope, keys=(QuotaKey.PRODUCER_BYTE_RATE,)))
    looks = kind(registry)
    looks.look(0)
    for number in range(IDLE):
        charge(registry, f"c{number}", QuotaKey.PRODUCER_BYTE_RATE, 7, 0)
    now_ms = 0
    for now_ms in range(0, 9_000, 250):
        looks.look(now_ms)
    visited: Counter[str] = Counter()
    delta = CountingLimiter.delta

    def noted(limiter: CountingLimiter) -> float:
        visited[limiter.tags.client_id or ""] += 1
        return delta(limiter)

    monkeypatch.setattr(CountingLimiter, "delta", noted)
    assert looks.look(now_ms + 20) == 0
    assert not visited
    charge(registry, "c5", QuotaKey.PRODUCER_BYTE_RATE, 9, now_ms + 30)
    assert looks.look(now_ms + 40) == 9
    assert visited == {"c5": 1}


@interpreted
@pytest.mark.parametrize("kind", [Shared, OfWorker])
def test_a_look_visits_a_bounded_number_of_used_limiters_also_with_windows_of_an_hour(
    kind: type[Shared | OfWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = QuotaRegistry(table(Scope.CLUSTER, keys=(QuotaKey.PRODUCER_BYTE_RATE,)), window_s=3600)
    looks = kind(registry)
    looks.look(0)
    for number in range(IDLE):
        charge(registry, f"c{number}", QuotaKey.PRODUCER_BYTE_RATE, 7, 0)
    assert sum(looks.look(now_ms) for now_ms in range(20, 500, 20)) == 7 * IDLE
    for number in range(IDLE):
        charge(registry, f"c{number}", QuotaKey.PRODUCER_BYTE_RATE, 9, 1_000_000)
    visits, delta = 0, CountingLimiter.delta

    def counted(limiter: CountingLimiter) -> float:
        nonlocal visits
        visits += 1
        return delta(limiter)

    monkeypatch.setattr(CountingLimiter, "delta", counted)
    found = 0.0
    for now_ms in range(1_000_020, 1_000_020 + 20 * IDLE // LOOK_MAX, 20):
        visits = 0
        found += looks.look(now_ms)
        assert visits <= LOOK_MAX
    assert found == 9 * IDLE
