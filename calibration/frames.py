"""Encoded requests without client-id, broker versions, and the fields that are read of responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from protocol.api import ApiKey, request_header_version, response_header_version, versions
from protocol.codec import codec, request_type, response_type
from protocol.errors import ProtocolError
from protocol.framing import LENGTH, LENGTH_BYTES, REQUEST_HEAD, response_body
from protocol.scanning.field_offsets import field_offset
from protocol.values import schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.values import Message
    from protocol.versions import VersionRange

BY_NAME: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.DELETE_TOPICS: 5,
}
"""The newest versions that name topics instead of giving topic ids, and that ask for one group only."""
CAPS: Final[Mapping[ApiKey, int]] = {**BY_NAME, ApiKey.JOIN_GROUP: 3}
"""The newest versions to use: those of `BY_NAME`, and JoinGroup v3, the last version that accepts a new
member without an answer MEMBER_ID_REQUIRED.
"""
CORRELATION_ID: Final = 1
_NO_TAGS: Final = b"\0"


class Request(NamedTuple):
    """An encoded request without correlation id and client-id."""

    api: ApiKey
    version: int
    body: bytes

    def frame(self, client_id: str) -> bytes:
        """Return the whole frame under this client-id."""
        name = client_id.encode()
        tags = _NO_TAGS if request_header_version(self.api, self.version) == 2 else b""
        rest = len(name).to_bytes(2, "big") + name + tags + self.body
        length = REQUEST_HEAD.size - LENGTH_BYTES + len(rest)
        return REQUEST_HEAD.pack(length, self.api, self.version, CORRELATION_ID) + rest

    def answer(self, frame: bytes) -> Message:
        """Decode a response's frame. Raises ProtocolError."""
        return codec(response_type(self.api), self.version).decode(frame, self._body(frame))

    def throttle_ms(self, frame: bytes) -> int:
        """Return the throttle time (ms) of a response frame. Raises ProtocolError if the version has none."""
        where = field_offset(response_type(self.api), self.version, "throttle_time_ms")
        if where is None:
            raise ProtocolError(f"{self.api.name} v{self.version} tells no throttle time")
        return where.read(frame, where.locate(frame, self._body(frame), len(frame), True))

    def _body(self, frame: bytes) -> int:
        flexible = response_header_version(self.api, self.version) == 1
        return response_body(frame, 0, len(frame), flexible=flexible)


class BrokerVersions:
    """The API versions that both a broker and Weir support."""

    def __init__(self, spoken: Mapping[int, VersionRange], caps: Mapping[ApiKey, int] = CAPS) -> None:
        """Take the broker's version ranges by API key, and the newest versions to use by API."""
        self.spoken = spoken
        self._caps = caps

    def version(self, api: ApiKey) -> int | None:
        """Return the newest common version within `caps`; None without a common version."""
        known, spoken = versions(api), self.spoken.get(api)
        if known is None or spoken is None:
            return None
        newest = min(known.max, spoken.max)
        newest = min(newest, max(self._caps.get(api, newest), spoken.min))
        return newest if newest >= max(known.min, spoken.min) else None

    def request(self, message: Message, version: int | None = None) -> Request | None:
        """Encode the message in this version, by default the newest common one; None if the broker lacks
        it.
        """
        api = _api_key(message)
        version = self.version(api) if version is None else version
        if version is None or api not in self.spoken or version not in self.spoken[api]:
            return None
        return encoded(message, version)


def encoded(message: Message, version: int) -> Request:
    """Encode the message in this version."""
    return Request(_api_key(message), version, codec(type(message), version).encode(message))


def _api_key(message: Message) -> ApiKey:
    return ApiKey(schema_of(type(message)).api_key)


def kafka_name(api: ApiKey) -> str:
    """Return Kafka's name of an API, such as OffsetCommit."""
    return request_type(api).__name__.removesuffix("Request")


def error_codes(message: Message) -> set[int]:
    """Return all error codes but 0 in a response, nested structures included."""
    return _error_codes(msgspec.to_builtins(message))


def _error_codes(value: object) -> set[int]:
    if isinstance(value, list):
        return set().union(*map(_error_codes, value))
    if not isinstance(value, dict):
        return set()
    own = {code for name, code in value.items() if name == "error_code" and code}
    return own.union(*map(_error_codes, value.values()))


def length_of(frame: bytes | bytearray) -> int:
    """Return the length (bytes) of the frame at the beginning of `frame`, with the four bytes of its length
    field.
    """
    (length,) = LENGTH.unpack_from(frame)
    return int(length) + LENGTH_BYTES
