"""Requests on a connection, and Weir's own among them: for the broker's versions and for names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from tests.kfake.cluster import Asked
from tests.sim.model import ASKED_AGAIN_MS
from tests.sim.script import TOPICS, Ask, Open, wire_name
from tests.wire.messages import id_of
from weir.protocol.api import ApiKey
from weir.protocol.messages import MetadataRequest

if TYPE_CHECKING:
    from tests.sim.world import World

HEAD: Final = Struct(">ih")
"""Length and API key of a request."""
ASK_FIRST: Final = ("produce", "fetch", "share_fetch")
QUESTIONS: Final = (ApiKey.API_VERSIONS, ApiKey.METADATA)
NAMES: Final = {
    id_of(name): name for topic in TOPICS for made in range(10) for name in [wire_name(topic, made)]
}
"""Topic id -> name of which it is made."""


@dataclass(slots=True)
class Request:
    """A request, and what became of it. Times are in ms, -1: not yet."""

    ask: Ask
    topic: str
    """Name of the topic, or the name of which its id is made (`wire_name`)."""
    frame: bytearray
    end: int
    """Offset of its end in the client's stream."""
    sent_ms: int
    """When the client has sent all of it, were there room enough."""
    records_bytes: int
    """Size of the records in it, or in its answer."""
    forwarded_ms: int = -1
    forward_end: int = -1
    """Offset of its end in the stream to the broker."""
    is_named: bool = True
    """True if Weir knows the name of its topic when it is forwarded."""
    error: int = 0
    """Error of its partition in the answer."""
    own_until_ms: int = 0
    """When the wait ends that it has caused."""
    others_until_ms: int = 0
    """When the waits of its client end, as they were when it was forwarded."""
    acquires_none: bool = False
    """True for a share fetch that was forwarded while its client was over."""
    answer: bytearray | None = None
    """The broker's answer."""
    first_ms: int = -1
    """When the broker has sent its first byte, were there room enough."""
    last_ms: int = -1
    begun: bool = False
    """True once the answer has begun to go to the client."""
    told: bool = False
    """True once its throttle time has."""
    done_ms: int = -1
    done_at: int = -1
    """Offset of the answer's end in the stream to the client."""


@dataclass(slots=True)
class Question:
    """A request of Weir's own, before it decides about a client's."""

    frame: bytes
    topics: list[str]
    """Names of which the ids are made that it asks about (`wire_name`)."""
    forward_end: int
    """Offset of its end in the stream to the broker."""
    answered_ms: int = -1
    """Time of the answer, -1: not yet."""


class Questions:
    """Those of one connection, and the checks of what Weir knows by them."""

    def __init__(
        self, world: World, opened: Open, stream: bytearray, fail: Callable[[str, str], None]
    ) -> None:
        self.latest: Question | None = None
        """The latest one, if no request was forwarded since."""
        self._world, self._opened, self._stream, self._fail = world, opened, stream, fail

    def next(self, api: str, begin: int) -> Question | None:
        """Return what Weir asks at this offset of the stream to the broker, before a request of this API."""
        stream = self._stream
        if api not in ASK_FIRST or len(stream) < begin + HEAD.size:
            return None
        length, api_key = HEAD.unpack_from(stream, begin)
        if api_key not in QUESTIONS or len(stream) < begin + 4 + length:
            return None
        frame = bytes(stream[begin : begin + 4 + length])
        message, topics = Asked(0, frame).message, list[str]()
        if isinstance(message, MetadataRequest):
            topics = [NAMES[topic.topic_id] for topic in message.topics or ()]
        if self.latest is None:  # else a name may have been learned while the broker told its versions
            self._check_asked(topics)
        elif self.latest.answered_ms < 0:
            self._fail("names", "a question before the one before is answered")
        self.latest = Question(frame, topics, begin + len(frame))
        return self.latest

    def _check_asked(self, topics: list[str]) -> None:
        """Weir asks for names that it does not know, and for a refused one not at once again."""
        for topic in topics:
            told_ms = self._world.told_ms.get(topic)
            if self._world.weir.knows(topic):
                self._fail("names", f"a question for {topic}, which Weir knows")
            if told_ms is not None and self._world.now_ms < told_ms + ASKED_AGAIN_MS:
                self._fail("names", f"{topic} is asked for again too early")

    def check_named(self, request: Request) -> None:
        """While topics have rates, a request goes on without a name only if the broker gives none, or the
        topic's id came late.
        """
        world, opened, topic = self._world, self._opened, request.topic
        if self.latest is not None and self.latest.answered_ms < 0:
            self._fail("names", "a request goes on before a question is answered")
        if request.is_named or not world.script.topic_rate:
            return
        is_cut = opened.cuts or opened.pieces > 1 or request.end > opened.capacity
        if request.ask.kind.api == "produce" and is_cut:
            return
        if self.latest is not None and topic in self.latest.topics:
            world.refused_ms[topic], world.told_ms[topic] = world.now_ms, self.latest.answered_ms
        elif world.now_ms > world.refused_ms.get(topic, -ASKED_AGAIN_MS) + ASKED_AGAIN_MS:
            self._fail("names", f"a request goes on, and nobody asks for {topic}")
