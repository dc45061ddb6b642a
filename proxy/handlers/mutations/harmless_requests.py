"""Metadata requests that recently could not create a topic, and so need not be decoded again at once."""

from __future__ import annotations

from typing import Final, NamedTuple

HARMLESS_MS: Final = 1000
HARMLESS_MAX: Final = 1000
"""Number of requests kept."""
HARMLESS_BYTES_MAX: Final = 10_000
"""Size of the largest request kept; larger ones are decoded each time."""


class Asked(NamedTuple):
    """A Metadata request, from its client-id on, and its principal."""

    version: int
    user: str
    request: bytes


class HarmlessRequests:
    """The recent harmless requests; one instance per cluster."""

    def __init__(self) -> None:
        """Begin empty."""
        self._until_ms: dict[Asked, int] = {}

    def has(self, asked: Asked, now_ms: int) -> bool:
        """Return True if this request could create no topic in the last second."""
        return self._until_ms.get(asked, now_ms) > now_ms

    def add(self, asked: Asked, now_ms: int) -> None:
        """Record that such a request can create nothing now: all its topics exist, or it lacks the
        permission, or lists no topics.
        """
        if len(asked.request) <= HARMLESS_BYTES_MAX:
            if len(self._until_ms) >= HARMLESS_MAX:
                self._until_ms.clear()
            self._until_ms[asked] = now_ms + HARMLESS_MS

    def forget(self) -> None:
        """Forget all requests: a topic was deleted, so a request could create it again."""
        self._until_ms.clear()
