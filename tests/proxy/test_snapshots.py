"""Snapshots: histories of rates, episodes of throttling, previews, sentences, and the clients' libraries."""

from __future__ import annotations

import dataclasses
import json
import math

import msgspec
import pytest
import trio

from tests.proxy.playbook import Playbook
from tests.proxy.snapshot_rigs import ALICE, ANY_APP, PRODUCE, World, done
from tests.proxy.wire import Wire
from tests.wire.frames import framed, request
from weir.cli.top.cells import rows
from weir.cli.top.readings import TopReading
from weir.protocol.messages import ApiVersionsRequest
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.snapshots import history as histories
from weir.proxy.control.snapshots.connections import ConnectionFilter, merged, read_connections
from weir.proxy.control.snapshots.entities import SortedEntities, read_entities, read_throttled
from weir.proxy.control.snapshots.gauges import Gauges
from weir.proxy.control.snapshots.history import Key, Track
from weir.proxy.control.snapshots.opened import READ_EVERY_MS
from weir.proxy.control.snapshots.preview import effect
from weir.proxy.control.snapshots.records import Entities, EntityRecord, Status
from weir.proxy.control.snapshots.traffic import SILENT_MS, TrafficRates, waits_for_broker
from weir.proxy.counters import Counters
from weir.proxy.handlers.api_versions.api_versions import software
from weir.quotas import Entity, QuotaKey, QuotaTable, Tags
from weir.quotas.storage import BrokerStorage
from weir.quotas.table.groups import Member, QuotaGroups

TOPICS, PARTITIONS = QuotaKey.TOPICS_MAX, QuotaKey.PARTITIONS_MAX
STORED, USABLE, OVER = QuotaKey.STORED_BYTES_MAX, QuotaKey.USABLE_BYTES_MIN, QuotaKey.OVER_BYTE_RATE
PAY, ALL = Entity(topic_prefix="pay."), Entity(group="<all>")


def test_the_sentence_of_an_entity_has_usage_limit_throttle_addresses_and_libraries() -> None:
    """12,000 bytes at once are 1200 bytes/s over 10 s; 1200 / 1000 - 1 of 10 s are 2 s."""
    world = World()
    for port in range(4):
        world.connect(peer=f"10.0.0.7:{port}", library="librdkafka 2.5.0")
    world.connect(client_id=b"other", peer="10.0.0.8:1")
    assert world.budget().charge(12_000, 0) == 2000
    world.now_ms = 1690
    (entity,) = trio.run(read_entities, world.sources, world.history, SortedEntities()).entities
    assert (entity.connections, entity.peers, entity.software) == (4, ("10.0.0.7",), ("librdkafka 2.5.0",))
    assert entity.sentence == (
        "user=alice, client-id=etl is at 112 % of producer_byte_rate 1 kB/s on broker 2, waits 310 ms, "
        "4 connections from 10.0.0.7 (librdkafka 2.5.0)"
    )
    assert entity.rate == pytest.approx(12_000 / 10.69, abs=0.01)


def test_limits_on_topics_are_rows_of_the_api_and_of_weir_top_with_a_preview() -> None:
    """Two of three topics exist; the shadow limit of three partitions is reached."""
    world, prefix = World(), Entity(topic_prefix="pay.")
    world.budget().charge(5000, 0)
    counts = world.sources.counts
    assert counts is not None
    counts.use(QuotaTable({(prefix, TOPICS): 3}, {(prefix, PARTITIONS): 3}))
    counts.read({"pay.a": 1, "pay.b": 2, "other": 5}, 0)

    def found(wanted: SortedEntities) -> Entities:
        return trio.run(read_entities, world.sources, world.history, wanted)

    first, alice = found(SortedEntities()).entities
    assert (first.topic_prefix, first.usage, alice.user) == ("pay.", 0.6667, "alice")
    assert first.entry == "topic prefix pay."
    assert first.sentence == "topic prefix=pay. is at 67 % of topics_max 3 topics in the cluster"
    assert found(SortedEntities(limit=1)).hidden == 1
    assert not found(SortedEntities(q="none")).entities
    (shadow,) = found(SortedEntities(shadow=True, q="PAY")).entities
    assert (shadow.rate, shadow.limit, shadow.quota) == (3, 3, "partitions_max")
    (row,) = rows(TopReading(Status, entities=found(SortedEntities(quota="topics_max"))))  # type: ignore[arg-type]
    assert row.cells[:6] == ("topic prefix=pay.", "topics", "all", "2", "3", "67%")
    previews = world.preview(prefix, {TOPICS: 5.0, PARTITIONS: None}).entities
    assert [one.sentence for one in previews] == [
        "topic prefix=pay. has 2 topics, and may get 3 more under topics_max 5",
        "topic prefix=pay. has 3 partitions, and has no limit of partitions_max",
    ]


