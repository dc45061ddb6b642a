"""A run: one Weir, connections through it, simulated time; and whether a rule was broken."""

from __future__ import annotations

import gc
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.kfake.cluster import Cluster
from tests.sim.actors import Broker, Client
from tests.sim.conversation import Conversation
from tests.sim.model import Ledger
from tests.sim.net import FakeSocket, Net
from tests.sim.script import (
    HOT,
    START_MS,
    TOPICS,
    Ask,
    End,
    Open,
    Script,
    SetQuota,
    SetTopic,
    Step,
    generate,
    wire_name,
)
from tests.sim.weir import Weir
from tests.wire.messages import id_of
from weir.proxy.close_reasons import CloseReason
from weir.proxy.net.relay import Relay

IDLE_TURNS_MAX: Final = 20
"""Number of turns of the reactor, one after the other, that may change nothing."""
TURNS_MAX: Final = 50_000
"""Number of turns until both ends are quiet; most scripts take 32, the longest of 2,500 took 642."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule that was broken in the run of a script."""

    script: Script
    invariant: str
    detail: str

    def __str__(self) -> str:
        """All that is needed to understand and to repeat it."""
        repeat = f"repeat with: python -m tests.sim --seed {self.script.seed} --shrink"
        return f"{self.invariant}: {self.detail}\n{self.script}\n{repeat}"


