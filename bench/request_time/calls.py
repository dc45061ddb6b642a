"""Requests to be sent again and again, and what a model of costs wants to know of each.

Every API of a client has a client-id of its own (`CLIENT.API`), so that the broker's account by client-id is
one by API too.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from calibration.frames import kafka_name
from protocol import (
    ApiKey,
    Message,
    VersionRange,
    codec,
    request_header_version,
    request_type,
    response_header_version,
    response_type,
    versions,
)
from protocol.framing import LENGTH, response_body
from protocol.messages import RequestHeader
from tests.kafka import wire

KB: Final = 1000.0
CORRELATION_ID: Final = 1
CAPS: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.END_TXN: 3,
}
"""The newest versions that name topics instead of giving their ids, and one transaction at a time."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request of one client."""

    api: ApiKey
    version: int
    client_id: str
    frame: bytes
    known: Mapping[str, float] = field(default_factory=dict)
    """What the request says of its cost, by the names of `features`."""
    converted: bool = False
    """The broker has to change the format of the records that it responds with."""
    pause_s: float = 0.0
    """Before it is sent."""

    def response(self, frame: bytes) -> Message:
        """Decode a whole response frame. Raises ProtocolError."""
        flexible = response_header_version(self.api, self.version) == 1
        body = response_body(frame, 0, len(frame), flexible=flexible)
        return codec(response_type(self.api), self.version).decode(frame, body)


Script = Generator[Call, bytes, None]
"""What a connection does: yields a call, is sent the frame of the response."""


def again(*calls: Call) -> Script:
    """These calls in turn, without end."""
    while True:
        for call in calls:  # noqa: UP028 (a tuple takes no answers)
            yield call


class BrokerVersions:
    """The versions that a broker and we have in common."""

    def __init__(self, spoken: Mapping[int, tuple[int, int]]) -> None:
        """`spoken`: API key to lowest and highest version, as the broker tells them."""
        self._spoken = spoken

    @classmethod
    def of(cls, host: str, port: int) -> BrokerVersions:
        """Ask a broker. Raises OSError, EOFError, ValueError."""
        return cls(wire.api_versions(host, port))

    def speaks(self, api: ApiKey, version: int | None = None) -> bool:
        """Whether the broker has the API, in this version if one is given."""
        if api not in self._spoken:
            return False
        return version is None or version in VersionRange(*self._spoken[api])

    def version(self, api: ApiKey) -> int:
        """The newest version of both, or what `CAPS` says. Raises KeyError."""
        ours = versions(api)
        assert ours is not None
        both = ours.intersect(VersionRange(*self._spoken[api]))
        return min(both.max, max(CAPS.get(api, both.max), both.min))

    def call(
        self,
        client: str,
        api: ApiKey,
        body: Message,
        *,
        version: int | None = None,
        known: Mapping[str, float] | None = None,
        converted: bool = False,
        pause_s: float = 0.0,
    ) -> Call:
        """Put length and header before a body."""
        version = self.version(api) if version is None else version
        client_id = f"{client}.{kafka_name(api)}"
        head = RequestHeader(
            request_api_key=api,
            request_api_version=version,
            correlation_id=CORRELATION_ID,
            client_id=client_id,
        )
        content = codec(RequestHeader, request_header_version(api, version)).encode(head)
        content += codec(request_type(api), version).encode(body)
        features = {"us": 1.0, "us_per_request_kb": len(content) / KB, **(known or {})}
        frame = LENGTH.pack(len(content)) + content
        return Call(api, version, client_id, frame, features, converted, pause_s)
