"""Rules about a connection's client over time: versions offered, throttles, and the order of SASL.

Each class follows one rule along a connection, takes requests and responses in the order of time, and returns
defects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.conformance.verify.finding import Defect
from weir.conformance.verify.rules import R
from weir.protocol.api import ApiKey
from weir.protocol.backing_off import BACKS_OFF_FROM

if TYPE_CHECKING:
    from weir.protocol.messages import ApiVersionsResponse

_MS: Final = 1_000_000

QUIET_FROM: Final[dict[int, int]] = {
    **BACKS_OFF_FROM,
    ApiKey.ELECT_LEADERS: 0,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 0,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.OFFSET_DELETE: 0,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
}
"""First version of a response after which a client must wait throttle_time_ms, by API. In older versions the
server alone delays (KIP-219; `shouldClientThrottle` of Kafka's response classes). Other APIs: never.
"""

UNDERWAY_NS: Final = 50 * _MS
"""Time (ns) after a throttled response in which requests may arrive that a pipelining client sent before."""
_TOLERANCE_NS: Final = 5 * _MS
"""Clients count whole milliseconds, and the recorder's times vary."""


class Versions:
    """The versions that the server's ApiVersions response offered on this connection (KIP-35)."""

    def __init__(self) -> None:
        self._offered: dict[int, tuple[int, int]] = {}

    def offered(self, response: ApiVersionsResponse) -> None:
        """Take an ApiVersions response. One with an error offers nothing."""
        if not response.error_code:
            self._offered = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}

    def request(self, api_key: int, version: int) -> list[Defect]:
        """Return the defects of a request's version. ApiVersions may ask for any version (KIP-511)."""
        if not self._offered or api_key == ApiKey.API_VERSIONS:
            return []
        low, high = self._offered.get(api_key, (0, -1))
        if low <= version <= high:
            return []
        offered = f"{low} to {high}" if high >= 0 else "not this API"
        text = "The client uses a version that the server's ApiVersions did not offer. Use one of its range."
        return [Defect(R.VERSION_NOT_OFFERED, text, "header.request_api_version", 6, offered, str(version))]


class Throttle:
    """The time until which the client must be quiet (KIP-219)."""

    def __init__(self) -> None:
        self._from_ns = 0
        self._until_ns = 0
        self._cause = ""

    def response(self, api_key: int, version: int, throttle_ms: int, time_ns: int, cause: str) -> None:
        """Take a response's throttle time (ms); the deadline never moves backwards. `cause`: names the
        response.
        """
        until_ns = time_ns + throttle_ms * _MS
        if version >= QUIET_FROM.get(api_key, 1 << 15) and throttle_ms > 0 and until_ns > self._until_ns:
            self._from_ns, self._until_ns, self._cause = time_ns, until_ns, cause

    def request(self, time_ns: int, *, pipelines: bool) -> list[Defect]:
        """Return the defects of sending now. One throttle gives one defect. `pipelines`: True if the client
        has sent requests before it had the response of the one before.
        """
        if time_ns >= self._until_ns - _TOLERANCE_NS or time_ns <= self._from_ns:
            return []
        if pipelines and time_ns < self._from_ns + UNDERWAY_NS:
            return []
        waited, asked = (time_ns - self._from_ns) // _MS, (self._until_ns - self._from_ns) // _MS
        self._until_ns = 0
        text = (
            f"The client sends {waited} ms after a response with throttle_time_ms {asked} ({self._cause}). "
            "Read that field of each response, and wait before the next request on this connection."
        )
        return [Defect(R.THROTTLE_IGNORED, text, "", 0, f"{asked} ms of quiet", f"{waited} ms")]


_TOKENS: Final = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2, "OAUTHBEARER": 1}
"""Number of tokens that a client sends in a successful exchange, by mechanism."""
SASL_EXCHANGE: Final = frozenset({ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_HANDSHAKE})


class Sasl:
    """The order of SASL requests (KIP-43, KIP-152)."""

    def __init__(self) -> None:
        self.raw_tokens = 0
        """Number of tokens without Kafka's header that the client has still to send; -1 if unknown."""
        self._authenticating = False
        self._given_up = False
        self._handshaken = False
        self._left = 0
        self._mechanism = ""

    def handshake(self, version: int, mechanism: str) -> None:
        """Take a SaslHandshake request."""
        self._mechanism = mechanism
        if version == 0:
            self.raw_tokens = _TOKENS.get(mechanism, -1)

    def handshake_answered(self, version: int, error_code: int) -> None:
        """Take a SaslHandshake response."""
        if error_code:
            self.raw_tokens = 0
        elif version > 0:
            self._handshaken = self._authenticating = True
            self._left = _TOKENS.get(self._mechanism, 1)

    def authenticated(self, error_code: int) -> None:
        """Take a SaslAuthenticate response."""
        if not error_code:
            self._left -= 1
            self._authenticating = self._left > 0

    def give_up(self) -> None:
        """Find no more defects: a message of the exchange cannot be read."""
        self._given_up = True

    def request(self, api_key: int) -> list[Defect]:
        """Return the defects of a request at this place."""
        if self._given_up:
            return []
        if api_key == ApiKey.SASL_AUTHENTICATE and not self._handshaken:
            text = "The client sends SaslAuthenticate without a SaslHandshake. Send the handshake first."
            return [
                Defect(R.SASL_ORDER, text, "header.request_api_key", 4, "SaslHandshake", "SaslAuthenticate")
            ]
        if self._authenticating and api_key not in SASL_EXCHANGE:
            text = "The client sends a request before its authentication ended. Authenticate first."
            return [
                Defect(
                    R.SASL_ORDER, text, "header.request_api_key", 4, "SaslAuthenticate", f"API key {api_key}"
                )
            ]
        return []