def test_storage_budgets_are_rows_and_the_entry_of_the_rates_that_they_set() -> None:
    prefix, orders = Entity(topic_prefix="pay."), Entity(topic="orders")
    world = World(table=QuotaTable({(prefix, STORED): 1000, (prefix, OVER): 64}, {(orders, USABLE): 1000}))
    budgets = world.sources.storage
    assert budgets is not None
    world.registry.derive = budgets.applied
    budgets.use(world.registry.table)
    budgets.read(1, BrokerStorage({"pay.a": 1500}, 4000), 0)
    budgets.judge(0)
    world.registry.use(world.registry.table)
    world.registry.of(2)

    def found(*, shadow: bool) -> tuple[EntityRecord, ...]:
        wanted = SortedEntities(shadow=shadow)
        return trio.run(read_entities, world.sources, world.history, wanted).entities

    stored, rate = found(shadow=False)
    assert (stored.topic_prefix, stored.rate, stored.usage, stored.entry) == ("pay.", 1500, 1.5, str(prefix))
    assert stored.sentence == "topic prefix=pay. has 1.5 kB of stored_bytes_max 1 kB in the cluster"
    assert (rate.topic, rate.limit, rate.quota) == ("pay.a", 64, "producer_byte_rate")
    assert rate.entry == "topic pay.a, by stored_bytes_max of topic prefix pay."
    (usable,) = found(shadow=True)
    assert (usable.topic, usable.usage, usable.unit) == ("orders", 0.25, "bytes")
    assert usable.sentence == "topic=orders has 4 kB of usable_bytes_min 1 kB on the fullest volume"


SLOW = ", so it would be over, and producers would get over_byte_rate 64 B/s"
LOW = {STORED: 1e3, OVER: 64.0}


@pytest.mark.parametrize(
    ("entity", "changes", "mode", "text", "upper_s"),
    [
        (PAY, {OVER: 64}, "", f"pay. has 3 kB of stored_bytes_max 2 kB in the cluster{SLOW}", None),
        (PAY, LOW, "", f"pay. has 3 kB of stored_bytes_max 1 kB in the cluster{SLOW}", None),
        (PAY, LOW | {STORED: 3e3}, "", "3 kB in the cluster, so it would not be over", 0),
        (PAY, {STORED: 1e3}, "", "would be over; without over_byte_rate, that throttles nobody", 0),
        (PAY, LOW, "shadow", "would be over; in shadow, that throttles nobody", 0),
        (PAY, LOW, "all in shadow", "would be over; in shadow, that throttles nobody", 0),
        (ALL, LOW, "", f"has 2 kB of stored_bytes_max 1 kB on the fullest broker{SLOW}", None),
        (
            ALL,
            {USABLE: 5e3, OVER: 64},
            "",
            f"4 kB of usable_bytes_min 5 kB on the fullest volume{SLOW}",
            None,
        ),
        (PAY, LOW, "unread", "stored bytes: no broker has told it in the last 5 minutes", None),
        (PAY, {STORED: None}, "", "topic prefix=pay. would have no stored_bytes_max", 0),
    ],
)
def test_a_preview_tells_whether_a_storage_budget_would_be_over_and_slow_producers(
    entity: Entity, changes: dict[QuotaKey, float | None], mode: str, text: str, upper_s: int | None
) -> None:
    """Two brokers store 1 kB and 2 kB, and have 9 kB and 4 kB left. The mark of `pay.` was 2 kB."""
    world = World(table=QuotaTable({(PAY, STORED): 2e3}))
    world.registry.in_shadow = mode == "all in shadow"
    budgets = world.sources.storage
    assert budgets is not None
    for number in () if mode == "unread" else (1, 2):
        budgets.read(number, BrokerStorage({"pay.a": 1000 * number}, 14_000 - 5000 * number), 0)
    preview, is_over = world.preview(entity, changes, shadow=mode == "shadow"), "would be over" in text
    (found,) = preview.entities
    assert text in found.sentence
    assert (found.share_over, found.throttled_s_upper, preview.hidden) == (is_over, upper_s, 0)


