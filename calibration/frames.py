"""Encode requests without their client-id, choose API versions, and read the needed fields of responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from weir.protocol.api import ApiKey, request_header_version, response_header_version, versions
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import LENGTH, LENGTH_BYTES, REQUEST_HEAD, response_body
from weir.protocol.scanning.field_offsets import field_offset
from weir.protocol.values import schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weir.protocol.values import Message
    from weir.protocol.versions import VersionRange

BY_NAME: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.DELETE_TOPICS: 5,
}
"""For some APIs, the newest version that the calibration uses: the last one whose requests name topics
instead of giving topic ids, or contain only one group.
"""
CAPS: Final[Mapping[ApiKey, int]] = {**BY_NAME, ApiKey.JOIN_GROUP: 3}
"""Newest version that the calibration uses, by API: `BY_NAME`, and JoinGroup v3, the last version in which a
new member joins without first being answered MEMBER_ID_REQUIRED.
"""
CORRELATION_ID: Final = 1
_NO_TAGS: Final = b"\0"


class Request(NamedTuple):
    """An encoded request without header: its API, version and body. `frame` adds the header."""

    api: ApiKey
    version: int
    body: bytes

    def frame(self, client_id: str) -> bytes:
        """Return the request's frame: length field, header with this client-id, body."""
        name = client_id.encode()
        tags = _NO_TAGS if request_header_version(self.api, self.version) == 2 else b""
        rest = len(name).to_bytes(2, "big") + name + tags + self.body
        length = REQUEST_HEAD.size - LENGTH_BYTES + len(rest)
        return REQUEST_HEAD.pack(length, self.api, self.version, CORRELATION_ID) + rest

    def answer(self, frame: bytes) -> Message:
        """Decode the frame of a response to this request. Raises ProtocolError if the frame is malformed."""
        return codec(response_type(self.api), self.version).decode(frame, self._body(frame))

    def throttle_ms(self, frame: bytes) -> int:
        """Return the throttle time (ms) in the frame of a response to this request. Raises ProtocolError if
        the response's version has no throttle time, or the frame is malformed.
        """
        where = field_offset(response_type(self.api), self.version, "throttle_time_ms")
        if where is None:
            raise ProtocolError(f"{self.api.name} v{self.version} tells no throttle time")
        return where.read(frame, where.locate(frame, self._body(frame), len(frame), True))

    def _body(self, frame: bytes) -> int:
        flexible = response_header_version(self.api, self.version) == 1
        return response_body(frame, 0, len(frame), flexible=flexible)


class NodeApiVersions:
    """Chooses, for each request to one broker, an API version that the broker and Weir both support."""

    def __init__(self, spoken: Mapping[int, VersionRange], caps: Mapping[ApiKey, int] = CAPS) -> None:
        """Keep the broker's version ranges (`spoken`, by API key) and the newest versions to use (`caps`, by
        API).
        """
        self.spoken = spoken
        self._caps = caps

    def version(self, api: ApiKey) -> int | None:
        """Return the newest version that the broker and Weir both support, at most the API's cap; None if
        there is no such version. A cap below the broker's oldest version is raised to that version.
        """
        known, spoken = versions(api), self.spoken.get(api)
        if known is None or spoken is None:
            return None
        newest = min(known.max, spoken.max)
        newest = min(newest, max(self._caps.get(api, newest), spoken.min))
        return newest if newest >= max(known.min, spoken.min) else None

    def request(self, message: Message, version: int | None = None) -> Request | None:
        """Encode the message in `version`, by default the newest that the broker and Weir share. Return None
        if the broker lacks the API or the version.
        """
        api = _api_key(message)
        version = self.version(api) if version is None else version
        if version is None or api not in self.spoken or version not in self.spoken[api]:
            return None
        return encoded(message, version)


def encoded(message: Message, version: int) -> Request:
    """Encode the message as a request in this version. Raises ProtocolError if the version cannot express the
    message.
    """
    return Request(_api_key(message), version, codec(type(message), version).encode(message))


def _api_key(message: Message) -> ApiKey:
    return ApiKey(schema_of(type(message)).api_key)


def kafka_name(api: ApiKey) -> str:
    """Return Kafka's name of an API, such as OffsetCommit."""
    return request_type(api).__name__.removesuffix("Request")


def error_codes(message: Message) -> set[int]:
    """Return the values of all fields `error_code` in a response, also in nested structures, without 0 (no
    error).
    """
    return _error_codes(msgspec.to_builtins(message))


def _error_codes(value: object) -> set[int]:
    if isinstance(value, list):
        return set().union(*map(_error_codes, value))
    if not isinstance(value, dict):
        return set()
    own = {code for name, code in value.items() if name == "error_code" and code}
    return own.union(*map(_error_codes, value.values()))


def length_of(frame: bytes | bytearray) -> int:
    """Return the size (bytes) of the frame at the beginning of `frame`, its length field included."""
    (length,) = LENGTH.unpack_from(frame)
    return int(length) + LENGTH_BYTES
