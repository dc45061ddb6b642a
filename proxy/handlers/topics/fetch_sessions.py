"""The topics of a fetch that names no topics because it continues a fetch session (KIP-227).

A broker identifies a fetch session by id alone, so any connection may continue the fetch session. Weir knows
the topics of a fetch session that began on this connection. It learns the topics of other fetch sessions from
responses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from struct import Struct
from typing import Final, TypeAlias

from protocol.messages import FetchRequest
from protocol.scanning.field_offsets import field_offset
from protocol.scanning.topic_names import topics_in

About: TypeAlias = "Callable[[FetchSession, bytearray, int, int, Collection[bytes]], set[bytes] | None]"
"""(session, data, body, end, wanted) -> the wanted topics of the fetch with body `data[body:end]`; None if
unknown. Raises ProtocolError.
"""

UNKNOWN: Final = -1
_NO_EPOCH: Final = -1
"""The epoch of a fetch without a session; 0 begins a session."""
_ANSWER_HEAD: Final = Struct(">ihi")
"""Throttle time, error code, session id: the beginning of a response since v7."""


class FetchSession:
    """The latest fetch session of a connection."""

    __slots__ = ("_head", "id", "is_known", "other", "topics")

    def __init__(self) -> None:
        """Begin without a fetch session."""
        self.id = UNKNOWN
        """Id of the fetch session; UNKNOWN until its first response."""
        self.topics: set[bytes] = set()
        """Topics of the fetch session that have a rate."""
        self.is_known = True
        """True if the latest fetch is of these topics; False if it may be of any."""
        self.other = UNKNOWN
        """Id of a fetch session that the latest fetch continues and that another connection began."""
        self._head = b""
        """First bytes of the body of the first response, which has the id."""

    def begin(self, topics: set[bytes]) -> None:
        """Begin a fetch session with these topics, all that its first fetch names."""
        self.id, self.topics, self._head = UNKNOWN, topics, b""

    def adopt(self) -> None:
        """Switch to the fetch session `other`, whose topics are learnt from its responses."""
        self.id, self.topics = self.other, set()

    def answered(self, data: bytearray, start: int, stop: int) -> None:
        """Read the next bytes of a response's body, which may have the session id."""
        if self.id == UNKNOWN and self.is_known and len(self._head) < _ANSWER_HEAD.size:
            end = min(stop, start + _ANSWER_HEAD.size - len(self._head))
            self._head += data[start:end]
            if len(self._head) == _ANSWER_HEAD.size:
                self.id = _ANSWER_HEAD.unpack(self._head)[2]


def about(version: int) -> About:
    """Return a function that finds the topics of fetches in this version, which must name topics."""
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
