"""The life of a worker, as the supervisor sees it: states, and what each event makes of them.

`handle` starts processes and exchanges messages; it asks this table what follows. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """State of a worker."""

    AWAY = "away"
    """No process runs: none was started yet, or the latest has ended, and another one is to be started."""
    STARTING = "starting"
    """A process runs that is not ready."""
    SERVING = "serving"
    """A process serves clients, and gets all messages."""
    DRAINING = "draining"
    """A process is to end its connections, now or once it is ready."""
    DRAINED = "drained"
    """The process has told the ends of all its connections."""
    OVER = "over"
    """No process runs, nor will one be started."""


class Event(StrEnum):
    """What can happen to a worker."""

    START = "start"
    """The supervisor starts a process."""
    READY = "ready"
    """The process says that it is ready."""
    DRAIN = "drain"
    """The supervisor stops, and all workers with it."""
    DRAINED = "drained"
    """The process says that it has drained."""
    END = "end"
    """The process has ended: it died, was killed because it was silent, or broke the rules of the link."""


TABLE: Final[Mapping[tuple[State, Event], State]] = {
    (State.AWAY, Event.START): State.STARTING,
    (State.AWAY, Event.DRAIN): State.OVER,
    (State.STARTING, Event.READY): State.SERVING,
    (State.STARTING, Event.DRAIN): State.DRAINING,
    (State.STARTING, Event.END): State.AWAY,
    (State.SERVING, Event.DRAIN): State.DRAINING,
    (State.SERVING, Event.END): State.AWAY,
    (State.DRAINING, Event.READY): State.DRAINING,
    (State.DRAINING, Event.DRAINED): State.DRAINED,
    (State.DRAINING, Event.END): State.OVER,
    (State.DRAINED, Event.END): State.OVER,
}
"""(State, event) → next state. What is not here cannot happen, unless the process breaks the rules."""
SILENT_LOOKS_MAX: Final = 10
"""Number of looks without a message after which a worker is replaced: 5 s."""
START_LOOKS_MAX: Final = 120
"""Number of looks after which a worker that is not ready is replaced: a minute."""


class LifeError(Exception):
    """A process has said what it cannot say in this state."""


class Life:
    """One worker's state, and the number of looks since it has said something."""

    def __init__(self) -> None:
        """Begin without a process."""
        self.state = State.AWAY
        self.is_ready = False
        """True while a process runs that has been ready."""
        self.silent_looks = 0
        """Number of looks since the latest message. Looks are counted, not seconds, so that no worker is
        replaced because the supervisor itself was stopped.
        """

    def happen(self, event: Event) -> State:
        """Go to the state that follows, and return it. Raises LifeError."""
        after = TABLE.get((self.state, event))
        if after is None:
            raise LifeError(f"{event} while {self.state}")
        self.state = after
        self.is_ready = event is Event.READY or (self.is_ready and event is Event.DRAIN)
        self.silent_looks = 0
        return after

    def look(self) -> bool:
        """Count a look; return True if the process has been silent for too long."""
        self.silent_looks += 1
        return self.silent_looks >= (SILENT_LOOKS_MAX if self.is_ready else START_LOOKS_MAX)
