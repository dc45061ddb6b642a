"""SingleLimiter: quotas with at most one limiter, which belongs to no client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from weir.quotas.limiters.counters import CountingLimiter
from weir.quotas.table.entities import Tags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NO_TAGS: Final = Tags("", "")
"""Tags of a limiter that belongs to no client."""

L = TypeVar("L", bound=CountingLimiter)


class SingleLimiter(Generic[L]):
    """At most one limiter, with the methods of `ClientQuotas` by which processes share or take over usage."""

    __slots__ = ("_make", "_note", "limiter")

    def __init__(self, make: Callable[[int], L]) -> None:
        """Begin without a limiter. `make` returns a new one from the time (ms)."""
        self._make = make
        self._note: Callable[[Tags], None] | None = None
        self.limiter: L | None = None
        """The limiter, once it was used."""

    def at(self, now_ms: int) -> L:
        """Return the limiter, created if missing."""
        limiter = self.limiter
        if limiter is None:
            limiter = self.limiter = self._make(now_ms)
            if self._note is not None:
                limiter.watch(self._note)
        return limiter

    def slices(self) -> Iterator[list[L]]:
        """Yield a list of the limiter, if it exists."""
        if self.limiter is not None:
            yield [self.limiter]

    def watch(self) -> list[Tags]:
        """Return a list to which the tags of the used limiter are added, as in `ClientQuotas.watch`."""
        noted: list[Tags] = []
        self._note = noted.append
        if self.limiter is not None:
            self.limiter.watch(self._note)
        return noted

    def known(self, tags: Tags) -> L | None:
        """Return the limiter with these tags; None if there is no such limiter."""
        return self.limiter if tags == NO_TAGS else None

    def restored(self, tags: Tags, now_ms: int) -> L | None:
        """Return the limiter with these tags, created if missing; None for other tags than `NO_TAGS`."""
        return self.at(now_ms) if tags == NO_TAGS else None
