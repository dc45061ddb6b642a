"""Rates of topics at several workers: as at one process, also when a worker or a whole Weir starts again."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.proxy.state_files import keep_once
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.state_directory import StateDirectory
from weir.proxy.control.used_units_file import UsedUnitsFile
from weir.proxy.workers.charges import ChargeReader, LimiterCharge, take
from weir.quotas import Entity, QuotaKey, QuotaTable
from weir.quotas.sharing.shared import LOOK_MS
from weir.quotas.table.options import Options, Pacing, Scope
from weir.quotas.topics import TopicRates

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
LIMIT: Final = 100_000.0
EACH: Final = Entity(topic="each")
WHOLE: Final = Entity(topic="whole")
NOW_MS: Final = 1_000_000


def table_of(pacing: Pacing | None = None, *, shadow: bool = False) -> QuotaTable:
    """Rates of a topic at each broker, and of a topic at all brokers together."""
    values = {(entity, key): LIMIT for entity in (EACH, WHOLE) for key in (PRODUCE, FETCH)}
    options = {
        (entity, key): Options(scope=Scope.CLUSTER if entity is WHOLE else Scope.BROKER, pacing=pacing)
        for entity, key in values
    }
    if shadow:
        return QuotaTable(None, values, shadow_options=options)
    return QuotaTable(values, options=options)


def rates(registry: QuotaRegistry, node_id: int = 1, key: QuotaKey = PRODUCE) -> TopicRates:
    topics = registry.of(node_id).topics
    assert topics is not None
    return topics.produce if key is PRODUCE else topics.fetch


def charge(
    registry: QuotaRegistry,
    topic: bytes,
    units: int,
    node_id: int = 1,
    key: QuotaKey = PRODUCE,
    now_ms: int = NOW_MS,
) -> int:
    return rates(registry, node_id, key).charge({topic: units}, now_ms)


def charged(registry: QuotaRegistry) -> list[LimiterCharge]:
    return [found for found in ChargeReader(registry).look(NOW_MS) if found is not None]


@pytest.mark.parametrize("key", [PRODUCE, FETCH])
def test_a_topic_with_cluster_scope_is_charged_at_all_workers(key: QuotaKey) -> None:
    one, other = QuotaRegistry(table_of()), QuotaRegistry(table_of())
    assert charge(one, b"whole", 5_000_000, key=key) > 0
    told = charged(one)
    assert [sum(units for _age, units in each.used.charges) for each in told] == [5_000_000]
    take(other, told, NOW_MS, count=False)
    assert rates(other, 2, key).throttled_until_ms(["whole"]) > NOW_MS
    assert charge(other, b"whole", 1, 2, key) > 0
    assert charge(other, b"each", 1, 2, key) == 0


@pytest.mark.parametrize("pacing", [Pacing.KAFKA, Pacing.SMOOTH])
def test_a_topic_with_cluster_scope_keeps_its_rate_over_two_workers(pacing: Pacing) -> None:
    """Simulated: a client at each worker sends as soon as it may; workers hear each other every 20 ms."""
    workers = [QuotaRegistry(table_of(pacing)) for _ in range(2)]
    readers = [ChargeReader(worker) for worker in workers]
    free_ms, sent = [NOW_MS, NOW_MS], 0
    window_ms, over_ms = 20_000, 60_000
    for now_ms in range(NOW_MS, NOW_MS + window_ms + over_ms):
        for number, worker in enumerate(workers):
            if now_ms >= free_ms[number]:
                wait_ms = charge(worker, b"whole", 5_000, number, now_ms=now_ms)
                free_ms[number] = now_ms + max(wait_ms, 5)
                sent += 5_000 * (now_ms >= NOW_MS + window_ms)
        if now_ms % LOOK_MS == 0:
            for number, reader in enumerate(readers):
                told = [each for each in reader.look(now_ms) if each is not None]
                take(workers[1 - number], told, now_ms, count=False)
    assert sent / (over_ms / 1000) == pytest.approx(LIMIT, rel=0.05)


def test_the_supervisor_knows_what_topics_have_used_at_workers() -> None:
    worker, supervisor = QuotaRegistry(table_of()), QuotaRegistry(table_of())
    wait_ms = {topic: charge(worker, topic, 5_000_000) for topic in (b"each", b"whole")}
    take(supervisor, charged(worker), NOW_MS, count=True)
    (each,) = rates(supervisor).budgets()
    (whole,) = supervisor.cluster.topics.produce.budgets()
    for budget, topic in ((each, b"each"), (whole, b"whole")):
        assert (budget.charged, budget.throttled) == (5_000_000, 1)
        assert budget.throttle_ms_total == wait_ms[topic]


def test_a_shadow_rate_counts_at_the_supervisor_and_throttles_nobody() -> None:
    worker, supervisor = (QuotaRegistry(table_of(shadow=True)) for _ in range(2))
    assert charge(worker, b"each", 5_000_000) == 0
    take(supervisor, charged(worker), NOW_MS, count=True)
    (budget,) = rates(supervisor).budgets(shadow=True)
    assert (budget.charged, budget.throttled) == (5_000_000, 1)


@pytest.mark.parametrize("pacing", [Pacing.KAFKA, Pacing.SMOOTH])
@pytest.mark.parametrize("topic", [b"each", b"whole"])
def test_a_process_that_takes_over_continues_with_the_usage_of_topics(topic: bytes, pacing: Pacing) -> None:
    former, new = QuotaRegistry(table_of(pacing)), QuotaRegistry(table_of(pacing))
    wait_ms = charge(former, topic, 3_000_000)
    new.absorb([used for used in former.used(NOW_MS) if used is not None], NOW_MS)
    assert rates(new).throttled_until_ms([topic.decode()]) == NOW_MS + wait_ms
    assert charge(new, topic, 1_000) == charge(former, topic, 1_000)


def test_usage_of_a_topic_without_a_rate_any_more_is_ignored() -> None:
    former, new = QuotaRegistry(table_of()), QuotaRegistry(QuotaTable({(EACH, FETCH): LIMIT}))
    charge(former, b"each", 5_000_000)
    charge(former, b"whole", 5_000_000)
    new.absorb([used for used in former.used(NOW_MS) if used is not None], NOW_MS)
    assert [budget.charged_ms for budget in rates(new, key=FETCH).budgets()] == [0]


@pytest.mark.trio
async def test_the_state_directory_keeps_the_usage_of_topics(tmp_path: Path) -> None:
    former, new = QuotaRegistry(table_of()), QuotaRegistry(table_of())
    charge(former, b"each", 5_000_000)
    charge(former, b"whole", 5_000_000)
    file = UsedUnitsFile(StateDirectory(tmp_path), former, lambda: NOW_MS, lambda: 1e9)
    await keep_once(tmp_path, file)
    new.absorb(file.read(), NOW_MS)
    assert charge(new, b"each", 1) > 0
    assert charge(new, b"whole", 1, 2) > 0
