"""Requests to be sent again and again, and what a model of costs wants to know of each.

Every API of a client has a client-id of its own (`CLIENT.API`), so that the broker's account by client-id is
one by API too.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from bench.frames import Request
from calibration import frames
from calibration.frames import BY_NAME, kafka_name
from protocol import ApiKey, Message, VersionRange
from protocol.framing import LENGTH_BYTES
from tests.kafka import wire

KB: Final = 1000.0
NEWEST: Final[Mapping[ApiKey, int]] = {
    **BY_NAME,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.END_TXN: 3,
}
"""The newest versions that requests use: those of `BY_NAME`, and one transaction at a time."""


@dataclass(frozen=True, slots=True)
class Call(Request):
    """One request of one client."""

    client_id: str
    known: Mapping[str, float] = field(default_factory=dict)
    """What the request says of its cost, by the names of `features`."""
    converted: bool = False
    """The broker has to change the format of the records that it responds with."""
    pause_s: float = 0.0
    """Before it is sent."""


Script = Generator[Call, bytes, None]
"""What a connection does: yields a call, is sent the frame of the response."""


def again(*calls: Call) -> Script:
    """These calls in turn, without end."""
    while True:
        for call in calls:  # noqa: UP028 (a tuple takes no answers)
            yield call


class BrokerVersions(frames.BrokerVersions):
    """The versions that a broker and we have in common."""

    def __init__(self, spoken: Mapping[int, tuple[int, int]]) -> None:
        """`spoken`: API key to lowest and highest version, as the broker tells them."""
        super().__init__({key: VersionRange(*both) for key, both in spoken.items()}, NEWEST)

    @classmethod
    def of(cls, host: str, port: int) -> BrokerVersions:
        """Ask a broker. Raises OSError, EOFError, ValueError."""
        return cls(wire.api_versions(host, port))

    def speaks(self, api: ApiKey, version: int | None = None) -> bool:
        """Whether the broker has the API, in this version if one is given."""
        return api in self.spoken and (version is None or version in self.spoken[api])

    def version(self, api: ApiKey) -> int:
        """See `frames.BrokerVersions`. Raises KeyError if the broker does not have it."""
        newest = super().version(api)
        if newest is None:
            raise KeyError(api)
        return newest

    def call(
        self,
        client: str,
        body: Message,
        *,
        version: int | None = None,
        known: Mapping[str, float] | None = None,
        converted: bool = False,
        pause_s: float = 0.0,
    ) -> Call:
        """Put length and header before a body. Raises KeyError if the broker does not have it."""
        made = self.request(body, version)
        if made is None:
            raise KeyError(type(body).__name__)
        client_id = f"{client}.{kafka_name(made.api)}"
        frame = made.frame(client_id)
        features = {"us": 1.0, "us_per_request_kb": (len(frame) - LENGTH_BYTES) / KB, **(known or {})}
        return Call(made.api, made.version, frame, client_id, features, converted, pause_s)
