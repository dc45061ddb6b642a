"""A run of a script: followers, Weir's connections and a leader, in simulated time.

Every rule is checked while the run goes on; an AssertionError says which one does not hold.
"""

from __future__ import annotations

import heapq
import struct
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final

from tests.proxy.wire import Wire, new_connection
from tests.replication.follower import Followed, Follower
from tests.replication.leader import Asked, Leader, Partition, Poll, topic_id
from tests.replication.rules import Usages
from tests.replication.script import (
    LEADER,
    Add,
    Cut,
    Event,
    Evict,
    FollowerScript,
    LearnIds,
    Produce,
    Remove,
    Restart,
    RestartWeir,
    Script,
    Throttle,
    Throttles,
    generate,
)
from tests.wire.frames import body_of, head_of, request, request_body_of, response
from weir.protocol.messages import FetchRequest, FetchResponse
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.replication.replica_fetcher import ReplicaFetcher, ReplicaFetches
from weir.proxy.handlers.replication.replication import Replication
from weir.quotas.replication.replication_quotas import ReplicationQuotas
from weir.quotas.replication.throttles import ReplicationThrottles, Role

PLANS: Final = Plans(Counters(), replication=True)
"""Shared by all runs, because making them takes longer than a run."""
NOT_TOLD: Final = (-2, -1)
TURN_MS: Final = 1
"""Time between a response and the follower's next fetch."""
IDS_LATE_MS: Final = 40
BEGIN_MS: Final = 1_000_000


