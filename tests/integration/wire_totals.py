"""What each client-id sent and received, by the frames that a tap has seen on the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.integration.tap import Conversation
from weir.protocol.api import ApiKey, request_header_version
from weir.protocol.codec import codec
from weir.protocol.framing import (
    CLIENT_ID_OFFSET,
    LENGTH,
    LENGTH_BYTES,
    REQUEST_HEAD,
    RESPONSE_HEAD,
    client_id_end,
    request_body,
)
from weir.protocol.messages import ProduceRequest


class Totals(NamedTuple):
    requests: int
    bytes_in: int
    """Of requests, length prefixes included."""
    bytes_out: int
    """Of responses, as well."""


class UnevenError(AssertionError):
    """A conversation ended within a frame: what it comes to is a matter of definition."""


def totals(conversations: Iterable[Conversation]) -> dict[str, Totals]:
    """By client-id. A response belongs to whoever asked. Raises UnevenError."""
    requests: Counter[str] = Counter()
    bytes_in: Counter[str] = Counter()
    bytes_out: Counter[str] = Counter()
    for conversation in conversations:
        awaited: list[tuple[str, int]] = []
        for frame in _frames(conversation.requests):
            client_id = _client_id(frame)
            requests[client_id] += 1
            bytes_in[client_id] += len(frame)
            if _is_answered(frame):
                awaited.append((client_id, REQUEST_HEAD.unpack_from(frame)[3]))
        responses = list(_frames(conversation.responses))
        assert len(responses) <= len(awaited)
        for frame, (client_id, correlation_id) in zip(responses, awaited, strict=False):
            assert RESPONSE_HEAD.unpack_from(frame)[1] == correlation_id
            bytes_out[client_id] += len(frame)
    return {name: Totals(requests[name], bytes_in[name], bytes_out[name]) for name in requests}


def _client_id(frame: bytes) -> str:
    return frame[CLIENT_ID_OFFSET + 2 : client_id_end(frame, 0, len(frame))].decode()


def _is_answered(frame: bytes) -> bool:
    _, api_key, version, _ = REQUEST_HEAD.unpack_from(frame)
    if api_key != ApiKey.PRODUCE:
        return True
    flexible = request_header_version(api_key, version) == 2
    body = request_body(frame, 0, len(frame), flexible=flexible)
    acks: int = codec(ProduceRequest, version).decode(frame, body).acks
    return acks != 0


def _frames(stream: bytes | bytearray) -> Iterator[bytes]:
    position = 0
    while position < len(stream):
        if position + LENGTH_BYTES > len(stream):
            raise UnevenError(f"{len(stream) - position} bytes of a frame's length at the end")
        (length,) = LENGTH.unpack_from(stream, position)
        stop = position + LENGTH_BYTES + length
        if stop > len(stream):
            raise UnevenError(
                f"{len(stream) - position} of {length + LENGTH_BYTES} bytes of a frame at the end"
            )
        yield bytes(stream[position:stop])
        position = stop
