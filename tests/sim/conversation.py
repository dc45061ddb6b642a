"""One connection as it looks from outside, and the checks of what Weir makes of it.

A conversation is shown each request and response at the moment in which Weir hands it to the kernel. It
charges the ledgers of its client, and tells the world which of the rules is broken.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tests.sim.frames import (
    FETCH_BOUNDS,
    INT32,
    PART,
    SESSION,
    SHARE_RECORDS,
    TEACHING,
    bounds_at,
    emptied,
    session_at,
    session_id,
    share_records_at,
)
from tests.sim.model import HOLD_MS_MAX, LINE_MS, SHARE_WAIT_MS_MAX, WINDOW_MS, Ledger
from tests.sim.net import Pipe
from tests.sim.requests import Question, Questions, Request
from tests.sim.script import HOT, Ask, Open, Script, wire_name
from tests.wire.messages import id_of

if TYPE_CHECKING:
    from tests.sim.world import World

PATIENCE_MS: Final = 30_000
"""For how long answers are awaited, at least, for a client that has closed its half."""


class Conversation:
    """Four pipes, requests, and checks. Nothing here holds the relay: it must go when it is closed."""

    def __init__(self, world: World, number: int, opened: Open) -> None:
        self.opened = opened
        self.up, self.forward = Pipe(opened.capacity), Pipe(opened.capacity)
        """Client to Weir, Weir to broker."""
        self.back, self.down = Pipe(opened.capacity), Pipe(opened.capacity)
        """Broker to Weir, Weir to client."""
        self.left = self.broker_left = self.stopped = ""
        """How the client, or the broker, has left; how Weir was told to stop."""
        self.left_ms = 0
        """When the client has left."""
        self.requests: list[Request] = []
        self.awaited: list[Request] = []
        """Those that have a response."""
        self.answered: list[Request] = []
        """Those whose response Weir has sent."""
        self.to_broker: list[Request | Question] = []
        """All requests that Weir has sent."""
        self._forwarded = 0
        """Number of the client's requests among them."""
        self.number = number
        self._world = world
        self._questions = Questions(world, opened, self.forward.stream, self._fail)
        self._script: Script = world.script
        self._exact = not self._script.request_percentage
        """True if the ledgers are all that makes requests wait."""
        self._own_until_ms = 0
        """When all waits end that this connection has caused."""
        self._serial_until_ms = 0
        """When the last response came that may have held back later requests: its cost was not known."""
        self._turn_ms = 0
        """When the connection has its turn after a fetch without records, 0 before there was one."""
        self._firsts = {"produce", HOT}
        """APIs, and the topic with a rate, whose next request is the connection's first, and so may wait for
        others for a while.
        """
        self._session = 0
        """Id of the fetch session whose topics Weir knows, 0 for none."""
        self._fetched: set[str] = set()
        """Topics of the fetch session, as far as Weir knows their names."""
        self._shared: set[str] = set()
        """Topics of share fetches, as far as Weir knows their names."""
        self._has_begun = False
        """True once a request was forwarded that has a response: until then request time is waited for."""

    def sending(self, ask: Ask, topic: str, frame: bytearray, sent_ms: int) -> None:
        end = len(frame) + (self.requests[-1].end if self.requests else 0)
        self.requests.append(Request(ask, topic, frame, end, sent_ms, ask.size))
        if ask.acks:
            self.awaited.append(self.requests[-1])

    def forwarding(self) -> None:
        for request in self.requests[self._forwarded :]:
            self._ask_first(request.ask.kind.api)
            end = self._forward_begin + len(request.frame)
            if len(self.forward.stream) < end:
                return
            request.forward_end, request.is_named = end, self._is_named(request)
            self._forward(request)
        if self.left:  # also for a request that is never complete
            self._ask_first(PART.api)

    def _ask_first(self, api: str) -> None:
        while (question := self._questions.next(api, self._forward_begin)) is not None:
            self.to_broker.append(question)

    def _forward(self, request: Request) -> None:
        self.to_broker.append(request)
        self._check_request(request)
        self._check_wait(request)
        request.forwarded_ms, request.others_until_ms = self._world.now_ms, self._others_until_ms(request)
        self._forwarded += 1
        self._questions.latest = None
        self._firsts.discard(request.ask.kind.api)
        self._has_begun |= request.ask.acks != 0
        if request.ask.kind.api == "share_fetch":
            self._share(request)
        if request.ask.kind.api == "produce":
            if request.records_bytes and request.is_named:
                self._firsts.discard(request.ask.topic)
            self._charge(request, len(request.frame) - 4)

    @property
    def _forward_begin(self) -> int:
        """Offset in the stream to the broker of the next request."""
        return self.to_broker[-1].forward_end if self.to_broker else 0

    def _is_named(self, request: Request) -> bool:
        return not request.ask.kind.has_ids or self._world.weir.knows(request.topic)

    def delivering(self) -> None:
        stream, now_ms = self.down.stream, self._world.now_ms
        begin = self.answered[-1].done_at if self.answered else 0
        for request in self.awaited[len(self.answered) :]:
            if len(stream) - begin < 4:
                return
            if request.answer is None:
                self._fail(
                    "order", f"a response that the broker has not sent: {stream[begin:][:20].hex(' ')}"
                )
                return
            has_begun, request.begun = request.begun, True
            if not has_begun:
                if not self._exact:  # one less is under way
                    self._serial_until_ms = now_ms
                self._begin(request, request.answer, INT32.unpack_from(stream, begin)[0] + 4)
            at, end = request.ask.kind.throttle_at, begin + len(request.answer)
            at = None if at is None else at % len(request.answer)
            is_told = at is not None and len(stream) >= begin + at + 4
            if self._script.request_percentage and not has_begun and not is_told:
                self._own_until_ms = max(self._own_until_ms, now_ms + WINDOW_MS)
            if at is not None and not request.told:
                if not is_told:
                    return
                request.told = True
                self._check_told(request, INT32.unpack_from(stream, begin + at)[0])
                request.answer[at : at + 4] = stream[begin + at : begin + at + 4]
            if len(stream) < end:
                return
            self._check_response(request, stream[begin:end])
            request.done_ms, request.done_at, begin = now_ms, end, end
            self.answered.append(request)
        if len(stream) > begin:
            self._fail("order", f"a response to nothing: {stream[begin:][:20].hex(' ')}")

    def _begin(self, request: Request, answer: bytearray, length: int) -> None:
        """A response begins, of this length: charge it, unless Weir has taken the records out.

        It takes them out if the client is over when the response comes, also where there are none.
        """
        kind, now_ms = request.ask.kind, self._world.now_ms
        if not kind.is_fetch or request.acquires_none:
            return
        if self._begins_session(request):
            self._session = session_id(kind, answer) or self._session
        if kind.api == "fetch":
            empty = emptied(kind, answer, request.topic, request.error)
            until_ms = self._others_until_ms(request)
            closed_ms, had_closed_ms = (
                until_ms - (LINE_MS if 0 < self._turn_ms <= at_ms else 0)
                for at_ms in (now_ms, request.forwarded_ms)
            )
            if length == len(empty) and (len(answer) > length or closed_ms > now_ms):
                self._caused(request, until_ms)
                if until_ms > now_ms:
                    self._turn_ms = until_ms
                request.answer = empty
                if had_closed_ms <= request.forwarded_ms:
                    self._fail("fetch", "no records for a client that is not over its quota, or has its turn")
                return
            if closed_ms > now_ms and len(answer) > len(empty) and self._exact:
                self._fail("fetch", "records for a client that is over its quota")
        if kind.has_session:  # Weir may also have learned an older session from its records
            if self._is_older(request):
                self._fetched = set()
            self._session = session_id(kind, answer) or self._session
        self._charge(request, len(answer) - 4 - kind.uncharged_bytes)

    def _share(self, request: Request) -> None:
        """A share fetch is forwarded: for no records if its client is over, which it is told at once."""
        if request.is_named:
            self._shared.add(request.ask.topic)
        ledgers = [self._ledger("fetch", name) for name in (self.opened.client_id, *self._shared)]
        now_ms = self._world.now_ms
        over = [one for one in ledgers if one is not None and one.until_ms > now_ms]
        if request.acquires_none != bool(over) and self._exact:
            self._fail("fetch", f"a share fetch asks for {'no ' * request.acquires_none}records")
        if request.acquires_none and over:
            self._caused(request, over[0].shared_ms(now_ms))

    def _charge(self, request: Request, size: int) -> None:
        """Charge a request, or its response, to its client, and its records to their topic."""
        ask, now_ms = request.ask, self._world.now_ms
        api = "fetch" if ask.kind.is_fetch else "produce"
        client, topic = self._ledger(api, self.opened.client_id), self._ledger(api, HOT)
        if client is not None:
            charges = {"fetch": client.fetch, "share_fetch": client.share}
            self._caused(request, charges.get(ask.kind.api, client.charge)(size, now_ms))
        if topic is not None and ask.topic == HOT and request.records_bytes and self._is_named(request):
            charge = topic.fetch if ask.kind.api == "fetch" else topic.charge
            until_ms = charge(request.records_bytes, now_ms)
            if ask.kind.api == "share_fetch":
                until_ms = min(until_ms, now_ms + SHARE_WAIT_MS_MAX)
            elif ask.kind.has_session:
                self._fetched.add(HOT)
            self._caused(request, until_ms)

    def _caused(self, request: Request, until_ms: int) -> None:
        request.own_until_ms = max(request.own_until_ms, until_ms)
        self._own_until_ms = max(self._own_until_ms, until_ms)

    def _others_until_ms(self, request: Request) -> int:
        """When the waits end that were caused for this client, or for the request's topics, anywhere."""
        api = "fetch" if request.ask.kind.is_fetch else "produce"
        ledgers = (self._ledger(api, name) for name in {self.opened.client_id, *self._topics(request)})
        return max((ledger.until_ms for ledger in ledgers if ledger is not None), default=0)

    def _topics(self, request: Request) -> set[str]:
        """Topics that a request is about: a fetch that goes on with a session names only some of them."""
        kind, topics = request.ask.kind, {request.ask.topic} if request.is_named else set()
        if kind.api == "share_fetch":
            return self._shared | topics
        if not kind.has_session:
            return topics
        if self._is_older(request):
            return {HOT, *topics}  # Weir remembers the latest session, and an older one may have any topic
        _number, epoch = self._asked_session(request)
        self._fetched = topics | self._fetched if epoch > 0 else topics
        return self._fetched

    def _asked_session(self, request: Request) -> tuple[int, int]:
        """Return the number and epoch of the session in a fetch that has one."""
        number, epoch = SESSION.unpack_from(
            request.frame, session_at(request.ask.kind, self.opened.client_id)
        )
        return number, epoch

    def _is_older(self, request: Request) -> bool:
        """Return True if a fetch goes on with a session that is not the latest."""
        number, epoch = self._asked_session(request)
        return epoch > 0 and number != self._session

    def _begins_session(self, request: Request) -> bool:
        return request.ask.kind.has_session and self._asked_session(request) == (0, 0)

    def _ledger(self, api: str, name: str) -> Ledger | None:
        return self._world.ledgers.get((api, name))

    # Checks

    def _fail(self, invariant: str, detail: str) -> None:
        self._world.fail(invariant, f"connection {self.number}: {detail}")

    def _check_request(self, request: Request) -> None:
        """A request was forwarded as it was sent, but for the bounds of a fetch, and a session begun."""
        kind, client_id = request.ask.kind, self.opened.client_id
        self._questions.check_named(request)
        frame = self.forward.stream[request.forward_end - len(request.frame) : request.forward_end]
        if kind.api == "share_fetch":
            at = share_records_at(client_id)
            request.acquires_none = INT32.unpack_from(frame, at)[0] == 0
            INT32.pack_into(frame, at, SHARE_RECORDS)
        if kind.api == "fetch" and frame != request.frame:
            at = bounds_at(kind, client_id)
            sent = FETCH_BOUNDS.unpack_from(request.frame, at)
            if all(map(int.__le__, FETCH_BOUNDS.unpack_from(frame, at), sent)):
                FETCH_BOUNDS.pack_into(frame, at, *sent)
            at = session_at(kind, client_id)
            if self._begins_session(request):
                SESSION.pack_into(frame, at, 0, max(SESSION.unpack_from(frame, at)[1], 0))  # -1: none begins
        if frame != request.frame:
            self._fail("bytes", f"request {self._forwarded} was forwarded as {frame[:80].hex(' ')}")

    def _check_wait(self, request: Request) -> None:
        """A request is forwarded as soon as the waits are over that its own connection has caused."""
        now_ms, api = self._world.now_ms, request.ask.kind.api
        before_ms = self.requests[self._forwarded - 1].forwarded_ms if self._forwarded else 0
        unblocked_ms = max(self._own_until_ms, self._serial_until_ms, self.down.full_ms)
        asked = self._questions.latest
        if asked is not None:
            unblocked_ms = max(unblocked_ms, asked.answered_ms)
        until_ms = max(request.sent_ms, before_ms, unblocked_ms)
        wait_ms = max(self._others_until_ms(request) - until_ms, 0)
        if api in self._firsts or (api == "produce" and request.ask.topic in self._firsts):
            until_ms += min(wait_ms, HOLD_MS_MAX)
        if self._script.request_percentage and (asked is not None or not self._has_begun):
            until_ms += WINDOW_MS  # a question costs request time, too
        if now_ms > until_ms:
            self._fail("waits", f"request {self._forwarded} ({api}) goes on {now_ms - until_ms} ms too late")
        if now_ms < self._own_until_ms and self._exact and self.stopped != "drain":
            early_ms = self._own_until_ms - now_ms
            self._fail("waits", f"request {self._forwarded} ({api}) goes on {early_ms} ms too early")

    def _check_told(self, request: Request, told_ms: int) -> None:
        """A response tells the wait that its request has caused, or the broker's if that is longer."""
        now_ms, brokers_ms = self._world.now_ms, request.ask.broker_throttle_ms
        least_ms = max(request.own_until_ms - now_ms, brokers_ms, 0)
        most_ms = max(self._own_until_ms - request.first_ms, brokers_ms, 0) if self._exact else math.inf
        if not least_ms <= told_ms <= most_ms:
            self._fail("told", f"a throttle time of {told_ms} ms, not of {least_ms} to {most_ms}")
        if not self._exact:
            self._own_until_ms = max(self._own_until_ms, now_ms + told_ms)

    def _check_response(self, request: Request, frame: bytearray) -> None:
        """A response is the broker's, and was delivered at once."""
        now_ms, number, script = self._world.now_ms, len(self.answered), self._script
        if frame != request.answer:
            self._fail("bytes", f"response {number} was delivered as {frame[:80].hex(' ')}")
        before_ms = self.answered[-1].done_ms if self.answered else 0
        late_ms = now_ms - max(request.last_ms, before_ms, self.down.full_ms)
        if late_ms > 0:
            self._fail("waits", f"response {number} was delivered {late_ms} ms too late")
        if script.topic_rate and request.ask.kind == TEACHING:
            taught = (wire_name(topic.topic, topic.made) for topic in self._world.topics.values())
            for name in taught:
                if id_of(name).bytes in frame and not self._world.weir.knows(name):
                    self._fail("names", f"response {number} has not taught {name}")
        if request.ask.kind.is_fetch or self.stopped or not self._exact:
            self._serial_until_ms = now_ms

    def check_quiet(self) -> None:
        hangs = self.opened.hangs
        if hangs and self.up.accepted < len(self.up.stream):
            return  # its end comes behind bytes that nobody takes
        if self.left or self.broker_left or (self.stopped and not hangs):
            self._fail("ends", "nothing happens any more, and the connection is open")
        if not hangs:
            self._check_all_forwarded()
            self._check_all_answered()

    def check_end(self, reason: str, detail: str) -> None:
        begin = self.requests[self._forwarded - 1].end if self._forwarded else 0
        part, cut = self.forward.stream[self._forward_begin :], self.requests[self._forwarded :][:1]
        if not (cut and cut[0].ask.kind.api == "fetch") and part != self.up.stream[begin:][: len(part)]:
            self._fail("bytes", f"the last request was forwarded as {part[:80].hex(' ')}")
        hangs, expected = self.opened.hangs, self._reasons()
        if reason not in expected and not hangs:
            self._fail("reason", f"closed as {reason} ({detail}), not as {' or '.join(sorted(expected))}")
        if reason == "client_closed" and not (hangs or self.stopped):
            self._check_all_forwarded()
        if reason == "client_closed" and self.left == "half":
            self._check_patience()
        if reason in ("broker_closed", "drained", "connection_age") and self.left in ("", "half"):
            self._check_all_answered()
        if reason in ("drained", "connection_age"):
            self._check_all_forwarded(self.up.read)

    def _reasons(self) -> set[str]:
        clients = {"": set[str](), "half": {"client_closed"}, "reset": {"client_reset"}}
        brokers = {"": set[str](), "reset": {"broker_reset"}}
        stopped = {"": set[str](), "drain": {"drained"}, "age": {"connection_age"}, "close": {"stopped"}}
        return (
            clients.get(self.left, {"client_closed", "client_reset"})
            | brokers.get(self.broker_left, {"broker_closed", "broker_reset"})
            | stopped[self.stopped]
        )

    def _check_all_forwarded(self, read_bytes: float = math.inf) -> None:
        """Each request whose first byte is among the first `read_bytes` has gone to the broker."""
        begun = [request for request in self.requests if request.end - len(request.frame) < read_bytes]
        lost = sum(not 0 < request.forward_end <= self.forward.accepted for request in begun)
        if lost:
            self._fail("lost", f"the last {lost} of {len(begun)} requests were not forwarded")

    def _check_all_answered(self) -> None:
        sent = [request for request in self.awaited if request.last_ms >= 0]
        if len(self.answered) < len(sent) or (sent and self.down.accepted < sent[-1].done_at):
            self._fail("lost", f"{len(self.answered)} of {len(sent)} responses were delivered")

    def _check_patience(self) -> None:
        """A client that has closed its half got the answers that are here, and time to get the others."""
        delivered = sum(request.done_at <= self.down.accepted for request in self.answered)
        for request in self.awaited[delivered:]:
            asked_ms = self._world.now_ms - request.forwarded_ms
            is_here = 0 <= request.last_ms < self._world.now_ms
            if is_here or (request.forwarded_ms >= 0 and asked_ms < PATIENCE_MS):
                self._fail(
                    "lost", f"closed {asked_ms} ms after a request went on whose answer is not delivered"
                )
