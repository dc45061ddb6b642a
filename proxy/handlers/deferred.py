"""A reply of Weir's own that is computed on another thread, or waits for a store.

The request keeps its place in the order of responses, and the client's next requests wait.
"""

from __future__ import annotations

from collections.abc import Callable


class Deferred:
    """A response that comes later. `answer` may be called once, on the reactor's thread."""

    __slots__ = ("_arrived", "frame")

    def __init__(self) -> None:
        """Begin without a response."""
        self.frame: bytes | None = None
        """The whole response frame; None until it is ready."""
        self._arrived: Callable[[], None] | None = None

    def on_arrival(self, arrived: Callable[[], None]) -> None:
        """Call `arrived` when the response is ready; the connection goes on then."""
        self._arrived = arrived

    def answer(self, frame: bytes) -> None:
        """Set the response frame. Has no effect on a connection that has closed."""
        self.frame = frame
        if self._arrived is not None:
            self._arrived()
