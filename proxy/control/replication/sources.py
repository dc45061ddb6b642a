"""The interface of sources of replication throttles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from weir.quotas.replication.throttles import ReplicationThrottles

Changed: TypeAlias = Callable[[ReplicationThrottles], Awaitable[None]]
"""Coroutine function that a source calls with the throttles that it has read. It puts them in force, and
returns once they are in force.
"""


class SourceError(Exception):
    """The source cannot be read now; the text is one line with the reason."""


class ThrottleSource(Protocol):
    """Place where replication throttles are kept."""

    @property
    def name(self) -> str:
        """Name in logs, such as `brokers`."""

    async def follow(self, changed: Changed, failed: Callable[[SourceError], None]) -> None:
        """Await `changed` with the throttles after each successful read, until cancelled; call `failed` while
        the source cannot be read. A read may be successful in part: then `changed` is called before `failed`.
        """

    def altered(self) -> None:
        """Read again soon, because throttles may have been altered. Called on Trio's thread."""
