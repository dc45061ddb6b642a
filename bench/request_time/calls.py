"""Requests that scripts send repeatedly, each with its features: the amounts on which its cost depends.

A client uses a different client-id for each API (`CLIENT.API`), so that the broker's figures, which are by
client-id, are also by API.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from bench.frames import Request
from tests.kafka import wire
from weir.calibration import frames
from weir.calibration.frames import BY_NAME, kafka_name
from weir.protocol import ApiKey, Message, VersionRange
from weir.protocol.framing import LENGTH_BYTES

KB: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Call(Request):
    """One request of one client, with the features of its cost."""

    client_id: str
    known: Mapping[str, float] = field(default_factory=dict)
    """Features that are known before the response, such as the number of partitions, by name of the
    coefficient that each is multiplied by.
    """
    converted: bool = False
    """True if the broker converts the records of the response to an older format."""


Script = Generator[Call, bytes, None]
"""The requests of one connection: a generator that yields a call, and is sent the frame of the response."""


def again(*calls: Call) -> Script:
    """Yield the calls in turn, without end."""
    while True:
        for call in calls:  # noqa: UP028 (a tuple takes no answers)
            yield call


class BrokerVersions(frames.NodeApiVersions):
    """Chooses API versions that both the broker and this benchmark support, and encodes calls."""

    def __init__(self, spoken: Mapping[int, tuple[int, int]]) -> None:
        """Keep the broker's version ranges: `spoken` has the lowest and highest version by API key."""
        super().__init__({key: VersionRange(*both) for key, both in spoken.items()}, BY_NAME)

    @classmethod
    def of(cls, host: str, port: int) -> BrokerVersions:
        """Query the broker's version ranges. Raises OSError, EOFError, ValueError."""
        return cls(wire.api_versions(host, port))

    def speaks(self, api: ApiKey, version: int | None = None) -> bool:
        """Return True if the broker supports the API and, if `version` is given, this version of the API."""
        return api in self.spoken and (version is None or version in self.spoken[api])

    def version(self, api: ApiKey) -> int:
        """Return the newest version that the broker and this benchmark support. Raises KeyError if the broker
        lacks the API.
        """
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
    ) -> Call:
        """Encode the message as a request of `client`, with its features. Raises KeyError if the broker lacks
        the API or the version.
        """
        made = self.request(body, version)
        if made is None:
            raise KeyError(type(body).__name__)
        client_id = f"{client}.{kafka_name(made.api)}"
        frame = made.frame(client_id)
        features = {"us": 1.0, "us_per_request_kb": (len(frame) - LENGTH_BYTES) / KB, **(known or {})}
        return Call(made.api, made.version, frame, client_id, features, converted)
