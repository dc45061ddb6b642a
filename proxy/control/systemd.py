"""Tell systemd that Weir is ready, stops, or still works (sd_notify(3)).

The library for this needs systemd's headers to install; the protocol is one datagram of text. The
watchdog's messages come from a Trio task, which the reactor hosts. So they stop if either hangs, and systemd
then ends the process (WatchdogSec).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog
import trio

log = structlog.get_logger("weir")

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
WATCHDOG: Final = "WATCHDOG=1"
PERIOD_S_MIN: Final = 0.1
"""Minimum time (s) between two messages of the watchdog: with a shorter one, Weir would do little else."""
_DIGITS_MAX: Final = 20
"""Maximum number of digits of WATCHDOG_USEC, which systemd keeps in 64 bits."""


@dataclass(frozen=True, slots=True)
class Systemd:
    """The service manager that has started this process, if any has."""

    address: str = ""
    """Path or abstract name of its datagram socket (NOTIFY_SOCKET); empty without systemd."""
    watchdog_s: float = 0.0
    """Time (s) without a message after which systemd ends the process; 0 for never."""

    @classmethod
    def of(cls, environment: Mapping[str, str], pid: int) -> Systemd:
        """Read systemd's variables. Those meant for another process than `pid`, and malformed ones, are
        ignored.
        """
        address = environment.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return cls()
        for_us = environment.get("WATCHDOG_PID", str(pid)) == str(pid)
        watchdog_us = environment.get("WATCHDOG_USEC", "")
        usable = for_us and watchdog_us.isdecimal() and len(watchdog_us) <= _DIGITS_MAX
        return cls(address, int(watchdog_us) / 1e6 if usable else 0.0)

    def tell(self, state: str) -> None:
        """Send a message, such as `READY`. A failure is logged: systemd's own time limits then apply."""
        if not self.address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
                sock.sendto(state.encode(), self.address.replace("@", "\0", 1))
        except OSError as error:
            log.warning("systemd cannot be told", state=state, error=str(error))

    async def keep_alive(self) -> None:
        """Send `WATCHDOG` twice per watchdog time, but at most every `PERIOD_S_MIN`, until cancelled; return
        at once without a watchdog.
        """
        while self.watchdog_s:
            self.tell(WATCHDOG)
            await trio.sleep(max(self.watchdog_s / 2, PERIOD_S_MIN))


def of_this_process() -> Systemd:
    """Return the service manager of this process. The variables are removed, so that children that Weir may
    start do not speak for it.
    """
    found = Systemd.of(os.environ, os.getpid())
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        os.environ.pop(name, None)
    return found
