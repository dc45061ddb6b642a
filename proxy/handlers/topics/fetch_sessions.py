"""The topics of a fetch that names no topics because it continues a fetch session (KIP-227).

A broker identifies a fetch session by id alone, so any connection may continue the fetch session. Weir knows
the topics of a fetch session that began on this connection, because its first fetch names them. It learns the
topics of other fetch sessions from responses.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias

from weir.protocol.messages import FetchRequest
from weir.protocol.scanning.field_offsets import field_offset

Track: TypeAlias = "Callable[[FetchSession, bytearray, int, int, set[bytes]], set[bytes] | None]"
"""Function (session, data, body, end, named) that returns the topics with a rate of the complete fetch with
body `data[body:end]`; None if the fetch may have any topic. `named`: those topics that the fetch itself
names. Raises ProtocolError if the body is malformed.
"""

UNKNOWN: Final = -1
_NO_EPOCH: Final = -1
"""Session epoch of a fetch that uses no fetch session. (A fetch with epoch 0 begins one.)"""
_ANSWER_HEAD: Final = Struct(">ihi")
"""Struct of the beginning of a Fetch response since v7: throttle time, error code, and id of the fetch
session.
"""


class FetchSession:
    """The latest fetch session of a connection."""

    __slots__ = ("_head", "asked", "id", "other", "topics")

    def __init__(self) -> None:
        self.id = UNKNOWN
        """Id of the fetch session; UNKNOWN until the broker's first response."""
        self.topics: set[bytes] = set()
        """Topics of the fetch session that have a rate."""
        self.asked: set[bytes] | None = set()
        """Topics with a rate that the connection's latest fetch may have, whether or not it is one of the
        fetch session; None if it may have any topic.
        """
        self.other = UNKNOWN
        """Id of the fetch session that the client's latest incremental fetch continues. Another connection
        may have begun that fetch session.
        """
        self._head = b""
        """First bytes of the first response in the fetch session, from the body's start on. They are
        collected until they contain the session's id.
        """

    def begin(self, topics: set[bytes]) -> None:
        """Begin a fetch session: `topics` are those that its first fetch names."""
        self.id, self.topics, self._head = UNKNOWN, topics, b""

    def forget(self) -> None:
        """Note that the latest fetch may have any topic, because it has more topics than Weir reads."""
        self.begin(set())
        self.asked, self.other = None, UNKNOWN

    def adopt(self) -> None:
        """Make `self.other` the connection's latest fetch session, without topics yet. Another connection
        began it, so Weir learns its topics from its responses.
        """
        self.id, self.topics = self.other, set()

    def answered(self, data: bytearray, start: int, stop: int) -> None:
        """Read the id of the fetch session in `data[start:stop]`, the next bytes of a response's body. Ignore
        the bytes if the id is known.
        """
        if self.id == UNKNOWN and self.asked is not None and len(self._head) < _ANSWER_HEAD.size:
            end = min(stop, start + _ANSWER_HEAD.size - len(self._head))
            self._head += data[start:end]
            if len(self._head) == _ANSWER_HEAD.size:
                self.id = _ANSWER_HEAD.unpack(self._head)[2]


def tracker(version: int) -> Track:
    """Return the function that follows a connection's fetch session over the fetches in this version."""
    session_id, epoch = (
        field_offset(FetchRequest, version, name) for name in ("session_id", "session_epoch")
    )
    if session_id is None or epoch is None:

        def named_each_time(
            _session: FetchSession, _data: bytearray, _body: int, _end: int, named: set[bytes]
        ) -> set[bytes]:
            return named

        return named_each_time

    def told(
        session: FetchSession, data: bytearray, body: int, end: int, named: set[bytes]
    ) -> set[bytes] | None:
        if epoch.read(data, epoch.locate(data, body, end, True)) in (_NO_EPOCH, 0):
            session.begin(named)
            return named
        session.other = session_id.read(data, session_id.locate(data, body, end, True))
        if session.other != session.id:
            return None
        session.topics |= named
        return session.topics

    return told