def test_old_reads_have_rows_a_history_and_a_preview_like_other_byte_rates() -> None:
    """The rate is 2000 bytes/s for ten seconds. A limit of 1000 throttles it for at least half of them."""
    key = QuotaKey.OLD_READ_BYTE_RATE
    world = World(table=QuotaTable({(ALICE, key): 10_000.0}))
    world.connect().client.ledger.charge_old_read(20_000, 0, told=True)
    world.look(range(10))
    (entity,) = trio.run(read_entities, world.sources, world.history, SortedEntities()).entities
    assert (entity.quota, entity.rate, entity.history[-1]) == (key.value, 2000.0, 2000.0)
    assert entity.connections == 1
    (previewed,) = world.preview(ALICE, {key: 1000.0}).entities
    assert (previewed.throttled_s_lower, previewed.share_over) == (5.0, 1.0)


@pytest.mark.parametrize("percent", [5e-324, 1e-300])
def test_the_usage_of_the_smallest_quotas_that_kafka_accepts_is_a_number_that_fits_a_line(
    percent: float,
) -> None:
    """Any double above 0 is a `request_percentage` of Kafka's. A rate divided by the smallest is infinite,
    for which JSON has no number.
    """
    world = World()
    world.registry = QuotaRegistry(QuotaTable({(ALICE, QuotaKey.REQUEST_PERCENTAGE): percent}))
    sources = dataclasses.replace(world.sources, registry=world.registry)
    world.registry.of(2).ledger("alice", "etl", 0).charge_request(3, 15.0, 0)
    (entity,) = trio.run(read_entities, sources, world.history, SortedEntities()).entities
    assert entity.usage == 1e6
    assert json.loads(msgspec.json.encode(entity))["usage"] == 1e6
    assert "is at more than 100000000 % of request_percentage" in entity.sentence


def test_the_history_has_one_mean_for_ten_seconds_and_null_before() -> None:
    """20,000 bytes are 2000 bytes/s at each full second until they expire after eleven."""
    world = World(rate=10_000.0)
    world.budget().charge(20_000, 0)
    world.look(range(30))
    (track,) = world.history.tracks()
    assert track.history() == (*[None] * 57, 2000.0, 200.0, 0.0)


def began(track: Track) -> int | None:
    return track.began_ms


def test_throttling_begins_once_and_ends_after_half_a_minute_without_throttles() -> None:
    world = World()
    budget = world.budget()
    budget.charge(12_000, 0)  # until 2000
    world.look(range(20))
    (track,) = world.history.tracks()
    assert began(track) == 0
    budget.charge(15_000, 20_000)  # until 25,000
    world.look(range(20, 54))
    assert began(track) == 0
    (entity,) = trio.run(read_throttled, world.sources, world.history, SortedEntities()).entities
    assert (entity.throttled, entity.throttle_ms, entity.throttled_since_ms) == (False, 0, 1_000_000 - 53_000)
    world.look(range(54, 57))
    assert began(track) is None
    assert trio.run(read_throttled, world.sources, world.history, SortedEntities()).entities == ()


def test_the_history_tracks_the_most_used_entities_and_all_that_are_throttled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(histories, "TRACKED_MAX", 2)
    world = World(ANY_APP)
    for client_id, size in (("low", 1000), ("high", 9000), ("middle", 5000)):
        world.budget(client_id).charge(size, 0)
    world.look([0])
    assert {track.key.tags.client_id for track in world.history.tracks()} == {"high", "middle"}
    world.budget("new").charge(12_000, 1000)
    world.look([1])
    assert "new" in {track.key.tags.client_id for track in world.history.tracks()}
    assert len(world.history.tracks()) == 2


