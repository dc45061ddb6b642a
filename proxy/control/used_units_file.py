"""UsedUnitsFile: what clients have used, in a file, so that a restart gives no client its quota again.

A damaged or forged file blocks nobody: its numbers make no client wait for more than a window.

The work grows with the number of limiters, so it is done in steps between which sockets are served, and less
often for many limiters. Nothing is written while no client uses anything: the file has the ages of charges at
the time at which it was written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
import trio

from weir.proxy.control.slices import slices
from weir.proxy.control.state_directory import PERIOD_S, Put, StateDirectory
from weir.quotas.handover import STEP, QuotasName, UsedUnits

if TYPE_CHECKING:
    from weir.proxy.control.quota_registry import QuotaRegistry

log = structlog.get_logger("weir.quotas")

LIMITERS_PER_S: Final = 10_000
"""Number of used limiters for which the time between two writes is one second longer, so that writing takes
at most a quarter of a core. With 100,000 limiters, a killed process takes the usage of ten seconds along.
"""
FILE_BYTES_MAX: Final = 512 * 1024 * 1024
"""Largest file that is read: 100,000 limiters at each of ten brokers need less."""


class SavedUnits(msgspec.Struct, frozen=True):
    """Content of the file."""

    at_s: float
    """Unix time (s) at which the ages of the charges were computed."""
    used: list[UsedUnits]


class UsedUnitsFile:
    """Reads the file once at the start, and then writes it every second and at the end."""

    name: Final = "used-units.json"

    def __init__(
        self,
        state: StateDirectory,
        registry: QuotaRegistry,
        now_ms: Callable[[], int],
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """Begin without reading. `now_ms` returns the time (ms) on the limiters' clock; `wall_s` returns the
        Unix time (s).
        """
        self._state = state
        self._registry = registry
        self._now_ms = now_ms
        self._wall_s = wall_s
        self.period_s = PERIOD_S
        """Time (s) between the beginnings of the last write and the next one."""
        self._stamps: list[tuple[int, float, int]] = []
        """Stamps of the limiters whose usage the file has (`QuotaRegistry.usage_stamps`)."""

    def read(self) -> list[UsedUnits]:
        """Return what clients had used, with the ages of now. Return nothing if the file is missing, cannot
        be read, is older than the time for which charges count, or is from the future.
        """
        return self._state.read(self.name, FILE_BYTES_MAX, self._parsed) or []

    def _parsed(self, text: str) -> list[UsedUnits]:
        found = msgspec.json.decode(text, type=SavedUnits)
        passed_ms = (self._wall_s() - found.at_s) * 1000
        if not math.isfinite(passed_ms) or passed_ms < 0:
            raise ValueError("it is from the future")
        memory_ms = self._registry.memory_ms
        used = [each for each in (_aged(one, int(passed_ms), memory_ms) for one in found.used) if each]
        log.info("used units read", limiters=len(used), age_ms=int(passed_ms))
        return used

    async def restore(self, elsewhere: Callable[[QuotasName], bool] | None = None) -> None:
        """Charge what clients had used to the limiters of the registry. `elsewhere`: function that returns
        True for the names of quotas whose usage is read from another place.
        """
        found = await trio.to_thread.run_sync(self.read)
        used = [each for each in found if elsewhere is None or not elsewhere(each.quotas)]
        now_ms = self._now_ms()
        for some in slices(used, STEP):
            self._registry.absorb(some, now_ms, bounded=True)
            await trio.lowlevel.checkpoint()

    async def save(self, put: Put) -> None:
        """Write the file, unless no limiter was charged since the last time."""
        stamps = []
        for stamp in self._registry.usage_stamps():
            stamps.append(stamp)
            await trio.lowlevel.checkpoint()
        self.period_s = PERIOD_S
        if stamps != self._stamps and await put(await self._parts()):
            self._stamps = stamps

    async def _parts(self) -> list[bytes]:
        """Return the content of the file (`SavedUnits` as JSON) in parts, and compute the next period."""
        parts = [b'{"at_s":' + msgspec.json.encode(self._wall_s()) + b',"used":[']
        some: list[UsedUnits] = []
        limiters = 0
        for used in self._registry.used(self._now_ms()):
            if used is not None:
                some.append(used)
                continue
            limiters += len(some)
            encoded, some = _encoded(some), []
            if encoded:
                parts += [b"," if len(parts) > 1 else b"", encoded]
            await trio.lowlevel.checkpoint()
        self.period_s = max(PERIOD_S, limiters / LIMITERS_PER_S)
        return [*parts, b"]}"]


def _encoded(some: list[UsedUnits]) -> bytes:
    """Return these as items of a JSON array. Leave out names that UTF-8 cannot encode: a JSON token may
    contain half a surrogate pair.
    """
    try:
        return msgspec.json.encode(some)[1:-1]
    except UnicodeEncodeError:
        return msgspec.json.encode([each for each in some if _is_text("".join(each.tags))])[1:-1]


def _is_text(name: str) -> bool:
    return name == name.encode("utf-8", "replace").decode()


def _aged(used: UsedUnits, passed_ms: int, memory_ms: int) -> UsedUnits | None:
    """Return the charges as they are `passed_ms` later; None if none of them counts any more, and no throttle
    lasts. A throttle lasts for a window (`memory_ms`) at most: anybody may have written the file.
    """
    throttle_ms = min(max(used.throttle_ms - passed_ms, 0), memory_ms)
    charges = [(age_ms + passed_ms, units) for age_ms, units in used.charges]
    if not throttle_ms:
        charges = [each for each in charges if each[0] < memory_ms]
    return used._replace(charges=charges, throttle_ms=throttle_ms) if charges or throttle_ms else None
