"""The topic store against a log in memory: loading, following, altering, failing, recovering."""

from __future__ import annotations

import contextlib
import threading
import tomllib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from tests.proxy.following import Followed, until
from tests.proxy.throttles import BROKER_1, ORDERS, THROTTLES
from tests.scripted import scripted
from weir.proxy.config.config import ConfigError, load
from weir.proxy.control.stores import topic
from weir.proxy.control.stores.record import ConsumerRecord, ConsumerRecords, ProducerRecord, RecordError
from weir.proxy.control.stores.records import StoredQuotas, alteration
from weir.proxy.control.stores.store import StoreError
from weir.proxy.control.stores.topic import ClusterFacts, TopicStore, topic_store
from weir.proxy.handlers.quota_api.quota_admin import Changes
from weir.quotas import BrokerQuotas, Entity, QuotaTable, parse
from weir.quotas.table.group_entry import GroupEntry, group_entries, read_group
from weir.quotas.table.groups import QuotaGroups
from weir.quotas.table.quota_table import QuotaKey

PRODUCE, CONSUME = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, BOB = Entity(user="alice"), Entity(user="bob")


@dataclass
class FakeLog:
    records: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    broken: bool = False
    """Readers and writers fail."""
    endless: bool = False
    """Readers never meet the end."""
    swallows: bool = False
    """Writers never hear that a record is durable."""
    prepared: list[int] = field(default_factory=list)
    idempotent: list[bool] = field(default_factory=list)
    open: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def prepare(self, replication_factor: int) -> None:
        self.check()
        self.prepared.append(replication_factor)

    def reader(self) -> FakeReader:
        self.check()
        self.open += 1
        return FakeReader(self)

    def writer(self, *, idempotent: bool) -> FakeWriter:
        self.idempotent.append(idempotent)
        self.open += 1
        return FakeWriter(self)

    def check(self) -> None:
        if self.broken:
            raise StoreError("broken")

    def append(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        with self.changed:
            self.records += records
            self.changed.notify_all()

    def wake(self) -> None:
        with self.changed:
            self.changed.notify_all()


class FakeReader:
    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.next = 0
        self.told_end = False

    def read(self, timeout_s: float) -> ConsumerRecords:  # noqa: ARG002  # nothing here takes long
        self.log.check()
        with self.log.changed:
            if self.next == len(self.log.records) and self.told_end:
                self.log.changed.wait(0.01)
            self.log.check()
            some = self.log.records[self.next : self.next + 2]
            found = [
                ConsumerRecord(offset, *record, marked=isinstance(record, ProducerRecord))
                for offset, record in enumerate(some, self.next)
            ]
            self.next += len(found)
            self.told_end = self.next == len(self.log.records) and not self.log.endless
            return ConsumerRecords(found, self.told_end)

    def probe(self) -> None:
        self.log.check()

    def close(self) -> None:
        self.log.open -= 1


class FakeWriter:
    def __init__(self, log: FakeLog) -> None:
        self.log = log

    def send(self, records: Sequence[ProducerRecord]) -> None:
        self.log.check()
        if not self.log.swallows:
            self.log.append(records)

    def wait(self, timeout_s: float) -> int | None:  # noqa: ARG002  # as above
        return None if self.log.swallows else len(self.log.records) - 1

    def close(self) -> None:
        self.log.open -= 1


def store_on(log: FakeLog, brokers: int = 1, *, idempotent: bool = True) -> TopicStore:
    async def facts() -> ClusterFacts:
        log.check()
        return ClusterFacts(brokers, idempotent)

    return TopicStore(log, facts)


def written(changes: Changes, table: QuotaTable | None = None) -> list[ProducerRecord]:
    return alteration(table or QuotaTable(), changes)


@dataclass
class Follower:
    log: FakeLog = field(default_factory=FakeLog)
    followed: Followed = field(default_factory=Followed)
    store: TopicStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = store_on(self.log)


def play(script: Callable[[Follower], Awaitable[None]]) -> None:
    follower = Follower()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follower.store.follow, follower.followed.changed, follower.followed.failed)
            await script(follower)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert follower.log.open == 0


# Loading


def test_the_topic_store_creates_a_missing_topic_without_quotas() -> None:
    log = FakeLog()
    assert trio.run(store_on(log, brokers=5).load) == QuotaTable()
    assert (log.prepared, log.open) == ([3], 0)
    small = FakeLog()
    trio.run(store_on(small, brokers=2).load)
    assert small.prepared == [2]