class World:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.rng = Random(script.seed)
        self.now_ms = BEGIN_MS
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        partitions = [produce.partition for produce in script.logs]
        self.leader = Leader(partitions, script.cache_slots)
        self.throttles = ReplicationThrottles(dict(script.throttles))
        self.ids_known = script.ids_known
        self.usages = Usages()
        self.told: dict[tuple[Partition, int], tuple[int, int]] = {}
        """Listed replica → leader epoch and high watermark of the latest response to it, which Weir knows."""
        self.hinted: dict[tuple[Partition, int], tuple[int, int]] = {}
        """The same, with responses that Weir may have passed unread because lists changed meanwhile."""
        self.listings = 1
        """Number of times at which other replicas were listed."""
        self.refusals_allowed = 0
        for produce in script.logs:
            self._produce(produce)
        self.replication = self._new_weir()
        self.links = {one.node_id: Link(self, one) for one in script.followers}
        self.events_ms: deque[int] = deque()
        for after_ms, event in script.events:
            self.at(self.now_ms + after_ms, self._happen(event))
        self.quiet_from_ms = self.now_ms + (script.events[-1][0] + 1 if script.events else 0)

    # Time

    def at(self, when_ms: int, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (when_ms, self._number, action))

    def run(self, until: Callable[[], bool], limit_ms: int) -> None:
        """Go on until a condition holds; it must before `limit_ms`."""
        steps = 0
        while not until():
            when_ms, _number, action = heapq.heappop(self._queue)
            steps = steps + 1 if when_ms == self.now_ms else 0
            assert steps < 1000, "time stands still"
            assert when_ms <= limit_ms, f"not replicated at {when_ms}: {self.missing()}"
            self.now_ms = when_ms
            action()

    def missing(self) -> str:
        return ", ".join(
            f"{link.node_id}/v{link.follower.version} {partition}: "
            f"{followed.log.end} of {self.leader.hosted[partition].log.end}"
            for link in self.links.values()
            for partition, followed in link.follower.followed.items()
            if not self._has_all(partition, followed)
        )

    def _has_all(self, partition: Partition, followed: Followed) -> bool:
        mine, true = followed.log.batches, self.leader.hosted[partition].log.batches
        return len(mine) == len(true) and (not mine or mine[-1].data == true[-1].data)

    # Weir

    def _new_weir(self) -> Replication:
        replication = Replication(ReplicationQuotas(self.throttles))
        replication.on_unknown_topic = self._unknown_topic
        if self.ids_known:
            self._learn(replication)
        self._use_rates()
        self.usages.forget(self.now_ms)
        self.told.clear()
        self.hinted.clear()
        return replication

    def _learn(self, replication: Replication) -> None:
        topics = {topic for topic, _index in self.leader.hosted}
        replication.topic_names = {topic_id(topic).bytes: topic for topic in topics}

    def _unknown_topic(self) -> None:
        self.at(self.now_ms + IDS_LATE_MS, self._happen(LearnIds()))

    def _use_rates(self) -> None:
        nodes = [LEADER, *(one.node_id for one in self.script.followers)]
        rates = {(role, node): self.throttles.rate(role, node) for role in Role for node in nodes}
        self.usages.use(rates, self.now_ms)

    def roles(self, partition: Partition, link: Link) -> list[tuple[Role, int]]:
        """Return the roles and brokers whose throttles list a replica, as far as Weir can know."""
        if link.follower.version >= 13 and not self.ids_known:
            return []
        nodes = {Role.LEADER: LEADER, Role.FOLLOWER: link.node_id}
        return [pair for pair in nodes.items() if self.throttles.is_listed(pair[0], *partition, pair[1])]

    # Events

    def _happen(self, event: Event) -> Callable[[], None]:
        def happen() -> None:
            self.events_ms.append(self.now_ms)
            self._handle(event)

        return happen

    def _handle(self, event: Event) -> None:
        match event:
            case Produce():
                self._produce(event)
            case Throttle():
                self._throttle(event.values)
            case Restart():
                self.refusals_allowed += len(self.links)
                self.leader.restart(dict(event.truncated))
                self._cut_all()
            case Cut():
                self.links[event.follower].cut()
            case RestartWeir():
                self.replication = self._new_weir()
                self._cut_all()
            case Remove():
                self.links[event.follower].follow(event.partition, followed=False)
            case Add():
                self.links[event.follower].follow(event.partition, followed=True)
            case Evict():
                self.refusals_allowed += 1
                self.leader.sessions.pop(self.links[event.follower].follower.session_id, None)
            case LearnIds():
                self._learn_ids()

    def _produce(self, produce: Produce) -> None:
        for size in produce.sizes:
            self.leader.produce(produce.partition, size, self.now_ms)

    def _cut_all(self) -> None:
        for link in self.links.values():
            link.cut()

    def _learn_ids(self) -> None:
        if not self.ids_known:
            self.ids_known = True
            self.listings += 1
            self._learn(self.replication)

    def _throttle(self, values: Throttles) -> None:
        before, self.throttles = self.throttles, ReplicationThrottles(dict(values))
        self.listings += not before.same_lists(self.throttles)
        self.replication.quotas.use(self.throttles)
        self._use_rates()
        for partition, node_id in list(self.told):
            if not self.roles(partition, self.links[node_id]):
                del self.told[partition, node_id]
                self.hinted.pop((partition, node_id), None)

    # A whole run

    def execute(self) -> None:
        self.run(lambda: self.now_ms >= self.quiet_from_ms or not self._queue, self.quiet_from_ms + 60_000)
        self.run(self._is_done, self.now_ms + self._time_max_ms())
        refused = len(self.leader.refusals)
        assert 71 not in self.leader.refusals, "the leader was sent a wrong session epoch"
        assert refused <= self.refusals_allowed, f"{refused} refusals, {self.refusals_allowed} allowed"
        for link in self.links.values():
            assert not link.follower.discarded, (
                f"{link.node_id} discarded {link.follower.discarded} responses"
            )

    def _is_done(self) -> bool:
        return all(
            self._has_all(partition, followed)
            for link in self.links.values()
            for partition, followed in link.follower.followed.items()
        )

    def _time_max_ms(self) -> int:
        """Return the time (ms) in which everything must be replicated."""
        size = sum(
            self.leader.hosted[partition].log.readable_bytes(
                min(followed.log.end, self.leader.hosted[partition].log.end)
            )
            for link in self.links.values()
            for partition, followed in link.follower.followed.items()
        )
        count = sum(len(hosted.log.batches) for hosted in self.leader.hosted.values()) * len(self.links)
        slowest = min(self.usages.rates.values())
        return int(60_000 + 1500 * size / slowest + count * (self.script.latency_ms + 2 * TURN_MS) * 2)


