"""Which topics a fetch is about that does not say so, because it goes on with a fetch session (KIP-227).

A broker knows a session by its id alone: what was begun on one connection may be gone on with on another. So
only of the session that a connection has begun itself it is known which topics it has; of another one, not
until its answers show them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from struct import Struct
from typing import Final, TypeAlias

from protocol.field_offsets import field_offset
from protocol.messages import FetchRequest
from protocol.topic_names import topics_in

About: TypeAlias = "Callable[[FetchSession, bytearray, int, int, Collection[bytes]], set[bytes] | None]"
"""(session, data, body, end, wanted) -> those of the wanted topics that the fetch is about whose body is
`data[body:end]`; None if it is not known. Raises ProtocolError.
"""

UNKNOWN: Final = -1
_NO_EPOCH: Final = -1
"""Without a session; 0 begins one."""
_ANSWER_HEAD: Final = Struct(">ihi")
"""Throttle time, error, id of the session: how an answer begins since v7."""


class FetchSession:
    """The latest one of a connection."""

    __slots__ = ("_head", "id", "is_known", "other", "topics")

    def __init__(self) -> None:
        """None yet."""
        self.id = UNKNOWN
        self.topics: set[bytes] = set()
        """Its topics, as far as somebody has asked for them."""
        self.is_known = True
        """True if the latest fetch is of these topics; else it may be of any."""
        self.other = UNKNOWN
        """The one that a fetch goes on with, if it is another one."""
        self._head = b""

    def begin(self, topics: set[bytes]) -> None:
        """A fetch has named all of its topics; the answer tells the id."""
        self.id, self.topics, self._head = UNKNOWN, topics, b""

    def adopt(self) -> None:
        """Go on with the other one: an answer with its records shows its topics."""
        self.id, self.topics = self.other, set()

    def answered(self, data: bytearray, start: int, stop: int) -> None:
        """See the next bytes of an answer's body, if it may be the one that tells the id."""
        if self.id == UNKNOWN and self.is_known and len(self._head) < _ANSWER_HEAD.size:
            end = min(stop, start + _ANSWER_HEAD.size - len(self._head))
            self._head += data[start:end]
            if len(self._head) == _ANSWER_HEAD.size:
                self.id = _ANSWER_HEAD.unpack(self._head)[2]


def about(version: int) -> About:
    """Return how to tell of fetches of this version, which must name its topics."""
    topics_of = topics_in(FetchRequest, version, "topics")
    session_id, epoch = (
        field_offset(FetchRequest, version, name) for name in ("session_id", "session_epoch")
    )
    if session_id is None or epoch is None:

        def named_each_time(
            session: FetchSession, data: bytearray, body: int, end: int, wanted: Collection[bytes]
        ) -> set[bytes] | None:
            session.topics = topics_of(data, body, end, wanted)
            return session.topics

        return named_each_time

    def told(
        session: FetchSession, data: bytearray, body: int, end: int, wanted: Collection[bytes]
    ) -> set[bytes] | None:
        named = topics_of(data, body, end, wanted)
        if epoch.read(data, epoch.locate(data, body, end, True)) in (_NO_EPOCH, 0):
            session.begin(named)
            return named
        session.other = session_id.read(data, session_id.locate(data, body, end, True))
        if session.other != session.id:
            return None
        session.topics |= named
        return session.topics

    return told
