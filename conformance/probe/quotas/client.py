"""A client under a quota: one connection with a client-id of its own, and the time of each answer."""

from __future__ import annotations

import time
from typing import Final, Self

import msgspec

from weir.conformance.probe.link import ProbeTarget, decode, frame
from weir.conformance.probe.login import Login, connect
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.framing import LENGTH_BYTES
from weir.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from weir.protocol.values import Message
from weir.protocol.versions import VersionRange

_NEW: Final = 3
_UNSUPPORTED: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2)


class BrokerEndpoint(msgspec.Struct, frozen=True):
    """A broker, and the login there."""

    target: ProbeTarget
    login: Login | None = None


class Asked(msgspec.Struct, frozen=True):
    """A request that was sent."""

    api_key: int
    version: int
    correlation_id: int
    at_s: float
    """Time (s, monotonic) before the request's first byte was sent."""
    bytes: int
    """Length of the request without its prefix: a produce request's charge."""


class Answer(msgspec.Struct, frozen=True):
    """A response, and the request that it answers."""

    asked: Asked
    message: Message
    at_s: float
    """Time (s, monotonic) after the response's last byte was read."""
    bytes: int
    """Length of the response without its prefix."""

    @property
    def throttle_ms(self) -> int:
        """The response's throttle time (ms); 0 if this version lacks the field."""
        return int(getattr(self.message, "throttle_time_ms", 0))

    @property
    def took_ms(self) -> float:
        """Time (ms) from the request to its response."""
        return (self.at_s - self.asked.at_s) * 1000


class ProbeClient:
    """One connection under a client-id. Use it in a `with` block. All methods raise LinkError."""

    def __init__(self, endpoint: BrokerEndpoint, client_id: str) -> None:
        """Connect and log in. Raises RefusedError, LoginError."""
        self.client_id = client_id
        self._link = connect(endpoint.target, endpoint.login)
        self._correlation_id = 1000

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._link.__exit__()

    def send(self, message: Message, api_key: int, version: int) -> Asked:
        """Send a request, and do not wait for its response."""
        self._correlation_id += 1
        data = frame(message, api_key, version, self._correlation_id, self.client_id)
        asked_s = time.monotonic()
        self._link.send(data)
        return Asked(api_key, version, self._correlation_id, asked_s, len(data) - LENGTH_BYTES)

    def receive(self, asked: Asked) -> Answer:
        """Return the next response, which must answer this request."""
        data = self._link.receive()
        received_s = time.monotonic()
        message = decode(data, asked.api_key, asked.version, asked.correlation_id)
        return Answer(asked, message, received_s, len(data))

    def offered(self) -> dict[int, VersionRange]:
        """Return the versions that the target offers, by API key. Ask like clients since 2.4: first with v3,
        and then with v0 on the same connection if the target does not know v3 (KIP-511).
        """
        request = ApiVersionsRequest(client_software_name="weir-probe", client_software_version="1")
        asked = self.send(request, ApiKey.API_VERSIONS, _NEW)
        data = self._link.receive()
        if data[4:6] == _UNSUPPORTED:
            asked = self.send(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
            data = self._link.receive()
        answer = decode(data, ApiKey.API_VERSIONS, asked.version, asked.correlation_id)
        assert isinstance(answer, ApiVersionsResponse)
        return {each.api_key: VersionRange(each.min_version, each.max_version) for each in answer.api_keys}

    def ask(self, message: Message, api_key: int, version: int) -> Answer:
        """Send a request and return its response."""
        return self.receive(self.send(message, api_key, version))
