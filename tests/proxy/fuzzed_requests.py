"""Arbitrary requests that Weir answers after asking the broker, and damaged frames."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from tests.protocol.generate import messages
from tests.wire.frames import framed
from weir.protocol.api import ApiKey, versions
from weir.protocol.codec import request_type
from weir.protocol.messages import Message
from weir.proxy.connection.connection import Connection

KEYS: Final = (
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_TOPICS,
)


@st.composite
def asked(draw: st.DrawFn) -> tuple[Message, int]:
    key = draw(st.sampled_from(KEYS))
    known = versions(key)
    assert known is not None
    version = draw(st.integers(known.min, known.max))
    return draw(messages(request_type(key), version)), version


def damaged(data: st.DataObject, frame: bytes) -> bytes:
    """The same, or with some bytes cut off or changed, in a frame that is whole."""
    payload = bytearray(frame[4:])
    match data.draw(st.sampled_from(["sound", "sound", "sound", "cut", "changed"])):
        case "cut":
            del payload[data.draw(st.integers(8, max(len(payload), 8))) :]
        case "changed" if len(payload) > 14:
            payload[data.draw(st.integers(14, len(payload) - 1))] = data.draw(st.integers(0, 255))
    return framed(bytes(payload))


def closed(connection: Connection) -> bool:
    return connection.violation is not None
