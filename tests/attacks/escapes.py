"""Clients that try to get more than their quota, and how much of that they get.

Each runs twice at the same time: under a broker's own quota, and under Weir's in front of that broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.raw.client import Behaviour, RawClient
from tests.raw.client import drive as attempt
from tests.raw.requests import Outcome, Request
from tests.wire.connection import Address

__all__ = ["Client", "Manner", "attempt", "rude"]
Manner = Behaviour


def rude(
    connections: int = 1,
    *,
    reconnects: bool = False,
    answered: bool = True,
    depth: int = 1000,
    pause_s: float = 0.0,
    source: str = "",
) -> Behaviour:
    """How a client goes about it that never waits for a throttle time, and persists."""
    return Behaviour(
        obeys=False,
        depth=1 if reconnects else depth,
        connections=connections,
        reconnects=reconnects,
        pause_s=pause_s,
        answered=answered,
        persists=True,
        source=source,
    )


class Client(RawClient):
    """Sends requests as fast as it may; counts what `count` makes of each response frame."""

    def __init__(
        self,
        name: str,
        address: Address,
        frames: Iterator[bytes],
        behaviour: Behaviour,
        count: Callable[[bytes], int] = lambda _frame: 1,
    ) -> None:
        request = Request(b"", lambda frame: Outcome(count(frame), 0))
        super().__init__(name, address, request, behaviour)
        self._frames = frames

    def frame(self) -> bytes:
        return next(self._frames)

    @property
    def got(self) -> list[tuple[float, int]]:
        """(time since the start in s, result of `count`) of each response."""
        return [(answer.at_s, answer.charged_bytes) for answer in self.answers]

    def total(self, until_s: float) -> int:
        return sum(units for at_s, units in self.got if at_s <= until_s)
