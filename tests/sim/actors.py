"""The two ends of a connection: a client that takes steps, a broker that answers each whole request."""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

from tests.sim.frames import (
    FETCH_BOUNDS,
    HEAD_BYTES,
    INT32,
    PART,
    SESSION,
    TEACHING,
    THROTTLE_AT,
    answered,
    asked,
    bounds_at,
    session_at,
    session_id,
    throttle_ms,
)
from tests.sim.requests import Question, Request
from tests.sim.script import NODES, START_MS, Ask, End, Step, wire_name
from weir.protocol.error_codes import ErrorCode
from weir.proxy.net.reactor import BUFFER_BYTES

if TYPE_CHECKING:
    from tests.sim.conversation import Conversation
    from tests.sim.world import World


class Client:
    """Takes the steps of one connection, in their order, each when its time has come."""

    def __init__(self, world: World, conversation: Conversation, rng: Random, steps: list[Step]) -> None:
        self._world, self._conversation, self._rng = world, conversation, rng
        self._steps = deque(steps)
        self._free_ms = 0
        """When the throttle time is over that the client obeys."""
        self._is_sending = self._is_reading = False
        """True while it waits before the next piece of a request, or before it reads."""
        self._read = 0
        """Number of responses that it has read."""
        self._session = (0, 0)
        """Id and epoch of the fetch session for the next fetch."""

    def go_on(self) -> None:
        """Take the next steps, as far as that is possible now."""
        conversation, world = self._conversation, self._world
        while self._steps and not conversation.up.gone:
            step = self._steps[0]
            must_wait = conversation.opened.waits and len(conversation.awaited) > self._read
            if self._is_sending or (must_wait and isinstance(step.action, Ask)):
                return  # until the last piece is sent, or a response is here
            at_ms = max(START_MS + step.at_ms, self._free_ms)
            if at_ms > world.now_ms:
                world.at(at_ms, self.go_on)
                return
            self._steps.popleft()
            if isinstance(step.action, Ask):
                self._ask(step.action)
            elif isinstance(step.action, End):
                self.leave(step.action.how, step.action.part_bytes)

    def move(self) -> None:
        up, down, opened = self._conversation.up, self._conversation.down, self._conversation.opened
        if down.waiting and not (down.gone or self._is_reading):
            if opened.read_bytes:
                self._is_reading = True
                self._world.at(self._world.now_ms + opened.read_ms, self._take)
            else:
                self._take()
        if up.accepted < len(up.stream):
            up.accept()

    def leave(self, how: str, part_bytes: int = 0) -> None:
        """End the connection, or a half of it, in the middle of a request."""
        conversation, up, down = self._conversation, self._conversation.up, self._conversation.down
        part = asked(PART, conversation.opened.client_id, 0, 500, 1, "cold")[:part_bytes]
        up.stream += part
        unread = how == "close" and down.waiting  # of that a kernel tells with RST
        conversation.left, conversation.left_ms = "reset" if unread else how, self._world.now_ms
        if conversation.left == "reset":
            up.reset = down.reset = True
            del up.stream[up.accepted :]
        up.ended, down.gone = True, conversation.left != "half"
        self._steps.clear()

    def _ask(self, ask: Ask) -> None:
        """Send a request, in pieces if the client is slow."""
        conversation, opened, now_ms = self._conversation, self._conversation.opened, self._world.now_ms
        made = max(self._world.topics[ask.topic].made - ask.stale, 0) if ask.kind.has_ids else 0
        topic = wire_name(ask.topic, made)
        frame = asked(ask.kind, opened.client_id, len(conversation.requests), ask.size, ask.acks, topic)
        if ask.kind.has_session:
            number, epoch = self._session
            SESSION.pack_into(frame, session_at(ask.kind, opened.client_id), number, epoch)
            self._session = (number, epoch + (number > 0))
        conversation.sending(ask, topic, frame, now_ms + (opened.pieces - 1) * opened.pause_ms)
        is_whole = ask.kind.api == "share_fetch"  # or who is over could change while it arrives
        cuts = [] if is_whole else sorted(self._rng.randrange(len(frame)) for _ in range(opened.pieces - 1))
        self._is_sending = True
        for number, (start, stop) in enumerate(pairwise([0, *cuts, len(frame)])):
            send = partial(self._send, frame[start:stop], is_last=number == len(cuts))
            if number and opened.pause_ms:
                self._world.at(now_ms + number * opened.pause_ms, send)
            else:
                send()

    def _send(self, piece: bytearray, *, is_last: bool) -> None:
        self._conversation.up.stream += piece
        if is_last:
            self._is_sending = False
            self.go_on()

    def _take(self) -> None:
        conversation, before = self._conversation, self._read
        down, opened, answered_ = conversation.down, conversation.opened, conversation.answered
        self._is_reading = False
        if down.gone:
            return
        down.take(min(down.waiting, opened.read_bytes or down.waiting), self._world.now_ms)
        while self._read < len(answered_) and answered_[self._read].done_at <= down.read:
            request = answered_[self._read]
            kind, answer = request.ask.kind, request.answer or bytearray()
            if opened.obeys:
                self._free_ms = max(self._free_ms, self._world.now_ms + throttle_ms(kind, answer))
            if kind.has_session and session_id(kind, answer) != self._session[0]:
                self._session = (session_id(kind, answer), session_id(kind, answer) > 0)
            self._read += 1
        if self._read > before:
            self.go_on()


