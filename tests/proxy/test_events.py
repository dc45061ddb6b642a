"""Events: the hub and its readers, levels of usage, conditions, changed quotas, throttling, the topic."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from structlog.testing import capture_logs

from tests.quotas.changes import put_in_force
from weir.proxy.addresses import Address
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config import config
from weir.proxy.control.cluster.connection import LoginError, QuestionError
from weir.proxy.control.cluster.discovery import Discovery, DiscoveryError
from weir.proxy.control.events import levels
from weir.proxy.control.events.health import (
    QUIET_MS,
    Condition,
    Health,
    broker_down,
    problem,
    store_failing,
)
from weir.proxy.control.events.hub import (
    KEPT,
    READERS_MAX,
    WAITING_MAX,
    EventReader,
    Hub,
    TooManyReadersError,
)
from weir.proxy.control.events.levels import PER_MINUTE, UsageLevels
from weir.proxy.control.events.quota_changes import QuotaChanges
from weir.proxy.control.events.records import (
    KINDS,
    BrokerDown,
    BrokerUp,
    Event,
    QuotaChanged,
    StoreFailing,
    Throttling,
    ThrottlingEnded,
    UsageLevel,
    to_json,
)
from weir.proxy.control.events.throttle_log import ThrottleLog
from weir.proxy.control.events.topic import EventsTopic, events_topic
from weir.proxy.control.peers import local_peers
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.scan import Scan
from weir.proxy.control.stalls import Stalls
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.control.usage.outlet import OutletError, Record, key, value
from weir.proxy.control.usage.tally import Kind, Loss, Tally
from weir.proxy.control.usage.writer import Writer
from weir.proxy.net.tls.contexts import ContextOfFiles
from weir.proxy.net.tls.rules import TlsRules
from weir.proxy.server.problems import Problems
from weir.proxy.server.server import Server
from weir.quotas import DEFAULT, Budget, Entity, QuotaKey, QuotaTable
from weir.quotas.table.options import Options

NOW_MS = 1_763_775_570_000
ANY_APP, PRODUCE = Entity(client_id=DEFAULT), QuotaKey.PRODUCER_BYTE_RATE
LIMIT = 1000.0
DOWN = BrokerDown(node_id=1, reason=None)


def new_hub() -> Hub:
    return Hub(lambda: NOW_MS)


def registry_of(limit: float = LIMIT) -> QuotaRegistry:
    return QuotaRegistry(QuotaTable({(ANY_APP, PRODUCE): limit}))


def budget_of(registry: QuotaRegistry, client_id: str = "etl", node_id: int = 0) -> Budget:
    budget = registry.of(node_id).ledger("alice", client_id, 0).produce
    assert isinstance(budget, Budget)
    return budget


def end(steps: Iterator[object]) -> None:
    for _step in steps:
        pass


class Published(list[Event]):
    def take(self) -> list[Event]:
        found = list(self)
        self.clear()
        return found


# The hub


@pytest.mark.trio
async def test_events_have_increasing_ids_from_the_time_of_the_start_and_the_time_of_their_publication() -> (
    None
):
    hub = new_hub()
    first, second = hub.publish(DOWN), hub.publish(DOWN)
    assert (first.id, second.id, first.at_ms) == (NOW_MS, NOW_MS + 1, NOW_MS)
    assert hub.published == {"broker_down": 2}


@pytest.mark.trio
async def test_a_reader_gets_the_events_after_the_one_it_names_and_then_new_ones() -> None:
    hub = new_hub()
    for _ in range(3):
        hub.publish(DOWN)
    with hub.read(NOW_MS) as resumed, hub.read() as new:
        hub.publish(DOWN)
        assert [event.id async for event in received(resumed, 3)] == [NOW_MS + 1, NOW_MS + 2, NOW_MS + 3]
        assert [event.id async for event in received(new, 1)] == [NOW_MS + 3]
    assert hub.readers == 0


async def received(reader: EventReader, count: int) -> AsyncIterator[Event]:
    for _ in range(count):
        event = await reader.next(1)
        assert event is not None
        yield event


@pytest.mark.trio
async def test_the_hub_keeps_a_thousand_events_and_knows_which_readers_have_lost_some() -> None:
    hub = new_hub()
    assert not hub.lost(0)
    for _ in range(KEPT + 10):
        hub.publish(DOWN)
    oldest = NOW_MS + 10
    assert hub.lost(oldest - 2)
    assert not hub.lost(oldest - 1)
    with hub.read(0) as reader:
        ids = [event.id async for event in received(reader, KEPT)]
    assert ids == list(range(oldest, oldest + KEPT))


@pytest.mark.trio
async def test_a_reader_that_is_too_slow_is_closed_after_its_waiting_events_and_others_go_on() -> None:
    hub = new_hub()
    with hub.read() as slow, hub.read() as fast:
        for _ in range(WAITING_MAX + 1):
            hub.publish(DOWN)
            assert await fast.next(1) is not None
        assert (slow.too_slow, hub.readers, hub.closed_readers) == (True, 1, 1)
        assert len([event async for event in received(slow, WAITING_MAX)]) == WAITING_MAX
        with pytest.raises(trio.EndOfChannel):
            await slow.next(1)
        assert not fast.too_slow


@pytest.mark.trio
async def test_the_hub_has_at_most_32_readers() -> None:
    hub = new_hub()
    readers = [hub.read() for _ in range(READERS_MAX)]
    with pytest.raises(TooManyReadersError):
        hub.read()
    with readers[0]:
        pass
    hub.read()


def test_events_are_json_with_a_kind_also_with_halves_of_surrogate_pairs() -> None:
    event = BrokerDown(id=7, at_ms=8, node_id=1, reason="no \udcff")
    found = json.loads(to_json(event))
    assert found == {"kind": "broker_down", "id": 7, "at_ms": 8, "node_id": 1, "reason": "no \udcff"}
    assert len(KINDS) == len(set(KINDS)) == 10


# Throttling


def test_an_entity_that_starts_being_throttled_is_told_by_the_next_look_and_once_at_its_end() -> None:
    registry, published = registry_of(), Published()
    log = ThrottleLog(Scan(registry), local_peers(list, registry), published.append)
    trio.run(log.look, 0)
    assert budget_of(registry).charge(20_000, 100) > 0
    trio.run(log.look, 1000)
    (event,) = published.take()
    assert isinstance(event, Throttling)
    assert (event.user, event.client_id, event.quota) == (None, "etl", "producer_byte_rate")
    assert (event.limit, event.count, event.refused, event.connections) == (LIMIT, 1, 0, 0)
    assert event.throttled_ms == budget_of(registry).throttle_ms_total
    trio.run(log.look, 2000)
    assert published.take() == []
    trio.run(log.look, 60_000)
    (event,) = published.take()
    assert isinstance(event, ThrottlingEnded)
    assert (event.client_id, event.count, event.shadow) == ("etl", 1, False)


def test_each_throttling_event_has_a_line_in_the_log_with_the_same_numbers() -> None:
    registry, published = registry_of(), Published()
    log = ThrottleLog(Scan(registry), local_peers(list, registry), published.append)
    budget_of(registry).charge(20_000, 0)
    with capture_logs() as lines:
        trio.run(log.look, 1000)
        trio.run(log.look, 90_000)
    begins, ended = published
    assert isinstance(begins, Throttling)
    assert isinstance(ended, ThrottlingEnded)
    assert [line["event"] for line in lines] == ["throttling begins", "throttling ended"]
    assert lines[0]["seconds"] == begins.throttled_ms / 1000
    assert (lines[1]["count"], lines[1]["lasted_s"]) == (ended.count, ended.lasted_ms / 1000)


# Levels


def levels_of(registry: QuotaRegistry, published: Published) -> UsageLevels:
    return UsageLevels(Scan(registry), published.append)


def told(published: Published) -> list[tuple[str | None, int]]:
    return [(event.client_id, event.level) for event in published.take() if isinstance(event, UsageLevel)]


def test_levels_of_usage_are_told_once_each_while_the_rate_rises() -> None:
    registry, published = registry_of(), Published()
    watch, budget = levels_of(registry, published), budget_of(registry)
    found = []
    for percent in (40, 51, 60, 85, 86, 120, 130):  # of the limit, over a window of about ten seconds
        budget.charge(percent / 100 * 10 * LIMIT - budget.rate(0) * 10, 0)
        before = budget.rate(0)
        end(watch.look(0))
        found.append((round(100 * before / LIMIT), told(published)))
    assert [levels for _percent, levels in found] == [
        [],
        [("etl", 50)],
        [],
        [("etl", 80)],
        [],
        [("etl", 100)],
        [],
    ], found


def test_a_rate_that_sways_around_a_level_is_told_once_until_it_was_low_for_half_a_minute() -> None:
    registry, published = registry_of(), Published()
    watch = levels_of(registry, published)
    charge_to(registry, 55, 0)
    end(watch.look(0))
    assert told(published) == [("etl", 50)]
    end(watch.look(20_000))  # nothing was charged meanwhile: the rate is 0
    charge_to(registry, 55, 20_000)
    end(watch.look(20_000))
    assert told(published) == []
    end(watch.look(49_000))
    end(watch.look(51_000))
    charge_to(registry, 55, 51_000)
    end(watch.look(51_000))
    assert told(published) == [("etl", 50)]


def charge_to(registry: QuotaRegistry, percent: float, now_ms: int, client_id: str = "etl") -> None:
    """Have the client use this share of its limit over the measured window."""
    budget = budget_of(registry, client_id)
    while budget.rate(now_ms) < percent / 100 * LIMIT:
        budget.charge(10, now_ms)


def test_levels_beyond_the_number_per_minute_are_counted_and_the_highest_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(levels, "PER_MINUTE", 2)
    registry, published = registry_of(), Published()
    watch = levels_of(registry, published)
    for client_id, percent in (("a", 55), ("b", 120), ("c", 85), ("d", 55)):
        charge_to(registry, percent, 0, client_id)
    with capture_logs() as lines:
        end(watch.look(0))
        assert [event.others for event in published if isinstance(event, UsageLevel)] == [2, 0]
        assert told(published) == [("b", 100), ("c", 80)]
        charge_to(registry, 55, 1000, "e")
        end(watch.look(1000))
        assert told(published) == []
        charge_to(registry, 55, 60_000, "f")
        end(watch.look(60_000))
    (event,) = published
    assert isinstance(event, UsageLevel)
    assert (event.client_id, event.others) == ("f", 1)
    assert [line["event"] for line in lines] == [*["quota usage"] * 2, "quota usage of others", "quota usage"]
    assert lines[2]["events"] == 3
    assert PER_MINUTE > 2


@pytest.mark.parametrize("change", ["all in shadow", "entry removed", "limit raised"])
def test_no_level_is_told_of_an_entity_that_another_table_has_freed_since_its_rate_was_read(
    change: str,
) -> None:
    registry, published = registry_of(), Published()
    scan = Scan(registry)
    watch = UsageLevels(scan, published.append)
    charge_to(registry, 120, 0)
    end(scan.look_around(0, 0))  # for another reader
    registry.in_shadow = change == "all in shadow"
    tables = {
        "all in shadow": registry.table,
        "entry removed": QuotaTable(),
        "limit raised": QuotaTable({(ANY_APP, PRODUCE): 10 * LIMIT}),
    }
    put_in_force(registry, tables[change])
    with capture_logs() as lines:
        end(watch.look(0))
    assert (lines, published) == ([], [])


# Conditions


def test_a_condition_is_told_when_it_begins_and_when_it_was_absent_for_five_seconds() -> None:
    present: list[Condition] = []
    published = Published()
    health = Health(published.append)
    health.sources.append(lambda: present)
    health.look(0)
    present.append(broker_down(1, "refused"))
    health.look(1000)
    health.look(2000)
    assert published.take() == [BrokerDown(node_id=1, reason="refused")]
    present.clear()
    health.look(3000)
    present.append(broker_down(1, "refused"))
    health.look(4000)  # it answers every other connection
    present.clear()
    health.look(4000 + QUIET_MS - 1)
    assert published.take() == []
    health.look(4000 + QUIET_MS)
    assert published.take() == [BrokerUp(node_id=1, lasted_ms=3000)]


def test_present_conditions_are_listed_with_the_time_since_they_were_first_found() -> None:
    present = [problem("x", "X.", "Y."), store_failing("file", "gone", since_s=7.0)]
    health = Health(lambda _event: None)
    health.sources.append(lambda: present)
    health.look(1000)
    found = health.look(3500)
    assert [(each.what, each.remedy, each.since_s, lasted_ms) for each, lasted_ms in found] == [
        ("X.", "Y.", None, 2500),
        (present[1].what, present[1].remedy, 7.0, 2500),
    ]
    assert health.names() == ["x", "store file"]
    present.clear()
    assert health.look(3600) == [], "a condition that is over is listed no more, before its event"


def test_an_outage_is_a_condition_as_long_as_it_lasts() -> None:
    published, store = Published(), StoreHealth(lambda: 7.0)
    health = Health(published.append)
    health.watch(store.outage, lambda outage: store_failing("file", outage.reason, outage.changed_s))
    assert health.look(0) == []
    store.outage.record("no such file")
    ((condition, _lasted_ms),) = health.look(1000)
    assert (condition.since_s, published.take()) == (7.0, [StoreFailing(store="file", reason="no such file")])
    store.succeeded(0)
    assert health.look(2000) == []


def test_problems_of_a_server_are_told_from_its_state(nothing_served: Server) -> None:
    usage = Tally()
    now_s, wall_s = 0.0, 1e9
    problems = Problems(nothing_served, usage, lambda: wall_s, lambda: now_s)
    assert list(problems.read()) == []
    usage.failure = "disk full"
    usage.note_dropped(Loss.QUEUE_FULL, 3)
    assert [condition.key[1] for condition in problems.read()] == ["usage_not_written", "usage_dropped"]
    usage.failure = ""
    now_s, wall_s = 59.0, 2e9  # the clock was set
    assert [condition.key for condition in problems.read()] == [("problem", "usage_dropped")]
    now_s = 60.0
    assert list(problems.read()) == []


def test_clients_turned_away_before_the_first_look_are_a_problem(nothing_served: Server) -> None:
    problems = Problems(nothing_served, None, lambda: 0.0, lambda: 0.0)
    nothing_served.counters.closed_at[CloseReason.CONNECTION_LIMIT, 0] += 1
    assert [condition.key for condition in problems.read()] == [("problem", "connections_max")]


def test_a_login_of_weirs_own_that_all_brokers_refuse_is_a_problem_until_one_accepts_it(
    nothing_served: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[QuestionError] = [LoginError("a:1: wrong password")]

    async def discover(*_arguments: object) -> dict[int, Address]:
        if failures:
            raise DiscoveryError(failures)
        return {}

    monkeypatch.setattr("weir.proxy.control.cluster.discovery.discover", discover)
    server = nothing_served
    discovery = Discovery(server.config, server.address_book, server.broker_states)
    problems = Problems(server, None, lambda: 0.0, lambda: 0.0)
    trio.run(discovery.refresh)
    (found,) = problems.read()
    assert (found.key, found.what) == (
        ("problem", "login_refused"),
        "The brokers refuse Weir's own login: a:1: wrong password.",
    )
    failures.clear()
    trio.run(discovery.refresh)
    assert list(problems.read()) == []


def test_an_expired_certificate_is_logged_once(nothing_served: Server) -> None:
    files = ContextOfFiles("tls_cert", [], lambda _at: ssl.create_default_context())
    files.expires_s = 100.0
    nothing_served.config = replace(nothing_served.config, tls=TlsRules(None, files))
    now_s = 99.0
    health = Health(lambda _event: None)
    health.sources.append(Problems(nothing_served, None, lambda: now_s, lambda: now_s).read)
    with capture_logs() as lines:
        health.look(1000)
        now_s = 100.0
        health.look(2000)
        health.look(3000)
    assert [(line["log_level"], line["what"]) for line in lines] == [
        ("warning", "The certificate of tls_cert expires in 0.0 days."),
        ("warning", "The certificate of tls_cert has expired."),
    ]


@pytest.fixture
def nothing_served() -> Server:
    return Server(config.load(None, {"upstream": "a:1"}), registry_of(), clock_ms=int)


def test_a_process_that_stood_still_says_so_and_for_how_long() -> None:
    stalls = Stalls(100.0)
    with capture_logs() as lines:
        for now_s in (101.0, 102.2, 132.2, 133.2):
            stalls.look(now_s)
    assert [(line["event"], line["seconds"]) for line in lines] == [("process stood still", 30.0)]


# Quotas


def test_a_changed_quota_table_is_told_once_with_the_changed_values() -> None:
    registry, published = registry_of(), Published()
    changes = QuotaChanges(registry, published.append)
    end(changes.look())
    assert published == []
    bob = Entity(user="bob")
    ends = {(bob, PRODUCE): Options(until=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))}
    registry.use(QuotaTable({(bob, PRODUCE): 5.0}, {(ANY_APP, PRODUCE): 7.0}, ends))
    end(changes.look())
    end(changes.look())
    (event,) = published
    assert isinstance(event, QuotaChanged)
    assert event.changed == 3
    assert {(one.entity, one.before, one.after, one.shadow, one.until_ms) for one in event.changes} == {
        (str(bob), None, 5.0, False, 1000),
        (str(ANY_APP), LIMIT, None, False, None),
        (str(ANY_APP), None, 7.0, True, None),
    }


# The topic


class Cluster:
    name = "weir-events"

    def __init__(self) -> None:
        self.got: list[Record] = []
        self.error: OutletError | None = None

    def open(self) -> None:
        if self.error is not None:
            raise self.error

    def write(self, kind: Kind, records: Sequence[Record]) -> int:
        assert kind is Kind.EVENT
        self.got += records
        return len(records)

    def tend(self) -> None:
        pass

    def close(self, timeout_s: float) -> None:
        pass


@pytest.mark.trio
async def test_published_events_are_written_to_the_topic_and_the_last_ones_at_the_end() -> None:
    hub, cluster = new_hub(), Cluster()
    topic = EventsTopic(Writer(cluster, Tally(), 10, lambda: 0.0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(topic.run, hub)
        await trio.testing.wait_all_tasks_blocked()
        event = hub.publish(DOWN)
        nursery.cancel_scope.cancel()
    assert cluster.got == [event]
    hub.publish(DOWN)
    assert cluster.got == [event]


def test_events_that_find_the_queue_full_are_dropped_counted_and_logged_once() -> None:
    tally = Tally()
    topic = EventsTopic(Writer(Cluster(), tally, 2, lambda: 0.0), lambda: 0.0)
    for _ in range(5):
        topic.put(DOWN)
    with capture_logs() as lines:
        topic.report()
        topic.report()
    assert tally.dropped[Loss.QUEUE_FULL] == 3
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("events cannot be written to their topic, trying again", "warning"),
        ("events are written to their topic again", "info"),
    ]


def test_events_of_one_entity_have_one_key_in_the_topic() -> None:
    registry, published = registry_of(), Published()
    log = ThrottleLog(Scan(registry), local_peers(list, registry), published.append)
    budget_of(registry).charge(20_000, 0)
    trio.run(log.look, 0)
    trio.run(log.look, 90_000)
    assert {key(event) for event in published} == {b"/etl////"}
    assert json.loads(value(published[0]))["kind"] == "throttling"


def test_the_events_topic_is_one_of_weirs_own() -> None:
    settings = {"upstream": "a:1", "events_topic": "weir-events"}
    loaded = config.load(None, settings)
    assert loaded.own_topics == {"weir-events"}
    found = events_topic(loaded)
    assert found is not None
    assert events_topic(config.load(None, {"upstream": "a:1"})) is None
