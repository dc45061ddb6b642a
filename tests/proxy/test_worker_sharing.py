"""Sharing with other Weirs when a worker serves the clients: without processes, over a topic in memory."""

from __future__ import annotations

import pytest
import trio

from tests.proxy.shared_topic import TABLE, Clock, Topic, clock_on, ignore, sharing_of, throttle, until
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.sharing.sharing import UsageSharing
from weir.proxy.workers.charges import ChargeReader, LimiterCharge, take
from weir.proxy.workers.messages import Message, OthersUsed, SharingState
from weir.proxy.workers.sharing import SharingFollower, SharingSender
from weir.quotas.handover import UsedUnits

LIMIT = 1000
BLIND_MS = 3000


class Worker:
    def __init__(self, supervisor: UsageSharing, clock: Clock) -> None:
        self.registry = QuotaRegistry(TABLE)
        self.clock = clock
        self.sharing = SharingFollower(self.registry, clock.now_ms)
        self.units = 0.0
        """Units that it was told others have used."""
        self.sender = SharingSender(supervisor, self._told, clock)
        self._told(self.sender.state())

    def _told(self, message: Message) -> None:
        assert isinstance(message, OthersUsed | SharingState)
        if isinstance(message, OthersUsed):
            self.units += sum(units for _number, some in message.charges for _age_ms, units, *_rest in some)
        self.sharing.take(message, self.clock.now_ms)

    def look(self) -> bool:
        clock_on(self.clock)
        self.sharing.look(self.clock.now_ms)
        return True

    def report(self, supervisor: QuotaRegistry) -> None:
        found = [each for each in ChargeReader(self.registry).look(self.clock.now_ms) if each]
        self.sharing.note(found, self.clock.now_ms)
        take(supervisor, found, self.clock.now_ms, count=True)

    @property
    def limit(self) -> float:
        """The limit that it uses for the clients of the user `shared`."""
        (limiter,) = self.registry.cluster.produce
        return limiter.limit


@pytest.mark.parametrize("is_used_at_worker", [False, True])
def test_usage_at_one_weir_throttles_clients_of_another_weir(is_used_at_worker: bool) -> None:
    async def story() -> None:
        topic, clock = Topic(), Clock()
        (one, supervisor), (other, there) = (sharing_of(topic, clock, name) for name in ("one", "other"))
        worker = Worker(one, clock)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run, ignore)
            nursery.start_soon(other.run, ignore)
            await until(lambda: worker.look() and other.weirs == 2 and one.weirs == 2)
            used, throttled = (worker.registry, there) if is_used_at_worker else (there, worker.registry)
            assert throttle(throttled, "shared", 1, clock.now_ms) == 0
            throttle(used, "shared", 20_000, clock.now_ms)
            if is_used_at_worker:
                worker.report(supervisor)
            await until(lambda: worker.look() and max(worker.units, other.limiters.others_units) >= 9_000)
            assert throttle(throttled, "shared", 1_000, clock.now_ms) > 0
            nursery.cancel_scope.cancel()

    trio.run(story)


def test_usage_that_a_former_worker_has_told_is_no_usage_of_now() -> None:
    """It would be a debt of ten seconds' worth, and its clients would be expected at other Weirs, too."""
    topic, clock = Topic(), Clock()
    one, _supervisor = sharing_of(topic, clock)
    worker = Worker(one, clock)
    one.blindness.heard(2, clock.now_ms)
    throttle(worker.registry, "shared", 1, clock.now_ms)
    worker.look()
    (limiter,) = worker.registry.cluster.produce
    for age_ms, expected in ((5_000, 0), (0, 700)):
        used = UsedUnits((None, "cluster produce", False), limiter.tags, [(age_ms, 700.0)], 0)
        worker.sharing.note([LimiterCharge(used)], clock.now_ms)
        totals = [own for _name, _tags, own, _others in worker.sharing._limiters.usages("shared", "app")]
        assert sum(totals) == expected


def test_a_worker_uses_half_a_limit_until_its_weir_has_heard_the_others() -> None:
    topic, clock = Topic(), Clock()
    one, _registry = sharing_of(topic, clock)
    worker = Worker(one, clock)
    worker.look()
    throttle(worker.registry, "shared", 1, clock.now_ms)
    assert worker.limit == LIMIT / 2
    one.blindness.heard(2, clock.now_ms)
    one.look()
    worker.look()
    assert worker.limit == LIMIT


def test_a_worker_of_a_blind_weir_begins_with_the_weirs_share_of_the_usage_and_ends_with_an_equal_one() -> (
    None
):
    """Three Weirs; the clients of this one have used a quarter."""
    topic, clock = Topic(), Clock()
    one, supervisor = sharing_of(topic, clock)
    worker = Worker(one, clock)
    one.blindness.heard(3, clock.now_ms)
    one.look()
    worker.look()
    throttle(worker.registry, "shared", 100, clock.now_ms)
    worker.report(supervisor)
    one.look()
    (number,) = one.limiters._limiters
    worker._told(OthersUsed([(number, [(0, 300.0, 1, False)])]))
    clock.now_ms += BLIND_MS
    one.look()
    worker.look()
    assert abs(worker.limit - LIMIT / 4) < 1
    clock.now_ms += 60_000
    one.look()
    worker.look()
    assert abs(worker.limit - LIMIT / 3) < 1


def test_usage_of_others_from_before_a_clients_first_request_counts_with_its_age() -> None:
    """As in one process: it ages out ten seconds after it was used, not after the client has come."""
    topic, clock = Topic(), Clock()
    one, supervisor = sharing_of(topic, clock)
    worker = Worker(one, clock)
    one.blindness.heard(2, clock.now_ms)
    one.look()
    worker.look()
    throttle(supervisor, "shared", 1, clock.now_ms)
    one.look()
    (number,) = one.limiters._limiters
    worker._told(OthersUsed([(number, [(9_000, 8_000.0, 1, False)])]))
    clock.now_ms += 500
    assert throttle(worker.registry, "shared", 5_000, clock.now_ms) > 0
    clock.now_ms += 2_000
    assert throttle(worker.registry, "shared", 1, clock.now_ms) == 0
