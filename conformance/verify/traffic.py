"""Counts of the traffic that was checked: connections, bytes, and frames by API and version.

A finding-free report means nothing without them. The entry of an API's version also has the facts of the
schemas about this version, so that a request needs one look-up for both.
"""

from __future__ import annotations

import msgspec

from weir.protocol import schema
from weir.protocol.api import versions


class Exchange(msgspec.Struct, gc=False):
    """Frames of one version of an API."""

    api_key: int
    version: int
    api: str
    """Kafka's name of the API; "API 999" if the schemas lack it."""
    known: bool
    """True if the schemas have the version."""
    requests: int = 0
    """Number of requests."""
    responses: int = 0
    """Number of responses to such requests."""

    @property
    def frames(self) -> int:
        """Number of requests and responses."""
        return self.requests + self.responses


class Traffic:
    """Counts of checked traffic. Memory grows with the number of APIs and versions."""

    def __init__(self) -> None:
        self.connections = 0
        """Number of connections."""
        self.bytes = 0
        """Number of bytes. Bytes behind a place from which a connection cannot be checked do not count."""
        self.other = Exchange(-1, -1, "", known=False)
        """Frames without an API: SASL tokens without Kafka's header, and responses without a request."""
        self._exchanges: dict[tuple[int, int], Exchange] = {}

    @property
    def frames(self) -> int:
        """Number of frames of all kinds."""
        return self.other.frames + sum(exchange.frames for exchange in self._exchanges.values())

    def exchanges(self) -> list[Exchange]:
        """Return the counts, by API key and version."""
        return [self._exchanges[key] for key in sorted(self._exchanges)]

    def of(self, api_key: int, version: int) -> Exchange:
        """Return the entry of an API's version, which the caller counts in."""
        found = self._exchanges.get((api_key, version))
        return self._add(api_key, version) if found is None else found

    def _add(self, api_key: int, version: int) -> Exchange:
        api = schema.api(api_key)
        known = versions(api_key)
        name = f"API {api_key}" if api is None else api.name
        added = Exchange(api_key, version, name, known=known is not None and version in known)
        self._exchanges[api_key, version] = added
        return added