class Link:
    """A follower, and its connection through Weir to the leader."""

    def __init__(self, world: World, script: FollowerScript) -> None:
        self.world = world
        self.node_id = script.node_id
        self.follower = Follower(script.node_id, script.version, script.limits)
        for partition in script.partitions:
            followed = self.follower.followed[partition] = Followed()
            if partition in script.in_sync:
                hosted = world.leader.hosted[partition]
                followed.log.batches[:] = hosted.log.batches
                hosted.in_sync[script.node_id] = hosted.log.end
        self._parked: dict[Partition, Followed] = {}
        self._correlation_id = 0
        self._generation = 0
        self._free: dict[Partition, tuple[Asked, bool]] = {}
        self._polls: deque[int] = deque()
        self.connect()

    def connect(self) -> None:
        session = new_connection(
            plans=PLANS, node_id=LEADER, buffer_bytes=self.world.script.buffer_bytes, brokers=frozenset()
        )
        session.state_of(ReplicaFetches).fetcher = ReplicaFetcher(self.world.replication, LEADER)
        self.wire = Wire(session)
        self._sent_ms: int | None = None
        self._throttled: dict[Partition, list[tuple[Role, int]]] = {}
        self._listings = 0
        self._request = b""
        self._answer = b""
        self._asked_leader = False
        self._was_listed = bool(self.world.throttles.topics)
        self.later(TURN_MS, self.fetch)

    def later(self, after_ms: int, action: Callable[[], None]) -> None:
        """Have something happen later, unless the connection has ended by then."""
        generation = self._generation

        def act() -> None:
            if generation == self._generation:
                action()

        self.world.at(self.world.now_ms + after_ms, act)

    def cut(self) -> None:
        self._generation += 1
        self.world.leader.polls[:] = [poll for poll in self.world.leader.polls if poll.owner is not self]
        self.wire.connection.end(self.world.now_ms)
        self.follower.lost_connection(self.world.now_ms)
        self.connect()

    def follow(self, partition: Partition, *, followed: bool) -> None:
        if followed and partition in self._parked:
            self.follower.followed[partition] = self._parked.pop(partition)
        elif not followed and partition in self.follower.followed:
            self._parked[partition] = self.follower.followed.pop(partition)
            self.world.leader.hosted[partition].in_sync.pop(self.node_id, None)

    # Requests

    def fetch(self) -> None:
        world, version = self.world, self.follower.version
        message = self.follower.fetch(world.now_ms)
        if message is None:
            self.later(100, self.fetch)
            return
        self._correlation_id += 1
        self._was_listed |= bool(world.throttles.topics)
        self._free, self._throttled = self._find_free(), {}
        self._request = request(message, version, self._correlation_id, b"broker-2-fetcher-0")
        self._sent_ms, self._asked_leader = world.now_ms, False
        self._feed(client=self._request)
        if self._free and self._sent_ms == world.now_ms:
            assert self._asked_leader, f"{self.node_id}: a fetch with {list(self._free)} was held"

    def _is_told_in_sync(self, partition: Partition) -> bool:
        asked = self.follower.asked[partition]
        epoch, told = self.world.hinted.get((partition, self.node_id), NOT_TOLD)
        return epoch == asked.current_leader_epoch and 0 <= told <= asked.fetch_offset

    def _find_free(self) -> dict[Partition, tuple[Asked, bool]]:
        """Return the partitions that may not be delayed; False for those in sync whose first response of the
        leader epoch Weir has not seen.
        """
        found = {}
        for partition, asked in self.follower.asked.items():
            hosted = self.world.leader.hosted[partition]
            if not self.world.roles(partition, self):
                found[partition] = asked, True
            elif self.node_id in hosted.in_sync and asked.fetch_offset >= hosted.high_watermark:
                epoch, _told = self.world.told.get((partition, self.node_id), NOT_TOLD)
                found[partition] = asked, epoch == asked.current_leader_epoch
        return found

    def _feed(self, *, client: bytes = b"", broker: bytes = b"") -> None:
        """Give Weir bytes, in pieces, and pass on what comes of them."""
        generation, draw = self._generation, self.world.rng
        self.wire.connection.clock.now_us = 1000 * self.world.now_ms
        data = client or broker
        while True:
            size = len(data) if draw.random() < 0.5 else draw.randint(0, min(len(data), 30_000))
            piece, data = data[:size], data[size:]
            self.wire.feed(self.world.now_ms, piece if client else b"", piece if broker else b"")
            if not data:
                break
        effects = self.wire.obey(self.world.now_ms)
        assert effects.close_reason is None, f"closed: {effects.close_reason} {effects.close_detail}"
        if effects.deadline_ms > self.world.now_ms:
            self.later(effects.deadline_ms - self.world.now_ms, self._feed)
        for frame in _whole_frames(self.wire.to_broker):
            self._to_leader(frame)
        for frame in _whole_frames(self.wire.to_client):
            if generation == self._generation:
                self._to_follower(frame)

    def _to_leader(self, frame: bytes) -> None:
        world, version = self.world, self.follower.version
        assert not self._asked_leader, "two fetches for one"
        self._asked_leader = True
        if not self._was_listed:
            assert frame == self._request, "a fetch was changed although nothing is listed"
        self._count_poll()
        self._listings = world.listings
        self._throttled = {
            partition: roles
            for partition in self.follower.asked
            if (roles := world.roles(partition, self)) and not self._is_told_in_sync(partition)
        }
        message = request_body_of(frame, FetchRequest, version)
        send = _Send(self, head_of(frame).correlation_id)
        poll = world.leader.fetch(message, version, send, self, world.now_ms)
        if poll is not None:
            self._check_free(poll)
            world.at(poll.until_ms, lambda: world.leader.complete(world.now_ms))

    def _check_free(self, poll: Poll) -> None:
        for partition, (asked, uncut) in self._free.items():
            assert self.world.now_ms == self._sent_ms, f"a fetch with {partition} was held"
            found = poll.partitions.get(partition)
            assert found is not None, f"{self.node_id}: {partition} is missing in the leader's fetch"
            same = found.fetch_offset == asked.fetch_offset and (
                found.partition_max_bytes == asked.partition_max_bytes or not uncut
            )
            assert same, f"{self.node_id}: {partition} is fetched as {found}, not {asked}"
        for partition, found in poll.partitions.items():
            mine = self.follower.asked.get(partition)
            assert mine is not None, f"{self.node_id}: {partition} is fetched, but not followed"
            assert found.fetch_offset == mine.fetch_offset, f"{partition} is fetched as {found}, not {mine}"

    def _count_poll(self) -> None:
        now_ms = self.world.now_ms
        self._polls.append(now_ms)
        while self._polls[0] <= now_ms - 1000:
            self._polls.popleft()
        events = self.world.events_ms
        while events and events[0] <= now_ms - 2000:
            events.popleft()
        most = 1000 / self.follower.limits.max_wait_ms + 25 + 3 * len(events)
        assert len(self._polls) <= most, f"{self.node_id}: {len(self._polls)} empty fetches in a second"

    # Responses

    def answer(self, message: FetchResponse, correlation_id: int) -> None:
        if any(data.records or data.error_code for topic in message.responses for data in topic.partitions):
            self._polls.pop()
        self._answer = response(message, self.follower.version, correlation_id)
        self.later(self.world.script.latency_ms, lambda: self._feed(broker=self._answer))

    def _to_follower(self, frame: bytes) -> None:
        world, follower = self.world, self.follower
        assert self._sent_ms is not None, "a response without a fetch"
        if not self._was_listed:
            assert frame == self._answer, "a response was changed although nothing is listed"
        waited_ms = world.now_ms - self._sent_ms
        most_ms = follower.limits.max_wait_ms + world.script.latency_ms
        assert waited_ms <= most_ms, f"{self.node_id}: a fetch took {waited_ms} ms"
        message = body_of(frame, FetchResponse, follower.version)
        self._sent_ms = None
        self._charge(message)
        follower.take(message, world.leader.hosted, world.now_ms)
        self.later(TURN_MS, self.fetch)

    def _charge(self, message: FetchResponse) -> None:
        sizes: dict[tuple[Role, int], int] = {}
        for topic in message.responses:
            name = topic.topic if self.follower.version < 13 else topic.topic_id.bytes.lstrip(b"\1").decode()
            for data in topic.partitions:
                partition = name, data.partition_index
                same = self._asked_leader and self._listings == self.world.listings
                hinted = same or (self._asked_leader and partition in self._throttled)
                if hinted and not data.error_code and self.world.roles(partition, self):
                    epoch = self.follower.asked[partition].current_leader_epoch
                    self.world.hinted[partition, self.node_id] = epoch, data.high_watermark
                    if same:
                        self.world.told[partition, self.node_id] = epoch, data.high_watermark
                for key in self._throttled.get(partition, ()):
                    sizes[key] = sizes.get(key, 0) + len(data.records or b"")
        for key, size in sizes.items():
            if size:
                slack_ms = self.follower.limits.max_wait_ms + 2 * self.world.script.latency_ms
                self.world.usages.note(
                    key, self.node_id, size, self.world.now_ms, slack_ms=slack_ms, uncut=self._uncut_bytes()
                )

    def _uncut_bytes(self) -> int:
        """Return the bytes by which one response may exceed the rate: limits of partitions are cut since
        version 3, and then a response has at least one batch.
        """
        if self.follower.version < 3:
            return self.follower.limits.partition_max_bytes
        hosted = self.world.leader.hosted.values()
        return max(len(batch.data) for one in hosted for batch in one.log.batches)


class _Send:
    def __init__(self, link: Link, correlation_id: int) -> None:
        self.link = link
        self._correlation_id = correlation_id
        self._generation = link._generation

    def __call__(self, message: FetchResponse) -> None:
        if self._generation == self.link._generation:
            self.link.answer(message, self._correlation_id)


def _whole_frames(stream: bytearray) -> list[bytes]:
    found = []
    while len(stream) >= 4:
        size = 4 + struct.unpack_from(">i", stream)[0]
        if len(stream) < size:
            break
        found.append(bytes(stream[:size]))
        del stream[:size]
    return found


def fault(script: Script) -> str | None:
    try:
        World(script).execute()
    except AssertionError as error:
        return str(error).splitlines()[0] if str(error) else repr(error)
    except Exception as error:  # noqa: BLE001 - any other error is a fault, too
        return f"{type(error).__name__}: {error}"
    return None


def simulate(seed: int) -> str | None:
    return fault(generate(seed))
