"""Metadata requests that could create nothing a moment ago, and so need not be looked at again at once."""

from __future__ import annotations

from typing import Final, NamedTuple

HARMLESS_MS: Final = 1000
HARMLESS_MAX: Final = 1000
"""Requests."""
HARMLESS_BYTES_MAX: Final = 10_000
"""Of a request; larger ones are looked at each time."""


class Asked(NamedTuple):
    """A Metadata request, from its client-id on, and who asks."""

    version: int
    user: str
    request: bytes


class HarmlessRequests:
    """One per cluster."""

    def __init__(self) -> None:
        """Begin with none."""
        self._until_ms: dict[Asked, int] = {}

    def has(self, asked: Asked, now_ms: int) -> bool:
        """Whether such a request could create nothing within the last second."""
        return self._until_ms.get(asked, now_ms) > now_ms

    def add(self, asked: Asked, now_ms: int) -> None:
        """Such a request can create nothing now: all its topics are there, or it may not, or names none."""
        if len(asked.request) <= HARMLESS_BYTES_MAX:
            if len(self._until_ms) >= HARMLESS_MAX:
                self._until_ms.clear()
            self._until_ms[asked] = now_ms + HARMLESS_MS

    def forget(self) -> None:
        """A topic was deleted: who asks for it now may create it."""
        self._until_ms.clear()
