"""The life of a worker, as the supervisor sees it: states, and what each event makes of them.

`handle` starts processes and exchanges messages; it asks this table what follows. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class WorkerState(StrEnum):
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


class WorkerEvent(StrEnum):
    """Event in the life of a worker."""

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


TABLE: Final[Mapping[tuple[WorkerState, WorkerEvent], WorkerState]] = {
    (WorkerState.AWAY, WorkerEvent.START): WorkerState.STARTING,
    (WorkerState.AWAY, WorkerEvent.DRAIN): WorkerState.OVER,
    (WorkerState.STARTING, WorkerEvent.READY): WorkerState.SERVING,
    (WorkerState.STARTING, WorkerEvent.DRAIN): WorkerState.DRAINING,
    (WorkerState.STARTING, WorkerEvent.END): WorkerState.AWAY,
    (WorkerState.SERVING, WorkerEvent.DRAIN): WorkerState.DRAINING,
    (WorkerState.SERVING, WorkerEvent.END): WorkerState.AWAY,
    (WorkerState.DRAINING, WorkerEvent.READY): WorkerState.DRAINING,
    (WorkerState.DRAINING, WorkerEvent.DRAINED): WorkerState.DRAINED,
    (WorkerState.DRAINING, WorkerEvent.END): WorkerState.OVER,
    (WorkerState.DRAINED, WorkerEvent.END): WorkerState.OVER,
}
"""(state, event) → next state. What is not here cannot happen, unless the process breaks the rules."""
SILENT_LOOKS_MAX: Final = 10
"""Number of looks without a message after which a worker is replaced: 5 s."""
START_LOOKS_MAX: Final = 120
"""Number of looks after which a worker that is not ready is replaced: a minute."""


class LifeError(Exception):
    """A process has said what it cannot say in this state."""


class Life:
    """One worker's state, and the number of looks since it has said something."""

    def __init__(self) -> None:
        self.state = WorkerState.AWAY
        self.is_ready = False
        """True while a process runs that has been ready."""
        self.silent_looks = 0
        """Number of looks since the latest message. Looks are counted, not seconds, so that no worker is
        replaced because the supervisor itself was stopped.
        """

    def happen(self, event: WorkerEvent) -> WorkerState:
        """Go to the state that follows, and return it. Raises LifeError."""
        after = TABLE.get((self.state, event))
        if after is None:
            raise LifeError(f"{event} while {self.state}")
        self.state = after
        self.is_ready = event is WorkerEvent.READY or (self.is_ready and event is WorkerEvent.DRAIN)
        self.silent_looks = 0
        return after

    def look(self) -> bool:
        """Count a look; return True if the process has been silent for too long."""
        self.silent_looks += 1
        return self.silent_looks >= (SILENT_LOOKS_MAX if self.is_ready else START_LOOKS_MAX)