def test_the_effect_of_a_limit_on_given_rates_is_bounded_as_computed_by_hand() -> None:
    """Limit 100. Rates 50, 200, 100, 0: only 200 is above, 1 - 100 / 200 of that second is muted at least.
    The backlog is 0, 100, 100, 0, so all is sent later in at most two throttled seconds.
    """
    assert effect([50.0, 200.0, 100.0, 0.0], 100.0) == (0.5, 2.0, 0.25)
    assert effect([math.nan, 50.0, math.nan], 100.0) == (0.0, 0.0, 0.0)
    assert effect([], 100.0) == (0.0, 0.0, 0.0)
    assert effect([1e9], math.inf) == (0.0, 0.0, 0.0)


def test_the_preview_of_a_lower_quota_is_as_computed_by_hand() -> None:
    """2000 bytes/s in eleven seconds, then none in nineteen. Under 1000 bytes/s: at least half of each of the
    eleven; at most those eleven, and ten more until the backlog of 11,000 bytes is below the first 1000.
    """
    world = World(rate=10_000.0)
    world.budget().charge(20_000, 0)
    world.look(range(30))
    (found,) = world.preview(ALICE, {PRODUCE: 1000.0}).entities
    assert (found.limit, found.throttled_s_lower, found.throttled_s_upper) == (1000.0, 5.5, 21.0)
    assert found.share_over == round(11 / 30, 4)
    assert found.sentence == (
        "user=alice, client-id=etl on broker 2 would have been throttled for 5.5 to 21 s under "
        "producer_byte_rate 1 kB/s"
    )
    (removed,) = world.preview(ALICE, {PRODUCE: None}).entities
    assert (removed.limit, removed.throttled_s_lower, removed.throttled_s_upper) == (None, 0.0, 0.0)
    others = world.preview(Entity("bob"), {PRODUCE: 1.0})
    assert others.entities == ()


def test_the_preview_says_unknown_where_a_quota_held_the_client_back() -> None:
    world = World()
    world.budget().charge(20_000, 0)
    world.look(range(30))
    (found,) = world.preview(ALICE, {PRODUCE: 1500.0}).entities
    assert found.throttled_s_upper is None
    assert "unknown: a quota held it back" in found.sentence


@pytest.mark.parametrize(
    ("group", "in_force", "below_floors", "lower_s", "sure"),
    [
        ("payments", {}, 0, 7.3, False),  # muted for 2/3 of eleven seconds
        ("<all>", {}, 0, 8.2, False),  # 3/4
        ("payments", {"payments": 9000.0}, 0, 7.3, True),
        ("payments", {"payments": 9000.0}, 500, 8.8, True),  # 4/5: of 2500 bytes/s 500 are left
    ],
)
def test_the_preview_of_a_group_knows_its_members_and_floors(
    group: str, in_force: dict[str, float], below_floors: int, lower_s: float, sure: bool
) -> None:
    """Under 1000 bytes/s, after eleven seconds in which alice and svc-1 used 3000, and bob 1000."""
    users = {"alice": 1000, "svc-1": 2000, "bob": 1000}
    quotas = {(Entity(user), PRODUCE): 1e9 for user in users}
    quotas |= {(Entity(group=name), PRODUCE): rate for name, rate in in_force.items()}
    quotas |= {(Entity("svc-1"), QuotaKey.PRODUCER_BYTE_FLOOR): float(below_floors)} if below_floors else {}
    members = {Member("user", "alice"): "payments", Member("user", "svc-", True): "payments"}
    world = World(table=QuotaTable(quotas, groups=QuotaGroups().updated(members, {"payments": ""})))
    for user, rate in users.items():
        world.registry.of(2).ledger(user, "app", 0).charge_produce(10 * rate, 0)
    world.look(range(30))
    preview = world.preview(Entity(group=group), {PRODUCE: 1000.0})
    (found,) = preview.entities
    assert preview.hidden == 0
    assert (found.throttled_s_upper is not None) == sure
    assert found.throttled_s_lower == lower_s
    assert f"group={group} on broker 2 would have been throttled for" in found.sentence