def test_the_topic_store_loads_all_records_up_to_the_end() -> None:
    log = FakeLog()
    values = {(Entity(user=f"user-{number}"), PRODUCE): float(number) for number in range(1, 20)}
    log.append(written(values))
    assert trio.run(store_on(log).load) == QuotaTable(values)


def test_the_topic_store_probes_a_topic_that_is_silent_while_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader is gone: that must not hold up the start for as long as a long topic may."""
    monkeypatch.setattr(topic, "SILENT_S", 0.0)
    log = FakeLog(endless=True)

    def gone(_reader: FakeReader) -> None:
        raise StoreError("no leader")

    monkeypatch.setattr(FakeReader, "probe", gone)
    with pytest.raises(StoreError, match="no leader"):
        trio.run(store_on(log).load)
    assert log.open == 0


def test_foreign_records_in_the_quota_topic_are_skipped_and_logged_once() -> None:
    log = FakeLog()
    (good,) = written({(ALICE, PRODUCE): 1.0})
    log.append([(b"\xff", b"x"), (None, None), good, (good.key, b'{"version":2}'), (b"", None)])
    store = store_on(log)
    with capture_logs() as logs:
        for _again in range(2):
            assert trio.run(store.load) == QuotaTable({(ALICE, PRODUCE): 1.0})
    assert store.skipped == 4
    skips, unmarked = logs
    assert (skips["event"], skips["log_level"]) == ("records of the quota topic skipped", "warning")
    assert unmarked["event"].startswith("records of the quota topic without a Weir's mark")
    log.append([(b"\xff", b"x")] * 20)
    with capture_logs() as logs:
        trio.run(store.load)
    assert store.skipped == store.foreign == 24
    assert [line["count"] for line in logs] == [10, 10], "then at the tenth, the hundredth"


def test_records_that_no_weir_has_marked_are_applied_counted_and_logged() -> None:
    """Weirs before the mark wrote such records; so does a client that reaches the brokers past Weir."""
    log = FakeLog()
    (marked,), (plain,) = written({(ALICE, PRODUCE): 1.0}), written({(BOB, PRODUCE): 2.0})
    log.append([marked, (plain.key, plain.value), (marked.key, None)])
    store = store_on(log)
    with capture_logs() as logs:
        for _again in range(2):
            assert trio.run(store.load) == QuotaTable({(BOB, PRODUCE): 2.0})
    assert (store.foreign, store.skipped) == (2, 0)
    (line,) = logs
    assert (line["log_level"], line["count"], line["offset"]) == ("warning", 1, 1)


def test_an_alteration_of_a_weir_is_not_counted_as_foreign() -> None:
    store = store_on(FakeLog())
    trio.run(partial(store.alter, {(ALICE, PRODUCE): 1.0}))
    assert store.foreign == 0


# Altering without a follower, as the command line does


def test_an_alteration_is_stored_and_read_back() -> None:
    log = FakeLog()
    log.append(written({(ALICE, PRODUCE): 1.0, (ALICE, CONSUME): 2.0}))
    expected = QuotaTable({(ALICE, CONSUME): 2.0, (BOB, PRODUCE): 3.0})

    async def main() -> None:
        store = store_on(log)
        assert await store.alter({(ALICE, PRODUCE): None, (BOB, PRODUCE): 3.0}) == expected
        assert await store.alter({}) == expected
        assert await store.alter({(BOB, CONSUME): None}) == expected

    trio.run(main)
    assert trio.run(store_on(log).load) == expected
    assert (log.open, log.idempotent) == (0, [True, True])


def test_altered_throttles_are_read_back_after_a_restart_of_the_topic_store() -> None:
    log = FakeLog()
    log.append(written({(ALICE, PRODUCE): 1.0}))
    expected = QuotaTable({(ALICE, PRODUCE): 1.0}, replication=THROTTLES)

    async def main() -> None:
        store = store_on(log)
        assert await store.alter_replication(dict(THROTTLES.values)) == expected
        assert await store.alter_replication({}) == expected

    trio.run(main)
    restarted = store_on(log)
    assert trio.run(restarted.load) == expected
    assert (restarted.skipped, restarted.foreign) == (0, 0)
    fewer = trio.run(restarted.alter_replication, {ORDERS: None, BROKER_1: "5"})
    assert fewer == expected.replication_altered({ORDERS: None, BROKER_1: "5"})
    assert trio.run(store_on(log).load) == fewer


def test_a_cluster_without_idempotent_producers_can_be_written_to() -> None:
    log = FakeLog()

    async def main() -> None:
        await store_on(log, idempotent=False).alter({(ALICE, PRODUCE): 1.0})

    trio.run(main)
    assert log.idempotent == [False]


def test_the_topic_store_gives_up_an_alteration_that_never_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "ALTER_S", 0.05)
    log = FakeLog(swallows=True)

    async def main() -> None:
        await store_on(log).alter({(ALICE, PRODUCE): 1.0})

    with pytest.raises(StoreError, match="describe it to see"):
        trio.run(main)
    assert log.open == 0


# Following


@scripted(play)
async def test_the_topic_store_follows_records_of_every_writer(follower: Follower) -> None:
    await until(lambda: follower.followed.tables == [QuotaTable()])
    follower.log.append(written({(ALICE, PRODUCE): 1.0}))
    await until(lambda: follower.followed.tables[-1] == QuotaTable({(ALICE, PRODUCE): 1.0}))
    follower.log.append([written({(ALICE, PRODUCE): 1.0})[0]._replace(value=None)])
    await until(lambda: follower.followed.tables[-1] == QuotaTable())
    assert follower.followed.failures == []


@scripted(play)
async def test_concurrent_topic_store_alterations_are_serialized(follower: Follower) -> None:
    await until(lambda: bool(follower.followed.tables))
    async with trio.open_nursery() as nursery:
        for key in (PRODUCE, CONSUME):
            nursery.start_soon(follower.store.alter, {(ALICE, key): 1.0})
            nursery.start_soon(follower.store.alter, {(BOB, key): 2.0})
    assert len(follower.followed.tables[-1]) == 4, "none has overwritten another"
    floor = QuotaKey.PRODUCER_BYTE_FLOOR
    await follower.store.alter({(Entity(group="<all>"), PRODUCE): 10.0, (ALICE, floor): 10.0})
    with pytest.raises(StoreError, match=r"^not altered: the floors of group <all> are 11 bytes/s, above"):
        await follower.store.alter({(BOB, floor): 1.0})


@scripted(play)
async def test_the_topic_store_reports_a_failure_and_its_end(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic, "RETRY_S", 0.01)
    follower.log.append(written({(ALICE, PRODUCE): 1.0}))
    await until(lambda: len(follower.followed.tables) == 1)
    follower.log.broken = True
    await until(lambda: len(follower.followed.failures) > 2)
    assert len(follower.followed.tables) == 1, "the last known quotas stay"
    with pytest.raises(StoreError, match="broken"):
        await follower.store.alter({(ALICE, PRODUCE): 2.0})
    follower.log.append(written({(BOB, PRODUCE): 1.0}))
    follower.log.broken = False
    await until(lambda: len(follower.followed.tables) > 1)
    assert len(follower.followed.tables[-1]) == 2
    assert len(follower.log.prepared) == 1, "a topic that was there is not made again"


@scripted(play)
async def test_the_topic_store_creates_a_topic_once_it_is_available(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic, "RETRY_S", 0.01)
    follower.log.broken = True
    await until(lambda: bool(follower.followed.failures))
    with pytest.raises(StoreError, match="could not be read yet: broken"):
        await follower.store.alter({(ALICE, PRODUCE): 1.0})
    follower.log.broken = False
    await until(lambda: follower.followed.tables == [QuotaTable()])
    assert follower.log.prepared == [1]


@scripted(play)
async def test_the_topic_store_probes_a_silent_topic(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic, "PROBE_EVERY_S", 0.0)
    monkeypatch.setattr(topic, "RETRY_S", 0.01)

    def gone(_reader: FakeReader) -> None:
        raise StoreError("it was made anew")

    monkeypatch.setattr(FakeReader, "probe", gone)
    await until(lambda: len(follower.followed.tables) > 1)
    assert "it was made anew" in follower.followed.failures


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250])
def test_an_invalid_quota_topic_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="quotas is"):
        load(None, {"upstream": "kafka:9092", "quotas": f"topic:{name}"})


# Configuration


def test_a_quota_topic_without_confluent_kafka_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "weir.proxy.control.stores.topic_log", None)
    with pytest.raises(ConfigError) as refusal:
        topic_store(load(None, {"upstream": "kafka:9092"}))
    assert str(refusal.value) == (
        "quotas = topic needs confluent-kafka: install it beside Weir, pip install confluent-kafka"
    )


# Groups

PAYMENTS = '[[group]]\nname = "payments"\nusers = ["alice", "svc-*"]\nparent = "retail"\n'
RETAIL = '[[group]]\nname = "retail"\nclient_ids = ["shop"]\n'
BY_PAYMENTS = {(Entity(group="payments"), PRODUCE): 1000.0}


def groups_in(text: str) -> list[GroupEntry]:
    return group_entries(parse(text).groups)


def test_groups_of_one_weir_are_in_force_at_another() -> None:
    log = FakeLog()
    trio.run(store_on(log).alter_groups, groups_in(PAYMENTS + RETAIL))
    trio.run(store_on(log).alter, BY_PAYMENTS)
    other = store_on(log)
    table = trio.run(other.load)
    assert table.groups == parse(PAYMENTS + RETAIL).groups
    produce = BrokerQuotas.create(table).ledger("svc-1", "app", 0).produce
    assert produce is not None
    assert produce.charge(11_000, 0) == 1000
    moved = RETAIL.replace('client_ids = ["shop"]', 'users = ["alice"]')
    trio.run(other.alter_groups, groups_in(PAYMENTS.replace('"alice", ', "") + moved))
    assert trio.run(store_on(log).load).groups.of("alice", "shop") == "retail"
    empty = [GroupEntry("payments", ()), GroupEntry("retail", ())]
    with pytest.raises(StoreError, match='for group "payments", which is none'):
        trio.run(store_on(log).alter_groups, empty, {"payments"})
    trio.run(store_on(log).alter_groups, empty, {"retail"})
    assert trio.run(store_on(log).load).groups == QuotaGroups().updated({}, {"payments": ""})
    trio.run(other.alter_groups, groups_in(moved))
    number = len(log.records)
    trio.run(other.alter_groups, groups_in(moved))
    assert (len(log.records), other.skipped, other.foreign) == (number, 0, 0), "nothing has changed"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[[group]]\nname = "others"\nusers = ["alice"]\n', "alice is a member already, of group"),
        (RETAIL + 'parent = "payments"\n', "is its own ancestor"),
        (
            '[[group]]\nname = "payments"\nusers = ["canary"]\n',
            "the floors of group payments are 2000 bytes/s",
        ),
    ],
)
def test_the_topic_store_refuses_groups_as_a_quota_file_does(text: str, reason: str) -> None:
    log = FakeLog()
    store = store_on(log)
    trio.run(store.alter_groups, groups_in(PAYMENTS + RETAIL))
    trio.run(store.alter, {**BY_PAYMENTS, (Entity("canary"), QuotaKey.PRODUCER_BYTE_FLOOR): 2000.0})
    number = len(log.records)
    entries = [read_group(values) for values in tomllib.loads(text)["group"]]
    with pytest.raises(StoreError, match=f"not altered: .*{reason}"):
        trio.run(store.alter_groups, entries)
    assert len(log.records) == number


def test_the_topic_store_refuses_a_quota_of_an_unknown_group() -> None:
    with pytest.raises(StoreError, match='a quota is for group "payments", which is none'):
        trio.run(store_on(FakeLog()).alter, BY_PAYMENTS)


def test_readers_of_the_topic_decide_alike_about_groups_that_contradict_each_other() -> None:
    """Two Weirs have written at once: a member of both is in the later group, and circles have no parent."""
    records = [
        (b'{"group":"a"}', b'{"parent":"b","users":["alice","x-*"],"version":1}'),
        (b'{"group":"b"}', b'{"parent":"a","users":["alice"],"version":1}'),
        (b'{"group":"c"}', b'{"parent":"gone","version":1}'),
        (b'{"group":"d"}', b'{"users":["bob"],"version":1}'),
        (b'{"group":"d"}', None),
        (b'{"group": "a"}', b'{"version":1}'),  # these three are skipped
        (b'{"group":"<all>"}', b'{"users":["alice"],"version":1}'),
        (b'{"group":"a"}', b'{"users":["*"],"version":1}'),
    ]
    log, stored = FakeLog(), StoredQuotas()
    for number, record in enumerate(records):
        log.append([record])
        with contextlib.suppress(RecordError):
            stored.apply(*record)
        one = stored.table().groups
        one.check()
        store = store_on(log)
        assert one == trio.run(store.load).groups
        assert store.skipped == max(number - 4, 0)
    assert (one.of("alice", ""), one.of("x-1", ""), one.of("bob", "")) == ("b", "a", "")
    assert set(one.parents) == {"a", "b", "c"}