class Broker:
    """Reads all there is, and answers each whole request in order."""

    def __init__(self, world: World, conversation: Conversation, rng: Random) -> None:
        self._world, self._conversation, self._rng = world, conversation, rng
        self._received = 0
        """Number of requests that are here, Weir's own among them."""
        self._free_ms = 0
        """When the latest answer is sent."""
        self._sessions = 0
        """Number of fetch sessions."""

    def move(self) -> None:
        conversation = self._conversation
        forward, back, requests = conversation.forward, conversation.back, conversation.to_broker
        if forward.waiting and not forward.gone:
            forward.take(forward.waiting, self._world.now_ms)
            while self._received < len(requests) and requests[self._received].forward_end <= forward.read:
                self._answer(requests[self._received])
                self._received += 1
        if back.accepted < len(back.stream):
            back.accept()

    def leave(self, how: str) -> None:
        forward, back = self._conversation.forward, self._conversation.back
        self._conversation.broker_left = how
        if how == "reset":
            forward.reset = back.reset = True
            del back.stream[back.accepted :]
        del back.stream[back.heads.get(len(back.stream), len(back.stream)) :]  # no part of it arrives
        back.ended = forward.gone = True

    def _answer(self, request: Request | Question) -> None:
        opened, session = self._conversation.opened, 0
        if opened.hangs:
            return
        if isinstance(request, Question):
            self._free_ms = max(self._free_ms, self._world.now_ms) + opened.answer_ms
            self._world.at(self._free_ms, partial(self._tell, request))
            return
        ask = request.ask
        if not ask.acks:
            return
        request.error = self._error(request)
        if ask.kind.is_fetch:
            session = self._fetch(request)
        size = request.records_bytes if request.records_bytes or not session else -1
        number = INT32.unpack_from(request.frame, 8)[0]
        answer = answered(
            ask.kind, number, size, request.topic, ask.broker_throttle_ms, session, request.error
        )
        if ask.kind == TEACHING:
            answer = bytearray(self._world.cluster.answer(bytes(request.frame)))
            INT32.pack_into(answer, THROTTLE_AT[TEACHING] or 0, ask.broker_throttle_ms)
        is_cut = len(answer) > 2 * HEAD_BYTES and (request.records_bytes > 0 or not ask.kind.is_fetch)
        pieces = opened.answer_pieces if is_cut else 1
        cuts = sorted(self._rng.randrange(HEAD_BYTES, len(answer)) for _ in range(pieces - 1))
        self._free_ms = max(self._free_ms, self._world.now_ms)
        for start, stop in pairwise([0, *cuts, len(answer)]):
            self._free_ms += opened.answer_ms
            self._world.at(self._free_ms, partial(self._send, request, answer, start, stop))

    def _error(self, request: Request) -> int:
        """The error of a request's partition."""
        topic = self._world.topics[request.ask.topic]
        if request.ask.kind.has_ids and request.topic != wire_name(topic.topic, topic.made):
            return ErrorCode.UNKNOWN_TOPIC_ID
        if topic.leader not in (None, self._conversation.number % NODES):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _tell(self, question: Question) -> None:
        """Answer a question of Weir's, by what is true now."""
        back = self._conversation.back
        if back.ended or back.gone:
            return
        question.answered_ms, cluster = self._world.now_ms, self._world.cluster
        back.stream += cluster.answer(question.frame)
        for topic in question.topics:
            state = self._world.topics[topic.partition("-")[0]]
            if state.hidden or topic != wire_name(state.topic, state.made):
                self._world.refused_ms[topic] = self._world.now_ms

    def _fetch(self, request: Request) -> int:
        """Set the size of the records that are found; return the id of the fetch session, 0: none."""
        kind, client_id, session, epoch = request.ask.kind, self._conversation.opened.client_id, 0, -1
        most = 2000  # a small share fetch is charged with its head, but delivered when it is whole
        if request.ask.size > BUFFER_BYTES:
            most = request.ask.size
        if request.acquires_none or request.error:
            most = 0
        end = request.forward_end
        frame = self._conversation.forward.stream[end - len(request.frame) : end]
        if kind.api == "fetch" and not request.error:
            most = max(FETCH_BOUNDS.unpack_from(frame, bounds_at(kind, client_id))[2], 1000)
        if kind.has_session:
            session, epoch = SESSION.unpack_from(frame, session_at(kind, client_id))
        request.records_bytes = min(request.ask.size, most)
        if epoch == 0:
            self._sessions += 1
        return session if epoch > 0 else self._sessions * (epoch == 0)

    def _send(self, request: Request, answer: bytearray, start: int, stop: int) -> None:
        back, now_ms, kind = self._conversation.back, self._world.now_ms, request.ask.kind
        if back.ended or back.gone:
            return
        if not start:
            request.answer, request.first_ms = answer, now_ms
            begin = len(back.stream)
            if kind.is_fetch:  # its charge is due with its head
                streams = kind.api == "fetch" or len(answer) > BUFFER_BYTES
                end = begin + (HEAD_BYTES if streams else len(answer))
                back.heads.update(dict.fromkeys(range(begin + 1, end), begin))
        if stop == len(answer):
            request.last_ms = now_ms
        back.stream += answer[start:stop]