@pytest.mark.parametrize(("api_key", "told"), [(b"\0\x03", ["broker_silent 2"]), (b"\0\x0b", [])])
def test_a_broker_that_sends_nothing_while_requests_wait_is_a_problem(
    api_key: bytes, told: list[str]
) -> None:
    """Metadata (3) waits for the broker only, JoinGroup (11) for other members."""
    world, counters, gauges = World(), Counters(), Gauges()
    traffic = TrafficRates(counters, gauges)
    connection = world.connect()
    Wire(connection).feed(0, client=framed(api_key + b"\0\0\0\0\0\1\xff\xff\0\0\0\0"))
    assert len(connection.in_flight) == 1

    def found(now_ms: int) -> list[object]:
        gauges.waiting[2] = waits_for_broker(connection, now_ms)
        traffic.look(now_ms)
        return [condition.key[1] for condition in traffic.conditions(now_ms)]

    assert found(1000) == found(6000) == found(1000 + SILENT_MS - 1000) == []
    assert found(1000 + SILENT_MS) == told
    counters.bytes_from_brokers[2] += 1
    assert found(1000 + SILENT_MS + 5000) == []


def test_rates_of_a_connection_are_those_between_two_readings() -> None:
    """Readers that come too soon change nothing. Connections are sorted by either rate."""
    world = World()

    def read(now_ms: int, sort: str) -> list[tuple[int, float, float]]:
        world.now_ms = now_ms
        for relay, opened in world.relays.items():
            opened.rates.read(now_ms, *relay.received_bytes)
        wanted = msgspec.convert({"sort": sort}, ConnectionFilter)
        found = done(read_connections(world.sources, world.relays, wanted))
        assert merged([found], wanted, 0).connections == found.connections
        return [(one.id, one.in_bytes_per_s, one.out_bytes_per_s) for one in found.connections]

    for _ in range(2):
        world.connect()
    quiet, busy = world.relays
    assert read(READ_EVERY_MS - 1, "opened") == [(1, 0.0, 0.0), (2, 0.0, 0.0)]
    assert read(2000, "opened") == [(1, 15.0, 20.0), (2, 15.0, 20.0)]
    quiet.received_bytes, busy.received_bytes = (30, 100_000), (5030, 40)
    assert read(2000 + READ_EVERY_MS - 1, "opened") == [(1, 15.0, 20.0), (2, 15.0, 20.0)]
    assert read(7000, "in_bytes_per_s") == [(2, 1000.0, 0.0), (1, 0.0, 19_992.0)]
    assert read(7001, "out_bytes_per_s") == [(1, 0.0, 19_992.0), (2, 1000.0, 0.0)]


# Libraries


def hello(name: str, version: str, api_version: int = 3) -> bytes:
    message = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    return request(message, api_version)


def test_the_library_of_a_client_is_read_from_api_versions_and_forwarded_unchanged() -> None:
    frame = hello("librdkafka", "2.5.0")
    with Playbook() as play:
        play.at(0).forwards(frame)
        assert play.connection.client.software == "librdkafka 2.5.0"


def test_requests_without_a_readable_library_are_forwarded_and_show_none() -> None:
    for frame in (hello("", "", api_version=2), hello("", ""), hello("x" * 3000, "1")):
        with Playbook() as play:
            play.at(0).forwards(frame)
            assert play.connection.client.software == ""


def test_names_of_libraries_are_bounded_and_have_only_the_allowed_characters() -> None:
    assert software("librdkafka", "2.5.0") == "librdkafka 2.5.0"
    assert software("a", "") == "a"
    assert software("<script>", "1") == software("", "1") == software("-a", "1") == software("a\n", "1") == ""
    assert software("a", "1\x1b[31m") == "a"
    assert software("é", "1") == ""
    assert len(software("x" * 500, "1" * 500)) <= 100


def test_a_track_of_another_budget_of_the_same_entity_keeps_its_rates() -> None:
    world = World(rate=10_000.0)
    track = Track(Key(PRODUCE, Tags("alice", "etl"), 2, shadow=False), world.budget(), 0)
    track.note(0, 0)
    track.budget = world.budget(node_id=3)
    track.note(1, 1000)
    assert [rate for rate in track.rates() if not math.isnan(rate)] == [0.0, 0.0]
