"""UsedLimiters: the limiters that clients use, among many that no client uses.

Two parts of Weir must see each charge soon, without a look at all limiters: sharing with other Weirs, and
workers that tell their supervisor. A limiter notes its tags in a list when it is charged for the first time
in a window (`ClientQuotas.watch`). It is then used until a second after a window without charges. Each look
visits used limiters only, and of many the next ones.
"""
# mypyc: skip, because no request calls it, except the first one of a client.

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from weir.quotas.table.entities import Tags

LOOK_MAX: Final = 2000
"""Maximum number of limiters to visit at one of the looks that come every 20 ms: 4 ms of work."""
USED_MS: Final = 2000
"""Minimum time (ms) after its last charge for which a limiter is visited."""
LATE_MS: Final = 1000
"""Time (ms) by which a limiter is visited for longer than a sample lasts: it is noted after each sample."""

K = TypeVar("K", bound=Hashable)


class UsedLimiters(Generic[K]):
    """Keys of used limiters."""

    def __init__(self, sample_ms: int) -> None:
        """Begin without limiters. `sample_ms`: length (ms) of a sample. A limiter notes the first charge of
        each sample.
        """
        self._kept_ms: Final = max(USED_MS, sample_ms + LATE_MS)
        self._used: dict[K, int] = {}
        """Key of each used limiter → time (ms) of its last use."""
        self._turn: Iterator[K] = iter(())
        """Used limiters that are still to be visited, if they are too many for one look."""

    def note(self, key: K, now_ms: int) -> None:
        """Note that clients use this limiter now."""
        self._used[key] = now_ms

    def all(self) -> list[K]:
        """Return all used limiters."""
        return list(self._used)

    def next_ones(self, most: int = LOOK_MAX) -> list[K]:
        """Return the used limiters to visit at this look: all, or the next ones if they are more than `most`.
        Some may have been forgotten since the turn began.
        """
        if len(self._used) <= most:
            return list(self._used)
        some = list(islice(self._turn, most))
        if not some:
            self._turn = iter(list(self._used))
            some = list(islice(self._turn, most))
        return some

    def cool(self, key: K, now_ms: int) -> None:
        """Forget a limiter that was visited, if clients have not used it for long."""
        if now_ms - self._used.get(key, now_ms) > self._kept_ms:
            del self._used[key]

    def forget(self, key: K) -> None:
        """Forget a limiter that was removed."""
        self._used.pop(key, None)


def taken(noted: list[Tags], most: int = LOOK_MAX) -> list[Tags]:
    """Remove the first tags, at most `most`, from a list of `ClientQuotas.watch`; return each one once."""
    some = list(dict.fromkeys(noted[:most]))
    del noted[:most]
    return some
