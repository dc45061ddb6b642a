"""The hub: passes events to readers without waiting, and keeps the latest for readers that connect again."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Self

import msgspec
import trio

from weir.proxy.control.events.records import Event

KEPT: Final = 1000
"""Number of the latest events that the hub keeps."""
READERS_MAX: Final = 32
WAITING_MAX: Final = 256
"""Maximum number of new events that wait for one reader."""


class TooManyReadersError(Exception):
    """Raised if `READERS_MAX` readers are connected already."""


class Hub:
    """Takes events from producers, and gives them to readers. Used on Trio's thread only."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        """Begin without events. `wall_ms` returns the Unix time (ms). The first id is the present time, so
        that ids of a restarted process are larger than those of the process before it.
        """
        self._wall_ms = wall_ms
        self._next = wall_ms()
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._readers: set[EventReader] = set()
        self.on_publish: list[Callable[[Event], None]] = []
        """Functions to call with each event. They must not wait."""
        self.published: Counter[str] = Counter()
        """Number of published events by kind."""
        self.closed_readers = 0
        """Number of readers that were closed because they were too slow."""

    @property
    def readers(self) -> int:
        """Number of readers now."""
        return len(self._readers)

    def publish(self, event: Event) -> Event:
        """Number the event, and pass it to all readers; close readers for which too many events wait. Never
        waits. Return the numbered event.
        """
        event = msgspec.structs.replace(event, id=self._next, at_ms=self._wall_ms())
        self._next += 1
        self._kept.append(event)
        self.published[event.kind] += 1
        for call in self.on_publish:
            call(event)
        for reader in list(self._readers):
            if not reader.offer(event):
                self.closed_readers += 1
                self._readers.discard(reader)
        return event

    def read(self, after: int | None = None) -> EventReader:
        """Return a new reader. It gets new events only; with `after`, first the kept events with a larger
        id. An `after` larger than every id stands for an unknown event: the reader gets all kept events.
        Raises TooManyReadersError.
        """
        if len(self._readers) >= READERS_MAX:
            raise TooManyReadersError(f"{READERS_MAX} readers are connected already")
        if after is not None and after >= self._next:
            after = 0
        missed = [] if after is None else [event for event in self._kept if event.id > after]
        reader = EventReader(missed, self._readers.discard)
        self._readers.add(reader)
        return reader

    def lost(self, after: int) -> bool:
        """Return True if events after `after` may have been published and are not kept any more."""
        return len(self._kept) == KEPT and after < self._kept[0].id - 1


class EventReader:
    """Receives events from the hub. Use it as a context manager, so that the hub forgets it at the end."""

    def __init__(self, missed: list[Event], forget: Callable[[EventReader], None]) -> None:
        self._missed = missed
        self._forget = forget
        self._send, self._receive = trio.open_memory_channel[Event](WAITING_MAX)
        self.too_slow = False
        """True if the hub has closed this reader because too many events waited for it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._forget(self)
        self._send.close()

    def offer(self, event: Event) -> bool:
        """Add an event; return False, and end the reader after the events that wait, if there is no room."""
        try:
            self._send.send_nowait(event)
        except trio.WouldBlock:
            self.too_slow = True
            self._send.close()
            return False
        return True

    async def next(self, patience_s: float) -> Event | None:
        """Return the next event; None if no event comes within `patience_s` (s). Raises trio.EndOfChannel
        after the last event, if the hub has closed this reader.
        """
        if self._missed:
            return self._missed.pop(0)
        try:
            return self._receive.receive_nowait()
        except trio.WouldBlock:
            pass
        with trio.move_on_after(patience_s):
            return await self._receive.receive()
        return None
