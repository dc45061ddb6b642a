"""A reply of Weir's own that is still being made: by a thread, by a store, by what is not this turn's work.

The request waits its turn in flight like any other, and the client's next requests wait behind it.
"""

from __future__ import annotations

from collections.abc import Callable


class Deferred:
    """One client's response that comes later; `answer` may be called once, on the reactor's thread."""

    __slots__ = ("_arrived", "frame")

    def __init__(self) -> None:
        """Begin without an answer."""
        self.frame: bytes | None = None
        """The whole response frame, once it is there."""
        self._arrived: Callable[[], None] | None = None

    def on_arrival(self, arrived: Callable[[], None]) -> None:
        """Call this when the answer comes: the session, which is to go on then."""
        self._arrived = arrived

    def answer(self, frame: bytes) -> None:
        """Give the response; a session that has ended meanwhile does not care."""
        self.frame = frame
        if self._arrived is not None:
            self._arrived()