class World:
    """What happens in a run, until a rule is broken."""

    def __init__(self, script: Script, new_weir: type[Weir]) -> None:
        self.now_ms = START_MS
        self.script = script
        self.failure: Failure | None = None
        self.ledgers: dict[tuple[str, str], Ledger] = {}
        """Those of ("produce" or "fetch", client-id or topic)."""
        for quota in script.quotas:
            self.ledgers["produce", quota.client_id] = Ledger(quota.produce)
            self.ledgers["fetch", quota.client_id] = Ledger(quota.fetch)
        if script.topic_rate:
            self.ledgers["produce", HOT] = Ledger(script.topic_rate)
            self.ledgers["fetch", HOT] = Ledger(script.topic_rate)
        self.topics = {name: SetTopic(name) for name in TOPICS}
        self.cluster = Cluster(keeps=False)
        """Answers Metadata."""
        for topic in self.topics.values():
            self.set_topic(topic)
        self.refused_ms: dict[str, int] = {}
        """When a broker last gave no name for the id of this name (`wire_name`)."""
        self.told_ms: dict[str, int] = {}
        """The same, when Weir had the answer: until then, other connections ask as well."""
        self._calls: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._net = Net(Random(script.seed), self.fail)
        self.weir = new_weir(script, lambda: 1000 * self.now_ms, self._net)
        self._ends: dict[int, tuple[Conversation, Client, Broker]] = {}
        """Of each connection, by its number."""
        self._relays: dict[int, Relay] = {}
        """Those that have not ended."""

    def fail(self, invariant: str, detail: str) -> None:
        """Note that a rule was broken; the first one counts."""
        if self.failure is None:
            self.failure = Failure(self.script, invariant, f"at {self.now_ms - START_MS} ms: {detail}")

    def set_topic(self, topic: SetTopic) -> None:
        self.topics[topic.topic] = topic
        self.cluster.add(topic.topic, topic_id=id_of(wire_name(topic.topic, topic.made)))
        (self.cluster.denied.add if topic.hidden else self.cluster.denied.discard)(topic.topic)

    def at(self, time_ms: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (max(time_ms, self.now_ms), next(self._order), call))

    def run(self) -> Failure | None:
        """Let the script happen, then let all clients leave; return what went wrong."""
        for step in self.script.steps:
            if not _is_clients(step):
                self.at(START_MS + step.at_ms, lambda step=step: self._take(step))  # type: ignore[misc]  # bound now
        self._until_quiet()
        self._check_quiet()
        for number in self._relays:
            self._ends[number][1].leave("close")
        self._until_quiet()
        self._check_quiet()
        for number in list(self._relays):
            self._relays[number].close(CloseReason.STOPPED)
        self._check_charges()
        if self._net.sockets or self._net.watched or self.weir.next_timer_ms(self.now_ms) is not None:
            self.fail("leaks", "a socket, a registration or a timer is left")
        if left := self.weir.left():
            self.fail("garbage", f"{left} objects of closed connections are left until they are collected")
        self.weir.reactor.close()
        return self.failure

    def _take(self, step: Step) -> None:
        action, relay = step.action, self._relays.get(step.connection)
        if isinstance(action, SetQuota):
            self.ledgers["produce", action.client_id].limit = action.produce
            self.ledgers["fetch", action.client_id].limit = action.fetch
            self.weir.set_quota(action)
        elif isinstance(action, SetTopic):
            self.set_topic(action)
        elif isinstance(action, Open):
            self._open(step.connection, action)
        elif isinstance(action, End) and action.by == "broker" and relay is not None:
            self._ends[step.connection][2].leave(action.how)
        elif isinstance(action, End) and relay is not None:
            self._ends[step.connection][0].stopped = action.how
            if action.how == "drain":
                relay.drain()
            elif action.how == "age":
                relay.drain(CloseReason.CONNECTION_AGE)
            else:
                relay.close(CloseReason.STOPPED)

    def _open(self, number: int, opened: Open) -> None:
        conversation, rng = Conversation(self, number, opened), Random(self.script.seed * 100 + number)
        steps = [step for step in self.script.steps if step.connection == number and _is_clients(step)]
        client, broker = Client(self, conversation, rng, steps), Broker(self, conversation, rng)
        self._ends[number] = (conversation, client, broker)

        def ended(reason: CloseReason, detail: str) -> None:
            self._relays.pop(number, None)
            conversation.check_end(reason.value, detail)

        up, forward, back, down = conversation.up, conversation.forward, conversation.back, conversation.down
        self._relays[number] = self.weir.connect(
            FakeSocket(self._net, up, down, rng if opened.cuts else None, conversation.delivering),
            FakeSocket(self._net, back, forward, rng if opened.cuts else None, conversation.forwarding),
            ended,
        )
        client.go_on()

    def _until_quiet(self) -> None:
        net, weir, calls, idle_turns, turns = self._net, self.weir, self._calls, 0, 0
        while self.failure is None:
            turns += 1
            if turns > TURNS_MAX:
                self.fail("ends", f"no quiet after {turns} turns")
            for _conversation, client, broker in self._ends.values():
                client.move()
                broker.move()
            timer_ms = weir.next_timer_ms(self.now_ms)
            if net.look() or (timer_ms is not None and timer_ms <= self.now_ms):
                moves = net.moves
                weir.reactor.turn(0)
                idle_turns = idle_turns + 1 if net.moves == moves else 0
                if idle_turns > IDLE_TURNS_MAX:
                    self.fail("spins", f"{idle_turns} turns of the reactor have changed nothing")
            elif calls and (timer_ms is None or calls[0][0] <= timer_ms):
                self.now_ms = calls[0][0]
                while calls and calls[0][0] <= self.now_ms:
                    heapq.heappop(calls)[2]()
            elif timer_ms is not None:
                self.now_ms = timer_ms
            else:
                return

    def _check_quiet(self) -> None:
        for number in self._relays:
            self._ends[number][0].check_quiet()

    def _check_charges(self) -> None:
        """What Weir has charged is what was forwarded and delivered."""
        charged = self.weir.charged()
        for (api, name), ledger in self.ledgers.items():
            if name != HOT and charged.get((api, name), 0) != ledger.charged:
                self.fail(
                    "charges", f"{charged.get((api, name), 0)} to {api} of {name}, not {ledger.charged}"
                )


def _is_clients(step: Step) -> bool:
    """Return whether a client takes this step, when it comes to it."""
    action = step.action
    return isinstance(action, Ask) or (isinstance(action, End) and action.by == "client")


def simulate(seed: int, new_weir: type[Weir] = Weir) -> Failure | None:
    return execute(generate(seed), new_weir)


def execute(script: Script, new_weir: type[Weir] = Weir) -> Failure | None:
    was_enabled = gc.isenabled()
    gc.collect(0)
    gc.disable()  # for the check of what is left
    try:
        return World(script, new_weir).run()
    finally:
        if was_enabled:
            gc.enable()
